"""What XLA and CPUs need to be fast with many problems at once; each trick named."""

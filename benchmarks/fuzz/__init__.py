"""Random problems against independent oracles: `python -m benchmarks.fuzz --minutes N --seed S`."""

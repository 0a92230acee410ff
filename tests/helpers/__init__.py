"""What several tests share: mechanisms, files, calls of the sampler; independent answers are in `oracles`."""

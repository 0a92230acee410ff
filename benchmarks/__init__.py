"""Benchmarks: cases are data, one runner, correctness beside every speed."""

"""Loops, layouts and threads that make XLA fast on many problems at once; one technique per module."""

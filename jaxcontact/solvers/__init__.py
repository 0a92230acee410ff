"""Solvers of matrices and functions; they know nothing of mechanisms."""

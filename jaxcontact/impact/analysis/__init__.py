"""Statements about the set of outcomes of an impact: coverage, bounds, membership, extremes, symmetry."""

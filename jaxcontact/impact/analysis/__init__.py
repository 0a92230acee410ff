"""What can be said about a set of outcomes: coverage, bounds, membership, extremes, symmetry."""

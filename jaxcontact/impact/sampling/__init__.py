"""Sampling the outcomes of an impact over random impulse orders."""

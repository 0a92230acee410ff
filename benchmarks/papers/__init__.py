"""Figures and tables of the five papers, drawn anew; `python -m benchmarks.papers` makes them all."""

"""Figures and tables of the five papers, drawn anew; `python -m papers` makes them all."""

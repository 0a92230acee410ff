"""Pieces of a motion over s: smooth motion under contact forces, and impacts while time stands still.

The entry is `simulate.time_augmented`. Page: docs/papers/halm_posa.md.
"""

"""Pieces of a motion over s: smooth motion under contact forces, and impacts while time stands still."""

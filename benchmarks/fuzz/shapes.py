"""Check of gaps between convex shapes against a search for the direction that separates them most."""

from __future__ import annotations

import itertools

from benchmarks.fuzz.from_tests import from_tests
from benchmarks.fuzz.tally import Tally

KINDS = ("sphere", "capsule", "box", "cylinder", "ellipsoid", "mesh")
PAIRS = tuple(itertools.combinations_with_replacement(KINDS, 2))
COUNT = 3  # poses apart, and as many near each other
APART = 1e-6  # m, error of a gap between shapes that are apart; sizes are below 1 m
OVERLAP = 1e-3  # m, by which a depth may fall short of what the search finds


def shapes(seed: int) -> Tally:
    """One pair of kinds at some poses; the search finds no more than the signed distance."""
    cases = from_tests("oracles.shape_cases")
    kinds = PAIRS[seed % len(PAIRS)]
    a, b = (cases.make(kind, 3, name) for kind, name in zip(kinds, "ab"))
    tally = Tally(problems=2 * COUNT)
    for reach in (1.2, 2.5), (0.0, 0.6):
        positions, turns, numbers = cases.samples(3, a, b, COUNT, seed, reach)
        rows = cases.contacts(3, a.shape, b.shape, positions, turns, numbers)[2]
        gaps = rows.reshape(COUNT, -1).min(axis=1)
        for k in range(COUNT):
            found = {name: values[k] for name, values in numbers.items()}
            exact = cases.signed_distance(a, b, found, positions[k], turns[k], seed=k)
            note = f"{kinds[0]} and {kinds[1]}, pose {k}"
            if exact > 0:
                tally.judge("gap of shapes apart", abs(gaps[k] - exact), APART, note=note)
            else:
                tally.judge("depth of shapes that overlap", exact - gaps[k], OVERLAP, note=note)
    return tally

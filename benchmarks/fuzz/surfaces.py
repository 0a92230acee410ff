"""Checks of what users hand in: files with a wrong bit, and arguments of the wrong kind."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz.from_tests import from_tests
from benchmarks.fuzz.tally import Tally

FLIPS, CASES = 20, 40  # of a round
FINE = ("clear", "marked")


@functools.cache
def stored(seed: int = 0) -> list[tuple[Path, Callable[[], Any]]]:
    """Files of each kind of one run, and what reads them back."""
    folder = Path(tempfile.mkdtemp())
    model = jc.models.rocking_block()
    valid = from_tests("inputs.valid_calls")
    motion = valid.trajectory(model)
    motion.save(folder / "motion.npz")
    samples = folder / "samples"
    terms, v = valid.terms(), valid.start(valid.gait()).v
    jc.impact.sample(terms, v, valid.LAW, num_samples=16, seed=seed, run=jc.Run(checkpoint=samples, chunk=4))
    readers: list[tuple[Path, Callable[[], Any]]] = [
        (folder / "motion.npz", lambda: jc.simulate.Trajectory.load(folder / "motion.npz"))
    ]
    return readers + [
        (path, lambda: jc.impact.load_samples(samples))
        for path in sorted(samples.rglob("*"))
        if path.is_file()
    ]


def _damaged(rng: np.random.Generator, good: bytes, other: bytes) -> tuple[str, bytes]:
    """What is done to the bytes of a file, and the result: mostly one wrong bit."""
    lines, middle = good.splitlines(keepends=True), len(good) // 2
    how = str(rng.choice(["bit", "bit", "bit", "lines", "pieces", "end", "another run"]))
    if how == "lines" and len(lines) > 1:
        k = int(rng.integers(len(lines) - 1))
        return how, b"".join([*lines[:k], lines[k + 1], lines[k], *lines[k + 2 :]])
    if how == "pieces":
        begin, size = int(rng.integers(middle)), 8 * int(rng.integers(1, 5))
        one, two = good[begin : begin + size], good[middle + begin : middle + begin + size]
        swapped = good[:begin] + two + good[begin + len(one) : middle + begin] + one
        return how, swapped + good[middle + begin + len(two) :]
    if how == "end":
        return how, good[: int(rng.integers(len(good)))]
    if how == "another run" and other != good:
        return how, other
    place = int(rng.integers(8 * len(good)))
    bad = bytearray(good)
    bad[place // 8] ^= 1 << place % 8
    return f"bit {place}", bytes(bad)


def files(seed: int) -> Tally:
    """A file with a wrong bit, with parts swapped or missing, or of another run is refused, or harmless."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    for _ in range(FLIPS):
        number = int(rng.integers(len(stored())))
        path, read = stored()[number]
        good = path.read_bytes()
        if not good:
            continue
        expected = jax.tree.map(np.array, read())  # a copy: arrays of a store are mapped
        how, bad = _damaged(rng, good, stored(1)[number][0].read_bytes())
        if bad == good:
            continue
        path.write_bytes(bad)
        tally.problems += 1
        try:
            found = read()
        except (ValueError, OSError) as error:
            tally.declined += 1
            if not str(error):
                tally.failures.append(f"{path.name}, {how}: an error without a text")
        except Exception as error:
            tally.failures.append(f"{path.name}, {how}: {type(error).__name__}: {error}")
        else:
            same = jax.tree.map(lambda x, y: np.array_equal(x, y, equal_nan=True), expected, found)
            same = same if path.name != "finished.jsonl" or how != "end" else True  # as a kill leaves it
            if not all(jax.tree.leaves(same)):
                tally.failures.append(f"{path.name}, {how}: other numbers, and no error")
        finally:
            path.write_bytes(good)
    return tally


@functools.cache
def paths() -> list[str]:
    """Functions and records whose valid calls are made in an instant."""
    bad_calls = from_tests("inputs.bad_calls")
    dear = from_tests("inputs.test_bad_inputs").DEAR
    known = bad_calls.public_functions() | bad_calls.public_records()
    return sorted(set(known) - dear - {"terms.touch_tolerance"})


def inputs(seed: int) -> Tally:
    """Bad calls of one public function end in an error that names the argument, or a status bit."""
    import inspect

    bad_calls = from_tests("inputs.bad_calls")
    rng = np.random.default_rng(seed)
    known = bad_calls.public_functions() | bad_calls.public_records()
    path = paths()[int(rng.integers(len(paths())))]
    cases = list(bad_calls.cases_of(path, known[path], inspect.signature(known[path])))
    tally = Tally()
    for k in rng.permutation(len(cases))[:CASES]:
        end = bad_calls.outcome(cases[k])
        tally.problems += 1
        if end not in FINE:
            tally.failures.append(f"{cases[k].name}: {end}")
    return tally

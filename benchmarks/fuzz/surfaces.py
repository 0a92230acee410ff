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
def stored() -> list[tuple[Path, Callable[[], Any]]]:
    """Files of each kind, and what reads them back."""
    folder = Path(tempfile.mkdtemp())
    model = jc.models.rocking_block()
    valid = from_tests("inputs.valid_calls")
    motion = valid.trajectory(model)
    motion.save(folder / "motion.npz")
    samples = folder / "samples"
    terms, v = valid.terms(), valid.start(valid.gait()).v
    jc.impact.sample(terms, v, valid.LAW, num_samples=16, run=jc.Run(checkpoint=samples))
    readers: list[tuple[Path, Callable[[], Any]]] = [
        (folder / "motion.npz", lambda: jc.simulate.Trajectory.load(folder / "motion.npz"))
    ]
    return readers + [
        (path, lambda: jc.impact.load_samples(samples))
        for path in sorted(samples.rglob("*"))
        if path.is_file()
    ]


def files(seed: int) -> Tally:
    """One wrong bit in a file is refused by name, or harmless."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    for _ in range(FLIPS):
        path, read = stored()[int(rng.integers(len(stored())))]
        good = path.read_bytes()
        if not good:
            continue
        expected = jax.tree.map(np.asarray, read())
        place = int(rng.integers(8 * len(good)))
        bad = bytearray(good)
        bad[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(bad))
        tally.problems += 1
        try:
            found = read()
        except (ValueError, OSError) as error:
            tally.declined += 1
            if not str(error):
                tally.failures.append(f"{path.name}, bit {place}: an error without a text")
        except Exception as error:
            tally.failures.append(f"{path.name}, bit {place}: {type(error).__name__}: {error}")
        else:
            same = jax.tree.map(lambda x, y: np.array_equal(x, y, equal_nan=True), expected, found)
            if not all(jax.tree.leaves(same)):
                tally.failures.append(f"{path.name}, bit {place}: other numbers, and no error")
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

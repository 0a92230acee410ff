"""Samples of an impact stored on disk during a run, `sample(run=Run(checkpoint=))`.

Owns the description of such a run, and `load_samples`; docs/understand/long-runs.md has the file layout.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path

import jax
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked
from jaxcontact.impact.sampling.chunks import Chunk, ImpactSamples
from jaxcontact.impact.sampling.stream import Stream
from jaxcontact.io import fingerprint
from jaxcontact.io.run_store import Items, load_store, open_store

FORMAT = "jaxcontact impact samples, 4"  # a new number when the same draws lead to other bits
FIELDS = (
    "v_plus",
    "impulse",
    "status",
    "num_iters",
    "energy_ratio",
    "residual",
    "path",
    "searched_again",
    "missed",
)


@checked()
def load_samples(directory: str | os.PathLike[str]) -> ImpactSamples:
    """Load the finished samples of a checkpoint as memory-mapped arrays, even while the run is in progress.

    Every row is read once and compared with its SHA-256. Without this package, `numpy.load("v_plus.npy",
    mmap_mode="r")` gives the rows of a whole run; the last "end" in finished.jsonl counts the finished rows.

    Args:
        directory: the checkpoint of `sample`, or of `jaxcontact impact --checkpoint`.

    Returns:
        ImpactSamples of NumPy arrays.

    Raises:
        ValueError: no checkpoint of samples, no finished chunk in it, or damage.

    Derivative: none.
    """
    folder = Path(directory)
    manifest, store = load_store(folder, "samples")
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{folder}: expected {FORMAT!r}, got {manifest.get('format')!r}")
    if not store.entries:
        raise ValueError(f"{folder}: no chunk is finished yet")
    settings = {name: manifest[name] for name in ("complete", "independent")}
    v_minus: np.ndarray = np.array(manifest["v"], manifest["dtype"])
    return ImpactSamples(v_minus=v_minus, **settings, **store.mapped())  # type: ignore[arg-type]


def describe(
    stream: Stream, num_samples: int, seed: int | jax.Array, about: Mapping[str, str]
) -> dict[str, object]:
    """Describe the run: equal descriptions yield the same bits on one kind of machine."""
    names = ("M", "J_n", "J_t", "phi", "mu", "active")
    draws: PyTree = seed
    if isinstance(seed, jax.Array):
        draws = [str(jax.random.key_impl(seed)), *np.asarray(jax.random.key_data(seed)).ravel().tolist()]
    described = {
        "format": FORMAT,
        **{f"about {name}": value for name, value in about.items()},
        **fingerprint.versions(),
        "platform": stream.devices[0].platform,
        "dtype": str(stream.v.dtype),
        "num_samples": num_samples,
        "selection": stream.law.selection,
        "complete": stream.complete,
        "independent": stream.independent,
        "density": getattr(stream.draws, "fingerprint", None),
        "seed": int(draws) if isinstance(draws, np.integer) else draws,
        "max_steps": stream.law.max_steps,
        "impulse_step": np.asarray(stream.law.impulse_step).tolist(),
        "keep_path": stream.keep_path,
        "num_directions": stream.law.num_directions,
        **{f"terms.{name}": np.asarray(getattr(stream.terms, name)).tolist() for name in names},
        "v": np.asarray(stream.v).tolist(),
    }
    if stream.law.restitution is not None:
        described["restitution"] = np.asarray(stream.law.restitution).tolist()
    if stream.law.turn_polygon:
        described["turn_polygon"] = True
    return described


def stored(folder: Path, described: Items, stream: Stream, size: int) -> Generator[Chunk]:
    """Yield the stored chunks, verified, then the missing ones, each after it is safe on the disk.

    Raises:
        ValueError: a checkpoint that is damaged, of another run, or in use by another process.
        OSError: the folder cannot be written; the message says how much is stored.
    """
    total, empty = int(described["num_samples"]), stream.unmoved(0)
    with open_store(folder, described, _fields(empty), total, "samples") as store:
        done = []
        for entry in store.entries:
            facts = np.array(entry.facts, np.int64)
            rows: dict[str, PyTree] = store.read(entry)
            yield Chunk(entry.begin, entry.end, empty.replace(**rows), facts)
            done.append((entry.end, facts))
        if store.num_finished == total:
            return
        store.start()
        with contextlib.closing(stream.chunks(total, size, done=done)) as chunks:
            for chunk in chunks:
                store.append(chunk.begin, _fields(chunk.samples), chunk.facts.tolist())
                yield chunk


def _fields(samples: ImpactSamples) -> dict[str, np.ndarray]:
    fields = {name: getattr(samples, name) for name in FIELDS}
    return {name: np.asarray(array) for name, array in fields.items() if array is not None}

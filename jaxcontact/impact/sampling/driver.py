"""Sampling the post-impact set: many impacts with random impulse orders.

The host-side driver of the sampling kernel: draws, choice of contact modes, chunks, results.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Required, TypedDict, TypeVar, Unpack, overload

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.impact import inputs
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.contact_enumeration import check_enumeration, touching_contacts
from jaxcontact.impact.laws.turned_polygon import check_turning
from jaxcontact.impact.sampling import checkpoint as checkpoints
from jaxcontact.impact.sampling import processes
from jaxcontact.impact.sampling.density import Density, shaped
from jaxcontact.impact.sampling.draws import Iid, sobol
from jaxcontact.impact.sampling.stream import PIECE, Chunk, ImpactSamples, Stream
from jaxcontact.terms import ContactTerms

SELECTIONS = ("all", "visited", "lemke")
CHECKPOINT_CHUNK = 2**16  # each chunk waits for the disk once
LARGE_OUTPUT = 4e9  # bytes from which on a run says first what it needs
Progress = Callable[[int, int], None]
Reduced = TypeVar("Reduced")


class _Settings(TypedDict, total=False):
    """The settings of `sample`, for its two return types."""

    step: Required[float | jax.Array | np.ndarray]
    max_steps: Required[int]
    num_samples: Required[int]
    seed: int
    restitution: float | jax.Array | np.ndarray | None
    selection: str
    key: jax.Array | None
    density: Density | None
    keep_path: bool
    num_directions: int
    turn_polygon: bool
    touching: Sequence[int] | np.ndarray | None
    chunk: int | None
    devices: Sequence[jax.Device] | None
    checkpoint: str | os.PathLike[str] | None
    about: Mapping[str, str] | None
    progress: Progress | None


@overload
def sample(
    terms: ContactTerms, v: jax.Array, *, reduce: None = None, **settings: Unpack[_Settings]
) -> ImpactSamples: ...


@overload
def sample(
    terms: ContactTerms,
    v: jax.Array,
    *,
    reduce: Callable[[Any, ImpactSamples], Reduced],
    **settings: Unpack[_Settings],
) -> Reduced: ...


def sample(
    terms: ContactTerms,
    v: jax.Array,
    *,
    step: float | jax.Array | np.ndarray,
    max_steps: int,
    num_samples: int,
    seed: int = 0,
    restitution: float | jax.Array | np.ndarray | None = None,
    selection: str = "all",
    key: jax.Array | None = None,
    density: Density | None = None,
    keep_path: bool = False,
    num_directions: int = 8,
    reduce: Callable[[Any, ImpactSamples], Any] | None = None,
    chunk: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    turn_polygon: bool = False,
    touching: Sequence[int] | np.ndarray | None = None,
) -> Any:
    """Draw outcomes of a simultaneous impact over random impulse orders (Halm & Posa, Algorithm 1).

    Every step draws a largest normal impulse per contact, uniform in (0, step) unless a density is given,
    and one solution of `routh_step`, until no contact approaches. Sample i is a function of the seed and i
    alone.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        step: largest normal impulse of a step, a number or (nc,), N s.
        max_steps: N, the largest number of steps.
        num_samples: how many samples.
        seed: of the scrambled Sobol points of dimension N (nc + 1).
        restitution: e, a number or (nc,) in 0..1, Stronge's energetic coefficient: steps then also let
            contacts push that were compressed, see `resolve`. 0 or None: inelastic, with the same bits. An
            impact takes about twice the steps.
        selection: "all": uniform among the distinct solutions of each step, found by enumerating contact
            modes (planar, nc <= 5; in space nc <= 4 with four directions, 3 with eight, where four contacts
            take some seconds to begin). Of more candidates those that are active count alone. "visited": the
            same among the modes that earlier samples met, much faster for many contacts; a sample with a step
            whose valid modes are not among the sets that earlier samples found complete goes on from there
            with "all". "lemke": the one solution that pivoting finds. Where steps have several solutions it
            misses whole families of outcomes. The only one for more contacts; in space the covering vector of
            Lemke's method is random in every step, which finds others too, with shares of its own.
        key: a JAX random key; draws are then independent instead of quasi-random, `seed` is ignored.
        density: p(lambda_n), as a function that maps (nc,) independent uniform numbers in (0, 1) to (nc,)
            fractions of `step` in [0, 1], traceable by JAX; `lambda x: x**2` prefers small impulses. What
            changes is the measure on the set of outcomes, not the set, as long as its fractions are
            dense in the unit cube. A module-level function compiles once, a fresh lambda each time.
        keep_path: also return the velocities through the impact.
        num_directions: sides of the friction cone in space; no effect in the plane.
        reduce: (accumulated, ImpactSamples of one chunk) -> accumulated, called in order, at first with
            None; `sample` then returns the last value, in memory that does not grow.
        chunk: samples per call of `reduce` and `progress` and per entry of a checkpoint; default 2^14, with
            a checkpoint 2^16. Any number gives the same samples. Above 2^14 the work of a chunk is still
            spread over all devices, and only memory grows: about six chunks are held. Below, each call
            of the kernel does less for its fixed cost of about a millisecond.
        devices: to compute on; default all local ones.
        checkpoint: a folder that takes the samples as they come, see `load_samples` for its files. An
            interrupted run, called again alike, goes on where it stood and ends with the same bits;
            `reduce` sees the stored chunks first.
        about: names to keep in the checkpoint, {"model": ...}; a run about something else is refused.
        progress: called with (samples done, num_samples) after every chunk.
        turn_polygon: turn the friction polygon of each contact by a random angle in every step, so that no
            direction of sliding is preferred (spatial contacts). Modes then belong to one step: "lemke" for
            any number of contacts, "all" for two at most, which takes milliseconds per sample.
            `samples.complete` is False.
        touching: numbers of the contacts that take part, whatever their gaps; the others get no impulse.
            None: the active ones.

    Returns:
        ImpactSamples, or what `reduce` accumulated. With a checkpoint the arrays are memory-mapped files.

    With several processes of `jax.distributed`, all of which must make the same call, each computes its
    share on its local devices. Each returns all samples, the same bits as in one process; with `reduce`
    each accumulates over its own share only, and `progress` counts that. The devices of a process work
    without `jax.sharding`, one thread each on separate chunks: a sample is computed by one device and none
    waits for another.

    In memory a run needs little more than its output; with `reduce` or a checkpoint memory does not grow.
    More than 4 GB of output are announced by a `MemoryWarning`.

    Raises:
        ValueError, TypeError: bad terms or v (as `anitescu_potra`), step not positive and finite,
            max_steps, num_samples or chunk < 1, an unknown selection, a selection not offered for these
            terms; restitution outside of 0..1 or NaN; a density of the wrong shape or outside of [0, 1]; a
            checkpoint that is damaged, of another run, or in use; no devices; a `reduce` that is no function.
        OSError: the checkpoint cannot be written, as on a full disk; what it holds stays good.

    Status: per sample, UNTERMINATED where a contact still approaches, or has energy in store, after
        max_steps; STALLED for a residual above 1e-9 (float32: 5e-6).

    Derivative: none; a host-level driver. Differentiate `resolve` with the draws of interest.
    """
    inputs.check(terms, v)
    if not inputs.is_concrete(terms, v):
        raise ValueError("sample: a driver for the host, not traceable; use resolve inside jit or vmap")
    nc = terms.phi.shape[0]
    sizes = step_sizes(step, nc)
    inputs.check_count("max_steps", max_steps)
    inputs.check_count("num_samples", num_samples)
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected one of {', '.join(SELECTIONS)}, got {selection!r}")
    if devices is not None and not devices:
        raise ValueError(f"devices: expected at least one, got {devices!r}")
    if reduce is not None and not callable(reduce):
        raise TypeError(f"reduce: expected a function, got {type(reduce).__name__}")
    v = jnp.asarray(v)
    steps = jnp.broadcast_to(jnp.asarray(sizes, v.dtype), (nc,))
    e = energetic_restitution.check(terms, restitution)
    index = touching_contacts(terms, num_directions) if touching is None else _distinct(touching, nc)
    places = None if index is None else (index, nc)
    if index is not None:
        terms, steps, nc = terms.take(index), steps[index], index.size
        terms = terms.replace(active=jnp.ones_like(terms.active))
        e = None if e is None else e[index]
    if selection != "lemke":
        check_enumeration(terms, num_directions, f'selection="{selection}"')
    if turn_polygon:
        check_turning(terms, selection)
    if chunk is not None:
        inputs.check_count("chunk", chunk)
    share = processes.share()
    if checkpoint is not None and share[1] > 1:
        raise ValueError("checkpoint: written by one process, got several of jax.distributed; use reduce")
    total, limit = int(num_samples), int(max_steps)
    size = int(chunk) if chunk is not None else PIECE if checkpoint is None else CHECKPOINT_CHUNK
    stream = Stream(
        terms,
        v,
        shaped(sobol(limit * (nc + 1), seed) if key is None else Iid(key=key), density, nc),
        steps,
        limit,
        selection=selection,
        keep_path=keep_path,
        num_directions=num_directions,
        devices=devices,
        restitution=e,
        places=places,
        turn_polygon=turn_polygon,
    )
    if checkpoint is None and reduce is None:
        _announce_memory(stream, total)
    if checkpoint is None:
        chunks = stream.chunks(total, size, share=share, exchange=processes.union)
    else:
        manifest = checkpoints.describe(stream, total, seed if key is None else key, about or {})
        chunks = checkpoints.stored(Path(checkpoint), manifest, stream, size)
    rows = stream.shares(total, size, share[1])
    own = sum(end - begin for begin, end in (block[share[0]] for block in rows))
    with contextlib.closing(_reported(chunks, own, progress)) as reported:
        if reduce is not None:
            reduced: Any = None
            for samples in reported:
                reduced = reduce(reduced, samples.samples)
            return reduced
        if checkpoint is None:
            return _gather(reported, stream, total, rows)
        for _ in reported:
            pass
    return checkpoints.load_samples(checkpoint)


class MemoryWarning(UserWarning):
    """A call is about to ask for more than 4 GB of memory."""


def _announce_memory(stream: Stream, total: int) -> None:
    """Warn where the samples of a run need more than LARGE_OUTPUT bytes."""
    per_sample = sum(leaf.nbytes for leaf in jax.tree.leaves(stream.unmoved(1).replace(v_minus=None)))
    if per_sample * total > LARGE_OUTPUT:
        warnings.warn(
            f"sample: {total} samples of {per_sample} bytes need {per_sample * total / 1e9:.1f} GB of "
            "memory; use reduce= or checkpoint= to keep less",
            MemoryWarning,
            stacklevel=3,
        )


def _distinct(touching: Any, num_contacts: int) -> np.ndarray:
    """`touching` as numbers of contacts, or ValueError."""
    index = np.asarray(touching)
    is_number = index.ndim == 1 and index.size > 0 and np.issubdtype(index.dtype, np.integer)
    if not is_number or np.any((index < 0) | (index >= num_contacts)) or np.unique(index).size < index.size:
        raise ValueError(
            f"touching: expected different contact numbers in 0..{num_contacts - 1}, got {touching!r}"
        )
    return index


def step_sizes(step: Any, num_contacts: int) -> np.ndarray:
    """`step` as () or (nc,), or ValueError for what is not finite and positive."""
    try:
        sizes = np.asarray(step, float)
    except (TypeError, ValueError):
        sizes = np.array(np.nan)
    if sizes.shape not in ((), (num_contacts,)) or not np.all(np.isfinite(sizes)) or np.any(sizes <= 0):
        raise ValueError(f"step: expected a finite number > 0, or ({num_contacts},) of them, got {step!r}")
    return sizes


def _reported(chunks: Generator[Chunk], total: int, progress: Progress | None) -> Generator[Chunk]:
    """The chunks, each reported once it has been used."""
    done = 0
    with contextlib.closing(chunks):
        for chunk in chunks:
            yield chunk
            done += chunk.end - chunk.begin
            if progress is not None:
                progress(done, total)


def _gather(
    chunks: Iterator[Chunk], stream: Stream, total: int, rows: list[list[tuple[int, int]]]
) -> ImpactSamples:
    """All chunks in one record, written in place: little memory beyond the result."""
    whole = jax.tree.map(
        lambda leaf: _aligned_empty((total, *leaf.shape[1:]), leaf.dtype),
        stream.unmoved(0).replace(v_minus=None),
    )
    for chunk in chunks:
        parts = jax.tree.leaves(chunk.samples.replace(v_minus=None))
        for to, part in zip(jax.tree.leaves(whole), parts, strict=True):
            to[chunk.begin : chunk.end] = part
    processes.fill(jax.tree.leaves(whole), rows)
    placed: ImpactSamples = jax.device_put(whole)  # `jnp.asarray` would copy
    return placed.replace(v_minus=stream.v)


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that JAX takes over on a CPU without a copy: aligned to 64 bytes."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + size].view(dtype).reshape(shape)

"""Sampling the post-impact set: many impacts with random impulse orders.

The host-side driver of the sampling kernel: draws, choice of contact modes, chunks, results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.impact import inputs
from jaxcontact.impact.contact_space import colliding
from jaxcontact.impact.draws import Iid, sobol
from jaxcontact.impact.stream import ImpactSamples, Stream
from jaxcontact.solvers import modes
from jaxcontact.terms import ContactTerms

SELECTIONS = ("all", "visited", "lemke")
Progress = Callable[[int, int], None]


def sample(
    terms: ContactTerms,
    v: jax.Array,
    *,
    step: float | jax.Array,
    max_steps: int,
    num_samples: int,
    seed: int = 0,
    selection: str = "all",
    key: jax.Array | None = None,
    keep_path: bool = False,
    num_directions: int = 8,
    reduce: Callable[[Any, ImpactSamples], Any] | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Draw outcomes of a simultaneous impact over random impulse orders (Halm & Posa, Algorithm 1).

    Every step draws a largest normal impulse per contact, uniform in (0, step), and one solution of
    `routh_step`, until no contact approaches. Sample i is a function of the seed and i alone.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        step: largest normal impulse of a step, a number or (nc,), N s.
        max_steps: N, the largest number of steps.
        num_samples: how many samples.
        seed: of the scrambled Sobol points of dimension N (nc + 1).
        selection: "all": uniform among the distinct solutions of each step, found by enumerating
            contact modes (planar, nc <= 5). "visited": the same among the modes that earlier samples
            met, much faster for many contacts; samples that leave the table are repeated with
            "all". "lemke": the one solution that pivoting finds; the only one for spatial
            contacts. Where steps have several solutions it misses whole families of outcomes.
        key: a JAX random key; draws are then independent instead of quasi-random, `seed` is ignored.
        keep_path: also return the velocities through the impact.
        num_directions: sides of the friction cone in space; no effect in the plane.
        reduce: (accumulated, ImpactSamples of one chunk) -> accumulated, called in order, at first with
            None; `sample` then returns the last value, in memory that does not grow.
        devices: to compute on; default all local ones.
        progress: called with (samples done, num_samples) now and then.

    Returns:
        ImpactSamples, or what `reduce` accumulated.

    Raises:
        ValueError, TypeError: bad terms or v (as `anitescu_potra`), step not positive and finite,
            max_steps or num_samples < 1, an unknown selection, a selection not offered for these terms.

    Status: per sample, UNTERMINATED where a contact still approaches after max_steps; STALLED for a
        residual above 1e-6.

    Derivative: none; a host-level driver. Differentiate `resolve` with the draws of interest.
    """
    inputs.check(terms, v)
    if not inputs.is_concrete(terms, v):
        raise ValueError("sample: a driver for the host, not traceable; use resolve inside jit or vmap")
    nc = terms.phi.shape[0]
    sizes = np.asarray(step, float)
    if sizes.shape not in ((), (nc,)) or not np.all(np.isfinite(sizes)) or np.any(sizes <= 0):
        raise ValueError(f"step: expected a finite number > 0, or ({nc},) of them, got {step}")
    inputs.check_count("max_steps", max_steps)
    inputs.check_count("num_samples", num_samples)
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected one of {', '.join(SELECTIONS)}, got {selection!r}")
    v = jnp.asarray(v)
    steps = jnp.broadcast_to(jnp.asarray(sizes, v.dtype), (nc,))
    if selection != "lemke":
        inputs.check_planar_enumeration(terms, modes.MAX_ENUMERATED, f'selection="{selection}"')
    total, limit = int(num_samples), int(max_steps)
    if not bool(jnp.any(colliding(terms, v))):
        nothing = _nothing(terms, v, total, limit, keep_path)
        return nothing if reduce is None else reduce(None, nothing)
    draws = sobol(limit * (nc + 1), seed) if key is None else Iid(key=key)
    stream = Stream(
        terms,
        v,
        draws,
        steps,
        limit,
        selection=selection,
        keep_path=keep_path,
        num_directions=num_directions,
        devices=devices,
    )
    if reduce is not None:
        reduced: Any = None
        for chunk in stream.chunks(total):
            reduced = reduce(reduced, chunk.samples)
            if progress is not None:
                progress(chunk.end, total)
        return reduced
    return _gather(stream, total, progress)


def _gather(stream: Stream, total: int, progress: Progress | None) -> ImpactSamples:
    """All chunks in one record, written in place: little memory beyond the result."""
    whole: ImpactSamples | None = None
    for chunk in stream.chunks(total):
        if whole is None:
            whole = jax.tree.map(
                lambda leaf: _aligned_empty((total, *leaf.shape[1:]), leaf.dtype),
                chunk.samples.replace(v_minus=None),
            )
        for to, part in zip(
            jax.tree.leaves(whole), jax.tree.leaves(chunk.samples.replace(v_minus=None)), strict=True
        ):
            to[chunk.begin : chunk.end] = part
        if progress is not None:
            progress(chunk.end, total)
    assert whole is not None
    return jax.tree.map(jnp.asarray, whole).replace(v_minus=stream.v)


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that JAX takes over on a CPU without a copy: aligned to 64 bytes."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + size].view(dtype).reshape(shape)


def _nothing(
    terms: ContactTerms, v: jax.Array, num_samples: int, max_steps: int, keep_path: bool
) -> ImpactSamples:
    """No contact approaches: every sample is v."""
    nc, nt, nv = terms.J_t.shape
    return ImpactSamples(
        v_minus=v,
        v_plus=jnp.broadcast_to(v, (num_samples, nv)),
        impulse=jnp.zeros((num_samples, nc, 1 + nt), v.dtype),
        status=jnp.zeros(num_samples, jnp.uint32),
        num_solves=jnp.zeros(num_samples, jnp.int32),
        energy_ratio=jnp.ones(num_samples, v.dtype),
        residual=jnp.zeros(num_samples, v.dtype),
        path=jnp.broadcast_to(v, (num_samples, max_steps + 1, nv)) if keep_path else None,
        complete=True,
    )

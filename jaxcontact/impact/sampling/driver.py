"""Sampling the post-impact set: many impacts with random impulse orders.

Entry `sample`, the host-side driver of the sampling kernel: draws, choice of contact modes, chunks, results;
docs/methods/set-valued.md.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_count, check_seed
from jaxcontact.batching.reduction import Reduction, check_reduce, make_fold
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.costs import announce_memory, check_memory
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_enumeration import check_enumeration, touching_contacts
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh, fitted_law
from jaxcontact.impact.sampling import checkpoint as checkpoints
from jaxcontact.impact.sampling import processes
from jaxcontact.impact.sampling.by_steps import searches_steps
from jaxcontact.impact.sampling.chunks import Chunk, ImpactSamples
from jaxcontact.impact.sampling.density import shaped
from jaxcontact.impact.sampling.draws import Iid, Sobol, sobol
from jaxcontact.impact.sampling.stream import PIECE, Stream
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

CHECKPOINT_CHUNK = 2**16  # samples; each chunk waits for the disk once
Reduced = TypeVar("Reduced")
Seed = int | jax.Array


@overload
def sample(
    terms: ContactTerms,
    v: jax.Array,
    law: Routh,
    *,
    num_samples: int,
    seed: Seed = 0,
    keep_path: bool = False,
    reduce: None = None,
    run: Run = ...,
) -> ImpactSamples: ...


@overload
def sample(
    terms: ContactTerms,
    v: jax.Array,
    law: Routh,
    *,
    num_samples: int,
    seed: Seed = 0,
    keep_path: bool = False,
    reduce: Callable[[PyTree, ImpactSamples], Reduced] | Reduction,
    run: Run = ...,
) -> Reduced: ...


@checked(num_samples=check_count)
def sample(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    *,
    num_samples: int,
    seed: Seed = 0,
    keep_path: bool = False,
    reduce: Callable[[PyTree, ImpactSamples], PyTree] | Reduction | None = None,
    run: Run = DEFAULT_RUN,
) -> PyTree:
    """Draw outcomes of a simultaneous impact over random impulse orders (Halm & Posa, Algorithm 1).

    Every step draws a largest normal impulse per contact, uniform in (0, impulse_step) unless the law has a
    density, and one solution of `routh_step`, until no contact approaches. Sample i is a function of the seed
    and i alone.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        law: the law to draw from, `jc.impact.Routh(impulse_step=, max_steps=)`.
        num_samples: number of samples.
        seed: of the scrambled Sobol points of dimension N (nc + 1); a JAX random key instead makes the draws
            independent, not quasi-random.
        keep_path: also return the velocities through the impact.
        reduce: (accumulated, ImpactSamples of one chunk) -> accumulated, called in order, at first with
            None; `sample` then returns the last value, in memory that does not grow. A `jc.Reduction` has
            its part computed by the workers of an executor, unless samples come here for a checkpoint.
        run: executor, chunk (default 2^14 samples, with a checkpoint 2^16; memory grows with it), devices,
            checkpoint, about, progress. The checkpoint is a folder, see `load_samples` for its files;
            `reduce` sees the stored chunks first.

    Returns:
        ImpactSamples, or what `reduce` accumulated. With a checkpoint the arrays are memory-mapped files.

    With several processes of `jax.distributed`, all of which must make the same call, each computes its
    part on its local devices. Each returns all samples, the same bits as in one process; with `reduce`
    each accumulates over its own part only, and `progress` counts that. The devices of a process work
    without `jax.sharding`, one thread each on separate chunks: a sample is computed by one device and none
    waits for another.

    In memory a run needs little more than its output; with `reduce` or a checkpoint memory does not grow.
    A `MemoryWarning` announces more than 4 GB of output.

    Raises:
        ValueError, TypeError: bad terms or v (as `anitescu_potra`); a law that is not a `Routh`, or has an
            impulse_step that is not positive and finite, a restitution outside of 0..1 or NaN, a selection
            not offered for these terms, or a density of the wrong shape or outside of [0, 1]; num_samples
            < 1; a checkpoint that is damaged, of another run, or in use; a `reduce` that is not a function.
        OSError: the checkpoint cannot be written, as on a full disk; its content stays valid.

    Status: per sample, UNTERMINATED if a contact still approaches, or has energy in store, after
        max_steps; STALLED for a residual above 1e-9 (float32: 3e-6).

    Derivative: none; a host-level driver. Differentiate `resolve` with the draws of interest.
    """
    _check_call(terms, v, law, num_samples, reduce, run, num_processes=(share := processes.share())[1])
    stream = _stream(terms, jnp.asarray(v), fitted_law(terms, v, law), seed, keep_path, run)
    total, size = int(num_samples), _chunk_size(run)
    if isinstance(reduce, Reduction) and run.checkpoint is None:
        stream.part = reduce.part
    if run.checkpoint is not None:
        manifest = checkpoints.describe(stream, total, seed, run.about or {})
        chunks = checkpoints.stored(Path(run.checkpoint), manifest, stream, size)
    else:
        chunks = stream.chunks(total, size, share=share, exchange=processes.union)
        if reduce is None:
            _announce_memory(stream, total)
    rows = stream.shares(total, size, share[1])
    num_computed = sum(end - begin for begin, end in (block[share[0]] for block in rows))
    with contextlib.closing(_reported(chunks, num_computed, run.progress)) as reported:
        if reduce is not None:
            fold = make_fold(reduce, has_parts=stream.part is not None)
            return functools.reduce(fold, (chunk.samples for chunk in reported), None)
        if run.checkpoint is None:
            return _gather_chunks(reported, stream, total, rows)
        for _ in reported:
            pass
    return checkpoints.load_samples(run.checkpoint)


def _check_call(
    terms: ContactTerms,
    v: jax.Array,
    law: Routh,
    num_samples: int,
    reduce: Callable[[PyTree, ImpactSamples], PyTree] | Reduction | None,
    run: Run,
    num_processes: int,
) -> None:
    """Raise TypeError or ValueError if an argument of `sample` is of another type or out of range."""
    inputs.check(terms, v)
    if not inputs.is_concrete(terms, v, law):
        raise ValueError("sample: a driver for the host, not traceable; use sample_in_jit inside jit or vmap")
    inputs.check_count("num_samples", num_samples)
    check_run(run)
    check_reduce(reduce)
    if run.executor is not None and num_processes > 1:
        raise ValueError("run.executor: used by one process, got several of jax.distributed")
    if run.checkpoint is not None and num_processes > 1:
        raise ValueError("checkpoint: written by one process, got several of jax.distributed; use reduce")


def _chunk_size(run: Run) -> int:
    """Choose the number of samples of a chunk."""
    if run.chunk is not None:
        return int(run.chunk)
    return PIECE if run.checkpoint is None else CHECKPOINT_CHUNK


def _announce_memory(stream: Stream, total: int) -> None:
    """Warn if the samples of a run need more than 4 GB."""
    per_sample = sum(leaf.nbytes for leaf in jax.tree.leaves(stream.unmoved(1).replace(v_minus=None)))
    check_memory("num_samples", total, per_sample, "samples")
    announce_memory("sample", total, per_sample, "reduce= or run=jc.Run(checkpoint=)")


def _stream(
    terms: ContactTerms, v: jax.Array, law: FittedRouth, seed: Seed, keep_path: bool, run: Run
) -> Stream:
    """Make the source of the samples; with too many contacts to enumerate, of the active ones only."""
    nc, places = terms.phi.shape[0], None
    touching = touching_contacts(terms, law.num_directions)
    if touching is not None:
        places = touching, nc
        terms, nc = terms.take(touching), touching.size
        law = law.replace(
            impulse_step=law.impulse_step[touching],
            restitution=None if law.restitution is None else law.restitution[touching],
        )
    if law.selection != "lemke" and not searches_steps(terms, v, law, run.devices):
        check_enumeration(terms, law.num_directions, f'selection="{law.selection}"')
    if inputs.is_key(seed):
        uniform: Iid | Sobol = Iid(key=seed)
    elif isinstance(seed, jax.Array | np.ndarray):
        raise TypeError(f"seed: expected an integer or a JAX random key, got {seed!r}")
    else:
        check_seed("seed", seed)
        uniform = sobol(law.max_steps * (nc + 1), seed)
    draws = shaped(uniform, law.density, nc)
    return Stream(terms, v, draws, law, keep_path=keep_path, places=places, run=run)


def _reported(chunks: Generator[Chunk], total: int, progress: Callable[..., None] | None) -> Generator[Chunk]:
    """Yield the chunks, and report the progress after each has been used."""
    done = 0
    with contextlib.closing(chunks):
        for chunk in chunks:
            yield chunk
            done += chunk.end - chunk.begin
            if progress is not None:
                progress(done, total)


def _gather_chunks(
    chunks: Iterator[Chunk], stream: Stream, total: int, rows: list[list[tuple[int, int]]]
) -> ImpactSamples:
    """Gather all chunks in one record, written in place, with little memory beyond the result."""
    gathered = jax.tree.map(
        lambda leaf: _aligned_empty((total, *leaf.shape[1:]), leaf.dtype),
        stream.unmoved(0).replace(v_minus=None),
    )
    for chunk in chunks:
        parts = jax.tree.leaves(chunk.samples.replace(v_minus=None))
        for to, part in zip(jax.tree.leaves(gathered), parts, strict=True):
            to[chunk.begin : chunk.end] = part
    processes.fill(jax.tree.leaves(gathered), rows)
    placed: ImpactSamples = jax.device_put(gathered)  # `jnp.asarray` would copy
    return placed.replace(v_minus=stream.v)


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Reserve memory aligned to 64 bytes, which JAX uses on a CPU without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + size].view(dtype).reshape(shape)

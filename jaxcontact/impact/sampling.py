"""Sampling the post-impact set: many impacts with random impulse orders.

The host-side driver of the sampling kernel: draws, choice of contact modes, chunks, results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.impact import inputs, routh
from jaxcontact.impact.contact_space import ContactSpace, colliding, contact_space
from jaxcontact.impact.draws import Iid, Sobol, sobol
from jaxcontact.impact.lanes import LaneResults, lane_status, run_lanes
from jaxcontact.solvers import modes
from jaxcontact.terms import ContactTerms

SELECTIONS = ("all", "visited", "lemke")
PILOT = 512  # samples that fill the first table of "visited"
GROWTH = 8  # each block of "visited" ends at this many times the sample number of the one before
CHUNK = 2**14  # samples per call of the kernel: one compilation, a report every few milliseconds
MANY_MODES = 512  # tables above it get few lanes and small chunks
Progress = Callable[[int, int], None]


class ImpactSamples(Record):
    """Samples of the outcomes of one impact; axis 0 is the sample.

    Attributes:
        v_minus: (nv,) velocity before.
        v_plus: (n, nv) velocities after.
        impulse: (n, nc, 1 + nt) total contact impulse (n, t1, t2), N s.
        status: (n,) uint32 bits of `Status`; 0 is success.
        num_solves: (n,) steps taken.
        energy_ratio: (n,) kinetic energy after / before.
        residual: (n,) worst residual of any step, as in `ImpactInfo`.
        path: (n, max_steps + 1, nv) velocities through the impact, or None; rows after the last step
            repeat v_plus.
        complete: whether all solutions of every step were candidates.
    """

    v_minus: jax.Array
    v_plus: jax.Array
    impulse: jax.Array
    status: jax.Array
    num_solves: jax.Array
    energy_ratio: jax.Array
    residual: jax.Array
    path: jax.Array | None = None
    complete: bool = static(default=False)


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
    progress: Progress | None = None,
) -> ImpactSamples:
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
        progress: called with (samples done, num_samples) now and then.

    Returns:
        ImpactSamples.

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
    for name, value in (("max_steps", max_steps), ("num_samples", num_samples)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}: expected an integer >= 1, got {value!r}")
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected one of {', '.join(SELECTIONS)}, got {selection!r}")
    v = jnp.asarray(v)
    steps = jnp.broadcast_to(jnp.asarray(sizes, v.dtype), (nc,))
    dimension = int(max_steps) * (nc + 1)
    draws = sobol(dimension, seed) if key is None else Iid(key=key)
    if not bool(jnp.any(colliding(terms, v))):
        return _nothing(terms, v, int(num_samples), int(max_steps), keep_path)
    if selection == "lemke":
        return _by_pivoting(
            terms, v, draws, steps, int(max_steps), int(num_samples), keep_path, num_directions, progress
        )
    inputs.check_planar_enumeration(terms, modes.MAX_ENUMERATED, f'selection="{selection}"')
    space, table = _tabulate(terms)
    run = _Runner(space, draws, v, steps, int(max_steps), keep_path)
    everything = np.arange(num_samples, dtype=np.uint32)
    if selection == "all":
        results = run(table, everything, progress)
    else:
        results = _run_visited(run, table, everything, progress)
    return _collect(terms, space, v, results, complete=selection == "all")


@jax.jit
def _tabulate(terms: ContactTerms) -> tuple[ContactSpace, modes.ModeTable]:
    space = contact_space(terms)
    return space, modes.mode_table(space.delassus, space.mu, space.active, capped=True)


class _Runner:
    """Runs the kernel over any list of samples, chunk by chunk, into NumPy arrays."""

    def __init__(
        self,
        space: ContactSpace,
        draws: Sobol | Iid,
        v: jax.Array,
        step: jax.Array,
        max_steps: int,
        keep_path: bool,
    ) -> None:
        self.arguments = (space, draws, v, step)
        self.max_steps, self.keep_path = max_steps, keep_path

    def __call__(
        self,
        table: modes.ModeTable,
        indices: np.ndarray,
        progress: Progress | None,
        *,
        done: int = 0,
        total: int | None = None,
    ) -> LaneResults:
        """Run the samples `indices`; they count as samples done + 1, ... of `total` in the progress."""
        space, draws, v, step = self.arguments
        num_modes = table.regular.shape[0]
        tile = tile_size(num_modes)
        chunk = CHUNK if num_modes <= MANY_MODES else CHUNK // 16
        parts = []
        for begin in range(0, len(indices), chunk):
            piece = indices[begin : begin + chunk]
            padded = np.zeros(chunk, np.uint32)
            padded[: len(piece)] = piece
            part = run_lanes(
                space,
                table,
                draws,
                v,
                step,
                jnp.asarray(padded),
                jnp.int32(len(piece)),
                max_steps=self.max_steps,
                tile=tile,
                keep_path=self.keep_path,
            )
            met = np.asarray(part.visited)
            kept = jax.tree.map(functools.partial(_first, size=len(piece)), part)
            parts.append(kept.replace(visited=met))
            if progress is not None:
                progress(done + begin + len(piece), len(indices) if total is None else total)
        visited = np.any([part.visited for part in parts], axis=0)
        return _joined(parts).replace(visited=visited)


def _first(leaf: jax.Array, size: int) -> np.ndarray:
    return np.array(leaf[..., :size])


def _run_visited(
    run: _Runner, table: modes.ModeTable, indices: np.ndarray, progress: Progress | None
) -> LaneResults:
    """Among the modes met so far: the pilot with all modes, then blocks with the table of those before.

    Samples that find no valid mode in the table are repeated with all modes, which join the table. The
    blocks end at fixed sample numbers, so a sample does not depend on how many follow it.
    """
    total = len(indices)
    parts = [run(table, indices[:PILOT], None)]
    visited = np.array(parts[0].visited)
    begin, end = PILOT, PILOT * GROWTH
    while begin < total:
        block = indices[begin:end]
        met = _padded(table, np.flatnonzero(visited))
        part = run(met, block, progress, done=begin, total=total)
        lost = np.flatnonzero(part.missed)
        if lost.size:
            again = run(table, block[lost], None)
            for name in ("impulse", "num_solves", "residual", "missed", "collides", "path"):
                array = getattr(part, name)
                if array is not None:
                    array[..., lost] = getattr(again, name)
            visited |= again.visited
        parts.append(part)
        begin, end = end, end * GROWTH
    return _joined(parts)


def _joined(parts: list[LaneResults]) -> LaneResults:
    leaves = [part.replace(visited=np.zeros(0, bool)) for part in parts]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=-1), *leaves)


def _padded(table: modes.ModeTable, kept: np.ndarray) -> modes.ModeTable:
    """The table of the modes `kept`, padded to a power of two so that few sizes are ever compiled."""
    size = 1 << max(kept.size - 1, 0).bit_length()
    part = table.take(np.resize(kept, size))
    return part.replace(regular=part.regular & (np.arange(size) < kept.size))


def tile_size(num_modes: int) -> int:
    """Lanes of the kernel: enough to vectorise, few enough that a (modes, lanes) array stays in cache."""
    if jax.default_backend() != "cpu":
        return int(np.clip(2**24 // num_modes, 2**12, 2**17))
    return 512 if num_modes <= MANY_MODES else 32


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


def _collect(
    terms: ContactTerms, space: ContactSpace, v: jax.Array, results: LaneResults, complete: bool
) -> ImpactSamples:
    """Physical units, samples first. In NumPy, elementwise: the same bits for any number of samples."""
    response, scale, start = (np.asarray(a) for a in (space.response, space.scale, v))
    nc = terms.phi.shape[0]

    def velocities(impulse: np.ndarray) -> np.ndarray:
        total = np.broadcast_to(start, (*impulse.shape[1:], start.size)).copy()
        for row in range(impulse.shape[0]):
            total += impulse[row][..., None] * response[:, row]
        return total

    impulse = np.asarray(results.impulse)
    v_plus = velocities(impulse)
    mass = np.asarray(terms.M)
    energy = sum(
        mass[i, j] * v_plus[:, i] * v_plus[:, j] for i in range(start.size) for j in range(start.size)
    )
    path = None
    if results.path is not None:
        through = velocities(np.moveaxis(np.asarray(results.path), 1, 0))  # (N + 1, n, nv)
        last = np.asarray(results.num_solves)
        rows = np.minimum(np.arange(through.shape[0])[:, None], last[None, :])
        path = jnp.asarray(np.moveaxis(through[rows, np.arange(last.size)[None, :]], 0, 1))
    return ImpactSamples(
        v_minus=v,
        v_plus=jnp.asarray(v_plus),
        impulse=jnp.asarray((impulse * scale[:, None]).T.reshape(-1, nc, 2)),
        status=lane_status(results),
        num_solves=jnp.asarray(results.num_solves),
        energy_ratio=jnp.asarray(energy / (start @ mass @ start)),
        residual=jnp.asarray(results.residual),
        path=path,
        complete=complete,
    )


def _by_pivoting(
    terms: ContactTerms,
    v: jax.Array,
    draws: Sobol | Iid,
    step: jax.Array,
    max_steps: int,
    num_samples: int,
    keep_path: bool,
    num_directions: int,
    progress: Progress | None,
) -> ImpactSamples:
    """One Lemke solution per step, a padded chunk of samples at a time."""
    nc = terms.phi.shape[0]
    chunk = 1024
    parts = []
    for begin in range(0, num_samples, chunk):
        index = jnp.arange(begin, begin + chunk, dtype=jnp.uint32)
        drawn = draws.uniform(index, 0, max_steps * (nc + 1), v.dtype).T
        caps = drawn.reshape(chunk, max_steps, nc + 1)[..., :nc] * step[None, None]
        start = jnp.broadcast_to(v, (chunk, v.shape[0]))
        parts.append(routh.resolve_many(terms, start, caps, "lemke", num_directions, keep_path))
        if progress is not None:
            progress(min(begin + chunk, num_samples), num_samples)
    v_plus, info, path = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:num_samples], *parts)
    return ImpactSamples(
        v_minus=v,
        v_plus=v_plus,
        impulse=info.impulse,
        status=info.status,
        num_solves=info.num_solves,
        energy_ratio=info.energy_ratio,
        residual=info.residual,
        path=path,
    )

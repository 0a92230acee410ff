"""Many worlds of one mechanism, each with its own key: on every core, in blocks, stored block by block.

Owns the driver `ensemble` and its record. Worlds are computed in blocks of one width at fixed places,
for every chunk, so a world has the same bits in every call. docs/understand/long-runs.md has the files.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_count, check_seed
from jaxcontact.batching.all_cores import workers
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.batching.work_queue import in_order, threads
from jaxcontact.costs import bytes_of, check_memory, count_steps
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io import fingerprint
from jaxcontact.io.records import load_record, save_record
from jaxcontact.io.run_store import open_store
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.simulate.stepper import Policy, Stepper
from jaxcontact.simulate.stepping import check_stepper, rollout
from jaxcontact.status import Status

FORMAT = "jaxcontact ensemble, 4"  # gets a new number if the same seed ends in other bits
WIDTH = 128  # worlds; largest block, over which XLA vectorises
FIRST = 5  # failed worlds that the summary names one by one, to keep it short


class Ensemble(Record):
    """The final states of the worlds and their failures; the first axis is the world.

    Attributes:
        worlds: (n,) int32, their numbers.
        states: State at the end, q (n, nq), v (n, nv), t (n,).
        status: (n,) uint32, the bits of all steps.
        failed_step: (n,) int32, the first step with a bit of `Status.FAILURES`, -1 if none has.
        closings: (n,) int32, number of times that a contact closed.
        path: State of every step, q (n, T + 1, nq), ...; None unless asked for.
    """

    worlds: jax.Array
    states: State
    status: jax.Array
    failed_step: jax.Array
    closings: jax.Array
    path: Any = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the worlds to a `.npz` file; a write that fails leaves no partial file.

        Raises:
            OSError: the file cannot be written.
        """
        save_record(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Ensemble:
        """Read the worlds that `save` wrote.

        Raises:
            ValueError: the file holds something else.
            OSError: the file cannot be read.
        """
        loaded: Ensemble = load_record(path, cls)
        return loaded

    @property
    def summary(self) -> str:
        """The number of worlds that failed, and the first of these with their steps and status bits."""
        failed = np.flatnonzero(np.asarray(self.failed_step) >= 0)
        lines = [f"{len(failed)} of {len(self.status)} worlds failed"]
        for k in failed[:FIRST]:
            bits = Status.describe(np.asarray(self.status)[k] & int(Status.FAILURES))
            lines.append(f"  world {int(self.worlds[k])} at step {int(self.failed_step[k])}: {bits}")
        if len(failed) > FIRST:
            lines.append(f"  and {len(failed) - FIRST} more")
        return "\n".join(lines)


@checked(state="...", duration=POSITIVE, dt=POSITIVE, num_worlds=check_count, seed=check_seed)
def ensemble(
    model: Model,
    state: State,
    *,
    stepper: Stepper,
    duration: float,
    dt: float,
    num_worlds: int,
    seed: int = 0,
    control: jax.Array | Policy | None = None,
    policy_memory: Any = None,
    keep_path: bool = False,
    reduce: Callable[[Any, Ensemble], Any] | None = None,
    run: Run = DEFAULT_RUN,
) -> Any:
    """Move many worlds that differ in their random key, and in their start if one start each is given.

    World i steps as `rollout` with the key of the seed folded with i: a law that draws takes another impulse
    order in every world and impact.

    Args:
        model: the mechanism and its numbers.
        state: the start of all worlds, or one start each, with a first axis of `num_worlds`.
        stepper: the method, such as `TimeStepping(impact=law)`.
        duration: s, rounded to a number of steps.
        dt: s.
        num_worlds: number of worlds.
        seed: of the keys.
        control, policy_memory: as `run`, the same for all worlds.
        keep_path: also keep the states of every step.
        reduce: (accumulated, Ensemble of one chunk) -> accumulated, called in order, at first with None;
            `ensemble` then returns the last value, in memory that does not grow.
        run: chunk (default 1024 worlds), checkpoint, about, progress. The checkpoint is a folder; `reduce`
            sees the stored worlds first.

    Returns:
        Ensemble of all worlds, or the value that `reduce` accumulated. A world that fails raises nothing: it
        is in `Ensemble.summary`, and the others have the bits that they have without it.

    Raises:
        TypeError, ValueError: as `run`; numbers out of range, a state with another first axis, a checkpoint
            of another run or one that is damaged.
        OSError: the checkpoint cannot be written; the worlds that it holds stay good.

    Status: of each world, in `Ensemble.status`.

    Derivative: none; a driver for the host.
    """
    check_run(run, unused=("devices",))
    if reduce is not None and not callable(reduce):
        raise TypeError(f"reduce: expected a function, got {type(reduce).__name__}")
    check_mechanism(model, state)
    check_stepper(stepper)
    world = bytes_of(state) if jnp.ndim(state.q) == 1 else bytes_of(state) // num_worlds
    steps = count_steps(duration, dt, num_bytes=world if keep_path else 0)
    if reduce is None:
        check_memory("num_worlds", num_worlds, world * (steps + 1 if keep_path else 1), "worlds")
    starts = _starts(state, num_worlds)
    stepper.init(model, jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), starts), None)  # may refuse
    if control is None:
        control = jnp.zeros((steps, model.num_controls), starts.v.dtype)

    def simulate_world(start: State, world: jax.Array) -> Ensemble:
        motion = rollout(
            model, start, control, stepper=stepper, dt=dt, num_steps=steps,
            key=jax.random.fold_in(jax.random.key(seed), world), policy_memory=policy_memory,
        )  # fmt: skip
        bad = Status.failed(motion.status)
        return Ensemble(
            worlds=world.astype(jnp.int32),
            states=jax.tree.map(lambda rows: rows[-1], motion.states),
            status=jnp.bitwise_or.reduce(motion.status),
            failed_step=jnp.where(jnp.any(bad), jnp.argmax(bad), -1).astype(jnp.int32),
            closings=jnp.sum(motion.contacts[1:] & ~motion.contacts[:-1], dtype=jnp.int32),
            path=motion.states if keep_path else None,
        )

    blocks = _Blocks(simulate_world, starts, num_worlds)
    parts = blocks.computed(0) if run.checkpoint is None else _stored(Path(run.checkpoint), blocks, run.about)
    size = 1024 if run.chunk is None else int(run.chunk)
    chunks = _reported(_rows(parts, size), num_worlds, run.progress)
    return _joined(list(chunks)) if reduce is None else functools.reduce(reduce, chunks, None)


def _reported(chunks: Iterator[Ensemble], total: int, progress: Any) -> Iterator[Ensemble]:
    """Yield chunks; report the number of worlds after each has been used."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk.status)
        if progress is not None:
            progress(done, total)


def _starts(state: State, num_worlds: int) -> State:
    """Give every world its start; return states with a first axis of worlds."""
    if jnp.ndim(state.q) == 1:
        return jax.tree.map(
            lambda leaf: np.broadcast_to(np.asarray(leaf), (num_worlds, *jnp.shape(leaf))), state
        )
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(state)}
    if sizes != {(num_worlds,)}:
        raise ValueError(f"state: expected one state, or a first axis of {num_worlds}, got {sorted(sizes)}")
    return jax.tree.map(np.asarray, state)


class _Blocks:
    """The worlds in blocks of one width, the last one filled up with worlds that are dropped."""

    def __init__(
        self, simulate_world: Callable[[State, jax.Array], Ensemble], starts: State, total: int
    ) -> None:
        self.starts, self.total = starts, total
        self.width = min(WIDTH, 1 << (total - 1).bit_length())
        self.function = jit(jax.vmap(simulate_world))
        self._compiled: Any = None

    def begins(self) -> list[int]:
        return list(range(0, self.total, self.width))

    def arguments(self, begin: int) -> tuple[State, jax.Array]:
        worlds = np.arange(begin, begin + self.width)
        rows = np.minimum(worlds, self.total - 1)
        starts = jax.tree.map(lambda leaf: jnp.asarray(leaf[rows]), self.starts)
        return starts, jnp.asarray(worlds, jnp.uint32)

    def compute(self, begin: int) -> Ensemble:
        """Compute the worlds of the block that begins at world `begin`."""
        block = jax.block_until_ready(self._compiled(*self.arguments(begin)))
        count = min(self.width, self.total - begin)
        rows: Ensemble = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], block)
        return rows

    def computed(self, done: int) -> Iterator[Ensemble]:
        """Compute and yield the blocks from number `done` on, in order; one on each worker at a time."""
        left = self.begins()[done:]
        if left and self._compiled is None:
            self._compiled = self.function.lower(*self.arguments(left[0])).compile()
        count = len(workers(jax.local_devices()[:1]))
        with threads(count) as pool:
            yield from in_order(pool, self.compute, ((begin,) for begin in left), ahead=count)


def _rows(parts: Iterator[Ensemble], size: int) -> Iterator[Ensemble]:
    """Yield the same worlds in chunks of `size`."""
    held: list[Ensemble] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part.status)
        while count >= size:
            joined = _joined(held)
            yield _cut(joined, 0, size)
            held, count = [_cut(joined, size, count)], count - size
    if count:
        yield _joined(held)


def _joined(parts: list[Ensemble]) -> Ensemble:
    joined: Ensemble = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return joined


def _cut(part: Ensemble, begin: int, end: int) -> Ensemble:
    rows: Ensemble = jax.tree.map(lambda leaf: leaf[begin:end], part)
    return rows


def _describe(blocks: _Blocks, about: Mapping[str, str]) -> dict[str, Any]:
    """Describe the run; the program has the mechanism, the method, seed, dt and controls in it."""
    return {
        "format": FORMAT,
        **{f"about {name}": value for name, value in about.items()},
        **fingerprint.versions(),
        "platform": jax.local_devices()[0].platform,
        "num_worlds": blocks.total,
        "start": fingerprint.of_numbers(blocks.starts),
        "program": fingerprint.of_program(blocks.function.trace(*blocks.arguments(0))),
    }


def _stored(folder: Path, blocks: _Blocks, about: Mapping[str, str] | None) -> Iterator[Ensemble]:
    """Yield the stored blocks, then compute the missing ones; each is on the disk before it is yielded."""
    shapes = jax.eval_shape(blocks.function, *blocks.arguments(0))
    empty = jax.tree.map(lambda leaf: np.empty((0, *leaf.shape[1:]), leaf.dtype), shapes)
    described = _describe(blocks, about or {})
    with open_store(folder, described, _named(empty), blocks.total, "worlds") as store:
        for entry in store.entries:
            yield jax.tree.unflatten(jax.tree.structure(empty), list(store.read(entry).values()))
        if store.num_finished == blocks.total:
            return
        store.start()
        for part in blocks.computed(len(store.entries)):
            store.append(int(part.worlds[0]), _named(part))
            yield part


def _named(part: Ensemble) -> dict[str, np.ndarray]:
    """Label the arrays with the names of their fields, in the order of the leaves."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(part)
    }

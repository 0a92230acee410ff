"""Many worlds of one mechanism, each with its own key: on every core, in blocks, stored block by block.

Owns the driver `ensemble` and its record. Worlds are computed in blocks of one width at fixed places,
for every chunk, so a world has the same bits in every call. docs/understand/long-runs.md has the files.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_count, check_seed
from jaxcontact.batching.all_cores import workers
from jaxcontact.batching.reduction import Reduction, check_reduce, make_fold
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.costs import bytes_of, check_memory, count_steps
from jaxcontact.front_door import checked
from jaxcontact.io import fingerprint
from jaxcontact.io.records import FileRecord
from jaxcontact.io.run_store import open_store
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.simulate.motion import Inputs, MotionSettings, as_inputs
from jaxcontact.simulate.stepper import Stepper
from jaxcontact.simulate.stepping import check_stepper, rollout
from jaxcontact.status import Status

FORMAT = "jaxcontact ensemble, 4"  # gets a new number if the same seed ends in other bits
WIDTH = 128  # worlds; largest block, over which XLA vectorises
FIRST = 5  # failed worlds that the summary names one by one, to keep it short


class Ensemble(FileRecord):
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
    path: PyTree = None

    @property
    def summary(self) -> str:
        """Count the worlds that failed, and list the first of these with their steps and status bits."""
        failed = np.flatnonzero(np.asarray(self.failed_step) >= 0)
        lines = [f"{len(failed)} of {len(self.status)} worlds failed"]
        for k in failed[:FIRST]:
            bits = Status.describe(np.asarray(self.status)[k] & int(Status.FAILURES))
            lines.append(f"  world {int(self.worlds[k])} at step {int(self.failed_step[k])}: {bits}")
        if len(failed) > FIRST:
            lines.append(f"  and {len(failed) - FIRST} more")
        return "\n".join(lines)


@checked(
    state="...",
    num_worlds=check_count,
    seed=check_seed,
)
def ensemble(
    model: Model,
    state: State,
    motion: MotionSettings,
    *,
    num_worlds: int,
    seed: int = 0,
    keep_path: bool = False,
    reduce: Callable[[PyTree, Ensemble], PyTree] | Reduction | None = None,
    run: Run = DEFAULT_RUN,
) -> PyTree:
    """Move many worlds that differ in their random key, and in their start if one start each is given.

    World i steps as `rollout` with the key of the seed folded with i: a law that draws takes another impulse
    order in every world and impact.

    Args:
        model: the mechanism and its numbers.
        state: the start of all worlds, or one start each, with a first axis of `num_worlds`.
        motion: the method, such as `TimeStepping(impact=law)`, the step, the duration, and what acts, the
            same for all worlds.
        num_worlds: number of worlds.
        seed: of the keys.
        keep_path: also keep the states of every step.
        reduce: (accumulated, Ensemble of one chunk) -> accumulated, called in order, at first with None;
            `ensemble` then returns the last value, in memory that does not grow. A `jc.Reduction` has its
            part computed by the workers of an executor, unless worlds come here for a checkpoint.
        run: executor, chunk (default 1024 worlds), checkpoint, about, progress. The checkpoint is a folder;
            `reduce` sees the stored worlds first.

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
    check_reduce(reduce)
    check_mechanism(model, state)
    stepper, inputs = motion.stepper, as_inputs(motion.controls)
    check_stepper(stepper)
    world = bytes_of(state) if jnp.ndim(state.q) == 1 else bytes_of(state) // num_worlds
    steps = count_steps(motion.duration, motion.dt, num_bytes=world if keep_path else 0)
    if reduce is None:
        check_memory("num_worlds", num_worlds, world * (steps + 1 if keep_path else 1), "worlds")
    starts = _spread_starts(state, num_worlds)
    stepper.init(model, jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), starts), None)  # may refuse
    if inputs.controls is None:
        inputs = inputs._replace(controls=jnp.zeros((steps, model.num_controls), starts.v.dtype))

    shared = model, stepper, float(motion.dt), steps, inputs, int(seed), keep_path
    blocks = _Blocks(shared, starts, num_worlds, run)
    size = 1024 if run.chunk is None else int(run.chunk)
    on_workers = False
    if isinstance(reduce, Reduction) and run.executor is not None and run.checkpoint is None:
        on_workers = True
        chunks: Iterator[PyTree] = blocks.compute_parts(size, reduce.part)
    else:
        blocks_of_worlds = blocks.compute(0) if run.checkpoint is None else _read_or_compute(blocks, run)
        chunks = _rechunk(blocks_of_worlds, size)
    reported = _report(chunks, num_worlds, size, run.progress)
    if reduce is None:
        return _join(list(reported))
    return functools.reduce(make_fold(reduce, has_parts=on_workers), reported, None)


def _report(
    chunks: Iterator[PyTree], total: int, size: int, progress: Callable[..., None] | None
) -> Iterator[PyTree]:
    """Yield chunks; report the number of worlds after each has been used."""
    for number, chunk in enumerate(chunks, 1):
        yield chunk
        if progress is not None:
            progress(min(number * size, total), total)


def _spread_starts(state: State, num_worlds: int) -> State:
    """Give every world its start; return states with a first axis of worlds."""
    if jnp.ndim(state.q) == 1:
        return jax.tree.map(
            lambda leaf: np.broadcast_to(np.asarray(leaf), (num_worlds, *jnp.shape(leaf))), state
        )
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(state)}
    if sizes != {(num_worlds,)}:
        raise ValueError(f"state: expected one state, or a first axis of {num_worlds}, got {sorted(sizes)}")
    return jax.tree.map(np.asarray, state)


class _Worlds:
    """A function of a block of worlds, compiled at its first call."""

    def __init__(
        self, model: Model, stepper: Stepper, dt: float, steps: int, inputs: Inputs, seed: int,
        keep_path: bool,
    ) -> None:  # fmt: skip
        def simulate_world(start: State, world: jax.Array) -> Ensemble:
            motion = rollout(
                model, start, inputs, stepper=stepper, dt=dt, num_steps=steps,
                key=jax.random.fold_in(jax.random.key(seed), world),
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

        self.function = jit(jax.vmap(simulate_world))
        self._compiled: jax.stages.Compiled | None = None
        self._lock = threading.Lock()

    def __call__(self, starts: State, worlds: np.ndarray, count: int) -> Ensemble:
        """Compute a block of worlds; return the first `count` as NumPy arrays."""
        arguments = jax.tree.map(jnp.asarray, (starts, worlds))
        with self._lock:
            if self._compiled is None:
                self._compiled = self.function.lower(*arguments).compile()
        block = jax.block_until_ready(self._compiled(*arguments))
        rows: Ensemble = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], block)
        return rows


class _ChunkParts:
    """Function of the blocks that cover a chunk, which returns the part of a `Reduction`."""

    def __init__(self, shared: tuple[PyTree, ...], part: Callable[[Ensemble], PyTree]) -> None:
        self.worlds, self.part = _Worlds(*shared), part

    def __call__(self, blocks: list[tuple[PyTree, ...]], begin: int, end: int) -> PyTree:
        return self.part(_cut(_join([self.worlds(*block) for block in blocks]), begin, end))


class _Blocks:
    """The worlds in blocks of one width, the last one filled up with worlds that are dropped."""

    def __init__(self, shared: tuple[PyTree, ...], starts: State, total: int, run: Run) -> None:
        self.shared, self.starts, self.total, self.run = shared, starts, total, run
        self.width = min(WIDTH, 1 << (total - 1).bit_length())

    def arguments(self, begin: int) -> tuple[State, np.ndarray, int]:
        """Collect the starts and numbers of a block of worlds, and how many count."""
        worlds = np.arange(begin, begin + self.width)
        rows = np.minimum(worlds, self.total - 1)
        starts = jax.tree.map(lambda leaf: leaf[rows], self.starts)
        return starts, worlds.astype(np.uint32), min(self.width, self.total - begin)

    def compute(self, done: int) -> Iterator[Ensemble]:
        """Compute and yield the blocks from number `done` on, in order."""
        begins = range(0, self.total, self.width)[done:]
        yield from self._run(_Worlds, self.shared, map(self.arguments, begins), len(begins))

    def compute_parts(self, size: int, part: Callable[[Ensemble], PyTree]) -> Iterator[PyTree]:
        """Compute and yield the part of each chunk of `size` worlds, in order."""

        def call(begin: int) -> tuple[object, ...]:
            first, end = begin - begin % self.width, min(begin + size, self.total)
            blocks = [self.arguments(k) for k in range(first, end, self.width)]
            return blocks, begin - first, end - first

        begins = range(0, self.total, size)
        yield from self._run(_ChunkParts, (self.shared, part), map(call, begins), len(begins))

    def _run(
        self, make: type, arguments: tuple[PyTree, ...], calls: Iterator[tuple], count: int
    ) -> Iterator[PyTree]:
        if not count:
            return iter(())
        first = self.arguments(0)
        return run_blocks(
            self.run, make, arguments, calls, count=count,
            num_threads=len(workers(jax.local_devices()[:1])),
            check=first if make is _Worlds else ([first], 0, first[2]),
        )  # fmt: skip


def _rechunk(parts: Iterator[Ensemble], size: int) -> Iterator[Ensemble]:
    """Yield the same worlds in chunks of `size`."""
    held: list[Ensemble] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part.status)
        while count >= size:
            joined = _join(held)
            yield _cut(joined, 0, size)
            held, count = [_cut(joined, size, count)], count - size
    if count:
        yield _join(held)


def _join(parts: list[Ensemble]) -> Ensemble:
    joined: Ensemble = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return joined


def _cut(part: Ensemble, begin: int, end: int) -> Ensemble:
    rows: Ensemble = jax.tree.map(lambda leaf: leaf[begin:end], part)
    return rows


def _describe_ensemble(
    blocks: _Blocks, function: jax.stages.Wrapped, about: Mapping[str, str]
) -> dict[str, object]:
    """Describe the run; the program has the mechanism, the method, seed, dt and controls in it."""
    return {
        "format": FORMAT,
        **{f"about {name}": value for name, value in about.items()},
        **fingerprint.versions(),
        "platform": jax.local_devices()[0].platform,
        "num_worlds": blocks.total,
        "start": fingerprint.of_numbers(blocks.starts),
        "program": fingerprint.of_program(function.trace(*blocks.arguments(0)[:2])),
    }


def _read_or_compute(blocks: _Blocks, run: Run) -> Iterator[Ensemble]:
    """Yield the stored blocks, then compute the missing ones; each is on the disk before it is yielded."""
    function = _Worlds(*blocks.shared).function
    shapes = jax.eval_shape(function, *blocks.arguments(0)[:2])
    empty = jax.tree.map(lambda leaf: np.empty((0, *leaf.shape[1:]), leaf.dtype), shapes)
    described = _describe_ensemble(blocks, function, run.about or {})
    assert run.checkpoint is not None
    with open_store(Path(run.checkpoint), described, _label_arrays(empty), blocks.total, "worlds") as store:
        for entry in store.entries:
            yield jax.tree.unflatten(jax.tree.structure(empty), list(store.read(entry).values()))
        if store.num_finished == blocks.total:
            return
        store.start()
        for part in blocks.compute(len(store.entries)):
            store.append(int(part.worlds[0]), _label_arrays(part))
            yield part


def _label_arrays(part: Ensemble) -> dict[str, np.ndarray]:
    """Label the arrays with the names of their fields, in the order of the leaves."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(part)
    }

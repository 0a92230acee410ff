"""A search from many starts, for minima that a single start misses: entry function `search_from_starts`.

Owns the order of the starts, their store on disk and the choice of the best; docs/understand/cluster.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.arguments import check_float_leaves, check_not_empty
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import checked
from jaxcontact.io import fingerprint
from jaxcontact.io.run_store import open_store
from jaxcontact.status import Status

FORMAT = "jaxcontact search from starts, 1"
Search = Callable[[PyTree], tuple[PyTree, PyTree]]


class StartsInfo(Record):
    """Ends of a search from many starts; axis 0 is the start.

    Attributes:
        status: uint32 bits of the best end.
        residual: of the best end.
        num_iters: number of starts.
        best: number of the start that led to the best end.
        costs: (n,), inf if the search from a start failed.
        residuals: (n,).
        statuses: (n,) uint32, NONFINITE if the search from a start failed.
        ends: pytree of the controls at all ends, (n, ...).
        failure: text of the error of the first start that failed, empty if none did.
    """

    status: np.uint32
    residual: float
    num_iters: int
    best: int
    costs: np.ndarray
    residuals: np.ndarray
    statuses: np.ndarray
    ends: PyTree
    failure: str = static(default="")


@checked()
def search_from_starts(
    search: Search, starts: PyTree, *, run: Run = DEFAULT_RUN
) -> tuple[PyTree, StartsInfo]:
    """Search from each of many starts and return the best end.

    The best end has the lowest cost among those whose status is good, or among all if none is. Of equal costs
    the first start counts. The searches run one after the other, or in the workers of an executor.

    Args:
        search: controls -> (controls, info) with `cost`, `residual` and `status`, such as
            `lambda z: jc.optimize.trajectory(objective, z, optimizer=optax.adam(1e-2))`. A ValueError or
            FloatingPointError, or a cost that is not finite, as of a start from which the motion fails, ends
            this start alone.
        starts: pytree of floats whose first axis is the start, such as a population of controls.
        run: executor, checkpoint, about, progress. The checkpoint is a folder with a row for each start. It
            stores versions, starts and `about`, which has to name the search, because no file can hold it.

    Returns:
        controls, StartsInfo.

    Raises:
        TypeError: leaves that are not of floats.
        ValueError: first axes that differ, or empty ones; a checkpoint without `about`, or of another run.
        FloatingPointError: the search from every start raised an error.

    Status: that of the search from the best start; of the first start if all have costs that are not finite.

    Derivative: none; a driver for the host.
    """
    check_run(run, unused=("chunk", "devices"))
    check_float_leaves("starts", starts)
    count = count_rows("starts", starts)
    rows = []
    for row in _search_rows(search, jax.tree.map(np.asarray, starts), count, run):
        rows.append(row)
        if run.progress is not None:
            run.progress(len(rows), count)
    costs, residuals, statuses, ends = (np.stack([row[k] for row in rows]) for k in range(4))
    failures = [row[4] for row in rows if row[4]]
    if len(failures) == count:
        raise FloatingPointError(f"starts: the search from each of {count} failed; the first: {failures[0]}")
    good = np.isfinite(costs) & ~np.asarray(Status.failed(statuses))
    best = int(np.argmin(np.where(good if np.any(good) else np.isfinite(costs), costs, np.inf)))  # 0 of none
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], starts))
    return unravel(jnp.asarray(ends[best])), StartsInfo(
        status=statuses[best], residual=float(residuals[best]), num_iters=count, best=best,
        costs=costs, residuals=residuals, statuses=statuses,
        ends=jax.vmap(unravel)(jnp.asarray(ends)), failure=failures[0] if failures else "",
    )  # fmt: skip


def count_rows(name: str, tree: PyTree) -> int:
    """Return the length of the first axis of all leaves; raise ValueError if they differ or are empty."""
    jax.tree.map(lambda leaf: check_not_empty(name, leaf), tree)
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(tree)}
    if len(sizes) != 1 or sizes <= {(), (0,)}:
        raise ValueError(f"{name}: expected arrays with one first axis, not empty, got {sorted(sizes)}")
    ((count,),) = sizes
    return count


def list_starts(params0: PyTree, starts: PyTree) -> list[PyTree]:
    """Return params0 and the rows of `starts`, or params0 alone; raise ValueError if they do not fit."""
    if starts is None:
        return [params0]
    check_float_leaves("starts", starts)
    count = count_rows("starts", starts)
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (jax.tree.map(lambda a: a[0], starts), params0)]
    if shapes[0] != shapes[1]:
        got = jax.tree.map(jnp.shape, starts)
        raise ValueError(f"starts: expected arrays as params0 with a further first axis, got {got}")
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), starts)
    return [params0, *(jax.tree.map(lambda leaf, k=k: leaf[k], rows) for k in range(count))]


Row = tuple[np.float64, np.float64, np.uint32, np.ndarray, str]


class _SearchFromStart:
    """A function of a start: cost, residual, status and controls at its end, and the text of an error."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def __call__(self, start: PyTree) -> Row:
        """Search from one start."""
        flat = np.asarray(ravel_pytree(start)[0])
        try:
            controls, info = self.search(jax.tree.map(jnp.asarray, start))
        except (ValueError, FloatingPointError) as error:
            failed = np.float64(np.inf), np.float64(np.inf), np.uint32(int(Status.NONFINITE))
            return *failed, flat, str(error) or type(error).__name__
        cost, status = np.float64(info.cost), np.uint32(info.status)
        if not np.isfinite(cost):
            cost, status = np.float64(np.inf), status | np.uint32(int(Status.NONFINITE))
        numbers = cost, np.float64(info.residual), status
        return *numbers, np.asarray(ravel_pytree(controls)[0], flat.dtype), ""


def _search_rows(search: Search, starts: PyTree, count: int, run: Run) -> Iterator[Row]:
    """Yield the end of each start, in order; with a checkpoint the stored ones first."""

    def computed(done: int) -> Iterator[Row]:
        calls = ((jax.tree.map(lambda leaf, k=k: leaf[k], starts),) for k in range(done, count))
        return run_blocks(run, _SearchFromStart, (search,), calls, count=count - done, num_threads=1)

    if run.checkpoint is None:
        yield from computed(0)
        return
    if not run.about:
        raise ValueError('run.about: expected {"search": NAME}, because a checkpoint cannot hold the search')
    flat = np.asarray(ravel_pytree(jax.tree.map(lambda leaf: leaf[0], starts))[0])
    template: dict[str, np.ndarray] = {
        "costs": np.empty(0), "residuals": np.empty(0), "statuses": np.empty(0, np.uint32),
        "ends": np.empty((0, flat.size), flat.dtype),
    }  # fmt: skip
    described = {
        "format": FORMAT,
        **{f"about {name}": value for name, value in run.about.items()},
        **fingerprint.versions(),
        "starts": fingerprint.of_numbers(starts),
    }
    with open_store(Path(run.checkpoint), described, template, count, "starts") as store:
        for entry in store.entries:
            arrays = store.read(entry)
            for row in zip(*(arrays[name] for name in template), strict=True):
                has_raised = np.isposinf(row[0]) and np.isposinf(row[1])
                yield *row, "failed before the run was stopped" if has_raised else ""
        if store.num_finished == count:
            return
        store.start()
        for number, row in enumerate(computed(store.num_finished), store.num_finished):
            store.append(
                number, {name: np.asarray(value)[None] for name, value in zip(template, row[:4], strict=True)}
            )
            yield row

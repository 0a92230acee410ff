"""The hop of `hop_by_scipy`, planned by OpenSCvx (`pip install openscvx`): a state at each of 11 nodes.

Page: docs/extend/own-optimiser.md.
"""

from __future__ import annotations

import contextlib
import functools
import io
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.hop_by_scipy import CLEAR, IN_AIR, LANDED, SEEDS, Hop
from benchmarks.own_optimiser import MAX_ITERS, NODES, make_advance, make_problem
from benchmarks.runner import Case

SCALE = 10.0  # 1/m, of gaps beside the errors of scaled states


class Planner:
    """Plans of a hop by OpenSCvx, from the motion of controls that are near to one."""

    def __init__(self, model: jc.Model) -> None:
        state, nv = jc.place_on_ground(model, model.initial_state())[0], model.structure.num_velocities
        self._x0, self._advance = np.concatenate([state.q, state.v]), make_advance(model, state)
        self._move = jax.jit(self._advance)
        self._gap = lambda x: jnp.min(jc.contact_terms(model, state.replace(q=x[:nv])).phi)

    def plan(self, u: np.ndarray) -> tuple[np.ndarray, bool, int, float]:
        """Return controls (NODES, nu), whether the search converged, its iterations, and s of the search."""
        x, rows = jnp.asarray(self._x0), []
        for row in u:
            x = self._move(x, jnp.asarray(row))
            rows.append(np.asarray(x))
        conditions = (
            (lambda x: SCALE * (CLEAR - self._gap(x)), [k - 1 for k in IN_AIR]),
            (lambda x: SCALE * (self._gap(x) - LANDED), [NODES - 1]),
        )
        with contextlib.redirect_stdout(io.StringIO()):
            problem, control = make_problem(self._advance, self._x0, (np.array(rows), u), conditions)
            problem.initialize()
            begin = time.perf_counter()
            result = problem.solve(max_iters=MAX_ITERS)
        seconds = time.perf_counter() - begin
        controls = np.clip(np.asarray(result.u)[:, control.slice], -1.0, 1.0)
        return controls, bool(result.converged), int(problem.state.k), seconds


def _hop(seed: int) -> Callable[[], dict[str, Any]]:
    import openscvx  # noqa: F401, for a case that lacks it is skipped

    model = jc.models.hopper()
    hop, planner = Hop(model), Planner(model)

    def run() -> dict[str, Any]:
        begin = time.perf_counter(), time.process_time()
        drawn = hop.draw(np.random.default_rng(seed)).reshape(NODES, -1)
        u, has_converged, iterations, seconds = planner.plan(drawn)
        spent = time.perf_counter() - begin[0], time.process_time() - begin[1]
        values = hop.values(u.ravel())[0]  # the plan, carried out by the step itself
        return {
            "converged": has_converged,
            "iterations": iterations,
            "motions with derivatives": iterations,
            "mean square of controls": float(np.mean(u**2)),
            "miss of the end, m or rad": float(np.max(np.abs(values[:3]))),
            "gaps in the air, m": np.round(values[3:6], 3).tolist(),
            "gap at the end, m": float(values[6]),
            "s of the search": seconds,
            "s": spent[0],
            "processor s": spent[1],
        }

    return run


CASES = [
    Case(name=f"hop by OpenSCvx, seed {seed}", items=1, setup=functools.partial(_hop, seed), repeats=1)
    for seed in SEEDS
]

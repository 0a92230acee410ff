"""A hop planned by SciPy's SLSQP, with exact compliant steps as dynamics in one piece.

The package's hopper leaves the ground, moves its trunk 20 cm forward, and stands on its foot again with the
trunk as high and as upright as it began. Page: docs/extend/own-optimiser.md.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import jaxcontact as jc
from benchmarks.own_optimiser import DT, STEPS, WAY
from benchmarks.runner import Case

PIECES, IN_AIR = 11, (4, 5, 6)  # equal controls each, and after which of them the foot is off the ground
CLEAR, LANDED = 0.03, 1e-3  # m, least gap in the air, and largest gap at the end
DRAWS = 1980  # of controls; the nearest to the constraints is the start
PENALTY = 10.0  # 1/m or 1/rad, of what a point lacks to the constraints, in the choice of the best one
# How far a stage may change a control, its largest number of steps, whether it minimises effort or change.
STAGES = ((2.0, 60, True), (0.1, 60, True), (0.02, 30, False), (0.005, 30, False))
SEEDS = (0, 1, 2)


class Hop:
    """Constraints of a hop as functions of controls (PIECES * nu,), with their Jacobian."""

    def __init__(self, model: jc.Model) -> None:
        state, nu = jc.place_on_ground(model, model.initial_state())[0], model.num_controls
        self.size, self.num_motions = PIECES * nu, 0
        self._units, self._last = np.eye(self.size), (np.zeros(0), np.zeros(0), np.zeros(0))

        def ends(u: jax.Array) -> jax.Array:
            controls = jnp.repeat(u.reshape(PIECES, nu), STEPS, axis=0)
            states, _ = jc.compliant.rollout(model, state, controls, dt=DT)
            gaps = [
                jnp.min(jc.contact_terms(model, state.replace(q=states.q[STEPS * k - 1])).phi)
                for k in (*IN_AIR, PIECES)
            ]
            moved = (states.q[-1] - state.q)[:3] - jnp.array([WAY, 0.0, 0.0])
            return jnp.concatenate([moved, jnp.stack(gaps)])

        self._lanes = jc.simd(lambda u, unit: jax.jvp(ends, (u,), (unit,)), nan=False)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw controls, and return those nearest to the constraints."""
        drawn = rng.uniform(-1.0, 1.0, (DRAWS, self.size)).reshape(-1, self.size, self.size)
        lacks = [lack_of(np.asarray(self._lanes(rows, 0.0 * self._units)[0])) for rows in drawn]
        return drawn.reshape(-1, self.size)[np.argmin(np.nan_to_num(lacks, nan=np.inf))]

    def values(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the trunk's error (3,) and gaps (4,), and their Jacobian, a tangent in each lane."""
        if not np.array_equal(u, self._last[0]):
            self.num_motions += 1
            value, slopes = self._lanes(np.tile(u, (self.size, 1)), self._units)
            self._last = u.copy(), np.asarray(value)[0], np.asarray(slopes).T
        return self._last[1], self._last[2]


def lack_of(values: np.ndarray) -> np.ndarray:
    """Return what points (..., 7) lack to the constraints, m and rad."""
    lack = np.sum(np.abs(values[..., :3]), axis=-1)
    lack = lack + np.sum(np.maximum(CLEAR - values[..., 3:6], 0.0), axis=-1)
    return lack + np.maximum(values[..., 6] - LANDED, 0.0)


def plan_hop(hop: Hop, u: np.ndarray) -> np.ndarray:
    """Plan by SciPy: least effort within the constraints, then the least change that meets them."""
    signs = np.array([1.0, 1.0, 1.0, -1.0])
    offset = np.array([CLEAR, CLEAR, CLEAR, -LANDED])
    constraints = [
        {"type": "eq", "fun": lambda u: hop.values(u)[0][:3], "jac": lambda u: hop.values(u)[1][:3]},
        {"type": "ineq", "fun": lambda u: signs * hop.values(u)[0][3:] - offset,
         "jac": lambda u: signs[:, None] * hop.values(u)[1][3:]},
    ]  # fmt: skip
    for radius, most, is_effort in STAGES:
        centre = np.zeros_like(u) if is_effort else u
        best = [(np.inf, u)]

        def keep(x: np.ndarray, best: Any = best, is_effort: bool = is_effort) -> None:
            merit = is_effort * float(np.mean(x**2)) + PENALTY * float(lack_of(hop.values(x)[0]))
            best[0] = min(best[0], (merit, x.copy()), key=lambda pair: pair[0])

        keep(u)
        bounds = list(zip(np.maximum(u - radius, -1.0), np.minimum(u + radius, 1.0), strict=True))
        ended = minimize(
            lambda x, centre=centre: np.mean((x - centre) ** 2), u, method="SLSQP", bounds=bounds,
            jac=lambda x, centre=centre: 2.0 * (x - centre) / x.size, constraints=constraints, callback=keep,
            options={"maxiter": most, "ftol": 1e-12},
        )  # fmt: skip
        keep(np.clip(ended.x, -1.0, 1.0))
        u = best[0][1]
    return u


def _hop(seed: int) -> Callable[[], dict[str, Any]]:
    hop = Hop(jc.models.hopper())

    def run() -> dict[str, Any]:
        begin, hop.num_motions = time.process_time(), 0
        u = plan_hop(hop, hop.draw(np.random.default_rng(seed)))
        values = hop.values(u)[0]
        return {
            "motions with derivatives": hop.num_motions,
            "mean square of controls": float(np.mean(u**2)),
            "miss of the end, m or rad": float(np.max(np.abs(values[:3]))),
            "gaps in the air, m": np.round(values[3:6], 3).tolist(),
            "gap at the end, m": float(values[6]),
            "processor s": time.process_time() - begin,
        }

    return run


CASES = [
    Case(name=f"hop by SciPy, seed {seed}", items=1, setup=functools.partial(_hop, seed), repeats=1)
    for seed in SEEDS
]

"""Descent on one penalised objective of the hexapod's stride: B-derivative, plain gradient, differences.

The start lands a tripod together, at a corner, and pitch and leg angles are free to leave it. All methods
have as many motions as the B-derivative's descent used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from benchmarks.runner import Case
from jaxcontact import gaits, optimize

PENALTY, STEPS, RATE = 10.0, 40, 0.01


def _differences(f: Callable[[jax.Array], jax.Array], s0: jax.Array, budget: int) -> float:
    """Least value by Adam on forward differences, restarted at random after half of the budget."""
    rng = np.random.default_rng(0)
    best, used, s = np.inf, 0, s0
    optimizer = optax.adam(RATE)
    state = optimizer.init(s)
    restarted = False
    while used + s.size + 1 <= budget:
        value = float(f(s))
        gradient = np.array([(float(f(s.at[i].add(1e-6))) - value) / 1e-6 for i in range(s.size)])
        used += s.size + 1
        if np.isfinite(value):
            best = min(best, value)
        updates, state = optimizer.update(jnp.asarray(np.nan_to_num(gradient)), state)
        s = s + updates
        if not restarted and used >= budget // 2:
            s, restarted = s0 + jnp.asarray(rng.normal(scale=0.02, size=s0.size)), True
            state = optimizer.init(s)
    return best


def _descents() -> Callable[[], dict[str, Any]]:
    problem, params, free = gaits.hexapod(together=False)

    def penalised(z: Any) -> jax.Array:
        cost, r = optimize.gait_outcome(problem, params, z, 1.0)
        return cost + PENALTY * jnp.sum(r**2)

    def rate(z: Any, d: Any) -> jax.Array:
        _, r = optimize.gait_outcome(problem, params, z, 1.0)
        dcost, dr = optimize.gait_outcome_rate(problem, params, z, d, 1.0)
        return dcost + 2.0 * PENALTY * jnp.sum(r * dr)

    flat, unravel = ravel_pytree(free)
    scale = jnp.where(flat == 0, 1.0, jnp.abs(flat))
    scaled = jax.jit(lambda s: penalised(unravel(s * scale)))

    def run() -> dict[str, Any]:
        go = functools.partial(optimize.trajectory, penalised, free, optimizer=optax.adam(RATE))
        _, sharp = go(directional=rate, num_steps=STEPS)
        _, plain = go(num_steps=sharp.evaluations - 1)
        return {
            "motions": sharp.evaluations,
            "start": float(plain.costs[0]),
            "B-derivative": float(np.min(sharp.costs)),
            "plain gradient": float(np.min(plain.costs)),
            "plain gradient, as many steps": float(np.min(plain.costs[: STEPS + 1])),
            "differences": _differences(scaled, flat / scale, sharp.evaluations),
            "steps where the gradient does not descend %": 100.0 * sharp.corners / STEPS,
        }

    return run


CASES = [Case(name="gait descent hexapod", items=1, setup=_descents, repeats=1)]

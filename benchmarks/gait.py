"""Descent on one penalised objective of the hexapod's stride by five derivatives, at equally many motions.

The start lands a tripod together, at a corner, and pitch and leg angles are free to leave it. Adam takes the
one-sided derivative, the plain gradient of the flow, the gradient of compliant steps (scored by the flow,
which is not counted), and forward differences, with and without restarts at random. A motion is one
run with the derivatives by all free numbers, or one value. The kink of the tilt is half the sum of
the one-sided derivatives along pitch and back.
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

import jaxcontact as jc
from benchmarks import stepped_gait
from benchmarks.runner import Case
from jaxcontact import optimize
from jaxcontact.optimize import gaits

PENALTY, STEPS, RATE = 10.0, 200, 0.01


def _adam(steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(RATE, max(steps, 1)))


def differences(f: Callable[[jax.Array], jax.Array], s0: jax.Array, budget: int, restarts: int) -> float:
    """Least value by Adam on forward differences, begun again near s0 after equal parts of the budget."""
    rng = np.random.default_rng(0)
    steps = budget // (restarts + 1) // (s0.size + 1)
    best = np.inf
    for attempt in range(restarts + 1):
        s = s0 + (0.02 * rng.normal(size=s0.size) if attempt else 0.0)
        optimizer = _adam(steps)
        state = optimizer.init(s)
        for _ in range(steps):
            value = float(f(s))
            gradient = np.array([(float(f(s.at[i].add(1e-6))) - value) / 1e-6 for i in range(s.size)])
            best = min(best, value if np.isfinite(value) else np.inf)
            updates, state = optimizer.update(jnp.asarray(np.nan_to_num(gradient)), state)
            s = s + updates
    return best


def _descents() -> Callable[[], dict[str, Any]]:
    problem, params, free = gaits.hexapod(together=False)

    def penalised(outcome: Any, z: Any) -> jax.Array:
        cost, r = outcome(problem, params, z, 1.0)
        return cost + PENALTY * jnp.sum(r**2)

    flow = functools.partial(penalised, optimize.gait_outcome)
    steps = functools.partial(penalised, stepped_gait.outcome)

    def rate(z: Any, d: Any) -> jax.Array:
        _, r = optimize.gait_outcome(problem, params, z, 1.0)
        dcost, dr = optimize.gait_outcome_rate(problem, params, z, d, 1.0)
        return dcost + 2.0 * PENALTY * jnp.sum(r * dr)

    flat, unravel = ravel_pytree(free)
    scale = jnp.where(flat == 0, 1.0, jnp.abs(flat))
    value = jax.jit(lambda z: flow(unravel(z)))
    one_sided = jax.jit(lambda z, d: rate(unravel(z), unravel(d * scale)))
    gradients = {name: jax.jit(jax.jacfwd(lambda s, f=f: f(unravel(s * scale)))) for name, f in
                 (("flow", flow), ("steps", steps))}  # fmt: skip

    @jax.jit
    def tied(z: jax.Array) -> jax.Array:
        launch = problem.launch(unravel(z), params)
        zero = jnp.zeros_like(launch.x0)
        _, info = jc.ess.b_derivative(
            jc.Model(system=problem.es, params=launch.params), launch.x0, zero, 0.0, launch.duration,
            settings=problem.settings(), control=launch.control, crossed0=problem.starts_crossed(),
        )  # fmt: skip
        return info.num_corners > 0

    def ties(path: np.ndarray) -> float:
        return 100.0 * float(np.mean([bool(tied(jnp.asarray(z))) for z in path]))

    def run() -> dict[str, Any]:
        go = optimize.trajectory
        _, sharp = go(flow, free, optimizer=optimize.OneSided(_adam(STEPS), rate), num_steps=STEPS)
        motions = sharp.evaluations
        settings = {"optimizer": _adam(motions - 1), "num_steps": motions - 1}
        _, plain = go(flow, free, **settings)
        _, stepped = go(steps, free, **settings)
        pitch = unravel(jnp.zeros_like(flat)) | {"pitch": jnp.ones(())}
        tilt, _ = ravel_pytree(pitch)
        exact = gradients["flow"](flat / scale)
        scaled = lambda s: value(s * scale)  # noqa: E731
        return {
            "motions": motions,
            "start": float(plain.costs[0]),
            "B-derivative": float(np.min(sharp.costs)),
            "plain gradient": float(np.min(plain.costs)),
            "compliant step": min(float(value(jnp.asarray(z))) for z in stepped.path),
            "differences": differences(scaled, flat / scale, motions, 0),
            "differences, 2 restarts": differences(scaled, flat / scale, motions, 2),
            "at a tie %: B-derivative": ties(sharp.path),
            "at a tie %: plain gradient": ties(plain.path),
            "steps where the gradient does not descend %": 100.0 * sharp.corners / STEPS,
            "gradient at the start": float(jnp.linalg.norm(exact)),
            "kink of the tilt there": 0.5 * float(one_sided(flat, tilt) + one_sided(flat, -tilt)),
            "error of the compliant step's gradient": float(
                jnp.linalg.norm(gradients["steps"](flat / scale) - exact) / jnp.linalg.norm(exact)
            ),
        }

    return run


CASES = [Case(name="gait descent hexapod", items=1, setup=_descents, repeats=1)]

"""A push found from 5 cm away: smoothing lowered to the exact step, beside randomised smoothing.

A pusher stands 5 cm from a box that should end 0.3 m farther, so that the exact gradient of a small push is
zero (docs/methods/planning.md). Starts are noise of 0.1 N. Randomised smoothing has as many motions, of the
exact step without derivatives (Suh, Pang & Tedrake, *Bundled gradients through contact via randomized
smoothing*, 2022): Gaussian noise on every control, slopes by pairs of opposite samples, and Adam. Its result
is the best motion of all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxcontact as jc
from benchmarks.runner import Case

SCENE = """<mujoco><worldbody>
<geom name="floor" type="plane" size="5 5 1" friction="0.5"/>
<body pos="-0.18 0 0.1"><joint name="push" type="slide" axis="1 0 0" damping="2"/>
<geom type="sphere" size="0.03" mass="1" friction="0.2"/></body>
<body pos="0 0 0.1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<joint type="hinge" axis="0 -1 0"/><geom type="box" size="0.1 0.1 0.1" mass="1" friction="0.5"/></body>
</worldbody><actuator><motor joint="push" ctrlrange="-20 20"/></actuator></mujoco>"""
STEPS, DT, FORCE = 40, 0.02, 20.0  # steps, s, N
GOAL, EFFORT = 0.3, 1e-5  # m, 1/N^2
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # J
PAIRS = 12  # of opposite samples in a step of randomised smoothing
NOISE = (3.0, 0.3)  # N, standard deviations at the first and the last step
RATES = (1.0, 3.0, 10.0)  # N, of Adam; the best one counts


def plan() -> tuple[Callable[..., jax.Array], Callable[[jax.Array], jax.Array]]:
    """Return the cost of a push (STEPS,) at a level of smoothing, and the exact way of the box."""
    model = jc.load_mjcf(SCENE, planar=True)
    state = jc.place_on_ground(model, model.initial_state())[0]

    def way(push: jax.Array, smoothing: Any) -> jax.Array:
        soft = jc.compliant.smoothed(model, smoothing)
        return jc.compliant.rollout(soft, state, push[:, None], dt=DT)[0].q[-1, 1]

    def cost(push: jax.Array, smoothing: Any) -> jax.Array:
        return (way(push, smoothing) - GOAL) ** 2 + EFFORT * jnp.mean(push**2)

    return cost, jax.jit(lambda push: way(push, None))


def start_of(seed: int) -> np.ndarray:
    """Draw the push that a search starts from."""
    return 0.1 * np.random.default_rng(seed).normal(size=STEPS)


def anneal(cost: Callable[..., jax.Array], seed: int) -> tuple[np.ndarray, Any]:
    """Search through the levels of smoothing to the exact step."""
    optimizer = jc.optimize.AugmentedLagrangian(bounds=(-FORCE, FORCE), smoothing=LEVELS, slope=1e-2)
    push, info = jc.optimize.trajectory(
        cost, jnp.asarray(start_of(seed)), optimizer=optimizer, scale=3.0, num_steps=120
    )
    return np.asarray(push), info


def randomise(cost: Callable[[jax.Array], jax.Array], seed: int, motions: int, rate: float) -> np.ndarray:
    """Return the best push of a search by samples of as many motions."""
    draws, push = np.random.default_rng(100 + seed), start_of(seed)
    optimizer = optax.adam(rate)
    state, num_steps = optimizer.init(jnp.asarray(push)), motions // (2 * PAIRS)
    best, lowest = push, np.inf
    for k in range(num_steps):
        noise = NOISE[0] * (NOISE[1] / NOISE[0]) ** (k / max(num_steps - 1, 1))
        unit = draws.normal(size=(PAIRS, STEPS))
        tried = np.clip(np.concatenate([push + noise * unit, push - noise * unit]), -FORCE, FORCE)
        costs = np.asarray(cost(jnp.asarray(tried)))
        if costs.min() < lowest:
            best, lowest = tried[costs.argmin()], float(costs.min())
        slope = (costs[:PAIRS] - costs[PAIRS:]) @ unit / (2.0 * noise * PAIRS)
        change, state = optimizer.update(jnp.asarray(slope), state)
        push = np.clip(push + np.asarray(change), -FORCE, FORCE)
    return best


def _compare(seed: int) -> Callable[[], dict[str, Any]]:
    cost, way = plan()
    exact = jax.jit(lambda push: cost(push, None))
    many = jax.jit(jax.vmap(lambda push: cost(push, None)))
    slope = jax.jit(jax.grad(lambda push: cost(push, None) - EFFORT * jnp.mean(push**2)))

    def run() -> dict[str, Any]:
        push, info = anneal(cost, seed)
        drawn = [randomise(many, seed, info.evaluations, rate) for rate in RATES]
        best = min(drawn, key=lambda z: float(exact(z)))
        return {
            "exact slope at the start": float(jnp.linalg.norm(slope(jnp.asarray(start_of(seed))))),
            "motions": info.evaluations, "status": jc.Status.describe(info.status),
            "cost annealed": float(exact(push)), "box at, m": float(way(push)),
            "cost randomised": float(exact(best)), "box at, m, randomised": float(way(best)),
            "costs by rates": " ".join(f"{float(exact(z)):.3g}" for z in drawn),
        }  # fmt: skip

    return run


CASES = [
    Case(name=f"push from afar, seed {seed}", items=1, setup=functools.partial(_compare, seed), repeats=1)
    for seed in range(3)
]

"""Descent from a tie: a plate pressed onto three feet that land together, and stay so while it is level.

The plate shall be deep and level after 0.4 s, at little force: cost (cm) = z + heat of the presses + tilt^2,
free are the three pushes and the tilt at the start. A tilt costs whichever way it goes, so the best are
level, at the tie, and steps along it descend. What automatic differentiation returns there is the
gradient of one order of landing. Two ways to use a derivative: steepest descent with steps halved until they
descend, and Adam, which takes every step. All have equally many motions; excess is the cost above that of the
best level plate.
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
from scipy.optimize import minimize_scalar

import jaxcontact as jc
from benchmarks.runner import Case
from jaxcontact import optimize

END, HEAT, PENALTY = 0.4, 6.7e-7, 1.0  # s, m/N^2, m/rad^2
PUSH, STEPS, RATE = 240.0, 60, 0.01  # N at the start, steps of Adam, their size
FIRST, SHORTEST, ENOUGH = 0.1, 1e-9, 1e-4  # steps of the line search, and its share of the promised descent
SETTINGS = jc.ess.Settings(eps=1e-6, max_steps=32, max_events=3)
Derivative = Callable[[jax.Array, np.ndarray], tuple[np.ndarray, int]]


def cost(free: Any) -> jax.Array:
    """Height after 0.4 s, heat of the presses, and a penalty on the tilt that is left, cm."""
    model = jc.models.pressed_plate()
    x0 = model.initial_state().at[1].set(free["tilt"])
    push = free["push"]
    x1, _ = jc.ess.flow(model, x0, 0.0, END, settings=SETTINGS, control={"push": push})
    return 100.0 * (x1[0] + HEAT * jnp.sum(push**2) + PENALTY * x1[1] ** 2)


def cost_rate(free: Any, d: Any) -> tuple[jax.Array, jc.ess.BDerivativeInfo]:
    """One-sided derivative of `cost` along d, and what the motion meets."""
    model = jc.models.pressed_plate()
    x0, dx0 = model.initial_state().at[1].set(free["tilt"]), jnp.zeros(2).at[1].set(d["tilt"])
    push, dpush = free["push"], d["push"]
    dx1, info = jc.ess.b_derivative(
        model, x0, jc.ess.Direction(x=dx0, control={"push": dpush}), 0.0, END,
        settings=SETTINGS, control={"push": push},
    )  # fmt: skip
    change = dx1[0] + 2.0 * HEAT * jnp.sum(push * dpush) + 2.0 * PENALTY * info.x1[1] * dx1[1]
    return 100.0 * change, info


def best_level() -> float:
    """The least cost of level plates in closed form, cm."""
    numbers = jc.models.pressed_plate().params
    drag, crush = float(numbers["drag"]), float(numbers["crush"])

    def level(push: float) -> float:
        landing = 0.1 * drag / (3.0 * push)
        return 100.0 * (-(END - landing) * 3.0 * (push - crush) / drag + HEAT * 3.0 * push**2)

    return float(
        minimize_scalar(level, bounds=(150.0, 500.0), method="bounded", options={"xatol": 1e-10}).fun
    )


def search(
    value_and_gradient: Callable[[jax.Array], Any], direction: Derivative, s: jax.Array, motions: int
) -> tuple[list[float], list[jax.Array]]:
    """Steepest descent with halved steps: costs and places of its iterates, within a number of motions."""
    value, gradient = value_and_gradient(s)
    costs, places, used, step = [float(value)], [s], 1, FIRST
    while used < motions and step >= SHORTEST:
        d, calls = direction(s, np.asarray(gradient))
        used += calls
        promised = ENOUGH * float(d @ d)
        descended = False
        while used < motions and step >= SHORTEST and not descended:
            new = s + step * jnp.asarray(d)
            value, at = value_and_gradient(new)
            used += 1
            descended = bool(value <= costs[-1] - step * promised)
            if descended:
                s, gradient, step = new, at, 2.0 * step
                costs.append(float(value))
                places.append(s)
            else:
                step *= 0.5
    return costs, places


def _descents() -> Callable[[], dict[str, Any]]:
    free = {"push": jnp.full(3, PUSH), "tilt": jnp.zeros(())}
    flat, unravel = ravel_pytree(free)
    scale = jnp.where(flat == 0, 1.0, jnp.abs(flat))
    both = jax.jit(jax.value_and_grad(lambda s: cost(unravel(s * scale))))
    rate = jax.jit(lambda s, d: cost_rate(unravel(s * scale), unravel(d * scale)))
    piece = jax.jit(jax.jacfwd(lambda d, s: rate(s, d)[0]))

    def sharp(s: jax.Array, gradient: np.ndarray) -> tuple[np.ndarray, int]:
        return optimize.one_sided_descent(
            lambda d: float(rate(s, jnp.asarray(d))[0]),
            lambda d: np.asarray(piece(jnp.asarray(d), s)),
            gradient,
        )

    def tied(places: list[jax.Array]) -> float:
        return 100.0 * float(np.mean([int(rate(s, jnp.zeros_like(s))[1].num_corners) > 0 for s in places]))

    def run() -> dict[str, Any]:
        s0, best = flat / scale, best_level()
        value, gradient = both(s0)
        adam = optax.adam(RATE)
        go = functools.partial(optimize.trajectory, cost, free)
        one_sided = optimize.OneSided(adam, lambda z, d: cost_rate(z, d)[0])
        _, sided = go(optimizer=one_sided, num_steps=STEPS)
        _, plain = go(optimizer=adam, num_steps=sided.evaluations - 1)
        figures: dict[str, Any] = {
            "motions": sided.evaluations,
            "excess at the start": float(value) - best,
            "slope along -gradient over -|gradient|": -float(rate(s0, -gradient)[0] / jnp.sum(gradient**2)),
        }
        ways: dict[str, Derivative] = {"B-derivative": sharp, "gradient": lambda _, g: (-g, 0)}
        for (name, way), adam in zip(ways.items(), (sided, plain), strict=True):
            costs, places = search(both, way, s0, sided.evaluations)
            figures |= {
                f"{name}, line search": costs[-1] - best,
                f"{name}, line search, steps": len(costs) - 1,
                f"{name}, line search, at a tie %": tied(places),
                f"{name}, Adam": float(np.min(adam.costs)) - best,
                f"{name}, Adam, at a tie %": tied([jnp.asarray(z) / scale for z in adam.path]),
            }
        return figures

    return run


CASES = [Case(name="gait tie pressed plate", items=1, setup=_descents, repeats=1)]

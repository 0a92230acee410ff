"""Descent from a tie: a plate pressed onto three feet that land together, and stay so while it is level.

The plate shall be deep and level after 0.4 s, at little force: cost (cm) = z + heat of the presses + tilt^2,
free are the three pushes and the tilt at the start. A tilt costs whichever way it goes, so the best are
level, at the tie, and steps along it descend. What automatic differentiation returns there is the
gradient of one order of landing. Two ways to use a derivative: steepest descent with steps halved until they
descend, and Adam, which takes every step. All have equally many motions; excess is the cost above that of the
best level plate. `PiecewiseNewton` knows the pieces; it starts at the tie, and from a tilted plate whose feet
land apart. The same for a bent valley with a kink along its bottom, beside BFGS.
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
NEARBY, TILTED, UNEVEN = (
    0.05,
    0.03,
    (200.0, 250.0, 260.0),
)  # s between landings; rad and N of the second start
FIRST, SHORTEST, ENOUGH = 0.1, 1e-9, 1e-4  # steps of the line search, and its share of the promised descent
SETTINGS = jc.ess.Settings(eps=1e-6, max_steps=32, max_events=3)
Derivative = Callable[[jax.Array, np.ndarray], tuple[np.ndarray, int]]


plate = functools.cache(jc.models.pressed_plate)  # called outside of jit first


def cost(free: Any) -> jax.Array:
    """Height after 0.4 s, heat of the presses, and a penalty on the tilt that is left, cm."""
    model = plate()
    x0 = model.initial_state().at[1].set(free["tilt"])
    push = free["push"]
    x1, _ = jc.ess.flow(model, x0, 0.0, END, settings=SETTINGS, control={"push": push})
    return 100.0 * (x1[0] + HEAT * jnp.sum(push**2) + PENALTY * x1[1] ** 2)


def cost_rate(free: Any, d: Any) -> tuple[jax.Array, jc.ess.BDerivativeInfo]:
    """One-sided derivative of `cost` along d, and what the motion meets."""
    model = plate()
    x0, dx0 = model.initial_state().at[1].set(free["tilt"]), jnp.zeros(2).at[1].set(d["tilt"])
    push, dpush = free["push"], d["push"]
    dx1, info = jc.ess.b_derivative(
        model, x0, jc.ess.Direction(x=dx0, control={"push": dpush}), 0.0, END,
        settings=SETTINGS, control={"push": push},
    )  # fmt: skip
    change = dx1[0] + 2.0 * HEAT * jnp.sum(push * dpush) + 2.0 * PENALTY * info.x1[1] * dx1[1]
    return 100.0 * change, info


def cost_pieces(free: Any) -> jc.ess.LinearPieces:
    """Linear pieces of `cost` by the free numbers in their order, of landings up to NEARBY apart."""
    model = plate()
    flat, unravel = ravel_pytree(free)
    axes = jax.vmap(unravel)(jnp.eye(flat.size))
    x0 = model.initial_state().at[1].set(free["tilt"])
    basis = jc.ess.Direction(
        x=jnp.zeros((flat.size, 2)).at[:, 1].set(axes["tilt"]), control={"push": axes["push"]}
    )
    pieces, info = jc.ess.one_sided_jacobian(
        model, x0, 0.0, END, settings=SETTINGS.replace(corner_tol=NEARBY), basis=basis,
        control={"push": free["push"]},
    )  # fmt: skip

    def at_end(free: Any, x1: jax.Array) -> jax.Array:
        return 100.0 * (x1[0] + HEAT * jnp.sum(free["push"] ** 2) + PENALTY * x1[1] ** 2)

    by_free, by_end = jax.grad(at_end, (0, 1))(free, info.x1)
    return pieces.of_cost(by_end, ravel_pytree(by_free)[0])


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
    plate()
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


def valley(z: jax.Array) -> jax.Array:
    """A bent valley with a kink along its bottom (Lewis & Overton 2013): least, 0, at (1, 1)."""
    return 8.0 * jnp.abs(z[1] - z[0] ** 2) + (1.0 - z[0]) ** 2


def valley_pieces(z: Any) -> jc.ess.LinearPieces:
    """The two sides of the valley."""
    x, y = np.asarray(z)
    beyond, slope = y - x**2, np.array([-2.0 * x, 1.0])
    side = np.array([1.0, -1.0]) * (1.0 if beyond >= 0 else -1.0)
    return jc.ess.LinearPieces(
        jacobians=jnp.asarray((8.0 * side[:, None] * slope + [-2.0 * (1.0 - x), 0.0])[:, None]),
        conditions=jnp.asarray(side[:, None, None] * slope),
        orders=jnp.asarray(np.int32(side)[:, None]),
        offsets=jnp.asarray(8.0 * (side[:, None] * beyond - np.abs(beyond))),
        margins=jnp.asarray(side[:, None] * beyond),
    )


def _kinked(function: Any, start: Any, scale: Any, pieces: Any, best: float) -> dict[str, Any]:
    """Excess and motions of `PiecewiseNewton`; excess of others with equal and tenfold motions."""
    go = functools.partial(optimize.trajectory, function, start, scale=scale)
    flat, unravel = ravel_pytree(start)
    sizes = ravel_pytree(jax.tree.map(lambda leaf, size: jnp.full(jnp.shape(leaf), size), start, scale))[0]
    both = jax.jit(jax.value_and_grad(lambda s: function(unravel(s * sizes))))
    _, newton = go(optimizer=optimize.PiecewiseNewton(pieces), num_steps=100)
    motions = newton.evaluations
    figures: dict[str, Any] = {"PiecewiseNewton": newton.cost - best, "motions": motions}
    for count in (motions, 10 * motions):
        costs, _ = search(both, lambda _, g: (-g, 0), flat / sizes, count)
        _, adam = go(optimizer=optax.adam(RATE), num_steps=count - 1)
        figures |= {
            f"gradient, line search, {count}": costs[-1] - best,
            f"gradient, Adam, {count}": float(np.min(adam.costs)) - best,
        }
    _, bfgs = go(num_steps=100)
    return figures | {"BFGS": bfgs.cost - best, "BFGS motions": bfgs.evaluations}


def _tilted() -> Callable[[], dict[str, Any]]:
    plate()
    start = {"push": jnp.array(UNEVEN), "tilt": jnp.asarray(TILTED)}
    return lambda: _kinked(cost, start, {"push": PUSH, "tilt": 1.0}, cost_pieces, best_level())


def _level() -> Callable[[], dict[str, Any]]:
    plate()
    start = {"push": jnp.full(3, PUSH), "tilt": jnp.zeros(())}
    return lambda: _kinked(cost, start, {"push": PUSH, "tilt": 1.0}, cost_pieces, best_level())


def _valley() -> Callable[[], dict[str, Any]]:
    return lambda: _kinked(valley, jnp.array([-1.2, 1.0]), 1.0, valley_pieces, 0.0)


CASES = [
    Case(name="gait tie pressed plate", items=1, setup=_descents, repeats=1),
    Case(name="kinks level plate", items=1, setup=_level, repeats=1),
    Case(name="kinks tilted plate", items=1, setup=_tilted, repeats=1),
    Case(name="kinks valley", items=1, setup=_valley, repeats=1),
]

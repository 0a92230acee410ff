"""Strides of the spring-legged models as gait problems: entry functions `hexapod`, `hopper`.

Owns the free numbers, cost and residuals of the two problems of `jaxcontact gait`. Page:
docs/methods/event-selected.md.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact import models
from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.optimize.periodic_gait import GaitProblem, Launch

HEAT = 2e-3  # W/N^2, loss of an actuator that thrusts or holds a preload
LEG_INERTIA = 0.01  # kg m^2, of a leg that swings; the massless legs of the motion have none
REST = 1e-6  # m; bands of the guards of length, and 10 of them per second for guards of rate


def _spread_over_legs(values: jax.Array, legs: int) -> jax.Array:
    """Spread numbers of front, middle and rear legs over both tripods."""
    return jnp.tile(jnp.broadcast_to(values, (min(legs, 3),)), max(legs // 3, 1))


def _launch(free: PyTree, params: PyTree) -> Launch:
    """Launch half a stride from an apex at x = 0; both tripods are alike, so that it is a period."""
    legs = params["hips"].shape[0]
    angle = _spread_over_legs(free["angle"], legs)
    numbers = {**params, "angle": angle, "preload": _spread_over_legs(free["preload"], legs)}
    level = jnp.zeros_like(free["height"])
    body = [
        level,
        free["height"],
        free.get("pitch", level),
        free["rate"],
        level,
        free.get("turn", level),
        level,
    ]
    x0 = jnp.concatenate([jnp.stack(body), jnp.zeros(legs, level.dtype)])
    return Launch(numbers, x0, free["duration"], {"thrust": _spread_over_legs(free["thrust"], legs)})


def _measure(launch: Launch, x1: jax.Array, speed: jax.typing.ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Compute the cost of transport of half a stride, and the errors of its period and speed."""
    params, x0, duration, control = launch
    legs = min(params["hips"].shape[0], 3)
    held = jnp.sum(control["thrust"][:legs] ** 2 + params["preload"][:legs] ** 2)
    spent = x1[6] + HEAT * duration * held + _swing_work(params["angle"][:legs], duration**2)
    distance = x1[0] - x0[0]
    cost = spent / (params["mass"] * params["gravity"] * distance)
    return cost, jnp.concatenate([x1[1:6] - x0[1:6], (distance / duration - speed)[None]])


def _measure_hopper(
    launch: Launch, x1: jax.Array, speed: jax.typing.ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Compute what `_measure` does, without pitch, which a leg at the centre of mass cannot change.

    The leg that swings must land again, so it swings within the flight, which takes twice the fall from the
    apex.
    """
    params, x0, duration, _ = launch
    cost, residuals = _measure(launch, x1, speed)
    fall = x0[1] - params["length"] * jnp.cos(params["angle"][0])
    flight = 8.0 * fall / params["gravity"]
    more = _swing_work(params["angle"], flight) - _swing_work(params["angle"], duration**2)
    cost = cost + more / (params["mass"] * params["gravity"] * (x1[0] - x0[0]))
    return cost, residuals[jnp.array([0, 2, 3, 5])]


def _swing_work(angles: jax.Array, squared_time: jax.Array) -> jax.Array:
    """Compute the work, J, to swing legs through twice their angles in a time, given by its square, s^2."""
    return jnp.sum(0.5 * LEG_INERTIA * (2.0 * angles) ** 2 / squared_time)


def _make_problem(model: Model, legs: int, measure: PyTree) -> GaitProblem:
    landing = min(legs, 3)
    assert isinstance(model.system, EventSystem)
    return GaitProblem(
        es=model.system,
        launch=_launch,
        measure=measure,
        eps=(REST,) * legs + (10 * REST,) * legs + (REST,) * legs,
        crossed0=(False,) * landing + (True,) * (3 * legs - landing),
    )


@checked()
def hexapod(*, together: bool = True) -> tuple[GaitProblem, PyTree, PyTree]:
    """Make problem, params and free numbers of `models.spring_legged_hexapod`, at a non-periodic start.

    Free are, at an apex, height (m) and forward rate (m/s), the angle of the legs (rad), the duration of
    half a stride (s), and the thrusts and preloads (3,) of front, middle and rear legs (N). The cost of
    transport is work of the actuators, their heat under thrust and preload, and swinging of the legs, over
    weight times distance. At 1 m/s the start is wrong by 0.3 m/s.

    Args:
        together: the three feet of a tripod always land together, at a corner. Otherwise angles are
            free (3,), and so are pitch (rad) and its rate (rad/s) at the apex; the feet of the start
            still land together.
    """
    model = models.spring_legged_hexapod()
    free: dict[str, jax.Array] = {
        "height": jnp.array(0.205),
        "rate": jnp.array(1.0),
        "duration": jnp.array(0.25),
        "angle": jnp.array(0.3) if together else jnp.full(3, 0.3),
        "thrust": jnp.full(3, 8.0),
        "preload": jnp.full(3, 10.0),
    }
    if not together:
        free |= {"pitch": jnp.array(0.0), "turn": jnp.array(0.0)}
    return _make_problem(model, 6, _measure), model.params, free


def hopper() -> tuple[GaitProblem, PyTree, PyTree]:
    """Make problem, params and free numbers of `models.spring_legged_hopper`, as `hexapod` with one leg."""
    model = models.spring_legged_hopper()
    free = {
        "height": jnp.array(0.205),
        "rate": jnp.array(1.0),
        "duration": jnp.array(0.25),
        "angle": jnp.array(0.3),
        "thrust": jnp.full(1, 25.0),
        "preload": jnp.full(1, 30.0),
    }
    return _make_problem(model, 1, _measure_hopper), model.params, free

"""Half a stride of the hexapod by compliant steps: the same legs and objective, time in equal steps.

Each leg on the ground is a row of a `compliant.Problem`, a spring and a damper on its length that only push,
implicit in the step, and the thrust a force beside them. Landing, turn and lift-off of a leg take effect with
the first step that finds them, so the derivative knows nothing of their times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import compliant
from jaxcontact.optimize import GaitProblem, Launch
from jaxcontact.terms import ConstraintTerms, Kind

STEPS = 500  # of half a stride, about 0.5 ms each
AIR, SHORTENING, LENGTHENING, DONE = range(4)  # DONE: in the air until the partner has lifted off
PARTNERS = jnp.array([3, 4, 5, 0, 1, 2])


class _Stride(NamedTuple):
    q: jax.Array  # x, z, pitch
    v: jax.Array
    work: jax.Array
    feet: jax.Array
    mode: jax.Array
    good: jax.Array


def outcome(problem: GaitProblem, params: Any, free: Any, speed: Any) -> tuple[jax.Array, jax.Array]:
    """As `optimize.gait_outcome`: cost () and residuals (k,), by compliant steps."""
    launch = problem.launch(free, params)
    mode = jnp.where(jnp.asarray(problem.crossed0)[:6], DONE, AIR)
    start = _Stride(launch.x0[:3], launch.x0[3:6], launch.x0[6], launch.x0[7:], mode, jnp.array(True))
    dt = launch.duration / STEPS
    end, _ = lax.scan(lambda c, _: (_step(launch, c, dt), None), start, length=STEPS)
    x1 = jnp.concatenate([end.q, end.v, end.work[None], end.feet])
    cost, residuals = problem.measure(launch, x1, speed)
    return jnp.where(end.good, cost, jnp.nan), residuals


def _step(launch: Launch, c: _Stride, dt: jax.Array) -> _Stride:
    p, thrust = launch.params, launch.control["thrust"]
    sine, cosine = jnp.sin(c.q[2]), jnp.cos(c.q[2])
    hips = c.q[None, :2] + p["hips"][:, None] * jnp.stack([cosine, sine])[None]
    lands = (c.mode == AIR) & (hips[:, 1] <= p["length"] * jnp.cos(p["angle"]))
    feet = jnp.where(lands, hips[:, 0] + p["length"] * jnp.sin(p["angle"]), c.feet)
    reach = jnp.stack([hips[:, 0] - feet, hips[:, 1]], axis=-1)
    length = jnp.sqrt(jnp.sum(reach**2, axis=-1) + 1e-12)
    axis = reach / length[:, None]
    lever = p["hips"] * (cosine * axis[:, 1] - sine * axis[:, 0])
    rows = jnp.concatenate([axis, lever[:, None]], axis=1)
    rate = jnp.sum(rows * c.v[None], axis=1)
    mode = jnp.where(lands, SHORTENING, c.mode)
    mode = jnp.where((mode == SHORTENING) & (rate > 0), LENGTHENING, mode)
    lifts = ((mode == SHORTENING) | (mode == LENGTHENING)) & (length > p["length"]) & ~lands
    mode = jnp.where(lifts, DONE, mode)
    mode = jnp.where(lifts[PARTNERS] & (mode == DONE), AIR, mode)
    down, pushes = (mode == SHORTENING) | (mode == LENGTHENING), mode == LENGTHENING

    stiffness = jnp.where(down, p["stiffness"], 0.0)
    mass = jnp.stack([p["mass"], p["mass"], p["inertia"]])
    weight = jnp.array([0.0, -1.0, 0.0]) * p["mass"] * p["gravity"]
    active = jnp.where(pushes, thrust, 0.0)
    system = compliant.Problem(
        M=jnp.diag(mass),
        v=c.v,
        f=weight + rows.T @ active,
        terms=ConstraintTerms(
            G=rows, phi=length - p["length"] - p["preload"] / p["stiffness"], gdot_v=jnp.zeros(6),
            mu=jnp.zeros(0), kind=(Kind.LIMIT,) * 6,
        ),
        material=compliant.Material(
            stiffness=stiffness, damping=jnp.where(down & ~pushes, p["damping"], 0.0)
        ),
        dt=dt,
    )  # fmt: skip
    lam, info = compliant.solve(system)
    v = c.v + dt * (system.f + rows.T @ lam) / mass
    work = c.work + dt * jnp.sum(active * (rows @ v))
    return _Stride(c.q + dt * v, v, work, feet, mode, c.good & (info.status == 0))

"""A compass gait that returns after every impulse order of its double support, beside the passive one.

Two legs of 1 m walk down a slope; a push between the legs just before a landing decides how much impulse
orders matter. The stride is a pinned double pendulum and one landing. On rough ground the foot that lands is
higher or lower than planned and friction is shifted; there the push also depends on how late it lands.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxcontact as jc
from benchmarks.figures.ensembles import HIP, G, walker
from benchmarks.robust_landings import fall_of_tail, tail_of
from benchmarks.runner import Case
from jaxcontact._pytree import PyTree

SPEED = 0.71  # m/s
STEPS = 40  # of the integrator in a stride
EFFORT = 1e-3  # 1/(N m s)^2, weight of the push between the legs
NUM_STEPS = 60  # of a search
NEWTON_STEPS = 8  # onto the moment of a landing
HEIGHT = 0.01  # m, of the ground under the foot that lands, at most
FRICTION = 0.2  # of its coefficient, largest shift
LATENESS = 0.1  # s; `late` is the change of the push by so much
DRAWN, JUDGED, COMMON = 128, 4000, 20_000  # orders of a search, a judgement, and a difference
LAW = jc.impact.Routh(impulse_step=0.5, max_steps=40)
PASSIVE = {
    "angle": 0.27103, "stance_rate": -1.09238, "swing_rate": -0.37737, "duration": 0.75,
    "slope": np.radians(3.0), "push": 0.0,
}  # fmt: skip


def masses_at(angles: jax.Array) -> jax.Array:
    """Places (3, 2) of the masses of both legs and the hip, the foot of the first leg at the origin."""
    along = jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=-1)
    hip = -along[0]
    return jnp.stack([hip + 0.5 * along[0], hip + 0.5 * along[1], hip])


MASSES = jnp.array([1.0, 1.0, HIP])


def mass_matrix(angles: jax.Array) -> jax.Array:
    """Mass matrix (2, 2) of the pinned legs."""
    slopes = jax.jacfwd(masses_at)(angles)
    return jnp.einsum("m,mxi,mxj->ij", MASSES, slopes, slopes)


def acceleration(angles: jax.Array, rates: jax.Array, slope: jax.Array) -> jax.Array:
    """Accelerations (2,) of the pinned legs under gravity, x along the slope."""
    gravity = G * jnp.stack([jnp.sin(slope), -jnp.cos(slope)])
    twice = jax.jvp(lambda z: jax.jvp(masses_at, (z,), (rates,))[1], (angles,), (rates,))[1]
    pull = jnp.einsum("m,mxi,mx->i", MASSES, jax.jacfwd(masses_at)(angles), gravity[None] - twice)
    return jnp.linalg.solve(mass_matrix(angles), pull)


def swing(start: jax.Array, duration: jax.Array, slope: jax.Array) -> jax.Array:
    """Angles and rates (4,) after a duration, by Runge and Kutta's method of order 4."""
    dt = duration / STEPS

    def rate(z: jax.Array) -> jax.Array:
        return jnp.concatenate([z[2:], acceleration(z[:2], z[2:], slope)])

    def advance(z: jax.Array, _: None) -> tuple[jax.Array, None]:
        k1 = rate(z)
        k2 = rate(z + 0.5 * dt * k1)
        k3 = rate(z + 0.5 * dt * k2)
        k4 = rate(z + dt * k3)
        return z + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

    return jax.lax.scan(advance, start, length=STEPS)[0]


def start_of(free: PyTree) -> jax.Array:
    """Angles and rates (4,) of the legs at the start of a stride, both feet on the floor."""
    return jnp.stack([free["angle"], -free["angle"], free["stance_rate"], free["swing_rate"]])


def with_hip(angles: jax.Array, rates: jax.Array, leg: int) -> jax.Array:
    """Velocities (4,) of hip and legs, the foot of a leg at rest."""
    hip = -rates[leg] * jnp.stack([jnp.cos(angles[leg]), jnp.sin(angles[leg])])
    return jnp.concatenate([hip, rates])


def landing(end: jax.Array, push: jax.Array) -> tuple[Any, jax.Array]:
    """Contact terms and velocities (4,) at the end of a stride, after the push."""
    angles, rates = end[:2], end[2:]
    rates = rates + jnp.linalg.solve(mass_matrix(angles), push * jnp.array([-1.0, 1.0]))
    hip = -jnp.stack([jnp.sin(angles[0]), -jnp.cos(angles[0])])
    state = jc.State(q=jnp.concatenate([hip, angles]), v=with_hip(angles, rates, 0), t=jnp.zeros(()))
    terms = jc.contact_terms(walker(), state)
    return terms.replace(phi=0.0 * terms.phi, active=jnp.ones(2, bool)), state.v


def stride(law: Any, free: PyTree, params: PyTree, speed: Any, key: Any) -> tuple[jax.Array, jax.Array]:
    """Cost of one outcome, its distance from the next stride's start and the push; errors of the period."""
    end = swing(start_of(free), free["duration"], free["slope"])
    terms, v = landing(end, free["push"])
    v_plus, _ = law(terms, v, key)
    wanted = with_hip(end[:2], jnp.stack([free["swing_rate"], free["stance_rate"]]), 1)
    off = v_plus - wanted
    cost = off @ terms.M @ off / (wanted @ terms.M @ wanted) + EFFORT * free["push"] ** 2
    pace = 2.0 * jnp.sin(free["angle"]) / free["duration"] - speed
    places = end[:2] - jnp.stack([-free["angle"], free["angle"]])
    return cost, jnp.concatenate([places, off[2:], pace[None]])


def landing_time(start: jax.Array, free: PyTree, height: jax.Array) -> jax.Array:
    """Find when the foot that swings is at a height, s after the start, by Newton's method."""

    def nearer(_: int, duration: jax.Array) -> jax.Array:
        end = swing(start, duration, free["slope"])
        above = jnp.cos(end[0]) - jnp.cos(end[1]) - height
        return duration - above / (jnp.sin(end[1]) * end[3] - jnp.sin(end[0]) * end[2])

    return jax.lax.fori_loop(0, NEWTON_STEPS, nearer, free["duration"])


def rough_stride(law: Any, free: PyTree, params: PyTree, speed: Any, key: Any) -> tuple[jax.Array, jax.Array]:
    """Return what `stride` does, of a landing at a drawn height with drawn friction and impulse order."""
    order, *others = jax.random.split(key, 3)
    height, shift = (jax.random.uniform(other, minval=-1.0, maxval=1.0) for other in others)
    start, duration = start_of(free), landing_time(start_of(free), free, HEIGHT * height)
    end = swing(start, duration, free["slope"])
    push = free["push"] + free["late"] * (duration - free["duration"]) / LATENESS
    terms, v = landing(end, push)
    v_plus, _ = law(terms.replace(mu=(1.0 + FRICTION * shift) * terms.mu), v, order)
    wanted = with_hip(end[:2], jnp.stack([free["swing_rate"], free["stance_rate"]]), 1)
    off = v_plus - wanted
    cost = off @ terms.M @ off / (wanted @ terms.M @ wanted) + EFFORT * push**2
    flat = swing(start, free["duration"], free["slope"])
    places = flat[:2] - jnp.stack([-free["angle"], free["angle"]])
    pace = 2.0 * jnp.sin(free["angle"]) / free["duration"] - speed
    return cost, jnp.concatenate([places, off[2:], pace[None]])


def walk(free: PyTree, key: jax.Array, strides: int) -> tuple[jax.Array, ...]:
    """Walk strides from landing to landing, each landing with an order of its own.

    Returns durations (strides,), lengths of the steps (strides,), rates of the leg that swings after each
    landing (strides,), and how much the foot that has landed still moves and the other one falls, m/s.
    """

    def one(start: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        duration = landing_time(start, free, jnp.zeros(()))
        end = swing(start, duration, free["slope"])
        terms, v = landing(end, free["push"])
        v_plus, _ = LAW(terms, v, key)
        moves = jnp.hypot(terms.J_n[1] @ v_plus, terms.J_t[1, 0] @ v_plus)
        falls = jnp.maximum(-(terms.J_n[0] @ v_plus), 0.0)
        after = jnp.stack([end[1], end[0], v_plus[3], v_plus[2]])
        length = jnp.abs(jnp.sin(end[1]) - jnp.sin(end[0]))
        return after, (duration, length, v_plus[2], jnp.maximum(moves, falls))

    return jax.lax.scan(one, start_of(free), jax.random.split(key, strides))[1]


def search(
    stride: Callable[..., Any], free0: PyTree, outcomes: int, risk: str
) -> tuple[PyTree, jc.optimize.TrajectoryInfo]:
    """Find the gait of least risk at `SPEED`."""
    problem = jc.optimize.RandomStride(stride, outcomes=outcomes, risk=risk)
    start = {name: jnp.asarray(float(value)) for name, value in free0.items()}
    optimizer = jc.optimize.AugmentedLagrangian(slope=1e-3)
    return jc.optimize.gait(
        problem, None, start, speed=SPEED, optimizer=optimizer, num_steps=NUM_STEPS, tol=1e-9
    )


def nominal_and_robust() -> tuple[PyTree, PyTree]:
    """Find the gait of one simultaneous impact, and that of the least tail over impulse orders."""
    nominal, _ = search(one_impact_stride, PASSIVE, 1, "mean")
    robust, _ = search(routh_stride, {**nominal, "push": 0.1}, DRAWN, "cvar")
    return nominal, robust


one_impact_stride = functools.partial(stride, jc.impact.AnitescuPotra())
routh_stride = functools.partial(stride, LAW)
rough_routh_stride = functools.partial(rough_stride, LAW)


def judge(free: PyTree, stride: Callable[..., Any] = routh_stride) -> tuple[jax.Array, jax.Array]:
    """Costs (JUDGED,) and errors (JUDGED, 5) of a gait on outcomes drawn anew."""
    problem = jc.optimize.RandomStride(stride, outcomes=JUDGED, seed=1)
    return jax.jit(problem.all_outcomes)(None, free, SPEED)


def _robust_gait() -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        gaits = dict(zip(("nominal", "robust"), nominal_and_robust(), strict=True))
        row: dict[str, Any] = {}
        for name, free in gaits.items():
            costs, errors = judge(free)
            row[f"push, {name}"] = float(free["push"])
            row[f"slope of the floor, {name}, degrees"] = math.degrees(float(free["slope"]))
            row[f"tail, {name}"] = float(jc.optimize.risk_of(costs, "cvar"))
            row[f"std of the rate after a landing, {name}"] = float(jnp.std(errors[:, 2]))
        return row

    return run


def _on_rough_ground() -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        nominal, _ = search(one_impact_stride, PASSIVE, 1, "mean")
        nominal = {**nominal, "late": jnp.zeros(())}
        on_flat, _ = search(routh_stride, {**nominal, "push": 0.1}, DRAWN, "cvar")
        robust, info = search(rough_routh_stride, {**nominal, "push": 0.02, "late": -1.0}, DRAWN, "cvar")
        gaits = {"nominal": nominal, "robust on flat ground": on_flat, "robust": robust}
        gaits["robust, push not by lateness"] = {**robust, "late": jnp.zeros(())}
        costs = {name: np.asarray(judge(free, rough_routh_stride)[0]) for name, free in gaits.items()}
        row: dict[str, Any] = {"status": jc.Status.describe(info.status)}
        for name, free in gaits.items():
            row[f"numbers, {name}"] = {key: round(float(value), 4) for key, value in free.items()}
            row[f"mean, {name}"], row[f"tail, {name}"] = float(np.mean(costs[name])), tail_of(costs[name])
            row[f"tail falls by, 95 %, {name}"] = np.round(
                fall_of_tail(costs["nominal"], costs[name]), 3
            ).tolist()
        return row

    return run


def gradient_errors(
    x: jax.Array, costs: Callable[..., jax.Array], gradients: jax.Array, step: float
) -> tuple[float, float]:
    """Compare the mean of gradients (n, p) of costs (n,) at x (p,) with differences of their mean.

    Returns the length of the difference and its standard error, in parts of the length of the gradient.
    """
    rows = step * jnp.eye(x.size)
    slopes = jnp.stack([costs(x + row) - costs(x - row) for row in rows], axis=1) / (2.0 * step)
    off = slopes - gradients
    size = jnp.linalg.norm(jnp.mean(gradients, axis=0))
    missed = jnp.linalg.norm(jnp.mean(off, axis=0)) / size
    return float(missed), float(jnp.linalg.norm(jnp.std(off, axis=0)) / math.sqrt(len(off)) / size)


def stance_friction(free: PyTree) -> jax.Array:
    """Compute the largest |tangential| / normal force on the foot that stands, of all moments of a stride."""
    start, slope = start_of(free), free["slope"]
    gravity = G * jnp.stack([jnp.sin(slope), -jnp.cos(slope)])

    def ratio(part: jax.Array) -> jax.Array:
        angles, rates = jnp.split(swing(start, part * free["duration"], slope), 2)
        twice = jax.jvp(lambda z: jax.jvp(masses_at, (z,), (rates,))[1], (angles,), (rates,))[1]
        moved = jax.jvp(masses_at, (angles,), (acceleration(angles, rates, slope),))[1] + twice
        force = MASSES @ (moved - gravity)
        return jnp.abs(force[0]) / force[1]

    return jnp.max(jax.vmap(ratio)(jnp.linspace(0.0, 1.0, 101)))


def _gradient_errors() -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        nominal, robust = nominal_and_robust()
        gaits = {"nominal": nominal, "off the gait": {**nominal, "push": jnp.asarray(0.02)}, "robust": robust}
        problem = jc.optimize.RandomStride(routh_stride, outcomes=COMMON, seed=3)
        unravel = ravel_pytree(nominal)[1]
        costs = jax.jit(lambda x: problem.all_outcomes(None, unravel(x), SPEED)[0])
        rates = jax.jit(jax.jacfwd(costs))
        row: dict[str, Any] = {}
        for name, free in gaits.items():
            x = ravel_pytree(free)[0]
            gradients = rates(x)
            for step in (1e-4, 1e-5):
                errors = gradient_errors(x, costs, gradients, step)
                row[f"{name}, steps of {step:g}: off, standard error"] = errors
        return row

    return run


def _passive_gait() -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        begin = time.process_time()
        free, info = search(one_impact_stride, PASSIVE, 1, "mean")
        terms, v = landing(swing(start_of(free), free["duration"], free["slope"]), free["push"])
        v_plus, _ = jc.impact.AnitescuPotra()(terms, v)
        rows = jnp.concatenate([terms.J_n, terms.J_t[:, 0]])
        impulse = jnp.linalg.lstsq(rows.T, terms.M @ (v_plus - v))[0]
        return {
            "status": jc.Status.describe(info.status),
            "periodicity error": info.residual,
            "slope, degrees": math.degrees(float(free["slope"])),
            "push, N m s": float(free["push"]),
            "friction in stance, of mu": float(stance_friction(free) / terms.mu[0]),
            "friction of the landing, of mu": float(jnp.abs(impulse[3]) / (terms.mu[1] * impulse[1])),
            "trailing foot lifts at, m/s": float(terms.J_n[0] @ v_plus),
            "strides with derivatives": info.evaluations,
            "processor s": time.process_time() - begin,
        }

    return run


CASES = [
    Case(name="periodic gait, compass gait on a slope", items=1, setup=_passive_gait, repeats=1),
    Case(name="robust gait, compass gait with a push", items=1, setup=_robust_gait, repeats=1),
    Case(name="gradients of fixed draws, compass gait", items=1, setup=_gradient_errors, repeats=1),
    Case(name="robust gait, compass gait on rough ground", items=1, setup=_on_rough_ground, repeats=1),
]

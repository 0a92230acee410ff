"""Rates of the legs at a landing, for one outcome or for all: tails of the cost on outcomes drawn anew.

The cost is the share of the kinetic energy that the landing loses, with an effort of `EFFORT` times the
square of the change of rates, and with `HASTE` times that of the landing foot's speed. Nominal rates are the
best ones by one simultaneous inelastic impact, as a simulator has it; robust ones have the least tail over
impulse orders. Both are judged by orders drawn anew, friction shifted by up to a fifth and feet up to 2
degrees above one another.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxcontact as jc
from benchmarks.runner import Case

EFFORT = 0.3  # s^2/rad^2
HASTE = 10.0  # s^2/m^2; a foot that comes down later, or not, is no remedy
SHARE = 0.1  # of the worst outcomes
SPREADS = (0.3, 0.1)  # rad/s, in turn
DRAWN, JUDGED, POOLED = 128, 4000, 100_000  # orders of a search, of a judgement, of a mean gradient
LAW = jc.impact.Routh(impulse_step=0.25, max_steps=8)
HEAVY_LAW = jc.impact.Routh(impulse_step=1.0, max_steps=100)  # of half_cheetah, 17 kg
LANDINGS, ORDERS = 300, 64  # drawn landings of half_cheetah, and orders of each
FEET = (8, 14)  # contacts of half_cheetah's hind and fore foot


def landing_of(model: Any) -> tuple[Any, Any]:
    """Return contact terms and velocities of a robot that lands in its initial state."""
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


def cheetah_landing() -> tuple[Any, Any]:
    """Return terms of both feet of half_cheetah, which land together at 1 m/s down and 1 m/s forward."""
    model = jc.models.half_cheetah()
    state = jc.place_on_ground(model, model.initial_state())[0]
    return jc.contact_terms(model, state).take(np.array(FEET)), state.v.at[:2].set(jnp.array([1.0, -1.0]))


def _on_uneven_ground(terms: Any, slope: jax.Array, friction: jax.Array) -> Any:
    """Turn the ground under the feet by an angle, and multiply friction."""
    normal, tangent = terms.J_n, terms.J_t[:, 0]
    along, up = jnp.sin(slope), jnp.cos(slope)
    return terms.replace(
        J_n=up * normal + along * tangent,
        J_t=(up * tangent - along * normal)[:, None],
        mu=friction * terms.mu,
    )


def _cost(terms: Any, v: jax.Array, rates: jax.Array, law: Any, key: Any) -> jax.Array:
    changed = v.at[v.size - rates.size :].add(rates)  # joints come last
    v_plus, _ = law(terms, changed, key)
    lost = 1.0 - (v_plus @ terms.M @ v_plus) / (changed @ terms.M @ changed)
    later = terms.J_n[0] @ (changed - v)
    return lost + EFFORT * rates @ rates + HASTE * later**2


def _search(cost: Callable[[jax.Array], jax.Array], rates: jax.Array) -> jax.Array:
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, 40))
    rates, _ = jc.optimize.trajectory(cost, rates, scale=1.0, num_steps=40, optimizer=optimizer)
    return rates


def _judged(terms: Any, v: jax.Array, rates: jax.Array, law: Any, key: jax.Array) -> np.ndarray:
    """Costs (JUDGED,) of rates on new orders, uneven ground and shifted friction; the same for all rates."""
    orders, slopes, shifts = jax.random.split(key, 3)
    slope = jax.random.uniform(slopes, (JUDGED,), minval=-1.0, maxval=1.0) * math.radians(2.0)
    friction = jax.random.uniform(shifts, (JUDGED,), minval=0.8, maxval=1.2)

    def one(slope: jax.Array, friction: jax.Array, key: jax.Array) -> jax.Array:
        return _cost(_on_uneven_ground(terms, slope, friction), v, rates, law, key)

    return np.asarray(jax.jit(jax.vmap(one))(slope, friction, jax.random.split(orders, JUDGED)))


def tail_of(costs: np.ndarray) -> float:
    """Return the mean of the worst share of costs."""
    return float(jc.optimize.risk_of(jnp.asarray(costs), "cvar", share=SHARE))


def fall_of_tail(nominal: np.ndarray, robust: np.ndarray) -> tuple[float, float, float]:
    """Return the relative fall of the tail, and its 95 % interval by 1000 bootstraps of common draws."""
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, nominal.size, (1000, nominal.size))
    count = round(SHARE * nominal.size)

    def tails(costs: np.ndarray) -> np.ndarray:
        return np.mean(-np.sort(-costs[chosen], axis=1)[:, :count], axis=1)

    falls = 1.0 - tails(robust) / tails(nominal)
    low, high = np.quantile(falls, [0.025, 0.975])
    return 1.0 - tail_of(robust) / tail_of(nominal), float(low), float(high)


def _robust_step(
    landing: Callable[[], tuple[Any, Any]], num_joints: int, law: Any
) -> Callable[[], dict[str, Any]]:
    terms, v = landing()

    def run() -> dict[str, Any]:
        start, draws = jnp.zeros(num_joints), jax.random.key(0)
        nominal = _search(lambda rates: _cost(terms, v, rates, jc.impact.AnitescuPotra(), None), start)
        robust = nominal
        for spread in SPREADS:
            tail = jc.optimize.over_outcomes(
                lambda rates, key: _cost(terms, v, rates, law, key), draws,
                outcomes=DRAWN, risk="cvar", share=SHARE, spread=spread,
            )  # fmt: skip
            robust = _search(tail, robust)
        costs = [_judged(terms, v, rates, law, jax.random.key(1)) for rates in (nominal, robust)]
        fall, low, high = fall_of_tail(*costs)
        return {
            "nominal rates": np.round(nominal, 3).tolist(),
            "robust rates": np.round(robust, 3).tolist(),
            "nominal cost by one law": float(_cost(terms, v, nominal, jc.impact.AnitescuPotra(), None)),
            "mean cost, nominal": float(np.mean(costs[0])),
            "mean cost, robust": float(np.mean(costs[1])),
            "tail, nominal": tail_of(costs[0]),
            "tail, robust": tail_of(costs[1]),
            "tail falls by": fall,
            "95 % from": low,
            "95 % to": high,
        }

    return run


def _bias(rates: tuple[float, float]) -> Callable[[], dict[str, Any]]:
    """Gradients of the mean cost: of fixed draws, with a spread, and by differences of 1e5 common draws."""
    terms, v = landing_of(jc.models.compass_gait())
    keys = jax.random.split(jax.random.key(2), POOLED // 10_000)

    def mean(spread: float, x: jax.Array, key: jax.Array) -> jax.Array:
        def cost(rates: jax.Array, key: jax.Array) -> jax.Array:
            return _cost(terms, v, rates, LAW, key)

        return jc.optimize.over_outcomes(cost, key, outcomes=10_000, spread=spread)(x)

    value = jax.jit(functools.partial(mean, 0.0))
    slopes = {spread: jax.jit(jax.grad(functools.partial(mean, spread))) for spread in (0.0, 0.03)}

    def run() -> dict[str, Any]:
        x = jnp.array(rates)
        by_draws, by_spread = (np.mean([slope(x, key) for key in keys], axis=0) for slope in slopes.values())
        right = np.array(
            [
                np.mean([(value(x + step, key) - value(x - step, key)) / 0.04 for key in keys])
                for step in 0.02 * np.eye(2)
            ]
        )
        size = np.linalg.norm(right)
        return {
            "gradient": np.round(right, 3).tolist(),
            "error, fixed draws": float(np.linalg.norm(by_draws - right) / size),
            "error, with a spread of 0.03": float(np.linalg.norm(by_spread - right) / size),
        }

    return run


def _spread_of(model: Any, state: Any) -> Callable[[], dict[str, Any]]:
    """The least and the largest share of energy that orders lose: what a policy could gain."""

    def run() -> dict[str, Any]:
        terms = jc.contact_terms(model, state)
        terms = terms.take(np.flatnonzero(np.asarray(terms.phi) <= 1e-6))
        v_plus, _ = jc.impact.sample_in_jit(
            terms, state.v, jc.impact.Routh(), jax.random.key(0), num_samples=1000
        )
        lost = 1.0 - jnp.sum((v_plus @ terms.M) * v_plus, axis=1) / (state.v @ terms.M @ state.v)
        return {"least share lost": float(jnp.min(lost)), "largest share lost": float(jnp.max(lost))}

    return run


def _ramone() -> Callable[[], dict[str, Any]]:
    model = jc.models.ramone()
    return _spread_of(model, model.initial_state())


def _cheetah() -> Callable[[], dict[str, Any]]:
    """What orders change in drawn landings of both feet of half_cheetah, with friction shifted by a fifth."""
    model = jc.models.half_cheetah()
    feet, rng = np.array(FEET), np.random.default_rng(0)
    joints = 0.4 * rng.uniform(-1.0, 1.0, (LANDINGS, 6))
    v = np.column_stack([
        rng.uniform(0.0, 3.0, LANDINGS), rng.uniform(-1.5, -0.3, LANDINGS), rng.uniform(-1.0, 1.0, LANDINGS),
        2.0 * rng.normal(size=(LANDINGS, 6)),
    ])  # fmt: skip
    friction = rng.uniform(0.8, 1.2, LANDINGS)

    def lost(row: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        joints, v, friction = row

        def terms_at(place: jax.Array) -> Any:
            q = jnp.concatenate([jnp.zeros(1), place, joints])
            return jc.contact_terms(model, model.initial_state().replace(q=q))

        def gaps(place: jax.Array) -> jax.Array:
            return terms_at(place).phi[feet]

        place = jnp.zeros(2)  # height and pitch, at which both feet touch
        for _ in range(6):
            place -= jnp.linalg.solve(jax.jacfwd(gaps)(place), gaps(place))
        every = terms_at(place)
        terms = every.take(feet)
        terms = terms.replace(mu=friction * terms.mu, active=jnp.ones(2, bool))
        ends, info = jc.impact.sample_in_jit(terms, v, HEAVY_LAW, jax.random.key(0), num_samples=ORDERS)
        share = 1.0 - jnp.sum((ends @ terms.M) * ends, axis=1) / (v @ terms.M @ v)
        stands = (jnp.min(every.phi) > -1e-9) & jnp.all(info.status == 0)
        return jnp.min(share), jnp.max(share), stands

    lanes = jax.jit(lambda rows: jax.lax.map(lost, rows))

    def run() -> dict[str, Any]:
        least, most, stands = (np.asarray(x) for x in lanes((joints, v, friction)))
        differ = (most - least)[stands]
        return {
            "landings": int(np.sum(stands)),
            "orders differ in": int(np.sum(differ > 1e-9)),
            "shares lost, from": float(np.min(least[stands])),
            "shares lost, to": float(np.max(most[stands])),
            "largest difference by order": float(np.max(differ)),
        }

    return run


def _walker() -> Callable[[], dict[str, Any]]:
    model = jc.models.planar_walker()
    return _spread_of(model, jc.place_on_ground(model, model.initial_state())[0])


CASES = [
    *(
        Case(
            name=f"robust step, {name}",
            items=1,
            setup=functools.partial(_robust_step, landing, num_joints, law),
            repeats=1,
        )
        for name, landing, num_joints, law in (
            ("compass gait", lambda: landing_of(jc.models.compass_gait()), 2, LAW),
            ("RAMone", lambda: landing_of(jc.models.ramone()), 4, LAW),
            ("half_cheetah", cheetah_landing, 6, HEAVY_LAW),
        )
    ),
    *(
        Case(
            name=f"robust step, gradient at {rates}",
            items=1,
            setup=functools.partial(_bias, rates),
            repeats=1,
        )
        for rates in ((0.0, 0.0), (0.3, -0.2), (-0.3, 0.4), (0.8, 0.0))
    ),
    Case(name="robust step, orders of RAMone", items=1, setup=_ramone, repeats=1),
    Case(name="robust step, orders of half_cheetah", items=1, setup=_cheetah, repeats=1),
    Case(name="robust step, orders of planar walker", items=1, setup=_walker, repeats=1),
]

"""Parameters of every law from training impacts, each by its own score, peers by the same protocol.

A law with one outcome is fitted to the least mean error, which is its energy score; a randomised law to the
least energy score. Derivatives go through the library; MuJoCo, which has none, is searched without.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.cube_tosses import laws, peers, scores
from benchmarks.cube_tosses.impacts import MASS_DIAGONAL
from benchmarks.cube_tosses.laws import STEP, STEPS, Cases

SAMPLES = 4  # impulse orders per impact while fitting
BLOCK = 64  # cases are filled up to a multiple, so that splits share their programs
RIGID = {"mu": 0.2, "e": 0.3}
RIGID_BOUNDS = {"mu": (0.01, 1.0), "e": (0.0, 1.0)}
SOFT = {"mu": 0.2, "log_stiffness": 11.5, "log_damping": 4.0}
SOFT_BOUNDS = {"mu": (0.01, 1.0), "log_stiffness": (9.0, 14.0), "log_damping": (0.0, 8.0)}
POWERS = {"log_first": 0.0, "log_second": 0.0}
POWERS_BOUNDS = {"log_first": (-2.5, 2.5), "log_second": (-2.5, 2.5)}


def filled(cases: Cases) -> tuple[Cases, np.ndarray]:
    """Cases repeated up to a multiple of BLOCK, and weights (n,) that leave the repetitions out."""
    count = len(cases.toss)
    index = np.resize(np.arange(count), -(-count // BLOCK) * BLOCK)
    return cases.take(index), (np.arange(index.size) < count).astype(float)


def whitened(v: Any, cases: Cases) -> Any:
    """(v - v_measured) M^(1/2) / |v_minus|_M of velocities (n, ..., 6): lengths are kinetic, relative."""
    weight = jnp.asarray(MASS_DIAGONAL)
    shape = (-1,) + (1,) * (v.ndim - 1)
    after = cases.after.reshape(after_shape(v))
    return (v - after) * jnp.sqrt(weight) / laws.norm(cases.v, weight).reshape(shape)


def after_shape(v: Any) -> tuple[int, ...]:
    """Shape that lets (n, 6) stand beside (n, ..., 6)."""
    return (v.shape[0], *([1] * (v.ndim - 2)), 6)


def _simultaneous(params: dict, data: Any) -> jax.Array:
    return laws.error(laws.simultaneous(data, params["mu"]), data)


def _restitution(params: dict, data: tuple[Cases, jax.Array]) -> jax.Array:
    """Errors (n,) of one impulse order per impact, `data` the cases and its fractions (n, STEPS, 2)."""
    cases, fractions = data
    count = fractions.shape[0]
    mu, e = (jnp.broadcast_to(params[name], count) for name in ("mu", "e"))
    caps = fractions * STEP * cases.stop[:, None, None]
    return laws.error(laws.order(cases, caps, mu, e), cases)


def _set(params: dict, data: tuple[Cases, tuple]) -> jax.Array:
    """Energy scores (n,) over impulse orders; beside the cases uniform numbers (n, N, STEPS, 2), mu, e."""
    cases, (uniform, mu, e) = data
    density = laws.PowerDensity(jnp.exp(params["log_first"]), jnp.exp(params["log_second"]))

    def one(fractions: jax.Array) -> jax.Array:
        count = fractions.shape[0]
        caps = fractions * STEP * cases.stop[:, None, None]
        return laws.order(cases, caps, jnp.broadcast_to(mu, count), jnp.broadcast_to(e, count))

    found = jax.vmap(one, in_axes=1, out_axes=1)(_reshaped(density, uniform))
    return scores.energy_score(whitened(found, cases), jnp.zeros((found.shape[0], 6)))


def _reshaped(density: laws.PowerDensity, uniform: jax.Array) -> jax.Array:
    power = jnp.stack([density.first, density.second]).reshape(1, 1, 1, 2)
    return uniform**power


def _compliant(params: dict, data: tuple[Cases, jax.Array]) -> jax.Array:
    cases, side = data
    found = laws.compliant(
        cases, side, params["mu"], jnp.exp(params["log_stiffness"]), jnp.exp(params["log_damping"])
    )
    return laws.error(found, cases)


def uniform(count: int, samples: int, seed: int) -> np.ndarray:
    """Independent uniform numbers (n, N, STEPS, 2)."""
    return np.random.default_rng(seed).uniform(size=(count, samples, STEPS, 2))


def by_gradient(score: Any, start: dict, bounds: dict, cases: Cases, more: Any) -> tuple[dict, dict]:
    """Parameters of least mean score, and their 95 % intervals by toss."""
    whole, weights = filled(cases)
    bare = whole._replace(toss=None, several=None, covariance=None)
    data = bare if more is None else (bare, more(len(weights)))
    found, info = jc.optimize.identify(
        score,
        start,
        data,
        bounds=bounds,
        groups=whole.toss,
        weights=weights,
        search=jc.optimize.SearchSettings(max_steps=24, tol=1e-3, curvature_step=1e-2),
    )
    named = {name: float(value) for name, value in found.items()}
    return named, {name: [named[name], float(info.lower[name]), float(info.upper[name])] for name in named}


def by_search(cases: Cases, side: float) -> dict:
    """MuJoCo's friction, time constant and damping ratio of least mean error, by Nelder and Mead's search."""
    from scipy.optimize import minimize

    q, v = np.asarray(cases.q), np.asarray(cases.v)

    def cost(z: np.ndarray) -> float:
        mu, time, ratio = np.exp(z)
        found = peers.impact(peers.model(side, mu, time, ratio), q, v, laws.SPAN)
        return float(np.mean(np.nan_to_num(np.asarray(laws.error(jnp.asarray(found), cases)), nan=10.0)))

    start = np.log([0.18, 3e-3, 0.5])
    found = minimize(cost, start, method="Nelder-Mead", options={"maxfev": 50, "xatol": 0.02, "fatol": 1e-5})
    return dict(zip(("mu", "time", "ratio"), map(float, np.exp(found.x)), strict=True))


def every_law(cases: Cases, side: float, say: Any) -> tuple[dict[str, dict], dict[str, dict]]:
    """Parameters of every law from training cases, and the intervals of those fitted by gradient."""
    fitted, intervals = {}, {}
    rows = {
        "simultaneous": (_simultaneous, {"mu": 0.2}, {"mu": (0.01, 1.0)}, None),
        "restitution": (_restitution, RIGID, RIGID_BOUNDS, lambda n: jnp.asarray(laws.even(n)[:, 0])),
        "compliant": (_compliant, SOFT, SOFT_BOUNDS, lambda n: jnp.asarray(side)),
    }
    for name, (score, start, bounds, more) in rows.items():
        say(f"  {name}")
        fitted[name], intervals[name] = by_gradient(score, start, bounds, cases, more)
    # Every impulse order has the friction and the restitution that are fitted to equal rates.
    rigid = fitted["restitution"]
    several = cases.take(np.flatnonzero(cases.several))
    powers = dict(POWERS)
    say("  impulse orders")
    if len(several.toss):
        given = jnp.asarray(rigid["mu"]), jnp.asarray(rigid["e"])
        powers, intervals["density"] = by_gradient(
            _set, POWERS, POWERS_BOUNDS, several, lambda n: (jnp.asarray(uniform(n, SAMPLES, 1)), *given)
        )
    fitted |= dict.fromkeys(("lowest first", "lowest last", "set"), rigid) | {"density": rigid | powers}
    if peers.installed():
        fitted["MuJoCo"] = by_search(cases, side)
    return fitted, intervals

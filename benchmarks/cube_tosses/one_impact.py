"""One impact: every law's error and energy score on impacts that its parameters have not seen."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cube_tosses import fit, laws, peers, scores
from benchmarks.cube_tosses.impacts import MASS_DIAGONAL
from benchmarks.cube_tosses.laws import Cases

SAMPLES = 32
SINGLE = ("simultaneous", "restitution", "lowest first", "lowest last", "compliant", "MuJoCo")
RANDOM = (
    "set",
    "density",
    "orders",
    "random mu and e",
    "restitution + noise",
    "density + noise",
    "compliant + noise",
)
CHI_SQUARE = 12.592  # 95 % of six degrees of freedom
SPREADS = np.linspace(0.0, 2.0, 41)  # of noise and of parameters, relative to a size


@functools.partial(jax.jit, static_argnums=0)
def _outcomes(law: Any, cases: Cases, *params: Any) -> jax.Array:
    return law(cases, *params)


def single_outcomes(cases: Cases, fitted: dict[str, dict], side: float) -> dict[str, np.ndarray]:
    """Outcomes (n, 6) of every law with one outcome."""
    whole, _ = fit.filled(cases)
    bare, count = whole._replace(toss=None, several=None, covariance=None), len(cases.toss)
    soft = fitted["compliant"]
    found = {
        "simultaneous": _outcomes(laws.simultaneous, bare, fitted["simultaneous"]["mu"])[:count],
        "compliant": _outcomes(
            laws.compliant, bare, side, soft["mu"], np.exp(soft["log_stiffness"]), np.exp(soft["log_damping"])
        )[:count],
    }
    turns = laws.one_after_the_other(count)
    for name, fractions in (
        ("restitution", laws.even(count)),
        ("lowest first", turns[:, :1]),
        ("lowest last", turns[:, 1:]),
    ):
        found[name] = laws.orders(cases, fractions, **fitted[name])[:, 0]
    if "MuJoCo" in fitted:
        params = fitted["MuJoCo"]
        compiled = peers.model(side, params["mu"], params["time"], params["ratio"])
        found["MuJoCo"] = peers.impact(compiled, np.asarray(cases.q), np.asarray(cases.v), laws.SPAN)
    return {name: np.asarray(found[name]) for name in SINGLE if name in found}


def clouds(
    cases: Cases, fitted: dict[str, dict], single: dict[str, np.ndarray], seed: int
) -> dict[str, np.ndarray]:
    """Samples (n, N, 6) of every law of random orders, whitened; zero is the measured velocity."""
    pick = np.flatnonzero(cases.several)
    drawn = fit.uniform(len(pick), SAMPLES, seed)
    density = fitted["density"]
    powers = np.exp([density["log_first"], density["log_second"]])
    # With one contact every order is the same, up to the length of the steps.
    alone = np.repeat(single["restitution"][:, None], SAMPLES, axis=1)
    found = {"set": alone.copy(), "density": alone}
    found["orders"] = np.stack([single["lowest first"], single["lowest last"]], axis=1)
    if pick.size:
        several = cases.take(pick)
        found["set"][pick] = laws.orders(several, drawn, **fitted["set"])
        found["density"][pick] = laws.orders(several, drawn**powers, mu=density["mu"], e=density["e"])
    return {name: np.asarray(fit.whitened(jnp.asarray(v), cases)) for name, v in found.items()}


def rates(cases: Cases, params: dict) -> np.ndarray:
    """Derivatives (n, 6, 2) of the restitution law by mu and e, whitened, each times its parameter."""
    mu, e = params["mu"], params["e"]
    off = 0.05
    mus, es = mu * (1 + off * np.array([1, -1, 0, 0])), e * (1 + off * np.array([0, 0, 1, -1]))
    count = len(cases.toss)
    ends = laws.orders(cases, laws.even(count, 4), np.tile(mus, (count, 1)), np.tile(es, (count, 1)))
    ends = np.asarray(fit.whitened(jnp.asarray(ends), cases))
    return np.stack([ends[:, 0] - ends[:, 1], ends[:, 2] - ends[:, 3]], axis=-1) / (2 * off)


def noise(count: int, samples: int, width: int, seed: int) -> np.ndarray:
    """Normal numbers (n, N, width)."""
    return np.random.default_rng(seed).normal(size=(count, samples, width))


def best_spread(centre: np.ndarray, unit: np.ndarray, size: float) -> float:
    """The multiple of `size` of least mean energy score, when samples are centre + spread unit."""
    found = [np.mean(energy(centre + s * size * unit)) for s in SPREADS]
    return float(SPREADS[int(np.argmin(found))]) * size


def energy(cloud: np.ndarray) -> np.ndarray:
    """Energy scores (n,) of whitened samples (n, N, 6)."""
    to_truth = np.linalg.norm(cloud, axis=-1)
    square = np.sum(cloud**2, axis=-1)
    inner = cloud @ np.swapaxes(cloud, 1, 2)
    between = np.sqrt(np.maximum(square[:, :, None] + square[:, None] - 2 * inner, 0.0))
    return np.asarray(scores.energy_score_of_distances(to_truth, between))


def spread_of(cloud: np.ndarray) -> np.ndarray:
    """Root mean square distance (n,) of samples (n, N, 6) from their mean: the size of a set."""
    return np.sqrt(np.mean(np.sum((cloud - cloud.mean(axis=1, keepdims=True)) ** 2, axis=-1), axis=1))


def judge(train: Cases, test: Cases, fitted: dict[str, dict], side: float, seed: int = 0) -> dict[str, dict]:
    """Scores of every law on the test cases; spreads of noise come from the training cases.

    Returns the arrays by law: `score` (n,), and of randomised laws `cloud` (n, N, 6), whitened.
    """
    parts = {"train": train, "test": test}
    single = {key: single_outcomes(part, fitted, side) for key, part in parts.items()}
    cloud = {key: clouds(part, fitted, single[key], seed + 11) for key, part in parts.items()}
    white = {
        key: {n: np.asarray(fit.whitened(jnp.asarray(v), parts[key])) for n, v in single[key].items()}
        for key in parts
    }
    found = {name: {"score": np.linalg.norm(v, axis=-1)} for name, v in white["test"].items()}
    for name in ("restitution", "compliant"):
        centre = {key: white[key][name][:, None] for key in parts}
        unit = {key: noise(len(parts[key].toss), SAMPLES, 6, seed + 5) for key in parts}
        sigma = best_spread(centre["train"], unit["train"], 0.05)
        cloud["test"][f"{name} + noise"] = centre["test"] + sigma * unit["test"]
    unit = {key: noise(len(parts[key].toss), SAMPLES, 6, seed + 5) for key in parts}
    sigma = best_spread(cloud["train"]["density"], unit["train"], 0.05)
    cloud["test"]["density + noise"] = cloud["test"]["density"] + sigma * unit["test"]
    rate = {key: rates(parts[key], fitted["restitution"]) for key in parts}
    drawn = {
        key: np.einsum("nij,nsj->nsi", rate[key], noise(len(parts[key].toss), SAMPLES, 2, seed + 7))
        for key in parts
    }
    sigma = best_spread(white["train"]["restitution"][:, None], drawn["train"], 0.3)
    cloud["test"]["random mu and e"] = white["test"]["restitution"][:, None] + sigma * drawn["test"]
    for name, samples in cloud["test"].items():
        score = energy(samples)
        if name == "orders":  # two outcomes of equal weight, not draws: the pairs of one with itself count
            score = score + 0.25 * np.linalg.norm(samples[:, 0] - samples[:, 1], axis=-1)
        found[name] = {"score": score, "cloud": samples}
    return found


def inside(cloud: np.ndarray, cases: Cases) -> np.ndarray:
    """Whether (n,) the measured velocity lies in the set at its covariance, at 95 %.

    The nearest sample counts, in the metric of the covariance; so a larger set contains more by itself.
    """
    scale = np.sqrt(MASS_DIAGONAL) / np.asarray(laws.norm(cases.v, jnp.asarray(MASS_DIAGONAL)))[:, None]
    covariance = cases.covariance * scale[:, :, None] * scale[:, None]
    precision = np.linalg.inv(covariance)
    return np.einsum("nsi,nij,nsj->ns", cloud, precision, cloud).min(axis=1) < CHI_SQUARE

"""`python -m benchmarks.cube_tosses.orders [--results FILE]`: densities over impulse orders, in five folds.

Every law is fitted to the impacts of two corners of four fifths of the tosses, and scored on the rest.
A density reshapes uniform numbers, so that the gradient of the energy score goes through the impacts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import runner
from benchmarks.cube_tosses import fit, geometry, impacts, laws, one_impact, protocol, scores, tosses
from benchmarks.cube_tosses.laws import STEP, Cases
from benchmarks.cube_tosses.report import number
from benchmarks.report import put

FOLDS = 5
SAMPLES = 32  # of an impact that is scored
SEARCHED, EVALUATIONS = 8, 40  # samples of an impact and scores of the search without derivatives
Params = dict[str, Any]


class Features(NamedTuple):
    """What a density may depend on, of each impact (n,).

    Attributes:
        depth: gap of the higher corner when the lowest touches, over the largest that counts as touching.
        speed: approach speed of the higher corner minus that of the lowest, over the larger of them.
    """

    depth: jax.Array
    speed: jax.Array


class Density(NamedTuple):
    """A density over impulse orders.

    Attributes:
        fractions: (params, uniform (n, N, STEPS, 2), features) -> fractions of the caps, as uniform.
        start: parameters beside mu and e.
    """

    fractions: Callable[[Params, jax.Array, Features], jax.Array]
    start: Params


def features_of(cases: Cases, found: impacts.Impacts, size: geometry.Geometry) -> Features:
    """Compute the features of cases of impacts of two corners."""
    gap = np.sort(geometry.corner_gaps(found.q, size), axis=1)
    approach = -np.einsum("nij,nj->ni", np.asarray(cases.terms.J_n), np.asarray(cases.v))
    speed = (approach[:, 1] - approach[:, 0]) / np.maximum(np.abs(approach).max(axis=1), 1e-12)
    return Features(jnp.asarray((gap[:, 1] - gap[:, 0]) / impacts.TOUCHING), jnp.asarray(speed))


def _uniform(params: Params, uniform: jax.Array, features: Features) -> jax.Array:
    return uniform


def _powers(params: Params, uniform: jax.Array, features: Features) -> jax.Array:
    """Raise the numbers of each step to a power that depends on the contact."""
    lean = params["depth"] * features.depth + params["speed"] * features.speed
    powers = jnp.exp(jnp.stack([params["log_first"] + 0.0 * lean, params["log_second"] + lean], axis=-1))
    return uniform ** powers[:, None, None, :]


def _lasting(params: Params, uniform: jax.Array, features: Features) -> jax.Array:
    """Draw one share of the lowest corner for all steps, of Kumaraswamy's density, nearly a beta."""
    lean = params["depth"] * features.depth + params["speed"] * features.speed
    a, b = (jnp.exp(params[n] + s * lean)[:, None] for n, s in (("log_first", 1.0), ("log_second", -1.0)))
    drawn = jnp.clip(uniform[:, :, 0, 0], 1e-6, 1.0 - 1e-6)
    share = (1.0 - (1.0 - drawn) ** (1.0 / b)) ** (1.0 / a)
    return jnp.broadcast_to(jnp.stack([share, 1.0 - share], axis=-1)[:, :, None], uniform.shape)


ZEROS = {"log_first": 0.0, "log_second": 0.0, "depth": 0.0, "speed": 0.0}
DENSITIES = {
    "uniform orders": Density(_uniform, {}),
    "powers": Density(_powers, ZEROS),
    "lasting": Density(_lasting, ZEROS),
}
BOUNDS = fit.RIGID_BOUNDS | dict.fromkeys(ZEROS, (-2.5, 2.5))
NEAR_SOFT = {"mu": 0.185, "log_stiffness": 12.9, "log_damping": 1.5}  # where the halves of all impacts end
SINGLE = ("restitution", "lowest first", "lowest last")


def _outcomes(fractions: Any, params: Params, data: tuple[Cases, tuple[jax.Array, Features]]) -> jax.Array:
    """Compute whitened outcomes (n, N, 6); zero is the measured velocity."""
    cases, (uniform, features) = data
    count = uniform.shape[0]
    caps = fractions(params, uniform, features) * STEP * cases.stop[:, None, None, None]
    mu, e = (jnp.broadcast_to(params[name], count) for name in ("mu", "e"))
    found = jax.vmap(lambda caps: laws.order(cases, caps, mu, e), in_axes=1, out_axes=1)(caps)
    return fit.whitened(found, cases)


_compiled = jax.jit(_outcomes, static_argnums=0)


def _score_of(density: Density) -> Callable[[Params, Any], jax.Array]:
    """Make the function of energy scores (n,); of one order the score is the error."""

    def score(params: Params, data: Any) -> jax.Array:
        found = _outcomes(density.fractions, params, data)
        return scores.energy_score(found, jnp.zeros((found.shape[0], 6)))

    return score


def _orders_of(name: str, count: int) -> np.ndarray:
    """Return the fractions (n, 1, STEPS, 2) of a law with one order."""
    if name == "restitution":
        return laws.even(count)
    return laws.one_after_the_other(count)[:, [SINGLE.index(name) - 1]]


class Part(NamedTuple):
    """The impacts of two corners of some tosses, with their features, filled up to one size."""

    cases: Cases
    features: Features
    count: int

    def bare(self) -> Cases:
        """Return the cases without what no law sees."""
        return self.cases._replace(toss=None, several=None, covariance=None)

    def data(self, uniform: np.ndarray) -> tuple[Cases, tuple[jax.Array, Features]]:
        """Return the data of `_outcomes` for uniform numbers of all filled cases."""
        return self.bare(), (jnp.asarray(uniform), self.features)

    @property
    def size(self) -> int:
        """Number of cases with the repetitions that fill them up."""
        return len(self.cases.toss)


def _part(found: impacts.Impacts, size: geometry.Geometry) -> Part:
    cases = laws.cases_of(found, size)
    pick = np.flatnonzero(cases.several)
    index = np.resize(pick, -(-len(pick) // fit.BLOCK) * fit.BLOCK)
    cases = cases.take(index)
    return Part(cases, features_of(cases, found.take(index), size), len(pick))


def _fit(
    score: Any, start: Params, part: Part, data: Any, bounds: dict = BOUNDS, max_steps: int = 24
) -> Params:
    """Find the parameters of least mean score by gradient."""
    weights = (np.arange(part.size) < part.count).astype(float)
    found, _ = jc.optimize.identify(
        score,
        start,
        data,
        bounds={name: bounds[name] for name in start},
        groups=part.cases.toss,
        weights=weights,
        search=jc.optimize.SearchSettings(max_steps=max_steps, tol=1e-3, curvature_step=1e-2),
    )
    return {name: float(value) for name, value in found.items()}


def _search(score: Any, start: Params, part: Part, data: Any) -> tuple[float, float]:
    """Improve parameters without derivatives, with the same draws; return both mean scores."""
    from scipy.optimize import minimize

    names = list(start)
    low, high = (np.array([BOUNDS[name][end] for name in names]) for end in (0, 1))
    compiled = jax.jit(score)

    def cost(x: np.ndarray) -> float:
        params = dict(zip(names, map(jnp.asarray, np.clip(x, low, high)), strict=True))
        return float(np.mean(np.asarray(compiled(params, data))[: part.count]))

    begin = np.array([start[name] for name in names])
    size = np.where(np.isin(names, ["mu", "e"]), 0.03, 0.3)
    corners = np.vstack([begin, begin + np.diag(np.where(begin + size > high, -size, size))])
    found = minimize(
        cost, begin, method="Nelder-Mead", options={"maxfev": EVALUATIONS, "initial_simplex": corners}
    )
    return cost(begin), float(found.fun)


def fold(shipped: tosses.Tosses, known: Any, train: np.ndarray, test: np.ndarray, seed: int, say: Any) -> Any:
    """Fit every law on the tosses `train` and score it on the tosses `test`."""
    size, _ = protocol.clean_impacts([known], train)
    clean, _ = impacts.clean(*known, size)
    fitting, judged = (_part(clean.take(np.isin(clean.toss, which)), size) for which in (train, test))
    few, many, searched = (
        [fit.uniform(part.size, n, seed + s) for part in (fitting, judged)]
        for n, s in ((fit.SAMPLES, 1), (SAMPLES, 2), (SEARCHED, 3))
    )
    score: dict[str, np.ndarray] = {}
    fitted: dict[str, Params] = {}
    errors: dict[str, list[np.ndarray]] = {}
    gains: dict[str, list[float]] = {}
    one = DENSITIES["uniform orders"]
    for name in SINGLE:
        params = _fit(_score_of(one), dict(fit.RIGID), fitting, fitting.data(_orders_of(name, fitting.size)))
        found = [
            np.asarray(_compiled(one.fractions, params, p.data(_orders_of(name, p.size))))
            for p in (fitting, judged)
        ]
        errors[name] = [cloud[: p.count, 0] for cloud, p in zip(found, (fitting, judged), strict=True)]
        fitted[name] = params
        say(f"  {name} {params}")
    soft = _fit(
        fit._compliant, NEAR_SOFT, fitting, (fitting.bare(), jnp.asarray(size.side)), fit.SOFT_BOUNDS, 8
    )
    fitted["compliant"] = soft
    errors["compliant"] = []
    for part in (fitting, judged):
        bare = part.bare()
        ends = one_impact._outcomes(
            laws.compliant,
            bare,
            size.side,
            soft["mu"],
            np.exp(soft["log_stiffness"]),
            np.exp(soft["log_damping"]),
        )
        errors["compliant"].append(np.asarray(fit.whitened(ends, part.cases))[: part.count])
    say(f"  compliant {soft}")
    if fit.peers.installed():
        soft = fitted["MuJoCo"] = fit.by_search(fitting.cases.take(np.arange(fitting.count)), size.side)
        compiled = fit.peers.model(size.side, soft["mu"], soft["time"], soft["ratio"])
        errors["MuJoCo"] = []
        for part in (fitting, judged):
            ends = fit.peers.impact(compiled, np.asarray(part.cases.q), np.asarray(part.cases.v), laws.SPAN)
            errors["MuJoCo"].append(np.asarray(fit.whitened(jnp.asarray(ends), part.cases))[: part.count])
        say(f"  MuJoCo {soft}")
    for name, (own, other) in errors.items():
        score[name] = np.linalg.norm(other, axis=-1)
        units = [one_impact.noise(len(x), SAMPLES, 6, seed + 5 + k) for k, x in enumerate((own, other))]
        spread = one_impact.best_spread(own[:, None], units[0], 0.05)
        score[f"{name} + noise"] = one_impact.energy(other[:, None] + spread * units[1])
    for name, density in DENSITIES.items():
        by_score = _score_of(density)
        params = _fit(by_score, fit.RIGID | density.start, fitting, fitting.data(few[0]))
        say(f"  {name} {params}")
        fitted[name] = params
        clouds = [
            np.asarray(_compiled(density.fractions, params, p.data(draws)))[: p.count]
            for p, draws in zip((fitting, judged), many, strict=True)
        ]
        score[name] = one_impact.energy(clouds[1])
        units = [one_impact.noise(len(x), SAMPLES, 6, seed + 5 + k) for k, x in enumerate(clouds)]
        spread = one_impact.best_spread(clouds[0], units[0], 0.05)
        score[f"{name} + noise"] = one_impact.energy(clouds[1] + spread * units[1])
        if seed == 0 and density.start:
            gains[name] = list(_search(by_score, params, fitting, fitting.data(searched[0])))
            say(f"  {name} searched on: {gains[name]}")
    return {"toss": judged.cases.toss[: judged.count], "score": score, "fitted": fitted, "gains": gains}


def run(limit: int | None = None, folds: int = FOLDS, say: Any = lambda words: None) -> list[dict[str, Any]]:
    """Fit and score every fold."""
    shipped = tosses.load(limit=limit)
    known = impacts.candidates(shipped, impacts.pose_noise(tosses.load()))
    part = tosses.folds(len(shipped), FOLDS)
    found = []
    for seed in range(folds):
        say(f"fold {seed + 1}")
        split = np.flatnonzero(part != seed), np.flatnonzero(part == seed)
        found.append(fold(shipped, known, *split, seed, say))
    return found


def text(head: dict[str, str], parts: list[dict[str, Any]]) -> str:
    """Format the tables as Markdown."""
    toss = np.concatenate([part["toss"] for part in parts])
    score = {name: np.concatenate([part["score"][name] for part in parts]) for name in parts[0]["score"]}
    plain = {name: values for name, values in score.items() if not name.endswith("+ noise")}
    rows = ["| law | energy score | with normal noise of a fitted size |", "|---|---|---|"]
    rows += [
        f"| {name} | {number(scores.interval(values, toss))} | "
        f"{number(scores.interval(score[f'{name} + noise'], toss))} |"
        for name, values in plain.items()
    ]
    single = [name for name in plain if name in (*SINGLE, "compliant", "MuJoCo")]
    best = min(single, key=lambda name: plain[name].mean())
    best_noise = min(single, key=lambda name: score[f"{name} + noise"].mean())
    pairs = [(name, best) for name in plain if name not in single]
    pairs += [(f"{name} + noise", f"{best_noise} + noise") for name in plain if name not in single]
    pairs += [(name, "uniform orders") for name in plain if name not in (*single, "uniform orders")]
    differences = ["| below 0 the first is better | difference |", "|---|---|"]
    differences += [f"| {a} - {b} | {number(scores.interval(score[a] - score[b], toss))} |" for a, b in pairs]
    params = ["| fold | law | parameters |", "|---|---|---|"]
    params += [
        f"| {k + 1} | {name} | " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()) + " |"
        for k, part in enumerate(parts)
        for name, values in part["fitted"].items()
    ]
    gains = "; ".join(
        f"{name} {before:.4f} to {after:.4f}" for name, (before, after) in parts[0]["gains"].items()
    )
    made = f"{head['date']}, commit {head['commit']}, {head['device']}, jax {head['jax']}"
    return "\n\n".join([
        f"{made}, mujoco {head['mujoco']}.",
        f"{toss.size} impacts of two corners, the first {len(parts)} of {FOLDS} folds by toss.",
        "\n".join(rows), "\n".join(differences),
        f"Best single law: {best}; with noise: {best_noise}.",
        f"Training score of fold 1, then after {EVALUATIONS} trials without derivatives: {gains}.",
        "\n".join(params),
    ])  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the folds and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cube_tosses.orders", description=__doc__)
    parser.add_argument("--results", type=Path, metavar="FILE", help="also replace the section of this page")
    parser.add_argument("--folds", type=int, default=FOLDS, metavar="N", help="only the first N, for a look")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    begin = time.perf_counter()
    parts = run(folds=options.folds, say=lambda words: print(words, file=sys.stderr, flush=True))
    tables = text(runner.header(), parts)
    print(tables)
    print(
        f"{time.perf_counter() - begin:.0f} s, of processor time {time.process_time():.0f} s", file=sys.stderr
    )
    if options.results:
        put(options.results, "cube orders", tables)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

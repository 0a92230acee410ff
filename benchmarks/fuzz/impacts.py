"""Checks of the impact laws with friction, in the plane and in space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jaxcontact as jc
from benchmarks.fuzz import oracles
from benchmarks.fuzz.problems import random_batch, some_units
from benchmarks.fuzz.rounds import EXACT, LAW, SIZE, Round, Stepped, compiled
from benchmarks.fuzz.tally import Tally
from jaxcontact.impact.laws.contact_space import friction_directions

PLANE, SPACE = (3, 2, 6), (3, 3, 6)  # nc, 1 + nt, nv
STEPS = 4  # of a sample


def _step_all(terms: Any, v: Any, cap: Any, pick: Any) -> Any:
    return jc.impact.routh_step(terms, v, cap, pick=pick)


def _step_lemke(terms: Any, v: Any, cap: Any, pick: Any) -> Any:
    return jc.impact.routh_step(terms, v, cap, pick=pick, selection="lemke")


def _every_outcome(terms: Any, v: Any) -> Any:
    return jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())


def _sample_lemke(terms: Any, v: Any, caps: Any, picks: Any) -> Any:
    return jc.impact.resolve(terms, v, caps, picks, selection="lemke")


def _restitution(terms: Any, v: Any, caps: Any, picks: Any, e: Any) -> Any:
    return jc.impact.resolve(terms, v, caps, picks, restitution=e)


def simultaneous(seed: int) -> Tally:
    """`anitescu_potra` in the plane: one outcome."""
    r = Round(seed, jc.impact.anitescu_potra, PLANE)
    v_plus, info = r.run()
    good = r.tally.count(info.status)
    r.residuals(v_plus, info, good)
    r.forward(v_plus, good)
    r.poison(v_plus, np.asarray(info.status))
    r.loop(v_plus, good)
    r.units(v_plus, np.asarray(info.status), good)
    return r.tally


def every_outcome(seed: int) -> Tally:
    """`outcomes`: all outcomes of brute force and no others."""
    rng = np.random.default_rng(seed)
    dtype = np.float64
    batch = random_batch(rng, SIZE, *PLANE, some_units(rng, dtype))
    terms, v = batch.terms(dtype)
    (v_plus, has), info = compiled(_every_outcome)(terms, v)
    found, valid = np.asarray(v_plus, float), np.asarray(has)
    tally = Tally()
    good = tally.count(info.status) & ~oracles.redundant(batch)
    tally.judge("has an outcome", (~np.any(valid, axis=1)).astype(float), 0.5, good)
    expected, known = oracles.outcomes(batch)
    shaken = batch._replace(v=batch.v * (1.0 + 1e-12 * rng.normal(size=batch.v.shape)))
    for near in (oracles.outcomes(shaken), oracles.outcomes(batch, tolerance=1e-12)):
        good &= oracles.same_outcomes(batch, (expected, known), near, 1e-6)
    speed = oracles.mass_norm(batch.M, batch.v) + 1e-300
    for k in np.flatnonzero(good & np.any(known, axis=1) & np.any(valid, axis=1)):
        a, b = found[k][valid[k]], expected[k][known[k]]
        gap = oracles.mass_norm(batch.M[k][None, None], a[:, None] - b[None]) / speed[k]
        tally.judge("missed", gap.min(0).max(), 1e-5, note=f"problem {k}")
        tally.judge("not an outcome", gap.min(1).max(), 1e-5, note=f"problem {k}")
    return tally


def _steps(seed: int, law: Callable[..., Any], shape: tuple[int, int, int]) -> Tally:
    r = Stepped(seed, law, shape)
    v_plus, info = r.run()
    good = r.tally.count(info.status)
    if shape[1] == 3:
        r.options["fan"] = friction_directions(2, 8)
    r.residuals(v_plus, info, good)
    if shape[1] == 2:
        r.forward(v_plus, good)
    r.poison(v_plus, np.asarray(info.status))
    if seed % 8 < 2:
        r.loop(v_plus, good)
    return r.tally


def step(seed: int) -> Tally:
    """`routh_step`, all solutions or by pivoting."""
    return _steps(seed, _step_lemke if seed % 2 else _step_all, PLANE)


def spatial(seed: int) -> Tally:
    """`anitescu_potra` with circular cones, or a step by pivoting with eight-sided ones, in space."""
    if seed % 2:
        return _steps(seed, _step_lemke, SPACE)
    r = Round(seed, jc.impact.anitescu_potra, SPACE)
    v_plus, info = r.run()
    good = r.tally.count(info.status)
    r.residuals(v_plus, info, good)
    r.poison(v_plus, np.asarray(info.status))
    r.units(v_plus, np.asarray(info.status), good)
    return r.tally


def sample(seed: int) -> Tally:
    """`resolve`: whole samples, with and without restitution; energy, momentum, no approach at the end."""
    elastic = bool(seed % 2)
    r = Stepped(seed, _restitution if elastic else _sample_lemke, PLANE, STEPS)
    if elastic:
        r.extra = (*r.extra, np.where(r.rng.random(SIZE) < 0.3, 1.0, r.rng.random(SIZE)))
    v_plus, info = r.run()
    good = r.tally.count(info.status)
    impulse = np.asarray(info.impulse, float)
    worst = oracles.residuals(r.batch, v_plus, impulse)
    for name in ("momentum", "energy"):
        r.judge(name, worst[name], EXACT[r.dtype], good)
    s = oracles.scaled(r.batch)
    J_n = np.where(r.batch.active[..., None], r.batch.J[:, :, 0], 0.0)
    out = np.einsum("bci,bi->bc", J_n, v_plus) * s.scale[:, ::2]
    speed = np.where(s.speed > 0, s.speed, 1.0)
    r.judge("approach", np.max(-out, axis=1) / speed, LAW[r.dtype], good)
    lam = impulse / s.scale.reshape(SIZE, -1, 2)
    cone = np.abs(lam[..., 1]) - s.mu * lam[..., 0]
    size = speed[:, None] + s.mu * np.abs(lam[..., 0])
    r.judge("cone", np.max(cone / size, axis=1), STEPS * LAW[r.dtype], good)
    r.judge("pull", np.max(-lam[..., 0], axis=1) / speed, LAW[r.dtype], good)
    r.poison(v_plus, np.asarray(info.status))
    return r.tally

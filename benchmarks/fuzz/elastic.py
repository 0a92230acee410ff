"""Checks of impacts without friction: reflections replayed, all orders followed, theorems tried out."""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz import oracles
from benchmarks.fuzz.problems import Batch, poisoned, random_batch, some_units
from benchmarks.fuzz.rounds import DTYPES, EXACT, LAW, compiled
from benchmarks.fuzz.tally import Tally
from jaxcontact.impact.laws.reflections import TIE_DIGITS

SIZE, SHAPE = 128, (3, 2, 4)
COXETER = (
    (3, 3),
    (3, 4),
    (3, 5),
    (2, 2),
    (2, 3),
    (2, 7),
    (2, 5),
)  # of two pairs; the third is 2
MAX_REFLECTIONS = 64


def _propagate(terms: Any, v: Any, restitution: Any) -> Any:
    return jc.impact.propagate(terms, v, restitution=restitution)


def _unit(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit normals U (B, nc, nv) in the metric of the kinetic energy, their Gram matrix, rates U v."""
    J = np.where(batch.active[..., None], batch.J[:, :, 0], 0.0)
    response = oracles.solve(batch.M, np.swapaxes(J, 1, 2))
    size = np.sqrt(np.einsum("bci,bic->bc", J, response))
    size = np.where(size > 0, size, 1.0)
    U = J / size[..., None]
    gram = U @ oracles.solve(batch.M, np.swapaxes(U, 1, 2))
    return U, gram, np.einsum("bci,bi->bc", U, batch.v)


def _plastic(gram: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Impulses (B, nc) of min |v' - v|_M over U v' >= 0, by all subsets of contacts."""
    size, nc = rate.shape
    best, least = np.zeros((size, nc)), np.full(size, np.inf)
    scale = np.abs(rate).max(axis=1) + 1e-300
    for chosen in itertools.product([False, True], repeat=nc):
        on = np.array(chosen)
        A = np.where(on[:, None] & on[None], gram, np.eye(nc))
        x = np.einsum("bij,bj->bi", np.linalg.pinv(A, rcond=1e-10), np.where(on, -rate, 0.0))
        after = rate + np.einsum("bij,bj->bi", gram, x)
        wrong = np.maximum(np.max(-after, axis=1), np.max(-x * (np.abs(x) < 1e6 * scale[:, None]), axis=1))
        better = wrong / scale < least
        least = np.where(better, wrong / scale, least)
        best = np.where(better[:, None], x, best)
        if np.all(least < 1e-13):
            break
    return best


def elastic(seed: int) -> Tally:
    """`propagate`: its own sequence replayed, energy, momentum, the loss that restitution asks for."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[int(rng.integers(2))]
    bits = "f32" if dtype is np.float32 else "f64"
    tally = Tally()
    batch = random_batch(rng, SIZE, *SHAPE, some_units(rng, dtype)).rounded(dtype)
    R = np.where(rng.random(SIZE) < 0.4, 1.0, rng.random(SIZE))
    R = np.asarray(np.asarray(R, dtype), float)
    run = compiled(_propagate)
    terms, v = batch.terms(dtype)
    v_plus, info = run(terms, v, jnp.asarray(R, dtype))
    found, status = np.asarray(v_plus, float), np.asarray(info.status)
    good = tally.count(status)
    U, gram, rate = _unit(batch)
    speed = np.where(oracles.mass_norm(batch.M, batch.v) > 0, oracles.mass_norm(batch.M, batch.v), 1.0)
    out = np.einsum("bci,bi->bc", U, found)
    tally.judge(f"approach {bits}", np.max(-out, axis=1) / speed, LAW[dtype], good)
    impulse = np.asarray(info.impulse, float)
    tally.judge(f"momentum {bits}", oracles.residuals(batch, found, impulse)["momentum"], EXACT[dtype], good)
    x, untied = np.zeros_like(rate), good.copy()
    for strike, k in enumerate(np.asarray(info.sequence).T):
        at = np.maximum(k, 0)
        rates = rate + np.einsum("bij,bj->bi", gram, x)
        now = np.take_along_axis(rates, at[:, None], 1)[:, 0]
        # Contacts of the same rate but for rounding strike together, but the sequence names one of them.
        tie = 16.0 * float(np.finfo(dtype).eps) ** TIE_DIGITS * np.abs(now)
        near = np.sum(np.abs(rates - now[:, None]) <= tie[:, None], axis=1) > 1
        untied &= ~near | (k < 0)
        limit = LAW[dtype] * (1 + strike)  # each strike passes on the rounding of those before
        tally.judge(f"strikes what leaves {bits}", now / speed, limit, untied & (k >= 0))
        x[np.arange(SIZE), at] -= np.where(k >= 0, 2.0 * now, 0.0)
    stops = _plastic(gram, rate)
    lost = -(2.0 * np.sum(rate * stops, 1) + np.einsum("bi,bij,bj->b", stops, gram, stops)) / speed**2
    kept = oracles.energy_gain(batch, found) + (1.0 - R**2) * lost
    limit = np.where(R == 1.0, EXACT[dtype], LAW[dtype]) * (
        1 + np.sum(np.asarray(info.sequence) >= 0, axis=1)
    )
    tally.judge(f"energy {bits}", np.abs(kept), limit, good)
    mixed = oracles.solve(batch.M, np.einsum("bci,bc->bi", U, x)[..., None])[..., 0] + batch.v
    replayed = oracles.mass_norm(batch.M, mixed - found) / speed
    limit = LAW[dtype] * (1 + np.sum(np.asarray(info.sequence) >= 0, axis=1))
    tally.judge(f"replayed {bits}", replayed, limit, untied & (R == 1.0))
    bad, spoilt = poisoned(rng, batch)
    other, told = run(*bad.terms(dtype), jnp.asarray(R, dtype))
    tally.poisoned(spoilt, told.status, np.asarray(other, float), found)
    return tally


def _follow(gram: np.ndarray, rate: np.ndarray) -> np.ndarray | None:
    """Impulses x (k, nc) at the end of every order of single impacts; None where that takes too long."""
    nc, scale = len(rate), float(np.linalg.norm(rate)) + 1e-300
    front, ended = [np.zeros(nc)], []
    for _ in range(MAX_REFLECTIONS):
        children: list[np.ndarray] = []
        for x in front:
            now = rate + gram @ x
            near = np.flatnonzero(now < -1e-11 * scale)
            if not near.size:
                ended.append(x)
            children += [x - 2.0 * now[k] * np.eye(nc)[k] for k in near]
        front = []
        for x in children:
            if all(np.abs(gram @ (x - y)).max() > 1e-10 * scale for y in front):
                front.append(x)
        if not front:
            return np.array(ended)
        if len(front) > 48:
            return None
    return None


def every_order(seed: int) -> Tally:
    """`propagate_all` against all orders followed one by one, and `unique_order` where it names a theorem."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    size = 16
    batch = random_batch(rng, size, *SHAPE, some_units(rng, np.float64))
    v_plus, sequences, valid = compiled(jc.impact.propagate_all)(*batch.terms(np.float64))
    good = tally.count(sequences.status)
    U, gram, rate = _unit(batch)
    for k in np.flatnonzero(good):
        ends = _follow(gram[k], rate[k])
        if ends is None or not np.asarray(valid)[k].any():
            continue
        expected = batch.v[k] + (oracles.solve(batch.M[k], U[k].T) @ ends.T).T
        found = np.asarray(v_plus)[k][np.asarray(valid)[k]]
        apart = oracles.mass_norm(batch.M[k][None, None], found[:, None] - expected[None])
        apart = apart / (oracles.mass_norm(batch.M[k], batch.v[k]) + 1e-300)
        tally.judge("missed order", apart.min(0).max(), 1e-6, note=f"problem {k}")
        tally.judge("no such order", apart.min(1).max(), 1e-6, note=f"problem {k}")
    return tally


def _pair_spread(product: float, angles: int = 64) -> float:
    """How far apart the outcomes of two normals with that product can be, over velocities in their plane."""
    gram = np.array([[1.0, product], [product, 1.0]])
    opening = np.arccos(-product)
    worst = 0.0
    for at in opening * np.linspace(0.003, 0.997, angles):
        start = -np.array([np.sin(at), np.sin(opening - at)])  # of a unit velocity that both approach
        ends = []
        for first in (0, 1):
            rate, x, k = start.copy(), np.zeros(2), first
            for _ in range(4096):
                if rate[k] >= -1e-11:
                    k = 1 - k
                    if rate[k] >= -1e-11:
                        break
                x[k] -= 2.0 * rate[k]
                rate = start + gram @ x
                k = 1 - k
            ends.append(x)
        apart = ends[0] - ends[1]
        worst = max(worst, float(np.sqrt(max(apart @ gram @ apart, 0.0))))
    return worst


def unique_order(seed: int) -> Tally:
    """Where `unique_order` names a theorem, outcomes of all orders agree within its tolerance."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    for _ in range(12):
        nc = int(rng.integers(2, 4))
        near = float(rng.choice([0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3])) * rng.normal()
        tol = float(rng.choice([1e-9, 1e-6, 1e-4]))
        gram = np.eye(3)
        if nc == 2:
            n = int(np.exp(rng.uniform(np.log(2), np.log(400))))
            beside = float(rng.choice([0.0, 0.5, rng.random()]))  # between two theorems
            gram[0, 1] = gram[1, 0] = min(max(-np.cos(np.pi / (n + beside)) + near, -1 + 1e-9), 1)
        else:
            pairs = COXETER[rng.integers(len(COXETER))]
            for (i, j), n in zip(((0, 1), (1, 2), (0, 2)), (*pairs, 2)):
                gram[i, j] = gram[j, i] = -np.cos(np.pi / n) + near * rng.normal()
        terms = _with_gram(rng, gram, nc)
        said = bool(jc.impact.unique_order(terms, tol).unique)
        tally.problems += 1
        tally.declined += not said
        if not said:
            continue
        spread = _pair_spread(gram[0, 1]) if nc == 2 else _trio_spread(rng, gram)
        note = f"tol {tol:g}, <u, v> {gram[0, 1]!r}"
        tally.judge("theorem", spread, 20.0 * tol + 1e-8, note=note)
    return tally


def _trio_spread(rng: np.random.Generator, gram: np.ndarray) -> float:
    """The same for three normals, over a few velocities."""
    worst = 0.0
    for _ in range(4):
        rate = -rng.random(3)
        ends = _follow(gram, rate)
        if ends is None:
            continue
        speed = np.sqrt(rate @ np.linalg.solve(gram, rate))
        apart = ends[:, None] - ends[None]
        worst = max(
            worst, float(np.sqrt(max(np.einsum("abi,ij,abj->ab", apart, gram, apart).max(), 0)) / speed)
        )
    return worst


def _with_gram(rng: np.random.Generator, gram: np.ndarray, nc: int) -> jc.ContactTerms:
    """Terms of three contacts, nc of them active, whose unit normals have that Gram matrix."""
    axes, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    M = (axes * 10.0 ** rng.uniform(-1, 1, 4)) @ axes.T
    M = 0.5 * (M + M.T)
    root = np.linalg.cholesky(M)
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    values, vectors = np.linalg.eigh(gram)
    U = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    U = (U @ turn[:3]) @ root.T * rng.uniform(0.5, 2.0, (3, 1))
    return jc.ContactTerms(
        M=jnp.asarray(M), J_n=jnp.asarray(U), J_t=jnp.zeros((3, 1, 4)), phi=jnp.zeros(3), mu=jnp.zeros(3),
        active=jnp.arange(3) < nc,
    )  # fmt: skip

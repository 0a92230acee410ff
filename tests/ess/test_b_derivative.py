"""The B-derivative: 40-digit differences at corners, all orders of six guards, its limits, two balls."""

import itertools
from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ess_systems import CORNER, TIGHT, corner_params

import jaxcontact as jc
from jaxcontact.ess import DormandPrince, EventSystem, b_derivative, flow, ordering_map, saltation_matrix

DIGITS = 40
T_CORNER, T_END = 0.25, 0.5
SHARP = DormandPrince(rtol=1e-13, atol=1e-14)


# --------------------------------------------------------------- affine fields in 40-digit arithmetic

decimals = np.vectorize(lambda a: Decimal(float(a)), otypes=[object])


def matrix_exp(A, s):
    """exp(A s) by its series, in decimals."""
    n = len(A)
    total = term = decimals(np.eye(n))
    for k in range(1, 200):
        term = term @ A * (s / k)
        total = total + term
        if max(abs(a) for a in term.ravel()) < Decimal(10) ** -(DIGITS + 12):
            return total
    raise AssertionError


class Affine:
    """Fields A_s y + b_s through the corner 0 at T_CORNER, everything in decimals, y = (x, 1)."""

    def __init__(self, params):
        self.m, self.n = np.shape(params["normals"])
        self.normals = decimals(params["normals"])
        self.parts = {k: decimals(params[k]) for k in ("A", "A_k", "b", "b_k")}

    def generator(self, crossed):
        p, signs = self.parts, [Decimal(1) if c else Decimal(-1) for c in crossed]
        block = decimals(np.zeros((self.n + 1, self.n + 1)))
        block[: self.n, : self.n] = p["A"] + sum(s * a for s, a in zip(signs, p["A_k"]))
        block[: self.n, self.n] = p["b"] + sum(s * b for s, b in zip(signs, p["b_k"]))
        return block

    def start(self):
        """The state at time 0 from which the corner is reached."""
        one = np.append(decimals(np.zeros(self.n)), Decimal(1))
        return (matrix_exp(self.generator([False] * self.m), -Decimal(T_CORNER)) @ one)[: self.n]

    def end(self, displacement, into, out):
        """The state at T_END of the trajectory from start + displacement, and its order of crossing.

        All crossings happen within a tiny time s of T_CORNER, so three terms of the series are exact.
        """
        y = into @ np.append(displacement + self.start_, Decimal(1))
        s, crossed, order = Decimal(0), [False] * self.m, []

        def move(G, y, w):
            first = G @ y
            second = G @ first
            third = G @ second
            return y + w * first + w * w / 2 * second + w**3 / 6 * third, first + w * second + w * w / 2 * third

        for _ in range(self.m):
            G, waits = self.generator(crossed), {}
            for k in range(self.m):
                if not crossed[k]:
                    w = Decimal(0)
                    for _ in range(4):
                        z, rate = move(G, y, w)
                        w -= (self.normals[k] @ z[: self.n]) / (self.normals[k] @ rate[: self.n])
                    waits[k] = w
            k = min(waits, key=waits.get)
            y, s = move(G, y, waits[k])[0], s + waits[k]
            crossed[k] = True
            order.append(k)
        y, _ = move(self.generator(crossed), y, -s)
        return (out @ y)[: self.n], order

    def one_sided(self, directions, r=Decimal(10) ** -18):
        self.start_ = self.start()
        into = matrix_exp(self.generator([False] * self.m), Decimal(T_CORNER))
        out = matrix_exp(self.generator([True] * self.m), Decimal(T_END) - Decimal(T_CORNER))
        base, _ = self.end(decimals(np.zeros(self.n)), into, out)
        found = [self.end(r * decimals(d), into, out) for d in directions]
        return np.array([[float(a) for a in (x - base) / r] for x, _ in found]), [o for _, o in found]


@pytest.mark.parametrize("m", [2, 3, 6])
def test_corners_equal_one_sided_differences_in_forty_digits(m):
    getcontext().prec = DIGITS + 10
    rng = np.random.default_rng(m)
    params = corner_params(rng, m, m, spread=0.6, linear=0.5)
    affine = Affine(params)
    x0 = jnp.asarray(affine.start().astype(float))
    directions = rng.normal(size=(100, m))
    exact, orders = affine.one_sided(directions)
    numbers = jax.tree.map(jnp.asarray, params)
    run = jax.jit(
        jax.vmap(
            lambda d: b_derivative(CORNER, numbers, x0, d, 0.0, T_END, eps=1e-6, ode=SHARP, max_events=8)
        )
    )
    found, info = run(jnp.asarray(directions))
    assert np.all(np.asarray(info.status) == 0)
    assert np.all(np.asarray(info.num_corners) == 1) and np.all(np.asarray(info.largest_corner) == m)
    assert np.array_equal(np.asarray(info.order)[:, :m], orders)
    assert np.abs(np.asarray(found) - exact).max() <= 1e-10
    # Positively homogeneous, piecewise linear, not linear.
    scaled, _ = run(jnp.asarray(3.7 * directions))
    assert np.abs(np.asarray(scaled) - 3.7 * np.asarray(found)).max() <= 1e-12
    back, _ = run(jnp.asarray(-directions))
    assert np.abs(np.asarray(found) + np.asarray(back)).max() > 1e-3
    assert len({tuple(o) for o in orders}) >= min(m * (m - 1), 20)

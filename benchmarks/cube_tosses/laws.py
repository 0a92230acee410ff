"""What impact laws make of the impacts found: one outcome each, or samples.

Owns the cases as arrays of the library's contact terms, two contacts each, one of which may be idle, the
lowest corner first. All laws of impulse orders are one program: steps of `jc.impact.resolve` with given caps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.cube_tosses import impacts
from benchmarks.cube_tosses.geometry import CUBE, Geometry, above_board, contact_terms, cube
from benchmarks.cube_tosses.impacts import MASS_DIAGONAL, Impacts
from benchmarks.cube_tosses.tosses import DT, GRAVITY, MASS

STEPS = 12  # of an impact
STEP = 0.4  # largest impulse of a step, as a share of what stops a point mass of the approach speed
BLOCK = 1024  # lanes of one call, so that every number of samples is the same program
PER_ROW, SUBSTEPS = 8, 14  # steps of motion in time per row, and those in which a contact is to be done
SOFT_DT = DT / PER_ROW
SPAN = SUBSTEPS * SOFT_DT


class Cases(NamedTuple):
    """Impacts as contact problems; axis 0 counts them.

    terms: of two contacts each, the lowest first; v, after (n, 6); stop (n,) N s; q (n, 7) with the lowest
    corner on the board; toss (n,); several (n,) bool; covariance (n, 6, 6) of after, and of what `before`
    may be off, as a change of `after`.
    """

    terms: jc.ContactTerms
    v: jax.Array
    after: jax.Array
    stop: jax.Array
    q: jax.Array
    toss: np.ndarray
    several: np.ndarray
    covariance: np.ndarray

    def take(self, index: np.ndarray) -> Cases:
        """Some of them."""
        return jax.tree.map(lambda leaf: leaf[index], self)


def cases_of(found: Impacts, geometry: Geometry) -> Cases:
    """The contact problems of impacts."""
    whole = contact_terms(jnp.asarray(found.q), geometry)
    gap = np.asarray(whole.phi)
    lowest = np.argsort(gap, axis=1)[:, : impacts.MOST]
    touches = np.take_along_axis(impacts.touching(found.q, geometry), lowest, axis=1)

    def of(leaf: jax.Array) -> jax.Array:
        index = lowest.reshape(lowest.shape + (1,) * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, jnp.asarray(index), axis=1)

    terms = jc.ContactTerms(
        M=whole.M, J_n=of(whole.J_n), J_t=of(whole.J_t), phi=jnp.zeros(lowest.shape), mu=of(whole.mu),
        active=jnp.asarray(touches),
    )  # fmt: skip
    v = jnp.asarray(found.before)
    approach = -jnp.einsum("nij,nj->ni", terms.J_n, v)
    q = np.array(above_board(jnp.asarray(found.q), geometry))
    q[:, 2] -= gap.min(axis=1)
    return Cases(
        terms, v, jnp.asarray(found.after),
        MASS * jnp.max(jnp.where(terms.active, approach, 0.0), axis=1),
        jnp.asarray(q), found.toss, touches.sum(axis=1) > 1,
        found.covariance_after + found.covariance_before,
    )  # fmt: skip


def error(v: Any, cases: Cases) -> Any:
    """|v - v_measured|_M / |v_minus|_M (..., n) of velocities (..., n, 6)."""
    weight = jnp.asarray(MASS_DIAGONAL)
    return norm(v - cases.after, weight) / norm(cases.v, weight)


def norm(v: Any, weight: Any) -> Any:
    """(...) of velocities (..., 6); its derivative at zero is zero."""
    square = jnp.sum(v**2 * weight, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def order(cases: Cases, caps: jax.Array, mu: jax.Array, e: jax.Array) -> jax.Array:
    """Outcomes (n, 6) of one impulse order each: caps (n, STEPS, 2) N s, friction and restitution (n,)."""

    def one(terms: jc.ContactTerms, v: jax.Array, caps: jax.Array, mu: jax.Array, e: jax.Array) -> jax.Array:
        terms = terms.replace(mu=jnp.full(2, mu))
        none = jnp.zeros(STEPS, caps.dtype)
        return jc.impact.resolve(terms, v, caps, none, restitution=e, selection="lemke")[0]

    return jax.vmap(one)(cases.terms, cases.v, caps, mu, e)


_order = jax.jit(order)


def orders(cases: Cases, fractions: np.ndarray, mu: Any, e: Any) -> np.ndarray:
    """Outcomes (n, N, 6) for fractions (n, N, STEPS, 2) of the caps; mu, e numbers or (n, N)."""
    n, samples = fractions.shape[:2]
    lane = np.repeat(np.arange(n), samples)
    caps = fractions.reshape(-1, STEPS, 2) * STEP * np.asarray(cases.stop)[lane, None, None]
    mu, e = (np.broadcast_to(x, (n, samples)).ravel() for x in (mu, e))
    bare = cases._replace(toss=None, several=None, covariance=None)
    found = []
    for begin in range(0, lane.size, BLOCK):
        index = np.resize(np.arange(begin, min(begin + BLOCK, lane.size)), BLOCK)
        block = bare.take(lane[index])
        found.append(np.asarray(_order(block, *(jnp.asarray(x[index]) for x in (caps, mu, e)))))
    return np.concatenate(found)[: lane.size].reshape(n, samples, 6)


def even(count: int, samples: int = 1) -> np.ndarray:
    """Fractions (n, N, STEPS, 2) of contacts that push at equal rates."""
    return np.full((count, samples, STEPS, 2), 0.5)


def one_after_the_other(count: int) -> np.ndarray:
    """Fractions (n, 2, STEPS, 2): first the lowest corner alone, then the other, and the other way."""
    alone = np.tile(np.eye(2), (STEPS // 2, 1)) * 1e3  # as much as the contact wants
    return np.tile(np.stack([alone, alone[:, ::-1]])[None], (count, 1, 1, 1))


class PowerDensity(NamedTuple):
    """Fractions u^k of uniform u, k for the lowest corner and for the other: a `density=` of `sample`.

    k = 1 is uniform; k > 1 prefers small impulses and so lets the other contact go first.
    """

    first: Any = 1.0
    second: Any = 1.0

    def __call__(self, uniform: Any) -> Any:
        """Fractions (..., 2) of uniform numbers (..., 2)."""
        return uniform ** jnp.stack([jnp.asarray(self.first, float), jnp.asarray(self.second, float)])


def simultaneous(cases: Cases, mu: jax.Array) -> jax.Array:
    """Outcomes (n, 6) of Anitescu and Potra's law: inelastic, all contacts at once."""

    def one(terms: jc.ContactTerms, v: jax.Array) -> jax.Array:
        return jc.impact.anitescu_potra(terms.replace(mu=jnp.full(2, mu)), v)[0]

    return jax.vmap(one)(cases.terms, cases.v)


def soft_cube(side: Any, mu: Any, stiffness: Any, damping: Any) -> jc.Params:
    """The cube with springs and dampers at its corners."""
    material = jc.compliant.Material(stiffness=stiffness, damping=damping, friction_damping=jnp.array(1e3))
    return cube(side, mu).replace(material=material)


def fall(params: jc.Params, q: jax.Array, v: jax.Array, steps: int) -> jc.State:
    """States (steps, ...) of one cube from its pose (7,) and velocity (6,)."""
    state = jc.State(q=q, v=v, t=jnp.zeros(()))
    return jc.compliant.rollout(CUBE.replace(params=params), state, jnp.zeros((steps, 6)), dt=SOFT_DT)[0]


def compliant(cases: Cases, side: Any, mu: Any, stiffness: Any, damping: Any) -> jax.Array:
    """Outcomes (n, 6) of springs and dampers at all eight corners, taken back to the time of the impact."""
    params = soft_cube(side, mu, stiffness, damping)
    ends = jax.vmap(lambda q, v: fall(params, q, v, SUBSTEPS).v[-1])(cases.q, cases.v)
    return ends + jnp.zeros((1, 6)).at[0, 2].set(GRAVITY * SPAN)

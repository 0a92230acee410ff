"""Assumption 6 of Halm & Posa, proved or not: for every velocity and all caps, all solutions of a step move alike.

A step puts each contact into one of seven modes, which are linear equations and inequalities in the velocity
v, the caps and the impulse lam. Two solutions lam, lam' of modes a, b lie in one polyhedral cone of
(v, cap, lam, lam'). J^T (lam - lam') vanishes on it exactly if each of its components, of either sign, is minus
a sum of the inequalities with weights >= 0 (Farkas). A linear program finds the weights; rational arithmetic
checks them. The numbers of a model are read as the rationals that its floats are.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference
from scipy.optimize import linprog

import jaxcontact as jc
from jaxcontact.solvers.contact_modes import (
    CAP_MINUS,
    CAP_PLUS,
    CAP_STICK,
    REST_MINUS,
    REST_PLUS,
    REST_STICK,
    SEPARATE,
)
from jaxcontact.stability.rational import (
    directions,
    exact,
    inverse,
    null_space,
    primitive,
    sizes,
    solve,
    whole,
)

STICKS, PLUS, MINUS = (REST_STICK, CAP_STICK), (REST_PLUS, CAP_PLUS), (REST_MINUS, CAP_MINUS)


def fractions(array):
    return np.reshape([Fraction(float(x)) for x in np.ravel(array)], np.shape(array))


def integers(rows):
    """Rows of Fractions times what makes them coprime integers; their directions stay."""
    found = []
    for row in rows:
        found.append([int(x * np.lcm.reduce([y.denominator for y in row])) for x in row])
    return primitive(whole(found).reshape(len(found), -1)) if found else whole([]).reshape(0, 0)


class Steps:
    """The equations and inequalities of the modes of a step, over (v, cap, lam)."""

    def __init__(self, terms):
        M, J_n, J_t, mu = (np.asarray(a, float) for a in (terms.M, terms.J_n, terms.J_t[:, 0], terms.mu))
        self.m, self.nv = J_n.shape
        J = np.stack([J_n, J_t], axis=1).reshape(-1, self.nv)
        inverted = inverse(exact(M))
        M_inverse = np.reshape([Fraction(x, inverted.den) for x in inverted.num.ravel()], M.shape)
        self.J, self.mu = fractions(J), fractions(mu)
        self.D = self.J @ M_inverse @ self.J.T
        self.size = self.nv + 3 * self.m

    def of_mode(self, code):
        """Rows that are = 0, and rows that are >= 0."""
        m, nv, zero = self.m, self.nv, np.full(self.size, Fraction(0))
        equal, at_least = [], []
        for i, mode in enumerate(code):
            lam_n, lam_t, cap = zero.copy(), zero.copy(), zero.copy()
            cap[nv + i] = lam_n[nv + m + 2 * i] = lam_t[nv + m + 2 * i + 1] = Fraction(1)
            u_n, u_t = (np.concatenate([self.J[2 * i + k], zero[:m], self.D[2 * i + k]]) for k in (0, 1))
            at_least.append(cap)
            if mode == SEPARATE:
                equal += [lam_n, lam_t]
                at_least.append(u_n)
                continue
            rests = mode in (REST_STICK, REST_PLUS, REST_MINUS)
            equal.append(u_n if rests else lam_n - cap)
            at_least += [lam_n, cap - lam_n] if rests else [-u_n]
            if mode in STICKS:
                equal.append(u_t)
                at_least += [self.mu[i] * lam_n - lam_t, self.mu[i] * lam_n + lam_t]
            else:
                sign = 1 if mode in PLUS else -1
                equal.append(lam_t + sign * self.mu[i] * lam_n)
                at_least.append(sign * u_t)
        return equal, at_least

    def agree(self, one, other):
        """Whether it is proved that solutions of the two modes move alike."""
        first, k = self.nv + self.m, 2 * self.m

        def widened(row, second):
            gap = np.full(k, Fraction(0))
            return np.concatenate([row[:first], *((gap, row[first:]) if second else (row[first:], gap))])

        rows = [
            [widened(row, n) for n, part in enumerate((one, other)) for row in part[side]] for side in (0, 1)
        ]
        basis = null_space(integers(rows[0]))
        bits = sizes(basis)  # of one length, for the sake of the floats below
        basis = basis * whole([1 << (max(bits, default=0) - each) for each in bits])[:, None]
        facets = primitive(integers(rows[1]) @ basis.T)
        facets = whole(sorted({tuple(row) for row in facets.tolist() if any(row)})).reshape(-1, len(basis))
        apart = np.concatenate([np.full((self.nv, first), Fraction(0)), self.J.T, -self.J.T], axis=1)
        moves = primitive(integers(apart) @ basis.T)
        moves = [row for row in moves if any(row)]
        return all(is_sum(facets, sign * row) for row in moves for sign in (1, -1))


def is_sum(facets, form):
    """Whether form = -weights . facets with weights >= 0, in rational arithmetic."""
    floats, target = directions(facets), -directions(form[None])[0]
    if not len(facets):
        return False
    found = linprog(np.zeros(len(facets)), A_eq=floats.T, b_eq=target, bounds=(0, None), method="highs-ds")
    if found.status != 0:
        return False
    used = np.flatnonzero(found.x > 1e-9).tolist()
    rest = [k for k in range(len(facets)) if k not in used]
    for count in range(facets.shape[1] - len(used) + 1):  # small weights that floats do not tell from none
        for more in itertools.combinations(rest, count):
            weights = solve(facets[used + list(more)].T, -form)
            if weights is not None and all(x >= 0 for x in weights.num):
                return True
    return False


def unproved(terms, most=None):
    """Pairs of modes whose solutions are not proved to move alike."""
    steps = Steps(terms)
    modes = {code: steps.of_mode(code) for code in itertools.product(range(7), repeat=steps.m)}
    left = []
    for a, b in itertools.combinations_with_replacement(modes, 2):
        if not steps.agree(modes[a], modes[b]):
            left.append((a, b))
            if most is not None and len(left) >= most:
                break
    return left


def terms_of(name):
    model = getattr(jc.models, name)()
    return jc.contact_terms(model, model.initial_state())


def one_contact(mu):
    """A slender rod on one end."""
    return jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, 0.1])), J_n=jnp.array([[0.0, 1.0, -1.0]]),
        J_t=jnp.array([[[1.0, 0.0, 0.3]]]), phi=jnp.zeros(1), mu=jnp.array([mu]), active=jnp.ones(1, bool),
    )  # fmt: skip


def test_one_contact_without_and_with_a_wedge():
    """A rod with little friction moves in one way; with a lot it may jam or fly: D_nn < mu |D_nt|."""
    assert unproved(one_contact(0.5)) == []
    wedged = one_contact(4.0)
    wedged = wedged.replace(M=jnp.diag(jnp.array([1.0, 1.0, 0.1])), J_n=jnp.array([[0.0, 1.0, -0.5]]))
    steps = Steps(wedged)
    assert steps.D[0, 0] < 4 * abs(steps.D[0, 1])
    assert unproved(wedged, most=1) != []


@pytest.mark.slow
def test_every_step_of_the_rocking_block_has_one_outcome():
    assert unproved(terms_of("rocking_block")) == []


def test_the_box_at_the_wall_has_steps_with_two_outcomes():
    """The assumption fails for it, too, at velocities that its own impact does not meet: it rests, or turns
    about B, which sticks to the wall, and A lifts.
    """
    terms = terms_of("box_and_wall")
    v, caps = np.array([0.3007, -0.1061, -1.1857]), np.array([2.043, 0.608])
    planar = [np.asarray(a) for a in (terms.M, terms.J_n, terms.J_t[:, 0], terms.mu)]
    outcomes = reference.step_solutions(*planar, v, caps)[0]
    assert len(outcomes) == 2
    slides = outcomes[np.argmax(np.abs(outcomes).max(axis=1))]
    np.testing.assert_allclose(np.min(np.abs(outcomes).max(axis=1)), 0.0, atol=1e-12)
    u_n, u_t = slides @ planar[1].T, slides @ planar[2].T
    assert u_n[0] > 1e-3 and u_t[0] < -1e-2 and abs(u_n[1]) < 1e-12 and abs(u_t[1]) < 1e-12
    assert len(unproved(terms, most=1)) == 1


@pytest.mark.slow
def test_the_compass_gait_has_no_such_proof():
    assert len(unproved(terms_of("compass_gait"), most=1)) == 1

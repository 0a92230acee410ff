"""The guards of `check`, one by one: what looks like a proof but for one condition is none."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.stability_bodies import fig3

import jaxcontact as jc
from jaxcontact.stability import Certificate, LocalTerms, LyapunovFunction, certify, check, local_terms
from jaxcontact.stability.check import _copositive, _maximum_is_positive, gaps_hold
from jaxcontact.stability.rational import Rational, exact, rank, zeros
from jaxcontact.stability.rational_modes import exact_terms, make_function


def resting(J_n, force, mu=0.5):
    """A body of unit mass whose slips are velocities along the first coordinate."""
    J_n, force = np.array(J_n, float), np.array(force, float)
    slip = np.zeros_like(J_n)
    slip[:, 0] = 1.0
    return LocalTerms(
        M=np.eye(len(force)), J_n=J_n, J_t=slip, mu=np.full(len(J_n), mu), e=np.zeros(len(J_n)), force=force
    )


def function_with(body, weights):
    """V = (s f + J_n^T y) q + v'Mv/2 of the weights (s, y_1, ...)."""
    s, *y = weights
    linear = Rational(s * body.force.num, body.force.den) + Rational(np.array(y, object)) @ body.normal
    return make_function(body, linear, body.M, Rational(zeros(body.nc, body.nv)))


def positive(body, weights):
    return _maximum_is_positive(body, [function_with(body, weights)], [exact([Fraction(w) for w in weights])])


@pytest.mark.parametrize("weights", [(0, 2, 2), (1, 0, 2), (1, 2, 0), (0, 0, 2)])
def test_a_weight_of_zero_leaves_a_gap_that_nothing_bounds(weights):
    """In a corner of floor and wall: with y_1 = 0 the body may leave the wall for nothing, and s = 0 is no sum."""
    body = exact_terms(resting([[1.0, 0.0], [0.0, 1.0]], [-1.0, -1.0]))
    assert positive(body, (1, 2, 2))
    assert not positive(body, weights)


def test_a_drift_that_neither_force_nor_gaps_see_is_not_bounded():
    """On level ground the energy says nothing of the place, though it never rises and all weights are positive."""
    body = exact_terms(resting([[0.0, 1.0]], [0.0, -1.0]))
    assert not positive(body, (1, 2))
    tilted = exact_terms(resting([[0.0, 1.0]], [0.125, -1.0]))
    assert positive(tilted, (1, 2))


def test_the_energy_alone_proves_nothing_of_a_block_that_may_drift():
    """The same as a whole certificate, of which every condition but the rank holds."""
    model = jc.models.rocking_block()
    terms = local_terms(model, model.initial_state())
    J_n = exact(terms.J_n)
    weights = (Fraction(1), Fraction(10), Fraction(10))
    push = -(exact(weights[1:]) @ J_n).floats() / 2  # -2 f = J_n^T y
    energy = LyapunovFunction(
        linear=exact(-push).fractions(),
        quadratic=exact(terms.M).fractions(),
        turns=((Fraction(0),) * 3,) * 2,
        weights=weights,
    )
    block = terms.replace(force=push)
    proof = Certificate(
        verdict="stable", method="homogeneous", V=(energy,), gram={}, residuals={}, report="", body=block
    )
    assert function_with(exact_terms(block), (1, 10, 10)).linear.equals(exact(energy.linear))
    assert rank(J_n.num) == 2 and certify(block).verdict == "stable"  # by two functions
    assert not check(proof)


def test_multipliers_must_not_be_negative():
    """A form that is negative at (1, 1, 1), and multipliers that would hide it."""
    form = 2 * np.eye(3, dtype=int) - 1
    assert np.ones(3) @ form @ np.ones(3) < 0
    assert not _copositive(Rational(form.astype(object)), (form - np.eye(3)).astype(float))
    good = np.array([[1, 2, -1], [2, 1, -1], [-1, -1, 4]], object)  # copositive, and not semidefinite
    pays = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert not _copositive(Rational(good), np.zeros((3, 3)))
    assert _copositive(Rational(good), pays)


def test_no_certificate_passes_with_a_negative_multiplier():
    proof = certify(fig3(0.5, 0.8))
    assert proof.gram and check(proof)
    for key, value in proof.gram.items():
        lower = value - (1.0 + np.max(np.diag(value))) * np.eye(
            len(value)
        )  # minus it, the form is better still
        assert not check(proof.replace(gram={**proof.gram, key: lower}))


@pytest.mark.parametrize(("weight_at", "holds"), [(0.0, False), (-0.05, True), (-0.6, False), (-0.3, True)])
def test_a_force_must_press_on_every_gap(weight_at, holds):
    """Three feet in a line: with the weight above the last one, the first two may lift for nothing."""
    x = np.array([-0.6, -0.1, 0.0]) - weight_at
    body = exact_terms(resting([[0.0, 1.0, each] for each in x], [0.0, -1.0, 0.0]))
    assert rank(body.normal.num) < body.nc
    assert gaps_hold(body) is holds

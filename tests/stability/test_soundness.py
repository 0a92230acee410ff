"""Each condition of soundness of a proof by itself, on bodies small enough to see through."""

from fractions import Fraction

import numpy as np
from helpers.stability_bodies import particle

from jaxcontact.stability import certify, check
from jaxcontact.stability.check import _copositive, _maximum_is_positive, _never_rises, energy
from jaxcontact.stability.impact_conditions import conditions
from jaxcontact.stability.rational import Rational, exact, identity, whole, zeros
from jaxcontact.stability.rational_modes import exact_terms, make_function


def form(rows):
    return Rational(whole(rows))


def function(body, linear, quadratic):
    none = Rational(zeros(body.nc, body.nv))
    return make_function(body, Rational(whole(linear)), Rational(whole(quadratic)), none)


def test_two_rays_are_compared_exactly():
    """x^2 - 2 b x y + y^2 >= 0 for x, y >= 0 as long as b <= 1."""
    assert _copositive(form([[1, -1], [-1, 1]]), None)
    assert not _copositive(form([[1, -2], [-2, 1]]), None)
    assert not _copositive(Rational(whole([[1, -1], [-1, 1]]) * 2**70 - identity(2), 2**70), None)


def test_multipliers_pay_for_what_they_say():
    """Three rays: what is left without the multipliers has to be semidefinite."""
    assert _copositive(form(np.eye(3, dtype=int)), np.zeros((3, 3)))
    assert not _copositive(form([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]]), np.zeros((3, 3)))
    pays = np.ones((3, 3)) - np.eye(3)
    assert _copositive(form([[1, 2, 2], [2, 1, 2], [2, 2, 1]]), 2.0 * pays)
    assert not _copositive(form([[1, 2, 2], [2, 1, 2], [2, 2, 1]]), 0.0 * pays)


def test_one_function_beside_the_energy():
    """a = s f + J_n^T y with Q + s M positive definite; a point mass on a slope."""
    body, weights = exact_terms(particle(0.25, 0.5, 0.0)), [exact((Fraction(1), Fraction(2)))]
    linear = body.force + body.normal[0] * Rational(2)
    good = make_function(body, linear, body.M, Rational(zeros(1, 2)))
    assert _maximum_is_positive(body, [good], weights)
    bent = linear + Rational(whole([1, 0]), 2**80)
    assert not _maximum_is_positive(body, [make_function(body, bent, body.M, Rational(zeros(1, 2)))], weights)
    for times in (-1, -2):  # Q + M is zero, or negative
        other = make_function(body, linear, body.M * Rational(times), Rational(zeros(1, 2)))
        assert not _maximum_is_positive(body, [other], weights)


def test_two_functions_bound_the_drift_to_both_sides():
    """On level ground a point mass may drift along; one function counts each way."""
    body = exact_terms(particle(0.0, 0.5, 0.0))
    left, right, far = (function(body, (a, 0), np.eye(2, dtype=int)) for a in (-1, 1, 2))
    assert _maximum_is_positive(body, [left, right], [])
    assert not _maximum_is_positive(body, [right, far], [])


def test_every_kind_of_condition_is_looked_at():
    """Energy never rises along modes, nor over impacts; its negative does both."""
    body = exact_terms(particle(0.25, 0.5, 0.0))
    rates, jumps = conditions(body, "single")
    falls = energy(body)
    rises = make_function(body, body.force, body.M * Rational(-1), Rational(zeros(1, 2)))
    assert rates and jumps and _never_rises((rates, jumps), falls, {}, 0, None)
    assert not _never_rises((rates, []), rises, {}, 0, None)
    assert not _never_rises(([], jumps), rises, {}, 0, None)


def test_a_stable_body_is_not_proved_unstable():
    certificate = certify(particle(0.25, 0.5, 0.0), method="single")
    assert certificate.verdict == "stable" and check(certificate)
    assert not check(certificate.replace(verdict="unstable"))

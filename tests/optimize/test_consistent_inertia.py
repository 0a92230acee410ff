"""Inertias of ten numbers are those of bodies, and bodies have their numbers."""

import jax
import numpy as np
import pytest

from jaxcontact.optimize import inertia_numbers, inertia_of


def test_every_ten_numbers_are_a_body(rng):
    for numbers in rng.normal(size=(200, 10)):
        mass, _, inertia = inertia_of(numbers)
        moments = np.linalg.eigvalsh(inertia)
        assert mass > 0 and moments[0] > 0
        assert moments[2] <= moments[0] + moments[1]


def test_points_with_mass_have_the_numbers_of_their_sums(rng):
    """Mass, centre and inertia by sums over 30 points; the numbers lead back to them."""
    masses, places = rng.uniform(0.1, 1.0, 30), rng.normal(size=(30, 3))
    mass = masses.sum()
    com = masses @ places / mass
    off = places - com
    inertia = sum(m * (o @ o * np.eye(3) - np.outer(o, o)) for m, o in zip(masses, off, strict=True))
    found = inertia_of(inertia_numbers(mass, com, inertia))
    for value, expected in zip(found, (mass, com, inertia), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-12)


def test_an_inertia_of_no_body_has_no_numbers():
    assert np.any(np.isnan(inertia_numbers(1.0, np.zeros(3), np.diag([1.0, 1.0, 2.5]))))


def test_the_derivative_is_that_of_differences(rng):
    numbers, direction = rng.normal(size=(2, 10))
    rate = jax.jvp(lambda n: inertia_of(n)[2], (numbers,), (direction,))[1]
    h = 1e-6
    low, high = (inertia_of(numbers + sign * h * direction)[2] for sign in (-1, 1))
    np.testing.assert_allclose(rate, (np.asarray(high) - low) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.float32
def test_numbers_of_another_count_are_named():
    with pytest.raises(ValueError, match="numbers"):
        inertia_of(np.zeros(9))

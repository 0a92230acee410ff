"""Rotations against the reference matrix, Rodrigues' formula and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference

from jaxcontact.algebra import rotations as rot
from jaxcontact.mechanics import spatial


def unit(rng):
    q = rng.normal(size=4)
    return q / np.linalg.norm(q)


def hat(w):
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def rodrigues(w):
    angle = np.linalg.norm(w)
    K = hat(w / angle)
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


@pytest.mark.float32
def test_quaternion_matrix(rng, tolerance):
    for _ in range(20):
        q = unit(rng)
        R = np.asarray(rot.quaternion_matrix(jnp.array(q)))
        np.testing.assert_allclose(R, reference.rotation(q), atol=tolerance(1e-15, 1e-6))
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=tolerance(1e-15, 1e-6))
        assert np.linalg.det(R) > 0
        for size in (-1.0, 3.0):  # length and sign of a quaternion do not matter
            other = rot.quaternion_matrix(jnp.array(size * q))
            np.testing.assert_allclose(other, R, atol=tolerance(1e-15, 1e-6))


def test_quarter_turns_go_the_right_way():
    h = np.sqrt(0.5)
    for axis in range(3):
        q = np.zeros(4)
        q[0], q[1 + axis] = h, h
        turned = np.asarray(rot.quaternion_matrix(jnp.array(q))) @ np.eye(3)[(axis + 1) % 3]
        np.testing.assert_allclose(turned, np.eye(3)[(axis + 2) % 3], atol=1e-15)
    turned = np.asarray(rot.planar_matrix(jnp.array(np.pi / 2))) @ [1.0, 0.0]
    np.testing.assert_allclose(turned, [0.0, 1.0], atol=1e-15)


def test_planar_matrices_of_a_batch(rng):
    angles = rng.uniform(-4, 4, (2, 3))
    R = np.asarray(rot.planar_matrix(jnp.array(angles)))
    assert R.shape == (2, 3, 2, 2)
    c, s = np.cos(angles), np.sin(angles)
    np.testing.assert_allclose(R, np.moveaxis(np.array([[c, -s], [s, c]]), (0, 1), (2, 3)), atol=1e-15)


def test_product_is_composition(rng):
    for _ in range(20):
        a, b = rng.normal(size=4), rng.normal(size=4)
        ab = np.asarray(rot.quaternion_product(jnp.array(a), jnp.array(b)))
        np.testing.assert_allclose(np.linalg.norm(ab), np.linalg.norm(a) * np.linalg.norm(b), rtol=1e-14)
        expected = reference.rotation(a / np.linalg.norm(a)) @ reference.rotation(b / np.linalg.norm(b))
        np.testing.assert_allclose(rot.quaternion_matrix(jnp.array(ab)), expected, atol=1e-14)
    i, j, k = (jnp.eye(4)[n] for n in (1, 2, 3))
    np.testing.assert_array_equal(rot.quaternion_product(i, j), k)
    np.testing.assert_array_equal(rot.quaternion_product(j, i), -k)
    np.testing.assert_array_equal(rot.quaternion_product(i, i), [-1.0, 0, 0, 0])


def test_rate_map_turns_with_the_angular_velocity_in_body_axes(rng):
    for _ in range(5):
        q, w = unit(rng), rng.normal(size=3)
        rate = np.asarray(rot.quaternion_rate_map(jnp.array(q))) @ w
        np.testing.assert_allclose(q @ rate, 0.0, atol=1e-15)  # length is kept
        half = rot.quaternion_product(jnp.array(q), jnp.array([0.0, *w])) / 2
        np.testing.assert_allclose(rate, half, atol=1e-15)
        h = 1e-6
        slope = (reference.rotation(q + h * rate) - reference.rotation(q - h * rate)) / (2 * h)
        np.testing.assert_allclose(slope, reference.rotation(q) @ hat(w), atol=1e-9)
        _, exact = jax.jvp(rot.quaternion_matrix, (jnp.array(q),), (jnp.array(rate),))
        np.testing.assert_allclose(exact, reference.rotation(q) @ hat(w), atol=1e-14)


@pytest.mark.float32
def test_exponential_against_rodrigues(rng, tolerance):
    for size in (1e-7, 1e-5, 0.99e-4, 1.01e-4, 1e-3, 0.05, 0.5, 1.0, 3.0, 6.0, 20.0):
        w = rng.normal(size=3)
        w *= size / np.linalg.norm(w)
        q = np.asarray(rot.quaternion_exp(jnp.array(w)))
        half = np.concatenate([[np.cos(size / 2)], np.sin(size / 2) * w / size])
        np.testing.assert_allclose(q, half, rtol=tolerance(1e-14, 1e-5), atol=tolerance(1e-15, 2e-6))
        expected = rodrigues(w)
        np.testing.assert_allclose(rot.quaternion_matrix(jnp.array(q)), expected, atol=tolerance(1e-14, 1e-5))


@pytest.mark.slow
def test_exponential_is_smooth_at_zero():
    zero = jnp.zeros(3)
    np.testing.assert_array_equal(rot.quaternion_exp(zero), [1.0, 0.0, 0.0, 0.0])
    first = np.vstack([np.zeros(3), 0.5 * np.eye(3)])
    second = np.zeros((4, 3, 3))
    second[0] = -0.25 * np.eye(3)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_array_equal(derivative(rot.quaternion_exp)(zero), first)
    np.testing.assert_allclose(jax.hessian(rot.quaternion_exp)(zero), second, atol=1e-15)


@pytest.mark.slow
def test_exponential_derivatives_match_on_both_sides_of_its_series():
    axis = jnp.array([0.6, 0.0, 0.8])
    below, above = 0.999999e-4 * axis, 1.000001e-4 * axis
    for derivative, atol in ((jax.jacfwd(rot.quaternion_exp), 1e-9), (jax.hessian(rot.quaternion_exp), 1e-7)):
        np.testing.assert_allclose(derivative(below), derivative(above), atol=atol)
    for w in (below, above, axis):
        h = 1e-5
        slope = [(rot.quaternion_exp(w + h * e) - rot.quaternion_exp(w - h * e)) / (2 * h) for e in np.eye(3)]
        np.testing.assert_allclose(
            jax.jacfwd(rot.quaternion_exp)(w), np.stack(slope, axis=-1), rtol=0, atol=1e-9
        )


def test_exponential_of_the_rate_map(rng):
    """d/dh exp at h = 0 along omega is the rate map: q exp(h omega) = q + h E(q) omega + O(h^2)."""
    q, w = jnp.array(unit(rng)), jnp.array(rng.normal(size=3))
    _, rate = jax.jvp(lambda h: rot.quaternion_product(q, rot.quaternion_exp(h * w)), (0.0,), (1.0,))
    np.testing.assert_allclose(rate, rot.quaternion_rate_map(q) @ w, atol=1e-15)


def test_vee_inverts_hat_and_ignores_the_symmetric_part(rng):
    w, S = rng.normal(size=3), rng.normal(size=(3, 3))
    np.testing.assert_allclose(rot.vee(jnp.array(hat(w))), w, atol=1e-16)
    np.testing.assert_allclose(rot.vee(jnp.array(hat(w) + S + S.T)), w, atol=1e-15)
    x = rng.normal(size=3)
    np.testing.assert_allclose(hat(np.asarray(rot.vee(jnp.array(hat(w))))) @ x, np.cross(w, x), atol=1e-15)


@pytest.mark.long
@pytest.mark.parametrize("size", [0.0, 1e-3, 0.3, 3.0])
def test_jacobian_of_the_exponential_and_its_inverse(size):
    """exp(d + e) = exp(d) exp(J e) to first order: J from the derivative of the matrix."""
    d = size * jnp.array([0.6, -0.48, 0.64])

    def turn(x):
        return rot.quaternion_matrix(rot.quaternion_exp(x))

    slope = jax.jacfwd(turn)(d)  # (3, 3, 3)
    columns = [rot.vee(turn(d).T @ slope[:, :, k]) for k in range(3)]
    jacobian = rot.exp_jacobian(d)
    np.testing.assert_allclose(jacobian, jnp.stack(columns, axis=1), atol=1e-12)
    np.testing.assert_allclose(rot.exp_jacobian_inverse(d) @ jacobian, np.eye(3), atol=1e-12)


def test_quaternions_in_rows_turn_like_single_ones(rng):
    """The kernel of trees against the one of free bodies, at any length; a turn and the turn back cancel."""
    q = jnp.asarray(rng.normal(size=(20, 4)))
    expected = jax.vmap(rot.quaternion_matrix)(q)
    np.testing.assert_allclose(spatial.matrices(q), expected, atol=1e-15)
    one = jnp.asarray(unit(rng))
    np.testing.assert_allclose(
        rot.quaternion_product(one, rot.quaternion_conjugate(one)), [1.0, 0.0, 0.0, 0.0], atol=1e-15
    )

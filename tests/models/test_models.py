"""Models of compliant examples: their numbers, checked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import BILATERAL, LIMIT, NORMAL


def terms_of(model):
    return jc.constraint_terms(model, model.initial_state())


def test_pendulum_joint():
    model = jc.models.pendulum_joint()
    terms = terms_of(model)
    np.testing.assert_allclose(terms.phi, 0.0, atol=1e-15)
    assert terms.kind == (BILATERAL, BILATERAL)
    assert (float(model.params.material.stiffness), float(model.params.material.damping)) == (1e15, 1.0)


def test_pendulum_limit():
    model = jc.models.pendulum_limit()
    terms = terms_of(model)
    assert terms.kind == (LIMIT,)
    np.testing.assert_allclose(terms.phi, np.pi / 2)
    np.testing.assert_allclose(terms.G, [[1.0]])
    assert float(model.params.material.stiffness) == 1e12
    torque = jc.bias(model, model.initial_state())
    np.testing.assert_allclose(torque, [9.81], rtol=1e-14)  # m g l sin(theta)


@pytest.mark.parametrize("mu", [0.0, 0.375])
def test_box_on_incline_stands_on_four_feet(mu):
    model = jc.models.box_on_incline(mu)
    terms = terms_of(model)
    np.testing.assert_allclose(terms.phi, 0.0, atol=1e-16)
    np.testing.assert_array_equal(terms.mu, mu)
    # Straight down the slope no foot leaves the ramp, and all slide alike.
    downhill = jnp.array([np.cos(np.radians(15)), 0.0, -np.sin(np.radians(15)), 0.0, 0.0, 0.0])
    rates = np.asarray(terms.G @ downhill).reshape(4, 3)
    np.testing.assert_allclose(rates[:, 0], 0.0, atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(rates[:, 1:], axis=1), 1.0)
    # Hertz: 4/3 1e11 sqrt(0.01) d^1.5 = 2.5 N at 3.28e-7 m
    depth = (2.5 * 3 / (4 * 1e10)) ** (2 / 3)
    energy = model.params.material.potential(jnp.array([depth, depth * (1 + 1e-6), depth * (1 - 1e-6)]))
    np.testing.assert_allclose((energy[1] - energy[2]) / (2e-6 * depth), 2.5, rtol=1e-8)


@pytest.mark.parametrize("number", [100, 900])
def test_box_on_foundation(number):
    model = jc.models.box_on_foundation(number, youngs_modulus=1e7, load=5.0)
    terms = terms_of(model)
    assert terms.kind == (LIMIT,) * number
    np.testing.assert_allclose(terms.phi, 0.0, atol=1e-15)
    K = np.full(number, float(model.params.material.stiffness))
    G = np.asarray(terms.G)
    whole = (G.T * K) @ G
    # 1e7 N/m in all; about the middle E s^4 / 12, less by the 1/n of midpoints
    tilt = 1e7 / 12 * (1 - 1 / number)
    np.testing.assert_allclose(whole, np.diag([0, 0, 1e7, tilt, tilt, 0]), atol=1e-6)
    np.testing.assert_allclose(float(model.params.mass[0]), 8.0)


@pytest.mark.parametrize("time", [0.0, 0.2])
def test_load_on_the_foundation_goes_round(time):
    model = jc.models.box_on_foundation(100, load=50.0)
    force = -jc.bias(model, model.initial_state().replace(t=jnp.array(time)))
    torque = np.cross([0.5 * np.cos(10 * time), 0.5 * np.sin(10 * time), 0.5], [0, 0, -50.0])
    np.testing.assert_allclose(force, [0, 0, -50.0 - 8 * 9.81, *torque], atol=1e-13)


def test_sphere_stack():
    model = jc.models.sphere_stack(4, offset=1e-3)
    terms = terms_of(model)
    gaps = np.asarray(terms.phi)[::3]
    np.testing.assert_allclose(gaps, 0.01 + np.array([0, 1, 1, 1]) * 0.5 * 1e-6 / 0.21, rtol=0, atol=1e-9)
    assert terms.kind[::3] == (NORMAL,) * 4
    np.testing.assert_allclose(model.params.material.potential.radius, [0.1, 0.05, 0.05, 0.05])
    assert jc.models.sphere_stack(4).system is model.system  # compiles once
    every = jc.models.sphere_stack(4, offset=1e-3, all_pairs=True)
    assert every.structure.num_contacts == 4 + 6
    np.testing.assert_allclose(np.asarray(terms_of(every).phi)[::3][:4], gaps)
    assert int((every.params.material.potential.radius == 0.1).sum()) == 4  # with the floor


def test_tossed_cube_may_land_on_any_corner():
    model = jc.models.tossed_cube()
    phi = np.asarray(terms_of(model).phi)[::3]
    np.testing.assert_allclose(phi, 0.3 + 0.05 * np.array([-1, -1, -1, -1, 1, 1, 1, 1]), rtol=1e-14)


def test_numbers_that_make_no_model_are_named():
    with pytest.raises(ValueError, match="num_elements: expected a square number such as 100 or 900, got 99"):
        jc.models.box_on_foundation(99)
    with pytest.raises(ValueError, match="n: expected an integer >= 1, got 0"):
        jc.models.sphere_stack(0)


@pytest.mark.parametrize("name", ["rocking_block", "box_drop_3d"])
def test_all_corners_of_a_block_are_contacts_where_it_moves(name):
    """The first ones are those of the impact example; turned over, it rests on the others."""
    make = getattr(jc.models, name)
    few, every = make(), make(all_corners=True)
    nc = few.system.structure.num_contacts
    assert every.structure.num_contacts == 2 * nc == every.params.mu.size
    terms = [jc.contact_terms(m, m.initial_state()) for m in (few, every)]
    np.testing.assert_array_equal(terms[1].phi[:nc], terms[0].phi)
    np.testing.assert_array_equal(terms[1].J_n[:nc], terms[0].J_n)
    np.testing.assert_allclose(terms[1].phi[nc:], 2.0)
    turn = jnp.array([0.0, 1.0, np.pi]) if nc == 2 else jnp.array([0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    over = jc.contact_terms(every, every.initial_state().replace(q=turn))
    np.testing.assert_allclose(over.phi[nc:], 0.0, atol=1e-6)
    assert make(all_corners=True).system == every.system  # one program for all its calls


def test_a_block_that_moves_looks_the_same_in_the_mirror():
    """The contacts of its symmetry are those of the mirror image."""
    model = jc.models.rocking_block(all_corners=True)
    terms = jc.contact_terms(model, model.initial_state())
    S, images = np.asarray(model.symmetry.velocity), list(model.symmetry.contacts)
    np.testing.assert_allclose(terms.J_n[np.array(images)] @ S, terms.J_n, atol=1e-7)
    np.testing.assert_allclose(terms.J_t[np.array(images), 0] @ S, -terms.J_t[:, 0], atol=1e-7)

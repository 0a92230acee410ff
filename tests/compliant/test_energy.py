"""Energy of compliant steps: spinning bodies keep theirs, and a step that makes some says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.compliant.settings import Settings
from jaxcontact.compliant.solve import _make_info, _search
from jaxcontact.compliant.step import assemble

INERTIA = np.array([0.1, 0.2, 0.35])
V = jnp.array([1.0, -0.5, 0.2, 0.2, 3.0, 0.1])


def placed(structure, q, params):
    return jc.free_poses(structure, q, params)


def swung(structure, q, params):
    turned = jc.rotations.quaternion_matrix(q)
    return (turned @ params.constants["arm"])[None], turned[None]


def spin(poses, dt, speed=1.0, unit=1.0):
    """States over 2 s, the rotating momentum and the energy, relative to their first values."""
    nq, nv = (4, 3) if poses is swung else (7, 6)
    system = jc.System(
        jc.Structure(dim=3, bodies=("body",), num_positions=nq, quaternions=(nq - 4,)),
        poses,
    )
    params = jc.Params(
        mass=jnp.array([2.0]) * unit,
        inertia=jnp.asarray(INERTIA)[None] * unit,
        mu=jnp.zeros(0),
        gravity=jnp.zeros(3),
        constants={"arm": jnp.array([0.1, 0.2, 0.4])},
        material=jc.compliant.Material(),
    )
    q = jnp.zeros(nq).at[nq - 4].set(1.0)
    num_steps = round(2.0 / dt)
    state = jc.State(q=q, v=speed * V[6 - nv :], t=jnp.zeros(()))
    states, info = jc.compliant.rollout(
        jc.Model(system=system, params=params), state, jnp.zeros((num_steps, nv)), dt=dt
    )
    assert not np.any(np.asarray(info.status))
    mass = np.asarray(jc.mass_matrix(jc.Model(system=system, params=params), q))[
        -3:, -3:
    ]  # in axes of the body: constant
    turned = np.asarray(jax.vmap(jc.rotations.quaternion_matrix)(states.q[:, -4:]))
    omega = np.asarray(states.v)[:, -3:]
    momentum = np.einsum("tij,tj->ti", turned, omega @ mass)
    first = mass @ np.asarray(state.v)[-3:]
    kinetic = np.einsum("ti,ij,tj->t", omega, mass, omega) / (first @ np.asarray(state.v)[-3:])
    return np.max(np.linalg.norm(momentum - first, axis=1)) / np.linalg.norm(first), kinetic


@pytest.mark.slow_cases("free_poses", "placed")
@pytest.mark.float32
@pytest.mark.parametrize("poses", [jc.free_poses, placed, pytest.param(swung, marks=pytest.mark.slow)])
def test_a_spinning_body_keeps_its_momentum_and_its_energy_to_second_order(poses, tolerance):
    """Free, by poses of one's own, or about a fixed point."""
    errors = []
    for dt in (4e-3, 2e-3):
        momentum, kinetic = spin(poses, dt)
        assert momentum < tolerance(1e-12, 1e-4)
        errors.append(np.max(np.abs(kinetic - 1.0)))
    assert errors[0] < tolerance(1e-6, 1e-4)
    if tolerance(True, False):
        assert 3.9 < errors[0] / errors[1] < 4.1


@pytest.mark.long
@pytest.mark.float32
def test_a_body_that_turns_by_half_a_radian_in_a_step_keeps_its_momentum(tolerance):
    for unit in (1.0, 1e-6):
        momentum, kinetic = spin(jc.free_poses, 4e-3, speed=40.0, unit=unit)
        assert momentum < tolerance(1e-11, 1e-3)
        np.testing.assert_allclose(kinetic, 1.0, rtol=0, atol=1e-2)


@pytest.mark.slow
def test_a_step_that_makes_energy_says_so():
    """A cube on an incline, its next velocity and its impulses perturbed."""
    model = jc.models.box_on_incline()
    problem = assemble(model, model.initial_state(), jnp.zeros_like(model.initial_state().v), 1e-3)
    start = jnp.zeros_like(problem.terms.phi)
    x, p, iterations, converged = _search(problem, start, Settings())

    @jax.jit
    def status(x, p):
        return _make_info(problem, x, p, iterations, converged, Settings()).status

    assert int(status(x, p)) == 0
    assert int(status(x + 0.01, p)) & jc.Status.ENERGY
    assert jc.Status.FAILURES & jc.Status.ENERGY

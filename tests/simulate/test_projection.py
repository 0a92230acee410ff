"""`jc.project`: the nearest state without penetration, in the kinetic metric, with loops closed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

BLOCK, JOINT = jc.models.rocking_block(), jc.models.pendulum_joint()


@jax.jit
@jax.vmap
def four(q, inertia):
    """Of four blocks: states and infos; one program for all."""
    params = BLOCK.params.replace(inertia=inertia[None])
    return jc.project(BLOCK.replace(params=params), BLOCK.initial_state().replace(q=q))


POSES = jnp.array([[0.0, 0.9, 0.0], [0.3, 0.98, 0.3], [0.0, 1.2, 0.3], [0.0, jnp.nan, 0.0]])
INERTIA = jnp.array([0.4, 0.4, 0.4, 0.4])


@pytest.mark.slow
def test_a_block_leaves_the_floor_on_the_shortest_way():
    """Flat: straight up. On a corner: M d is along the normal of that corner where it ends, no less and no more."""
    found, info = four(POSES, INERTIA)
    np.testing.assert_allclose(found.q[0], [0.0, 1.0, 0.0], atol=1e-14)
    x, y, angle = np.asarray(found.q[1])
    height = y - np.cos(angle) - 0.5 * np.sin(angle)  # of the lower left corner's fellow on the right
    lower = y - np.cos(angle) - 0.5 * np.abs(np.sin(angle))
    assert abs(lower) < 1e-13 and height <= lower + 1e-13
    up, turn = y - 0.98, angle - 0.3
    arm = np.sin(angle) - 0.5 * np.sign(np.sin(angle)) * np.cos(angle)  # of the gap by the angle
    np.testing.assert_allclose(0.4 * turn / up, arm, rtol=1e-6)
    assert x == 0.3 and up > 0
    np.testing.assert_array_equal(found.q[2], POSES[2])  # nothing to do, to the bit
    np.testing.assert_array_equal(found.v, np.tile(BLOCK.initial_state().v, (4, 1)))
    np.testing.assert_array_equal(jc.Status.failed(info.status), [False, False, False, True])
    np.testing.assert_allclose(info.depth[:3], [0.1, 0.5 * np.sin(0.3) + np.cos(0.3) - 0.98, 0.0], atol=1e-15)
    assert info.num_iters[2] == 0 and np.all(np.asarray(info.status)[3] & jc.Status.NONFINITE)


def test_masses_of_any_spread():
    """A turn that costs nothing, and one that costs everything."""
    found, info = four(jnp.tile(POSES[1], (4, 1)), jnp.array([4e-7, 0.4, 4e5, 1.0]))
    assert not np.any(jc.Status.failed(info.status))
    gap = found.q[:, 1] - jnp.cos(found.q[:, 2]) - 0.5 * jnp.abs(jnp.sin(found.q[:, 2]))
    np.testing.assert_allclose(gap, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.q[0, 1], 0.98, atol=0.021)  # turns upright, 2 cm at most are left
    np.testing.assert_allclose(found.q[2, 2], 0.3, atol=1e-5)


def test_a_loop_is_closed_and_its_rate_is_zero():
    """A bob that hangs on the origin: the point of the bob that is there, and its velocity, are zero."""
    state = jc.State(q=jnp.array([0.9, 0.1, 1.4]), v=jnp.array([0.3, -0.2, 1.0]), t=jnp.array(0.5))
    found, info = jc.project(JOINT, state)
    assert int(info.status) == 0 and float(info.depth) > 0.1
    x, y, angle = found.q
    hanger = jnp.array([x - jnp.sin(angle), y + jnp.cos(angle)])
    np.testing.assert_allclose(hanger, 0.0, atol=1e-13)
    rows = jnp.array([[1.0, 0.0, -jnp.cos(angle)], [0.0, 1.0, -jnp.sin(angle)]])
    np.testing.assert_allclose(rows @ found.v, 0.0, atol=1e-14)
    mass = jnp.array([1.0, 1.0, 0.005])
    balance = jnp.linalg.lstsq(rows.T, mass * (found.v - state.v))[0]
    np.testing.assert_allclose(rows.T @ balance, mass * (found.v - state.v), atol=1e-14)
    assert float(found.t) == 0.5


@pytest.mark.long
def test_a_loop_that_is_closed_stays_so_in_the_derivative():
    """A displacement that opens it is projected, as by differences; the closed state comes back to the bit."""
    start = JOINT.initial_state()

    def end(q):
        return jc.project(JOINT, start.replace(q=q))[0].q

    np.testing.assert_array_equal(end(start.q), start.q)
    eye = jnp.eye(3)
    differences = jnp.stack([(end(start.q + 1e-6 * e) - end(start.q - 1e-6 * e)) / 2e-6 for e in eye], axis=1)
    forward = jax.jacfwd(end)(start.q)
    np.testing.assert_allclose(forward, differences, atol=1e-7)
    np.testing.assert_allclose(jax.jacrev(end)(start.q), forward, atol=1e-13)
    assert np.linalg.matrix_rank(forward, tol=1e-6) == 1


@pytest.mark.slow
def test_derivatives_are_those_of_differences():
    def end(z):
        found, _ = jc.project(
            BLOCK.replace(params=BLOCK.params.replace(inertia=z[3:])), BLOCK.initial_state().replace(q=z[:3])
        )
        return found.q

    z = jnp.array([0.3, 0.98, 0.3, 0.4])
    eye = jnp.eye(4)
    differences = jnp.stack([(end(z + 1e-6 * e) - end(z - 1e-6 * e)) / 2e-6 for e in eye], axis=1)
    forward = jax.jacfwd(end)(z)
    np.testing.assert_allclose(forward, differences, atol=1e-7)
    np.testing.assert_allclose(jax.jacrev(end)(z), forward, atol=1e-13)


def test_arguments_in_another_order_are_named():
    with pytest.raises(TypeError, match="state: expected State, got Params"):
        jc.project(BLOCK, BLOCK.params)


@pytest.mark.slow
def test_depths_of_all_but_round_off_are_removed():
    """A box on an edge, 1e-10 to 1e-7 m deep: gaps tell its displacement to 1e-6 and no better."""
    box, rng = jc.models.box_drop_3d(all_corners=True), np.random.default_rng(0)
    q = np.zeros((256, 7))
    tilt = rng.uniform(0.001, 1.0, 256)
    q[:, 2] = np.cos(tilt) + 0.5 * np.sin(tilt) - 10.0 ** rng.uniform(-10, -7, 256)
    q[:, 3], q[:, 5] = np.cos(tilt / 2), np.sin(tilt / 2)
    project = jax.jit(jax.vmap(lambda q: jc.project(box, box.initial_state().replace(q=q))))
    found, info = project(jnp.asarray(q))
    assert not np.any(info.status), np.unique(info.status, return_counts=True)
    assert int(jnp.max(info.num_iters)) <= 5
    lowest = found.q[:, 2] - np.cos(tilt) - 0.5 * np.sin(tilt)
    assert np.all(np.abs(lowest) < 1e-6)

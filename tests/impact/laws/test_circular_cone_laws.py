"""Laws of all contacts at once with the circular friction cone: closed forms, a judge of its own, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

ANGLE = np.deg2rad(11.0)  # half of a side of an octagon is 22.5 degrees
WAY = np.array([np.cos(ANGLE), np.sin(ANGLE)])
LAWS = {
    "anitescu_potra": (jc.impact.AnitescuPotra(), 0.0),
    "newton": (jc.impact.Newton(restitution=0.5), 0.5),
    "poisson": (jc.impact.Poisson(restitution=0.5), 0.5),
    "sequential": (jc.impact.Sequential(), 0.0),
}


def point(mu):
    """A point mass on a floor."""
    unit = jnp.eye(3)
    return jc.ContactTerms(
        M=2.0 * unit,
        J_n=unit[2:],
        J_t=unit[None, :2],
        phi=jnp.zeros(1),
        mu=jnp.asarray([mu]),
        active=jnp.ones(1, bool),
    )


@pytest.mark.long
@pytest.mark.parametrize("name", LAWS)
def test_a_point_slides_straight_ahead(name):
    """It loses mu (1 + e) |v_n| of its speed, whatever its direction; it sticks if it has less."""
    law, e = LAWS[name]
    strike = jax.jit(lambda mu, v: law(point(mu), v))
    v_plus, info = strike(0.3, jnp.array([*(2.0 * WAY), -1.0]))
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, [*((2.0 - 0.3 * (1.0 + e)) * WAY), e], rtol=1e-12, atol=1e-14)
    v_plus, info = strike(3.0, jnp.array([*(2.0 * WAY), -1.0]))
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, [0.0, 0.0, e], atol=1e-12)


@pytest.mark.long
def test_sides_by_name_bend_the_way():
    v_plus, _ = jc.impact.anitescu_potra(point(0.3), jnp.array([*(2.0 * WAY), -1.0]), num_directions=8)
    np.testing.assert_allclose(v_plus, [2.0 * WAY[0] - 0.3, 2.0 * WAY[1], 0.0], rtol=1e-12, atol=1e-14)


def de_saxce(W, q, mu, r):
    """The natural map of Coulomb's law as a velocity, relative to the largest of q."""
    u, r = (W @ r.ravel() + q).reshape(-1, 3), r.reshape(-1, 3)
    w = np.diag(W).reshape(-1, 3).max(axis=1)
    asked = r - u / w[:, None]
    asked[:, 0] -= mu * np.linalg.norm(u[:, 1:], axis=1) / w
    size = np.linalg.norm(asked[:, 1:], axis=1)
    inside = size <= mu * asked[:, 0]
    push = np.where(inside, asked[:, 0], np.maximum(asked[:, 0] + mu * size, 0.0) / (1.0 + mu * mu))
    share = np.where(inside, 1.0, mu * push / np.where(size > 0, size, 1.0))
    granted = np.column_stack([push, share[:, None] * asked[:, 1:]])
    return np.abs((granted - r) * w[:, None]).max() / np.abs(q).max()


def stack(seed, nc=12, nv=9):
    """Redundant contacts of bodies with masses over four decades."""
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(nc, 3, nv))
    terms = jc.ContactTerms(
        M=jnp.diag(10.0 ** jnp.asarray(rng.uniform(-2.0, 2.0, nv))),
        J_n=jnp.asarray(J[:, 0]),
        J_t=jnp.asarray(J[:, 1:]),
        phi=jnp.zeros(nc),
        mu=jnp.asarray(rng.uniform(0.1, 1.2, nc)),
        active=jnp.ones(nc, bool),
    )
    return terms, jnp.asarray(rng.normal(size=nv))


@pytest.mark.long
def test_redundant_contacts_meet_coulombs_law():
    terms, v = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[stack(seed) for seed in range(8)])
    _, info = jax.jit(jax.vmap(jc.impact.anitescu_potra))(terms, v)
    assert not np.any(jc.Status.failed(info.status))
    terms, v, impulse = jax.tree.map(np.asarray, (terms, v, info.impulse))
    for k in range(8):
        J = np.concatenate([terms.J_n[k][:, None], terms.J_t[k]], axis=1).reshape(-1, v.shape[1])
        W = J @ np.linalg.solve(terms.M[k], J.T)
        assert de_saxce(W, J @ v[k], terms.mu[k], impulse[k]) < 1e-9


@pytest.mark.long
def test_many_contacts_in_the_plane_rest_together():
    """A plank on twelve points falls flat and stays; every share of its weight does."""
    places = jnp.linspace(-1.0, 1.0, 12)
    one, zero = jnp.ones(12), jnp.zeros(12)
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([2.0, 2.0, 0.5])),
        J_n=jnp.stack([zero, one, places], axis=1),
        J_t=jnp.stack([one, zero, zero], axis=1)[:, None],
        phi=zero,
        mu=0.4 * one,
        active=jnp.ones(12, bool),
    )
    v_plus, info = jc.impact.anitescu_potra(terms, jnp.array([1.0, -1.0, 0.0]))
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, [0.6, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(jnp.sum(info.impulse, axis=0), [2.0, -0.8], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", ["anitescu_potra", pytest.param("poisson", marks=pytest.mark.slow)])
def test_derivatives_are_those_of_differences(name):
    law, _ = LAWS[name]
    v, mu = jnp.array([*(2.0 * WAY), -1.0]), 0.3
    end = jax.jit(lambda x: law(point(x[3]), x[:3])[0])
    x = jnp.array([*v, mu])
    columns = [(end(x.at[k].add(1e-6)) - end(x.at[k].add(-1e-6))) / 2e-6 for k in range(4)]
    np.testing.assert_allclose(jax.jit(jax.jacfwd(end))(x), np.stack(columns, axis=1), atol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.jacrev(end))(x), np.stack(columns, axis=1), atol=1e-8)


def test_a_solver_of_the_other_cone_is_refused():
    terms, v = point(0.3), jnp.array([1.0, 0.0, -1.0])
    with pytest.raises(ValueError, match="solver: expected CoulombNewton"):
        jc.impact.anitescu_potra(terms, v, solver=jc.Lemke())
    with pytest.raises(ValueError, match="solver: expected a Lemke solver"):
        jc.impact.anitescu_potra(terms, v, num_directions=8, solver=jc.CoulombNewton())


@pytest.mark.long
def test_the_corners_of_a_face_share_an_impact_as_equally_soft_ones():
    """Loads of rigid corners are free by one number, and friction on a face that spins depends on it.

    Springs of one stiffness below a rigid face yield in a plane: loads across both diagonals have one sum. In
    the second case one corner has no load, for its neighbours yield more.
    """
    cube, law = jc.models.tossed_cube(), jc.impact.AnitescuPotra()
    upright = jnp.array([0.0, 0.0, 0.05, 1.0, 0.0, 0.0, 0.0])
    falls = jnp.array([[0.83, 0.09, -0.22, 0.0, -4.43, -5.0], [0.33, 0.51, -0.23, -1.28, -6.22, -6.15]])

    def strike(push, v):
        q = jc.retract(cube, upright, push * jnp.array([0.1, 0.2, 0.0, 0.0, 0.0, 0.3]))
        v = v + push * jnp.array([0.3, -0.1, 0.2, 0.0, 0.5, 0.7])
        terms = jc.contact_terms(cube, jc.State(q=q, v=v, t=jnp.array(0.0)))
        v_plus, info = law(terms.replace(active=jnp.arange(8) < 4), v)
        return v_plus, info

    @jax.jit
    @jax.vmap
    @functools.partial(jax.vmap, in_axes=(0, None))
    def with_slope(push, v):
        return jax.jvp(lambda push: strike(push, v), (push,), (1.0,))

    h = 1e-4
    (v_plus, info), (slope, _) = with_slope(jnp.tile(jnp.array([0.0, 1e-13, -h, h]), (2, 1)), falls)
    assert not np.any(jc.Status.failed(info.status)), jc.Status.describe(info.status)
    loads = np.asarray(info.impulse)[:, :, :4, 0]
    assert np.min(loads[0]) > 1e-3 and np.all(np.sum(loads[1] > 1e-3, axis=1) == 3)
    np.testing.assert_allclose(loads[0] @ np.array([1.0, -1.0, -1.0, 1.0]), 0.0, atol=1e-11)
    assert np.max(np.abs(v_plus[:, 0, [2, 3, 4]])) < 1e-12
    np.testing.assert_allclose(v_plus[:, 1], v_plus[:, 0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(slope[:, 0], (v_plus[:, 3] - v_plus[:, 2]) / (2.0 * h), rtol=0, atol=1e-6)


@pytest.mark.long
@pytest.mark.float32
def test_a_box_that_slides_to_rest_fails_in_no_step():
    """Its four corners share their loads; in single precision shared loads solve the problem less well."""
    floor = "<geom type='plane' size='9 9 1' friction='.3'/>"
    crate = (
        "<body pos='0 0 .02'><freejoint/><geom type='box' size='.1 .1 .02' mass='1' friction='.3'/></body>"
    )
    model = jc.load_mjcf(f"<mujoco><worldbody>{floor}{crate}</worldbody></mujoco>")
    state = model.initial_state()
    state = state.replace(v=state.v.at[0].set(1.0))
    stepper = jc.simulate.TimeStepping()
    motion = jc.simulate.rollout(model, state, None, num_steps=90, stepper=stepper, dt=0.005)
    assert not np.any(motion.status)
    np.testing.assert_allclose(motion.states.q[-1, 0], 1.0 / (2 * 0.3 * 9.81), atol=0.005)

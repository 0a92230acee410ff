"""Trees against mechanisms by a `poses` function: the same machine both ways."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_files import ZOO

import jaxcontact as jc
from jaxcontact.io.mjcf import IgnoredOptionWarning
from jaxcontact.models.robots import file_of
from jaxcontact.peers.mujoco import MIN_MASS, MODELS, POINT_RADIUS, mjcf
from jaxcontact.terms import contact_velocities

pytest.importorskip("mujoco")
EXACT = {"rtol": 1e-11, "atol": 1e-11}
MASSES = ("mass", "inertia")


def as_tree(name):
    """A planar model of the papers, through its MJCF text."""
    with pytest.warns(IgnoredOptionWarning):
        model = jc.load_mjcf(mjcf(name), planar=True)
    params = model.params  # bodies without mass have a little in MuJoCo
    nothing = {key: jnp.where(getattr(params, key) == MIN_MASS, 0.0, getattr(params, key)) for key in MASSES}
    return model.replace(params=params.replace(**nothing))


@jax.jit
def mechanics(model, state, along):
    """M, bias and J, and their derivatives along a direction of q and of v."""

    def of(q):
        now = state.replace(q=q, v=state.v + q - state.q)
        M, bias = jc.mass_matrix(model, q), jc.bias(model, now)
        terms = jc.contact_terms(model, now)
        return M, bias, jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)

    return jax.jvp(of, (state.q,), (along,))


@pytest.mark.long
@pytest.mark.slow_cases("ramone")
@pytest.mark.parametrize("name", [name for name in MODELS if name != "box_drop_3d"])
def test_planar_models_both_ways(name, rng):
    model, tree = getattr(jc.models, name)(), as_tree(name)
    nv = model.structure.num_velocities
    shift = jnp.asarray(0.1 * rng.normal(size=nv))
    state = model.initial_state().replace(
        q=model.initial_state().q + shift, v=jnp.asarray(rng.normal(size=nv))
    )
    along = jnp.asarray(rng.normal(size=nv))
    found, expected = (mechanics(m, state, along) for m in (tree, model))
    radii = [float(x) for key, x in tree.params.constants.items() if key.endswith("radius")]
    points = np.isclose(radii, POINT_RADIUS).any()  # small balls, as MuJoCo has no points
    for (M, bias, J), others in zip(found, expected, strict=True):
        np.testing.assert_allclose(M, others[0], **EXACT)
        np.testing.assert_allclose(bias, others[1], rtol=1e-11, atol=1e-10)
        np.testing.assert_allclose(J, others[2], rtol=1e-11, atol=4 * POINT_RADIUS if points else 1e-11)


def by_poses(system):
    """The same robot without its closed forms: origins at the centres of mass, axes along the principal ones."""
    structure = system.structure

    def poses(_, q, params):
        positions, rotations = system.poses(structure, q, params)
        centres = positions + jnp.einsum("bij,bj->bi", rotations, params.tree.com)
        return centres, rotations @ params.constants["principal"]

    bare = jc.Structure(
        dim=3,
        bodies=structure.bodies,
        num_positions=structure.num_positions,
        quaternions=structure.quaternions,
    )
    return jc.System(bare, poses)


@pytest.mark.slow
def test_a_robot_without_its_closed_forms(rng):
    """M and bias of the zoo, and their derivatives by q and v, are those of its poses."""
    model = jc.load_mjcf(ZOO)
    params, state = model.params, model.initial_state()
    moments, axes = np.linalg.eigh(params.inertia)
    axes[:, :, 0] *= np.sign(np.linalg.det(axes))[:, None]
    plain = params.replace(inertia=jnp.asarray(moments), constants={"principal": jnp.asarray(axes)})
    q = jc.retract(model, state.q, jnp.asarray(rng.normal(size=state.v.size)))
    state = state.replace(q=q, v=jnp.asarray(rng.normal(size=state.v.size)))
    oracle = by_poses(model.system)
    directions = [jnp.asarray(rng.normal(size=x.size)) for x in (q, state.v)]

    @functools.partial(jax.jit, static_argnums=1)
    def both(model, inertial):
        def of(q, v):
            now = state.replace(q=q, v=v)
            M = jc.mass_matrix(model, q)
            return M, inertial(model, now)

        return jax.jvp(of, (q, state.v), tuple(directions))

    def inertial(model, now):
        at_q = model.system.mechanics.kinematics(model.structure, now.q, model.params)
        return model.system.mechanics.bias(model.structure, at_q, now.v, model.params)

    found, expected = (
        both(model.replace(params=params), inertial),
        both(jc.Model(system=oracle, params=plain), jc.bias),
    )
    rotor = np.diag(params.tree.armature)
    np.testing.assert_allclose(found[0][0] - rotor, expected[0][0], **EXACT)
    later = (jax.tree.leaves((x[0][1], x[1])) for x in (found, expected))
    for one, other in zip(*later, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-10)


@pytest.mark.slow
def test_terms_of_a_robot_are_those_of_its_poses(rng):
    """Contact rows and their rates, without the closed forms, by differentiating the poses."""
    model = jc.models.ant()
    closed, state = model.system, model.initial_state()
    slow = jc.System(closed.structure, closed.poses, constraints=closed.constraints)
    v = jnp.asarray(rng.normal(size=state.v.size))
    state = state.replace(q=jc.retract(model, state.q, 0.3 * v), v=v)
    found, expected = (jc.constraint_terms(model.replace(system=s), state) for s in (closed, slow))
    for name in ("G", "phi", "gdot_v", "mu"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name, **EXACT)
    slip = contact_velocities(model, state.q, v).ravel()
    np.testing.assert_allclose(found.G[-slip.size :] @ v, slip, **EXACT)


@pytest.mark.slow_cases("half_cheetah")
@pytest.mark.parametrize("name", ["half_cheetah"])
def test_a_planar_robot_is_the_spatial_one(name, rng):
    flat = getattr(jc.models, name)()
    deep = jc.load_mjcf(file_of(name))
    v = jnp.asarray(rng.normal(size=flat.initial_state().v.size))
    state = flat.initial_state().replace(q=flat.initial_state().q + 0.3 * v, v=v)

    @jax.jit
    def scalars(model):
        terms = jc.contact_terms(model, state)
        energy = jc.potential_energy(model, state)
        M, bias = jc.mass_matrix(model, state.q), jc.bias(model, state)
        return M, bias, energy, terms.phi, terms.J_n, terms.mu

    for one, other in zip(*(scalars(m) for m in (flat, deep)), strict=True):
        np.testing.assert_allclose(one, other, **EXACT)
    positions, rotations = jc.forward_kinematics(flat, state.q)
    expected = jc.forward_kinematics(deep, state.q)
    np.testing.assert_allclose(positions, expected[0][:, ::2], **EXACT)
    np.testing.assert_allclose(rotations, expected[1][:, ::2, ::2], **EXACT)
    _, angles = flat.system.poses(flat.structure, state.q, flat.params)
    np.testing.assert_allclose(np.sin(angles), rotations[:, 1, 0], **EXACT)
    # Along x on the floor.
    slides = np.asarray(jc.contact_terms(flat, state).J_t)
    np.testing.assert_allclose(slides[0, 0, :2], [1.0, 0.0], **EXACT)

"""Constraint terms: joints, limits and contacts as rows, against closed forms and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference
from test_system import box, box_params, random_pose, state
from test_terms import sphere_params, spheres

import jaxcontact as jc
from jaxcontact.terms import BILATERAL, LIMIT, NORMAL, TANGENT, nearest_terms

# --- a chain in space: a welded pair, on a ball joint, with a hinge, a rod to the world and a limit


def chain_constraints(structure, q, params):
    positions, rotations = jc.free_poses(structure, q, params)
    a, b, c = zip(positions, rotations, strict=True)
    world = jnp.zeros(3), jnp.eye(3)
    tip, axis = params.constants["tip"], jnp.array([0.6, 0.0, 0.8])
    deviations = [
        jc.joints.ball(a, tip, world, jnp.array([0.1, 0.2, 0.3])),
        jc.joints.hinge(b, -tip, axis, a, 2 * tip, jnp.array([0.0, 1.0, 0.0])),
        jc.joints.weld(c, tip, b, tip),
        jc.joints.distance(c, tip, world, tip, params.constants["rod"]),
    ]
    return jnp.concatenate(deviations), jnp.stack([positions[2, 2] - 0.1, 1.0 - positions[2, 0]])


CHAIN = jc.System(
    jc.Structure(
        dim=3,
        bodies=("a", "b", "c"),
        num_positions=21,
        quaternions=(3, 10, 17),
        shapes=(
            jc.Sphere(name="foot", body="a", radius="radius"),
            jc.Sphere(name="hand", body="c", radius="radius", at="tip"),
            jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
        ),
        pairs=(("foot", "floor"), ("hand", "foot")),
    ),
    jc.free_poses,
    constraints=chain_constraints,
)


def chain_params():
    return jc.Params(
        mass=jnp.array([1.0, 2.0, 3.0]),
        inertia=jnp.array([[0.1, 0.2, 0.25], [0.3, 0.3, 0.3], [0.2, 0.1, 0.15]]),
        mu=jnp.array([0.1, 0.2]),
        gravity=jnp.array([0.0, 0.0, -9.81]),
        constants={
            "tip": jnp.array([0.3, -0.1, 0.2]),
            "rod": jnp.array(1.5),
            "radius": jnp.array(0.2),
        },
    )


def pendulum_state(rng):
    return jc.State(q=jnp.array(rng.normal(size=3)), v=jnp.array(rng.normal(size=3)), t=jnp.array(0.0))


SYSTEMS = {
    "chain": (lambda: CHAIN, chain_params, lambda rng: random_pose(rng, 3)),
    "box": (box, box_params, random_pose),
    "spheres": (spheres, sphere_params, lambda rng: random_pose(rng, 2)),
    "disks": (
        lambda: jc.models.disk_stack().system,
        lambda: jc.models.disk_stack().params,
        lambda rng: reference.disk_stack().q0 * 1.3 + 0.2 * rng.normal(size=9),
    ),
}


def case(name, rng):
    make_system, make_params, draw = SYSTEMS[name]
    system = make_system()
    v = rng.normal(size=system.structure.num_velocities)
    return jc.Model(system=system, params=make_params()), state(draw(rng), v)


@pytest.mark.long
@pytest.mark.slow_cases("box", "spheres")
@pytest.mark.parametrize("name", SYSTEMS)
def test_contact_rows_are_those_of_contact_terms(name, rng):
    model, here = case(name, rng)
    expected = jc.contact_terms(model, here)
    terms = jc.constraint_terms(model, here)
    nc, dim = expected.phi.shape[0], model.structure.dim
    rows = np.asarray(terms.G)[-nc * dim :].reshape(nc, dim, -1)
    # Two programs, which the compiler may round differently.
    np.testing.assert_allclose(rows[:, 0], expected.J_n, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(rows[:, 1:], expected.J_t, rtol=1e-14, atol=1e-15)
    phi = np.asarray(terms.phi)[-nc * dim :].reshape(nc, dim)
    np.testing.assert_array_equal(phi[:, 0], expected.phi)
    np.testing.assert_array_equal(phi[:, 1:], 0.0)
    np.testing.assert_array_equal(terms.mu, expected.mu)
    assert terms.kind[-nc * dim :] == (NORMAL, *(TANGENT,) * (dim - 1)) * nc


@pytest.mark.long
@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_are_the_rates_of_what_they_constrain(name, rng):
    """G v is the rate of phi, and Gdot v the rate of G v at constant v."""
    model, here = case(name, rng)
    h = 1e-5

    @jax.jit
    def after(dt):
        moved = here.replace(q=jc.retract(model, here.q, here.v * dt))
        terms = jc.constraint_terms(model, moved)
        return terms.phi, terms.G @ here.v

    terms = jc.constraint_terms(model, here)
    (phi_plus, rate_plus), (phi_minus, rate_minus) = after(h), after(-h)
    holonomic = np.array(terms.kind) != TANGENT
    slope = (phi_plus - phi_minus) / (2 * h)
    np.testing.assert_allclose(slope[holonomic], (terms.G @ here.v)[holonomic], rtol=0, atol=1e-8)
    np.testing.assert_allclose((rate_plus - rate_minus) / (2 * h), terms.gdot_v, rtol=0, atol=1e-7)


@pytest.mark.long
def test_order_of_the_rows(rng):
    model, here = case("chain", rng)
    terms = jc.constraint_terms(model, here)
    assert terms.kind == (BILATERAL,) * 15 + (LIMIT,) * 2 + (NORMAL, TANGENT, TANGENT) * 2
    assert terms.G.shape == (23, 18)


def test_pendulum_joint_by_hand(rng):
    model = jc.models.pendulum_joint()
    for _ in range(5):
        here = pendulum_state(rng)
        terms = jc.constraint_terms(model, here)
        x, y, angle = np.asarray(here.q)
        s, c, rate = np.sin(angle), np.cos(angle), float(here.v[2])
        np.testing.assert_allclose(terms.phi, [x - s, y + c], atol=1e-15)
        np.testing.assert_allclose(terms.G, [[1, 0, -c], [0, 1, -s]], atol=1e-15)
        np.testing.assert_allclose(terms.gdot_v, [s * rate**2, -c * rate**2], atol=1e-14)
        assert terms.kind == (BILATERAL, BILATERAL)
        assert terms.mu.shape == (0,)


def test_joints_hold_where_bodies_are_put_together():
    """Zero for bodies moved as one, in the plane and in space; small angles in rad."""
    turn = np.asarray(
        jc.rotations.quaternion_matrix(jc.rotations.quaternion_exp(jnp.array([0.3, -0.2, 0.5])))
    )
    a = jnp.array([1.0, 2.0, 3.0]), jnp.array(turn)
    at = jnp.array([0.1, 0.2, 0.3])
    small = 1e-6 * jnp.array([1.0, -2.0, 3.0])
    bent = jnp.array(turn) @ jc.rotations.quaternion_matrix(jc.rotations.quaternion_exp(small))
    b = a[0] + a[1] @ at - bent @ (2 * at), bent
    found = np.asarray(jc.joints.weld(b, 2 * at, a, at))
    np.testing.assert_allclose(found, [0, 0, 0, *small], atol=1e-11)
    axis = jnp.array([0.6, 0.0, 0.8])
    sines = np.asarray(jc.joints.hinge(b, 2 * at, axis, a, at, axis))
    np.testing.assert_allclose(np.linalg.norm(sines), np.linalg.norm(np.cross(small, axis)), rtol=1e-5)
    around = jc.rotations.quaternion_matrix(jc.rotations.quaternion_exp(0.7 * axis))
    turned = a[0] + a[1] @ at - a[1] @ around @ at, a[1] @ around
    np.testing.assert_allclose(jc.joints.hinge(turned, at, axis, a, at, axis), 0.0, atol=1e-15)
    planar = [(jnp.zeros(2), jc.rotations.planar_matrix(jnp.array(angle))) for angle in (0.3, 0.3 + 1e-6)]
    np.testing.assert_allclose(
        jc.joints.weld(planar[1], jnp.zeros(2), planar[0], jnp.zeros(2))[2], 1e-6, rtol=1e-6
    )
    rod = jc.joints.distance(a, at, b, 2 * at + 1e-5 * axis, jnp.array(1e-5))
    np.testing.assert_allclose(rod, 0.0, atol=1e-15)


# --- contacts that are hard to differentiate


@pytest.mark.slow
def test_spheres_with_one_centre_have_a_finite_derivative():
    q = np.tile([0.5, 0.2, 1.0, 1.0, 0.0, 0.0, 0.0], 2)
    params = sphere_params()
    params = params.replace(constants=params.constants | {"centre_a": jnp.zeros(3)})

    def gap(q):
        terms = jc.constraint_terms(jc.Model(system=spheres(), params=params), state(q, nv=12))
        return terms.phi[0], terms

    (phi, terms), slope = jax.value_and_grad(gap, has_aux=True)(jnp.array(q))
    assert float(phi) == pytest.approx(-1.3)
    assert np.all(np.isfinite(slope)) and all(np.all(np.isfinite(x)) for x in jax.tree.leaves(terms))
    np.testing.assert_array_equal(terms.G[0], [0, 0, 1, 0, 0, 0, 0, 0, -1, 0, 0, 0])


def test_many_points_of_one_body(rng):
    """The same contacts as so many single points."""
    places = rng.normal(size=(4, 3))
    ground = jc.HalfSpace(name="ground", normal=(0.0, 0.6, 0.8), offset="height")
    whole = (jc.Points(name="feet", body="a", at="feet", count=4), ground)
    single = (*(jc.Point(name=f"foot_{i}", body="a", at=f"foot_{i}") for i in range(4)), ground)
    params = box_params().replace(
        mu=jnp.array(0.3),
        constants={"feet": jnp.array(places), "height": jnp.array(0.1)}
        | {f"foot_{i}": jnp.array(places[i]) for i in range(4)},
    )
    here = state(random_pose(rng), rng.normal(size=6))
    found = []
    for shapes in (whole, single):
        pairs = tuple((shape.name, "ground") for shape in shapes[:-1])
        structure = jc.Structure(
            dim=3, bodies=("a",), num_positions=7, quaternions=(3,), shapes=shapes, pairs=pairs
        )
        found.append(
            jc.constraint_terms(jc.Model(system=jc.System(structure, jc.free_poses), params=params), here)
        )
    assert found[0].kind == found[1].kind
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-14), *found)


# --- bodies that move freely


def generic_poses(structure, q, params):
    return jc.free_poses(structure, q, params)


@pytest.mark.slow_cases("3")
@pytest.mark.float32
@pytest.mark.parametrize("dim", [2, 3])
def test_free_bodies_have_the_mass_and_bias_of_any_other(dim, rng, tolerance):
    """The shortcut for free bodies against Kane's equations."""
    names, nv = ("a", "b"), 6 * (dim - 1)
    quaternions = (3, 10) if dim == 3 else ()
    structure = jc.Structure(
        dim=dim, bodies=names, num_positions=nv + len(quaternions), quaternions=quaternions
    )
    params = jc.Params(
        mass=jnp.array([1.0, 2.0]),
        inertia=jnp.array(rng.uniform(0.1, 0.3, (2, 3))) if dim == 3 else jnp.array([0.1, 0.2]),
        mu=jnp.array(0.0),
        gravity=jnp.array([0.3, -0.2, -9.81][:dim]),
        constants={},
    )
    q = random_pose(rng, 2) if dim == 3 else rng.normal(size=6)
    here = state(q, rng.normal(size=nv))
    free, generic = (
        jc.Model(system=jc.System(structure, poses), params=params)
        for poses in (jc.free_poses, generic_poses)
    )
    atol = tolerance(1e-12, 1e-5)
    np.testing.assert_allclose(
        jc.mass_matrix(free, here.q), jc.mass_matrix(generic, here.q), rtol=0, atol=atol
    )
    np.testing.assert_allclose(jc.bias(free, here), jc.bias(generic, here), rtol=0, atol=atol)


@pytest.mark.long
@pytest.mark.parametrize("name", ["box", "spheres", "disks"])
def test_free_bodies_have_the_rows_of_any_other(name, rng):
    """The shortcut for free bodies against derivatives of their poses."""
    model, here = case(name, rng)
    free = model.replace(system=jc.System(model.structure, jc.free_poses))
    assert model.system.poses is not jc.free_poses
    found = [jc.constraint_terms(each, here) for each in (free, model)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13), *found)


def push(structure, state, params):
    return jnp.array([1.0, 2.0, 3.0]) * jnp.cos(state.t)


def test_driving_forces_know_the_time():
    model = jc.models.rocking_block()
    system = jc.System(model.structure, model.system.poses, drive=push)
    later = model.initial_state().replace(t=jnp.array(0.7))
    difference = jc.bias(model, later) - jc.bias(model.replace(system=system), later)
    np.testing.assert_allclose(difference, np.array([1.0, 2.0, 3.0]) * np.cos(0.7), rtol=1e-14)
    assert system.fingerprint != model.system.fingerprint


# --- what is refused


def three_vectors(structure, q, params):
    return q, q, q


def matrices(structure, q, params):
    return q[None], q


def test_a_system_without_any_constraint_has_no_rows():
    structure = jc.Structure(dim=3, bodies=("box",), num_positions=7, quaternions=(3,))
    params = box_params().replace(mu=jnp.array(0.5))
    terms = jc.constraint_terms(
        jc.Model(system=jc.System(structure, jc.free_poses), params=params), state(np.ones(7), nv=6)
    )
    assert terms.G.shape == (0, 6) and terms.kind == ()


@pytest.mark.slow_cases("matrices-\\\\(1, 3\\\\)")
@pytest.mark.parametrize(("function", "shapes"), [(three_vectors, "got shapes"), (matrices, r"\(1, 3\)")])
def test_constraints_that_are_no_two_vectors_are_named(function, shapes):
    model = jc.models.rocking_block()
    system = jc.System(model.structure, model.system.poses, constraints=function)
    with pytest.raises(ValueError, match=rf"system.constraints: expected two vectors .*{shapes}"):
        jc.constraint_terms(model.replace(system=system), model.initial_state())


def test_positions_of_a_robot_of_the_wrong_length_are_named():
    """Before its kinematics fail with them."""
    pytest.importorskip("mujoco")
    model = jc.models.half_cheetah()
    model, long = model, model.initial_state().replace(q=jnp.zeros(10))
    rest = jnp.zeros(model.num_controls)
    for call in (
        lambda: jc.constraint_terms(model, long),
        lambda: nearest_terms(model, long, 2),
        lambda: jc.compliant.step(model, long, rest, dt=0.01),
        lambda: jc.compliant.step(model, long, rest, dt=0.01, settings=jc.compliant.Settings(max_contacts=2)),
    ):
        with pytest.raises(ValueError, match=r"state.q: expected shape \(9,\), got \(10,\)"):
            call()

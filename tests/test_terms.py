"""Contact terms: gaps and Jacobians against hand-derived ones, their derivatives, and their error messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from oracles import reference
from test_system import (
    GROUND,
    SIZE,
    box,
    box_params,
    free_poses,
    random_pose,
    state,
    walker,
    walker_params,
)

import jaxcontact as jc

MODELS = sorted(reference.MODELS)
CORNER_ORDER = np.array([[(k >> axis & 1) * 2 - 1 for axis in range(3)] for k in range(8)])


def check_contacts(terms, phi, J_n, J_t, atol=1e-12):
    """Against a reference whose J_t is (nc, nv) in the plane."""
    np.testing.assert_allclose(terms.phi, phi, rtol=0, atol=atol)
    np.testing.assert_allclose(terms.J_n, J_n, rtol=0, atol=atol)
    np.testing.assert_allclose(terms.J_t, J_t[:, None] if J_t.ndim == 2 else J_t, rtol=0, atol=atol)


def random_disks(rng):
    """Three disks that neither touch nor overlap."""
    q = reference.disk_stack().q0 * 1.3 + 0.2 * rng.normal(size=9)
    q[2::3] = rng.normal(size=3)
    return q


# --- mechanisms built by hand


def test_walker_contacts(rng):
    expected = reference.three_link_walker()
    for _ in range(10):
        q = rng.normal(size=5)
        terms = jc.contact_terms(jc.Model(system=walker(), params=walker_params()), state(q, np.zeros(5)))
        check_contacts(terms, *expected.contacts(q))
        np.testing.assert_allclose(terms.M, expected.mass_matrix(q), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(terms.mu, [0.6, 0.6])


def test_pairs_give_the_order_of_the_contacts(rng):
    q = rng.normal(size=5)
    phi, J_n, J_t = reference.three_link_walker().contacts(q)
    terms = jc.contact_terms(
        jc.Model(system=walker(order=("foot_2", "foot_1")), params=walker_params()), state(q, np.zeros(5))
    )
    check_contacts(terms, phi[::-1], J_n[::-1], J_t[::-1])


@pytest.mark.float32
def test_box_contacts(rng, tolerance):
    for _ in range(10):
        q = random_pose(rng)
        terms = jc.contact_terms(jc.Model(system=box(), params=box_params()), state(q, np.zeros(6)))
        check_contacts(terms, *reference.box3d_contacts(q, SIZE), atol=tolerance(1e-12, 1e-5))


def test_corners_are_numbered_by_their_bits():
    q = np.array([0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0.0])
    terms = jc.contact_terms(jc.Model(system=box(None), params=box_params()), state(q, np.zeros(6)))
    np.testing.assert_allclose(terms.phi, 5.0 + CORNER_ORDER[:, 2] * SIZE[2] / 2, atol=1e-15)
    # Turning about x lifts the corners at +y, turning about y lowers those at +x.
    np.testing.assert_allclose(terms.J_n[:, 3], CORNER_ORDER[:, 1] * SIZE[1] / 2, atol=1e-15)
    np.testing.assert_allclose(terms.J_n[:, 4], -CORNER_ORDER[:, 0] * SIZE[0] / 2, atol=1e-15)
    some = jc.contact_terms(jc.Model(system=box((6, 1)), params=box_params()), state(q, np.zeros(6)))
    np.testing.assert_array_equal(some.J_n, terms.J_n[jnp.array([6, 1])])


# --- spheres in space

RADII = (0.5, 0.8)


def spheres():
    """Two free spheres, one with its centre off the centre of mass, over a tilted plane with an offset."""
    return jc.System(
        jc.Structure(
            dim=3,
            bodies=("a", "b"),
            num_positions=14,
            quaternions=(3, 10),
            shapes=(
                jc.Sphere(name="ball_a", body="a", radius="r_a", at="centre_a"),
                jc.Sphere(name="ball_b", body="b", radius="r_b"),
                jc.HalfSpace(name="slope", normal=(0.48, 0.6, 0.64), offset="height"),
            ),
            pairs=(("ball_a", "ball_b"), ("ball_a", "slope"), ("ball_b", "slope")),
        ),
        free_poses,
    )


CENTRE_A, HEIGHT = np.array([0.1, -0.2, 0.05]), -1.5


def sphere_params():
    return jc.Params(
        mass=jnp.array([1.0, 2.0]),
        inertia=jnp.array([[0.1, 0.2, 0.25], [0.3, 0.3, 0.3]]),
        mu=jnp.array([0.1, 0.2, 0.3]),
        gravity=jnp.array([0.0, 0.0, -9.81]),
        constants={
            "r_a": jnp.array(RADII[0]),
            "r_b": jnp.array(RADII[1]),
            "centre_a": jnp.array(CENTRE_A),
            "height": jnp.array(HEIGHT),
        },
    )


def point_rows(q, body, point):
    """World velocity (3, 12) of the material point of a body at a world point, by hand."""
    own = q[7 * body : 7 * body + 7]
    R, arm = reference.rotation(own[3:]), point - own[:3]
    rows = np.zeros((3, 12))
    rows[:, 6 * body : 6 * body + 3] = np.eye(3)
    for k in range(3):  # omega = e_k in body axes
        rows[:, 6 * body + 3 + k] = np.cross(R[:, k], arm)
    return rows


def sphere_contacts(q):
    """Gap, normal and velocity rows (3, 12) of a relative to b, of the three pairs."""
    centre = [q[:3] + reference.rotation(q[3:7]) @ CENTRE_A, q[7:10]]
    line = centre[0] - centre[1]
    n = line / np.linalg.norm(line)
    slope = np.array([0.48, 0.6, 0.64])
    points = [centre[0] - RADII[0] * n, centre[1] + RADII[1] * n]
    gap = n @ (points[0] - points[1])
    if gap < 0:
        points = [0.5 * (points[0] + points[1])] * 2
    contacts = [(gap, n, point_rows(q, 0, points[0]) - point_rows(q, 1, points[1]))]
    for body in (0, 1):
        rows = point_rows(q, body, centre[body] - RADII[body] * slope)
        contacts.append((slope @ centre[body] - HEIGHT - RADII[body], slope, rows))
    return contacts


def test_spheres_against_each_other_and_a_slope(rng):
    for _ in range(10):
        q = random_pose(rng, 2)
        terms = jc.contact_terms(jc.Model(system=spheres(), params=sphere_params()), state(q, np.zeros(12)))
        for i, (phi, n, rows) in enumerate(sphere_contacts(q)):
            np.testing.assert_allclose(terms.phi[i], phi, atol=1e-12)
            np.testing.assert_allclose(terms.J_n[i], n @ rows, rtol=0, atol=1e-12)
            # The tangents are read off the columns of one body's linear velocity.
            body = slice(6, 9) if i == 2 else slice(0, 3)
            t1, t2 = np.asarray(terms.J_t[i, :, body])
            frame = np.stack([n, t1, t2])
            np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-14)
            assert np.linalg.det(frame) > 0
            np.testing.assert_allclose(terms.J_t[i], frame[1:] @ rows, rtol=0, atol=1e-12)


def test_tangents_exist_for_every_normal():
    """Also along the axis that the frame is built from."""
    normals = ((1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0), (0.96, 0.28, 0.0))
    planes = tuple(jc.HalfSpace(name=f"plane_{i}", normal=normal) for i, normal in enumerate(normals))
    system = jc.System(
        jc.Structure(
            dim=3,
            bodies=("a",),
            num_positions=7,
            quaternions=(3,),
            shapes=(jc.Point(name="tip", body="a"), *planes),
            pairs=tuple(("tip", plane.name) for plane in planes),
        ),
        free_poses,
    )
    q = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    terms = jc.contact_terms(jc.Model(system=system, params=box_params()), state(q, np.zeros(6)))
    for i, normal in enumerate(normals):
        frame = np.concatenate([terms.J_n[i : i + 1, :3], terms.J_t[i, :, :3]])
        np.testing.assert_allclose(frame[0], normal, atol=1e-15)
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-14)
        assert np.linalg.det(frame) > 0


# --- the five models


@pytest.mark.parametrize("name", MODELS)
def test_model_against_reference(name, rng):
    model, expected = getattr(jc.models, name)(), reference.MODELS[name]()
    np.testing.assert_allclose(model.initial_state().q, expected.q0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.initial_state().v, expected.v0, rtol=0, atol=1e-12)
    assert (model.impulse_step, model.max_steps) == (expected.step, expected.max_steps)
    assert float(model.initial_state().t) == 0.0
    bias = jax.jit(jc.bias)
    nv = len(expected.v0)
    starts = [(expected.q0, expected.v0)]
    for _ in range(5):
        q = random_disks(rng) if name == "disk_stack" else rng.normal(size=nv)
        starts.append((q, rng.normal(size=nv)))
    for q, v in starts:
        terms = jc.contact_terms(model, state(q, v))
        check_contacts(terms, *expected.contacts(q))
        np.testing.assert_allclose(terms.M, expected.mass_matrix(q), rtol=0, atol=1e-12)
        b = bias(model, state(q, v))
        np.testing.assert_allclose(b, expected.bias(q, v), rtol=0, atol=1e-12 * max(1, np.abs(b).max()))
        np.testing.assert_allclose(terms.mu, expected.mu, rtol=1e-15)


@pytest.mark.parametrize("name", MODELS)
def test_models_start_in_contact(name):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    assert np.all(terms.active)
    np.testing.assert_allclose(terms.phi, 0.0, atol=1e-14)
    assert np.min(terms.J_n @ model.initial_state().v) < -0.1  # and in collision


def test_disk_stack_of_another_mass():
    model, expected = jc.models.disk_stack(mass=5.0), reference.disk_stack(mass=5.0)
    terms = jc.contact_terms(model, model.initial_state())
    np.testing.assert_allclose(terms.M, expected.mass_matrix(expected.q0), rtol=1e-15)


# --- what holds for every system

SYSTEMS = {
    "walker": (walker, walker_params, lambda rng: rng.normal(size=5)),
    "box": (box, box_params, random_pose),
    "spheres": (spheres, sphere_params, lambda rng: random_pose(rng, 2)),
    "disks": (
        lambda: jc.models.disk_stack().system,
        lambda: jc.models.disk_stack().params,
        random_disks,
    ),
}


def case(name, rng):
    make_system, make_params, draw = SYSTEMS[name]
    return jc.Model(system=make_system(), params=make_params()), jnp.array(draw(rng))


@pytest.mark.slow_cases("box")
@pytest.mark.parametrize("name", SYSTEMS)
def test_normal_jacobian_is_the_tangent_derivative_of_the_gap(name, rng):
    model, q = case(name, rng)
    nv = model.structure.num_velocities

    @jax.jit
    def by_gap(q):
        slope = jax.jacfwd(lambda q: jc.contact_terms(model, state(q, nv=nv)).phi)(q)
        return slope @ jc.velocity_map(model, q)

    J_n = jc.contact_terms(model, state(q, nv=nv)).J_n
    np.testing.assert_allclose(by_gap(q), J_n, rtol=0, atol=1e-13)


def flat(terms):
    parts = (terms.M, terms.J_n, terms.J_t, terms.phi, terms.mu)
    return jnp.concatenate([part.ravel() for part in parts])


def central(f, x, h=1e-5):
    return np.stack([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(x.size)], axis=-1)


@pytest.mark.long
@pytest.mark.slow_cases("box", "spheres")
@pytest.mark.parametrize("name", SYSTEMS)
def test_derivative_by_the_configuration(name, rng):
    model, q = case(name, rng)
    nv = model.structure.num_velocities
    weight = jnp.array(rng.normal(size=flat(jc.contact_terms(model, state(q, nv=nv))).shape))

    @jax.jit
    def f(delta):
        return flat(jc.contact_terms(model, state(jc.retract(model, q, delta), nv=nv)))

    slope = central(f, np.zeros(nv))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(f))(jnp.zeros(nv)), slope, rtol=0, atol=1e-8)
    if name != "spheres":  # two bodies in space take long to compile in reverse
        gradient = jax.jit(jax.grad(lambda d: weight @ f(d)))(jnp.zeros(nv))
        np.testing.assert_allclose(gradient, weight @ slope, rtol=0, atol=1e-7)


@pytest.mark.long
@pytest.mark.slow_cases("spheres")
@pytest.mark.parametrize("name", SYSTEMS)
def test_derivative_by_masses_lengths_and_friction(name, rng):
    model, q = case(name, rng)
    nv = model.structure.num_velocities
    vector, unravel = ravel_pytree(model.params)
    weight = jnp.array(rng.normal(size=flat(jc.contact_terms(model, state(q, nv=nv))).shape))

    @jax.jit
    def f(x):
        return flat(jc.contact_terms(model.replace(params=unravel(x)), state(q, nv=nv)))

    slope = central(f, np.asarray(vector))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(f))(vector), slope, rtol=0, atol=1e-8)
    gradient = jax.jit(jax.grad(lambda x: weight @ f(x)))(vector)
    np.testing.assert_allclose(gradient, weight @ slope, rtol=0, atol=1e-7)
    moved = {jax.tree_util.keystr(p) for p, g in leaves(unravel(gradient)) if np.any(g != 0)}
    lengths = set(model.params.constants) - {"stiffness"}
    names = {".mass", ".inertia", ".mu", *(f".constants['{c}']" for c in lengths)}
    assert moved == names  # every number matters, gravity does not


def leaves(tree):
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def test_contact_tolerance_decides_what_is_active():
    q = np.array([0.0, 1.0, 0.0])
    model = jc.models.rocking_block()
    for lift, touching in ((0.9e-6, True), (1.1e-6, False), (-1e-3, True), (1.0, False)):
        here = state(q + [0.0, lift, 0.0], np.zeros(3))
        terms = jc.contact_terms(model, here)
        assert terms.active.tolist() == [touching, touching]
        np.testing.assert_allclose(terms.phi, lift, rtol=1e-9)
    tilted = jc.contact_terms(model, state(q + [0.0, 0.04, 0.1], np.zeros(3)))
    assert tilted.active.tolist() == [True, False]


@pytest.mark.long
def test_friction_may_be_one_number_or_one_per_contact():
    model = jc.models.rocking_block()
    for mu, expected in ((0.3, [0.3, 0.3]), ([0.3, 0.7], [0.3, 0.7])):
        params = model.params.replace(mu=jnp.array(mu))
        np.testing.assert_array_equal(
            jc.contact_terms(model.replace(params=params), model.initial_state()).mu, expected
        )


@pytest.mark.long
@pytest.mark.float32
@pytest.mark.parametrize("name", MODELS)
def test_terms_have_the_dtype_of_the_state(name):
    model = getattr(jc.models, name)()
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (model, model.initial_state()))
    terms = jc.contact_terms(*single)
    assert {leaf.dtype for leaf in jax.tree.leaves(terms)} == {jnp.dtype(jnp.float32), jnp.dtype(bool)}
    expected = reference.MODELS[name]()
    check_contacts(terms, *expected.contacts(np.asarray(single[1].q, float)), atol=3e-6)


def test_batches_give_what_single_calls_give(rng):
    model, _ = case("walker", rng)
    q = jnp.array(rng.normal(size=(4, 5)))
    together = jax.vmap(lambda q: jc.contact_terms(model, state(q, nv=5)))(q)
    for i in range(4):
        alone = jc.contact_terms(model, state(q[i], nv=5))
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-13, atol=1e-13), together, alone
        )


# --- error messages

WRONG_SIZES = [
    ("state", "q", (4,), r"state.q: expected shape \(5,\), got \(4,\)"),
    ("state", "v", (3,), r"state.v: expected shape \(5,\), got \(3,\)"),
    ("state", "q", (2, 5), r"state.q: expected shape \(5,\), got \(2, 5\)"),
    ("params", "mass", (3,), r"params.mass: expected shape \(4,\), got \(3,\)"),
    ("params", "inertia", (4, 3), r"params.inertia: expected shape \(4,\), got \(4, 3\)"),
    ("params", "mu", (3,), r"params.mu: expected shape \(\) or \(2,\), got \(3,\)"),
    ("params", "gravity", (3,), r"params.gravity: expected shape \(2,\), got \(3,\)"),
]


@pytest.mark.parametrize(("record", "field", "shape", "message"), WRONG_SIZES)
def test_wrong_sizes_are_named(record, field, shape, message):
    arguments = {"params": walker_params(), "state": state(np.zeros(5), np.zeros(5))}
    arguments[record] = arguments[record].replace(**{field: jnp.ones(shape)})
    with pytest.raises(ValueError, match=message):
        jc.contact_terms(jc.Model(system=walker(), params=arguments["params"]), arguments["state"])


def test_wrong_sizes_in_space_are_named():
    q = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"state.v: expected shape \(6,\), got \(7,\)"):
        jc.contact_terms(jc.Model(system=box(), params=box_params()), state(q, np.zeros(7)))
    params = box_params().replace(inertia=jnp.ones(1))
    with pytest.raises(ValueError, match=r"params.inertia: expected shape \(1, 3\), got \(1,\)"):
        jc.contact_terms(jc.Model(system=box(), params=params), state(q, np.zeros(6)))


def test_a_system_without_pairs_is_named():
    system = jc.System(
        jc.Structure(dim=3, bodies=("box",), num_positions=7, quaternions=(3,), shapes=(GROUND,)), free_poses
    )
    with pytest.raises(ValueError, match=r"system: the structure has no candidate contacts"):
        jc.contact_terms(jc.Model(system=system, params=box_params()), state(np.ones(7), np.zeros(6)))


def test_a_missing_constant_is_named():
    model = jc.models.rocking_block()
    params = model.params.replace(constants={"width": 1.0})
    with pytest.raises(ValueError, match=r"no 'size', the size of shape 'corners'; there are \['width'\]"):
        jc.contact_terms(model.replace(params=params), model.initial_state())


def test_the_tolerance_of_touch_grows_with_the_rounding_of_a_scene():
    from jaxcontact.terms import touch_tolerance

    large = jnp.array([30.0, -60.0])
    assert float(touch_tolerance(large)) == 1e-6
    single = float(touch_tolerance(large.astype(jnp.float32), jnp.zeros(2, jnp.float32)))
    assert 5e-5 < single < 2e-4  # 16 roundings of 60 m
    assert float(touch_tolerance(jnp.array([0.1, jnp.nan]))) == 1e-6


@pytest.mark.parametrize("size", [1.0, 30.0, 100.0])
def test_a_corner_that_touches_is_seen_in_single_precision(size, rng):
    """A block tilted by an angle stands on a corner; rounding leaves a gap that grows with the block."""
    model = jc.models.rocking_block()

    def active(angle):
        low = 0.5 * (size * jnp.sin(angle) + 2.0 * size * jnp.cos(angle))
        numbers = {"size": jnp.array([size, 2.0 * size], jnp.float32)}
        state = model.initial_state().replace(
            q=jnp.array([0.0, low, angle], jnp.float32), v=jnp.zeros(3, jnp.float32)
        )
        terms = jc.contact_terms(model.replace(params=model.params.replace(constants=numbers)), state)
        return terms.active.any() & (terms.phi.min() > -1e-5 * size)

    angles = jnp.asarray(rng.uniform(0.05, 0.5, 200), jnp.float32)
    assert bool(jnp.all(jax.jit(jax.vmap(active))(angles)))

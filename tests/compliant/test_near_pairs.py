"""A step that gives contacts to near pairs alone moves as one that gives contacts to all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import geometry
from jaxcontact.geometry.cores import _bound_distances, _Boxes, boxes_around
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.terms import nearest_terms

SHAPES = (
    'type="cylinder" size=".03 .05"',
    'type="box" size=".02 .05 .04" euler="20 30 0" pos=".03 0 0"',
)
BODIES = "".join(f'<body><freejoint/><geom {shape} density="1000"/></body>' for shape in SHAPES)
FILE = f"<mujoco><option gravity='0 0 -9.81'/><worldbody>{BODIES}</worldbody></mujoco>"
ALL, FEWER = 9, 8  # contacts of a step; the pair makes nine


@pytest.fixture(scope="module")
def model():
    return jc.load_mjcf(FILE)


def scattered(rng, model, apart, speed):
    """Two bodies at random places within `apart`, m, with random attitudes and speeds."""
    turns = rng.normal(size=(2, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    q = np.concatenate([apart * rng.uniform(-1, 1, (2, 3)), turns], axis=1).ravel()
    return model.initial_state().replace(q=jnp.asarray(q), v=jnp.asarray(speed * rng.normal(size=12)))


@functools.partial(jax.jit, static_argnums=0)
def step(max_contacts, model, state, dt):
    settings = jc.compliant.Settings(max_contacts=max_contacts)
    return jc.compliant.step(model, state, jnp.zeros(12), dt=dt, settings=settings)


@pytest.mark.slow
def test_what_it_returns_has_the_shapes_of_a_step_with_all_contacts(model):
    few, every = (
        jax.eval_shape(functools.partial(step, count), model, model.initial_state(), 0.004)
        for count in (FEWER, ALL)
    )
    assert few[1].status.shape == every[1].status.shape == ()
    assert [x.shape for x in jax.tree.leaves(few[0])] == [x.shape for x in jax.tree.leaves(every[0])]


@pytest.mark.slow_cases("0.06-0.3-0.004")
@pytest.mark.long
@pytest.mark.parametrize(
    ("apart", "speed", "dt"), [(0.06, 0.3, 0.004), (0.15, 30.0, 0.005), (0.06, 0.0, 1e-4)]
)
def test_it_moves_as_with_all_contacts(model, rng, apart, speed, dt):
    pushed = 0
    for _ in range(20):
        state = scattered(rng, model, apart, speed)
        (expected, every), (found, info) = (step(count, model, state, dt) for count in (ALL, FEWER))
        assert not info.status & jc.Status.OVERFLOW
        np.testing.assert_allclose(found.v, expected.v, rtol=0, atol=1e-7 * (1.0 + abs(expected.v).max()))
        pushed += bool(jnp.any(every.lam != 0.0))
    assert pushed > 2


@pytest.mark.long
def test_a_bound_is_never_above_the_distance(model, rng):
    structure, constants = model.structure, model.params.constants
    shapes = [structure.shape_table[name] for name in dict.fromkeys(n for p in structure.pairs for n in p)]
    boxes = boxes_around(shapes, constants, float)
    first, second = (
        np.array([shapes.index(structure.shape_table[p[k]]) for p in structure.pairs]) for k in (0, 1)
    )

    @jax.jit
    def bound_and_distance(state):
        positions, turns = body_frames(model, state.q)
        owner = np.array([structure.bodies.index(shape.body) for shape in shapes])
        placed = _Boxes(
            positions[owner] + jnp.einsum("nij,nj->ni", turns[owner], boxes[0]),
            jnp.einsum("nij,nkj->nki", turns[owner], boxes[1]),
            boxes[2],
        )
        bound, _ = _bound_distances(*(_Boxes(*(leaf[k] for leaf in placed)) for k in (first, second)))
        gaps = geometry.candidates(
            3, structure.bodies, structure.shape_table, structure.pairs, positions, turns, constants
        ).gaps
        return bound, jnp.min(gaps.reshape(len(first), -1), axis=1)

    for _ in range(100):
        bound, distance = bound_and_distance(scattered(rng, model, 0.15, 0.0))
        assert np.all(bound <= distance + 1e-12)


@pytest.mark.slow
def test_a_pair_out_of_reach_is_not_seen_and_keeps_a_bound_as_its_gap(model, rng):
    state = scattered(rng, model, 0.0, 0.1)
    places = jnp.array([[0.0, 0, 0], [1.0, 0, 0]])
    state = state.replace(q=state.q.reshape(2, 7).at[:, :3].set(places).ravel())
    _, info = step(FEWER, model, state, 0.004)
    assert not info.seen.any()
    assert np.all((info.gap > 0.7) & (info.gap < 3.0))


@pytest.mark.long
@pytest.mark.parametrize(("apart", "is_told"), [(0.06, True), (0.5, False)])
def test_a_lever_may_throw_its_end_at_what_was_out_of_reach(apart, is_told):
    """A ball of 2 m/s strikes a plank ten times nearer to its hinge than the end, which nearly meets a box."""
    lever = jc.load_mjcf(f"""<mujoco><option gravity="0 0 0"/><default><geom solref="0.0001 1"/></default><worldbody>
    <body><joint type="hinge" axis="0 1 0"/><geom type="box" size="1 .05 .01" mass="0.01"/></body>
    <body pos="-.1 0 .021"><freejoint/><geom type="sphere" size=".01" mass="100"/></body>
    <body pos=".95 0 {0.02 + apart}"><freejoint/><geom type="box" size=".02 .02 .01" mass="1"/></body>
    </worldbody></mujoco>""")
    state = lever.initial_state()
    state = state.replace(v=state.v.at[3].set(-2.0))
    settings = jc.compliant.Settings(max_contacts=10)
    end, info = jc.compliant.step(lever, state, jnp.zeros(13), dt=0.004, settings=settings)
    assert abs(end.v[0]) > 8.0
    assert info.status == (jc.Status.OVERFLOW if is_told else jc.Status.SUCCESS)


@pytest.mark.long
def test_seven_meshes_near_another_whose_boxes_overlap_are_no_overflow():
    """A robot's legs under its body: their boxes overlap, and they are centimetres apart."""
    wedge = '<mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>'
    bit = '<mesh name="bit" vertex="0 0 0  .02 0 0  0 .02 0  0 0 .02"/>'
    places = [(x, 0.5, 0.45 - 0.5 * x) for x in np.linspace(0.2, 0.4, 7)]
    legs = "".join(f'<geom type="mesh" mesh="bit" conaffinity="0" pos="{x} {y} {z}"/>' for x, y, z in places)
    robot = jc.load_mjcf(f"""<mujoco><option gravity="0 0 0"/><asset>{wedge}{bit}</asset><worldbody>
    <geom type="mesh" mesh="wedge" contype="0"/><body><freejoint/>{legs}</body></worldbody></mujoco>""")
    state = robot.initial_state()
    end, info = jc.compliant.step(
        robot, state, jnp.zeros(6), dt=0.004, settings=jc.compliant.Settings(max_contacts=16)
    )
    assert info.status == jc.Status.SUCCESS
    np.testing.assert_array_equal(end.v, 0.0)
    assert 0.02 < info.gap.min() < 0.2


@pytest.mark.long
def test_worlds_in_lanes_move_as_by_xla(model, rng):
    states = [scattered(rng, model, 0.06, 0.3) for _ in range(5)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    expected = [step(FEWER, model, state, 0.004)[0].v for state in states]
    found = jc.simd(lambda state: step(FEWER, model, state, 0.004)[0].v, nan=False)(batch)
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=0, atol=1e-7)


@pytest.mark.long
def test_rates_of_near_contacts_have_a_reverse_mode(model, rng):
    """What is not used of a contact has no cotangent."""
    state = scattered(rng, model, 0.05, 0.3)
    change = jnp.asarray(rng.normal(size=14))

    def drift(q):
        return jnp.sum(nearest_terms(model, state.replace(q=q), FEWER)[0].gdot_v ** 2)

    slope = jax.jit(jax.grad(drift))(state.q)
    _, expected = jax.jit(lambda q: jax.jvp(drift, (q,), (change,)))(state.q)
    np.testing.assert_allclose(slope @ change, expected, rtol=1e-9)


@pytest.mark.slow
def test_it_has_the_slope_of_a_step_with_all_contacts(model, rng):
    state = scattered(rng, model, 0.08, 0.3)
    slopes = [
        jax.grad(lambda q, count=count: jnp.sum(step(count, model, state.replace(q=q), 0.004)[0].q))(state.q)
        for count in (ALL, FEWER)
    ]
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=0, atol=1e-6 * (1.0 + abs(slopes[0]).max()))

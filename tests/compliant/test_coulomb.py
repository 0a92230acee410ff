"""Coulomb friction by this step's normal force, with a gate: closed forms, and the step as a function of the state."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.moved_loops import loops_moved_out

import jaxcontact as jc
from jaxcontact.terms import constraint_terms

pytest.importorskip("mujoco")
GRAVITY = 9.81
HOPPER = Path(jc.__file__).parent / "models" / "mjcf" / "hopper.xml"
COULOMB = jc.compliant.Settings(cone="coulomb")
BOX = """<mujoco><worldbody><geom type='plane' size='9 9 1'/><body pos='0 0 .02'><freejoint/>
<geom type='box' size='.1 .1 .02' mass='1'/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def box():
    return jc.load_mjcf(BOX)


@functools.cache
def stepper():
    @jax.jit
    def step(model, state, dt, memory):
        controls = jnp.zeros(model.num_controls)
        return jc.compliant.step(model, state, controls, dt=dt, settings=COULOMB, memory=memory)

    return step


def slide(model, mu, dt, speed=1.0):
    """States and statuses until the box rests."""
    law = model.params.material.replace(friction=jnp.full(model.structure.num_contacts, mu))
    model = model.replace(params=model.params.replace(material=law))
    state = model.initial_state()
    state = state.replace(v=state.v.at[0].set(speed))
    memory = jc.compliant.StepMemory(forces=jnp.zeros(3 * model.structure.num_contacts))
    heights, flags = [], 0
    for _ in range(round(1.2 * speed / (mu * GRAVITY * dt)) + 2):
        state, info = stepper()(model, state, dt, memory)
        heights.append(float(state.q[2]))
        flags |= int(info.status)
    assert flags == 0
    return state, np.array(heights)


@pytest.mark.long
@pytest.mark.parametrize(("mu", "dt"), [(0.1, 0.01), (0.5, 0.01), (1.0, 0.01), (1.2, 0.01), (1.0, 0.001)])
def test_a_sliding_box_stops_where_a_rigid_one_does(box, mu, dt):
    """With the damping over stiffness of a file, 0.02 s; backward Euler alone is mu g dt / v short."""
    distance = 1.0 / (2.0 * mu * GRAVITY)
    state, heights = slide(box, mu, dt)
    allowed = distance * (1.1 * mu * GRAVITY * dt + 0.002)
    assert abs(float(state.q[0]) - distance) <= allowed
    assert np.all(heights <= 0.02 + 1e-9)  # no gap: it sinks by its weight alone


@pytest.mark.long
def test_no_gap_under_what_slides_at_two_metres_per_second(box):
    springs = box.params.material.stiffness
    for softness in (1.0, 100.0):
        scaled = springs.replace(stiffness=springs.stiffness * softness)
        params = box.params.replace(material=box.params.material.replace(stiffness=scaled))
        _, heights = slide(box.replace(params=params), 0.5, 0.01, speed=2.0)
        assert np.max(heights) <= 0.02 + 1e-5


@pytest.mark.long
def test_memory_has_no_influence(box):
    state = box.initial_state()
    state = state.replace(v=jnp.array([1.0, -0.5, -0.3, 2.0, 1.0, 3.0]))
    rng = np.random.default_rng(0)
    outcomes = [
        stepper()(box, state, 0.01, jc.compliant.StepMemory(forces=jnp.asarray(forces)))[0].v
        for forces in (np.zeros(24), rng.normal(size=24), 1e3 * rng.normal(size=24))
    ]
    np.testing.assert_array_equal(outcomes[0], outcomes[1])
    np.testing.assert_array_equal(outcomes[0], outcomes[2])


@pytest.mark.long
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_a_box_that_spins_to_rest_on_its_corners_is_solved_in_few_iterations(box, mu):
    """Slips of micrometres per second turn by any angle; Newton's method alone needed a hundred iterations."""
    law = box.params.material.replace(friction=jnp.full(box.structure.num_contacts, mu))
    box = box.replace(params=box.params.replace(material=law))
    memory, rng = jc.compliant.StepMemory(forces=jnp.zeros(24)), np.random.default_rng(0)
    most = []
    for _ in range(4):
        state = box.initial_state()
        state = state.replace(v=jnp.asarray(0.3 * rng.normal(size=6)))
        for _ in range(60):
            state, info = stepper()(box, state, 0.002, memory)
            assert int(info.status) == 0
            assert float(info.residual) <= 1e-9
            most.append(int(info.num_iters))
    assert max(most) <= 40
    assert np.mean(most) <= 25


@pytest.mark.slow
def test_thrown_boxes_are_solved_alone_as_in_a_batch_beside_a_poisoned_lane(box):
    """Landings on edges and corners, where friction of 1 at redundant contacts is hard."""
    rng = np.random.default_rng(1)
    turns = rng.normal(size=(64, 4))
    turns /= np.linalg.norm(turns, axis=1)[:, None]
    start = box.initial_state()
    q = np.tile(np.asarray(start.q), (64, 1))
    q[:, 2], q[:, 3:] = 0.1, turns
    v = np.concatenate(
        [rng.normal(size=(64, 2)), -1.0 - rng.random((64, 1)), 5.0 * rng.normal(size=(64, 3))], 1
    )
    v[7] = np.nan

    @jax.jit
    @jax.vmap
    def throw(q, v):
        def advance(state, _):
            state, info = jc.compliant.step(box, state, jnp.zeros(6), dt=0.01, settings=COULOMB)
            return state, (state, info.status)

        return jax.lax.scan(advance, start.replace(q=q, v=v), length=20)[1]

    states, status = throw(jnp.asarray(q), jnp.asarray(v))
    status = np.asarray(status)
    assert np.all(status[7] != 0)
    assert np.mean(np.delete(status, 7, axis=0) != 0) <= 1e-3
    memory = jc.compliant.StepMemory(forces=jnp.zeros(24))
    for lane in (0, 5, 20):
        state = start.replace(q=jnp.asarray(q[lane]), v=jnp.asarray(v[lane]))
        for k in range(8):
            state, _ = stepper()(box, state, 0.01, memory)
            np.testing.assert_allclose(states.v[lane, k], state.v, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, pytest.param(jax.jacrev, marks=pytest.mark.slow)])
def test_derivatives_are_those_of_differences(box, mode):
    """Of a box that slides and turns on its four corners, by its velocity."""
    start = box.initial_state()
    start = start.replace(q=start.q.at[2].set(0.02 - 2e-4), v=jnp.array([1.0, 0.3, 0.0, 0.0, 0.0, 0.5]))
    memory = jc.compliant.StepMemory(forces=jnp.zeros(24))

    @jax.jit
    def end(v):
        return stepper()(box, start.replace(v=v), 0.01, memory)[0].v

    step = 1e-6
    differences = np.stack(
        [(end(start.v + step * e) - end(start.v - step * e)) / (2 * step) for e in np.eye(6)], axis=1
    )
    np.testing.assert_allclose(jax.jit(mode(end))(start.v), differences, atol=1e-8)


@pytest.mark.long
def test_a_hopper_lands_on_its_foot():
    """Six contacts and six limits far away, two at a gap of zero: interior points alone get lost."""
    hopper = jc.load_mjcf(HOPPER, planar=True)
    state = hopper.initial_state()
    state = state.replace(v=jnp.array([0.3, -0.5, 0.2, 0.1, 0.1, 0.1]))
    _, info = jax.jit(lambda state: jc.compliant.step(hopper, state, jnp.zeros(3), dt=0.01))(state)
    assert int(info.status) == 0
    assert np.all(np.asarray(info.lam)[:-4] == 0)
    foot, terms = np.asarray(info.lam)[-4:].reshape(2, 2), constraint_terms(hopper, state)
    slip = info.slip[-2:, 0] + 0.005 * terms.gdot_v[-3::2]  # of rows in the middle of the step
    bound = 1.2 * foot[:, 0]
    law = np.clip(-hopper.params.material.friction_damping * slip, -bound, bound)  # what sticks creeps
    assert np.all(bound > 0) and abs(foot[0, 1]) < bound[0]
    np.testing.assert_allclose(foot[:, 1], law, rtol=1e-6)


@pytest.mark.long
def test_a_jam_is_found_by_newtons_method():
    """Painleve's rod, mu = 3: no force lets its end slide on, and the first steps find no solution there."""
    half, angle, speed = 0.7, 1.0, 3.0
    rod = jc.load_mjcf(
        f"""<mujoco><worldbody><geom type='plane' size='9 9 1' friction='3'/>
        <body pos='0 0 {half * np.sin(angle) + 0.001}'><joint type='slide' axis='1 0 0'/>
        <joint type='slide' axis='0 0 1'/><joint axis='0 1 0'/>
        <inertial pos='0 0 0' mass='1' diaginertia='.16 .16 .001'/>
        <geom type='sphere' size='.001' pos='{-half} 0 0' friction='3'/></body></worldbody></mujoco>""",
        planar=True,
    )
    law = jc.compliant.Material(stiffness=1e12, damping=1e9)
    rod = rod.replace(params=rod.params.replace(material=law))
    start = rod.initial_state().replace(q=jnp.array([0.0, 0.0, -angle]), v=jnp.array([-speed, 0.0, 0.0]))
    then, info = stepper()(rod, start, 1e-4, jc.compliant.StepMemory())
    assert info.status == 0 and info.num_iters < 30
    rows = np.array([[1, 0, -half * np.sin(angle) - 0.001], [0, 1, half * np.cos(angle)]])  # of its end
    inverse = np.diag([1.0, 1.0, 1.0 / 0.16])
    after = np.array([-speed, 0, 0])
    after = after - inverse @ rows.T @ np.linalg.solve(rows @ inverse @ rows.T, rows @ after)
    np.testing.assert_allclose(then.v, after, atol=3e-3)


def test_interior_points_run_only_where_newtons_method_has_failed(box):
    """In a program of XLA, too, which may compute ahead of a loop what stays the same in it."""
    state = box.initial_state()
    program = stepper().lower(box, state, 0.01, jc.compliant.StepMemory()).compile().as_text()
    assert program.count(" while(") > 2
    assert loops_moved_out(program) == []

"""Mocap bodies that move by given poses: closed forms, a frame that accelerates, welds, and who refuses them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

G, DT, STEPS = 9.81, 0.005, 100
TIMES = DT * np.arange(STEPS + 1)
JOINTS = (
    "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/><joint type='hinge' axis='0 1 0'/>"
)
BALL = "<geom name='load' size='.1' mass='2'/>"
BOX = "<geom name='load' type='box' size='.1 .1 .1' mass='2'/>"


def on_table(load, joints="<freejoint/>", contact="", beside=""):
    """A table that is a mocap body, with a body `beside` on it, and a load."""
    return f"""<mujoco><default><geom friction='.4' {contact}/></default><worldbody>
    <body name='table' mocap='true' pos='0 0 -.05'><geom type='box' size='3 2 .05'/>{beside}</body>
    <body name='load' pos='0 0 .1'>{joints}{load}</body></worldbody></mujoco>"""


def poses_of(x=0.0, z=0.0, turn=0.0):
    """Poses of the table that moves by x and z and turns about z by an angle; each a number or an array."""
    x, z, turn = np.broadcast_arrays(x, z, turn, TIMES)[:3]
    zero = np.zeros_like(x)
    return np.stack([x, zero, z - 0.05, np.cos(turn / 2), zero, zero, np.sin(turn / 2)], axis=1)


def moved(model, poses, stiff=True, applied=None):
    """The motion of the load, from rest on the table."""
    if stiff:
        material = jc.compliant.stiff_material(2.0)
        model = model.replace(params=model.params.replace(material=material))
    controls = jnp.zeros((STEPS, model.num_controls))
    stepper = jc.simulate.Compliant()
    return jc.simulate.rollout(
        model,
        model.initial_state(),
        jc.simulate.Inputs(controls, mocap={"table": poses}, applied=applied),
        stepper=stepper,
        dt=DT,
    )


@pytest.mark.long
@pytest.mark.parametrize("stiff", [True, False])
def test_a_table_that_accelerates_upwards_carries_more(stiff):
    acceleration = 3.0
    motion = moved(jc.load_mjcf(on_table(BALL)), poses_of(z=0.5 * acceleration * TIMES**2), stiff)
    assert not np.any(motion.status)
    force = np.sum(motion.impulse[..., 0], axis=1) / DT
    np.testing.assert_allclose(force[-20:], 2.0 * (G + acceleration), rtol=1e-6)
    gap = motion.states.q[-1, 2] - 0.1 - 0.5 * acceleration * TIMES[-1] ** 2
    assert -3e-3 < gap < 0.0


@pytest.mark.slow_cases("2.0")
@pytest.mark.long
@pytest.mark.parametrize("acceleration", [2.0, 6.0])
def test_a_table_carries_a_box_as_far_as_friction_does(acceleration):
    """Below mu g the box moves along; above, its acceleration is mu g."""
    model = jc.load_mjcf(on_table(BOX, JOINTS), planar=True)
    motion = moved(model, poses_of(x=0.5 * acceleration * TIMES**2)[:, [0, 2, 6]])
    assert not np.any(motion.status)
    along = min(acceleration, 0.4 * G)
    np.testing.assert_allclose(np.diff(motion.states.v[50:, 0]) / DT, along, rtol=1e-5)
    friction = np.sum(motion.impulse[50:, :, 1], axis=1) / DT
    np.testing.assert_allclose(np.abs(friction), 2.0 * along, rtol=1e-5)
    slip = np.max(np.abs(motion.info.details.slip[-1]))
    assert abs(slip - max(acceleration - 0.4 * G, 0.0) * TIMES[-1]) < 2.0 * acceleration * DT


@pytest.mark.long
def test_a_file_that_accelerates_is_a_file_with_more_weight():
    """The steps of a load over a table that accelerates are those over one at rest, with the load pushed back."""
    model = jc.load_mjcf(on_table(BALL))
    acceleration = np.where(np.arange(STEPS) > 0, 4.0, 0.0)  # of each step; the first has none
    speed = np.cumsum(acceleration) * DT
    z = np.concatenate([[0.0], np.cumsum(speed) * DT])
    moving = moved(model, poses_of(z=z), stiff=False)
    push = np.zeros((STEPS, 6))
    push[:, 2] = -2.0 * acceleration
    still = moved(model, poses_of(), stiff=False, applied={"load": push})
    height = moving.states.q[1:, 2] - z[1:]
    np.testing.assert_allclose(height, still.states.q[1:, 2], atol=1e-12)
    np.testing.assert_allclose(moving.impulse, still.impulse, atol=1e-9)


@pytest.mark.long
def test_a_turntable_takes_a_box_round():
    """Friction centres the box on its circle, and turns it as the table does."""
    turning, radius = 2.0, 0.5
    model = jc.load_mjcf(on_table(BOX, contact="condim='4'"))
    state = model.initial_state()
    start = state.replace(
        q=state.q.at[0].set(radius), v=state.v.at[1].set(turning * radius).at[5].set(turning)
    )
    material = jc.compliant.stiff_material(2.0)
    model = model.replace(params=model.params.replace(material=material))
    states, info = jc.compliant.rollout(
        model, start, jnp.zeros((STEPS, 6)), dt=DT, mocap={"table": poses_of(turn=turning * TIMES)}
    )
    assert not np.any(info.status)
    np.testing.assert_allclose(states.v[-1, 5], turning, rtol=1e-3)
    np.testing.assert_allclose(np.hypot(states.q[-1, 0], states.q[-1, 1]), radius, rtol=2e-2)
    np.testing.assert_allclose(np.hypot(*states.v[-1, :2]), turning * radius, rtol=2e-2)
    angle = np.arctan2(states.q[-1, 1], states.q[-1, 0])
    np.testing.assert_allclose(angle, turning * TIMES[-1], atol=0.02)


@pytest.mark.long
def test_a_planar_table_that_tilts_lets_a_box_slide_at_the_friction_angle():
    model = jc.load_mjcf(on_table(BOX, JOINTS), planar=True)
    angles = 0.45 * TIMES / TIMES[-1]  # tan passes 0.4 at 0.38 rad
    poses = np.stack([0.05 * np.sin(angles), -0.05 * np.cos(angles), angles], axis=1)
    motion = moved(model, poses)
    assert not np.any(motion.status)
    normal, friction = np.moveaxis(np.sum(motion.impulse, axis=1), 1, 0) / DT
    weight = 2.0 * G * np.sin(angles[1:])
    np.testing.assert_allclose(np.abs(friction[50:80]), weight[50:80], rtol=2e-2)
    np.testing.assert_allclose(np.abs(friction[95:]), 0.4 * normal[95:], rtol=1e-6)
    assert np.all(0.4 * normal[95:] < 0.98 * weight[95:])
    np.testing.assert_allclose(
        -motion.states.q[50, 2], angles[50], atol=3e-3
    )  # a hinge about y turns from z to x


HAND = """<mujoco><option gravity="0 0 0"/><worldbody>
<body name="hand" mocap="true" pos="0 0 1"/>
<body name="palm" pos="0 0 1"><freejoint/><geom type="box" size=".1 .1 .02" mass="1"/></body></worldbody>
<equality><weld body1="hand" body2="palm"/></equality></mujoco>"""


@pytest.mark.long
def test_a_welded_hand_follows_without_lag():
    """The damper of the weld knows the velocity of the mocap body."""
    model = jc.load_mjcf(HAND)
    x, turn = 0.7 * TIMES, 1.5 * TIMES
    zero = np.zeros_like(x)
    poses = np.stack([x, zero, zero + 1.0, np.cos(turn / 2), zero, zero, np.sin(turn / 2)], axis=1)
    states, info = jc.compliant.rollout(
        model, model.initial_state(), jnp.zeros((STEPS, 6)), dt=DT, mocap={"hand": poses}
    )
    assert not np.any(info.status)
    np.testing.assert_allclose(states.q[-1], poses[-1], atol=1e-6)
    np.testing.assert_allclose(states.v[-1], [0.7, 0, 0, 0, 0, 1.5], atol=1e-6)


@pytest.mark.slow
def test_few_contacts_and_blocks_of_steps_move_alike():
    beside = "<body pos='2 0 0' euler='0 0 30'><geom type='box' size='.1 .1 .05'/></body>"
    model, poses = jc.load_mjcf(on_table(BALL, beside=beside)), poses_of(x=TIMES**2, z=0.1 * np.sin(TIMES))
    every = moved(model, poses)
    few = moved(model.replace(max_contacts=1), poses)
    np.testing.assert_allclose(few.states.q, every.states.q, atol=1e-12)
    material = jc.compliant.stiff_material(2.0)
    model = model.replace(params=model.params.replace(material=material))
    ran = jc.simulate.run(
        model, model.initial_state(), jc.simulate.MotionSettings(
            stepper=jc.simulate.Compliant(), duration=0.5, dt=DT,
            controls=jc.simulate.Inputs(mocap={"table": poses}),
        ),
    )  # fmt: skip
    np.testing.assert_allclose(ran.states.q, every.states.q, atol=1e-12)
    state, _ = jc.compliant.step(
        model, model.initial_state(), jnp.zeros(6), dt=DT, mocap={"table": poses[:2]}
    )
    np.testing.assert_allclose(state.q, every.states.q[1], atol=1e-12)


@pytest.mark.long
def test_the_motion_of_a_ball_that_rolls_has_its_derivative_by_the_poses():
    """A ball rolls after a table that accelerates at 2/7 of its acceleration."""
    model = jc.load_mjcf(on_table(BALL, JOINTS), planar=True)

    def end(acceleration):
        poses = jnp.asarray(poses_of()[:, [0, 2, 6]]).at[:, 0].add(0.5 * acceleration * TIMES**2)
        return moved(model, poses).states.q[-1, 0]

    step = 1e-4
    forward = jax.jvp(end, (2.0,), (1.0,))[1]
    np.testing.assert_allclose(forward, (end(2.0 + step) - end(2.0 - step)) / (2.0 * step), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(end)(2.0), forward, rtol=1e-9)
    np.testing.assert_allclose(forward, TIMES[-1] ** 2 / 7.0, rtol=2e-2)


@pytest.mark.long
def test_motion_that_is_not_supported_is_named():
    model = jc.load_mjcf(on_table(BALL))
    state, controls = model.initial_state(), jnp.zeros((STEPS, 6))
    with pytest.raises(ValueError, match="mocap: expected names of mocap bodies, table; got 'load'"):
        jc.compliant.rollout(model, state, controls, dt=DT, mocap={"load": poses_of()})
    with pytest.raises(ValueError, match=r"mocap\['table'\]"):
        jc.compliant.rollout(model, state, controls, dt=DT, mocap={"table": poses_of()[1:]})
    with pytest.raises(TypeError, match="mocap"):
        jc.compliant.rollout(model, state, controls, dt=DT, mocap=poses_of())
    with pytest.warns(jc.io.mjcf.IgnoredOptionWarning, match="motion of mocap 'base'"):
        carrying = jc.load_mjcf(
            "<mujoco><worldbody><body name='base' mocap='true'><body><joint/><geom size='.1'/></body></body>"
            "</worldbody></mujoco>"
        )
    with pytest.raises(ValueError, match="no mocap body that can move"):
        jc.compliant.rollout(
            carrying, carrying.initial_state(), jnp.zeros((STEPS, 1)), dt=DT, mocap={"base": poses_of()}
        )


FEW = 8
PLANAR = "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/>"


def lifted(speed, steps=FEW):
    """A ball on a table that is lifted, as a plane model, its start and poses (x, z, angle) of the table."""
    model = jc.load_mjcf(on_table(BALL, PLANAR), planar=True)
    z = speed * DT * jnp.arange(steps + 1)
    return model, model.initial_state(), jnp.stack([0.0 * z, z - 0.05, 0.0 * z], axis=1)


def rolled(speed, num_steps=FEW):
    model, start, poses = lifted(speed)
    inputs = jc.simulate.Inputs(jnp.zeros((FEW, 2)), mocap={"table": poses})
    stepper = jc.simulate.Compliant()
    return jc.simulate.rollout(model, start, inputs, stepper=stepper, dt=DT, num_steps=num_steps)


@pytest.mark.long
def test_a_step_on_a_table_that_moves_is_linearised_there():
    model, start, poses = lifted(0.5)
    pair, stepper = {"table": poses[3:5]}, jc.simulate.Compliant()
    start = jax.tree.map(lambda rows: rows[3], rolled(0.5).states)
    linear, info = jc.linearize(model, start, jnp.zeros(2), stepper=stepper, dt=DT, mocap=pair)
    assert info.status == 0
    after = jc.compliant.step(model, start, jnp.zeros(2), dt=DT, mocap=pair)[0]
    np.testing.assert_allclose(linear.state.q, after.q, rtol=0, atol=1e-12)

    def end(v):
        return np.asarray(jc.compliant.step(model, start.replace(v=v), jnp.zeros(2), dt=DT, mocap=pair)[0].v)

    change = 1e-6 * jnp.array([0.0, 1.0])
    slope = (end(start.v + change) - end(start.v - change)) / 2e-6
    np.testing.assert_allclose(linear.A[2:, 3], slope, rtol=0, atol=1e-6)
    still, _ = jc.linearize(model, start, jnp.zeros(2), stepper=stepper, dt=DT)  # the table is lower there
    assert np.max(np.abs(still.A - linear.A)) > 0.1
    with pytest.raises(ValueError, match="mocap: expected three poses"):
        jc.linearize(model, start, jnp.zeros(2), stepper=jc.simulate.EventDriven(), dt=DT, mocap=pair)
    # Feedback along the motion knows where the table is; its last gain is that of the last step.
    motion = rolled(0.5)
    policy, info = jc.optimize.track(
        model, motion, stepper=stepper, state_cost=jnp.ones(4), control_cost=1e-3 * jnp.ones(2)
    )
    assert info.status == 0
    last = jax.tree.map(lambda rows: rows[-2], motion.states)
    linear, _ = jc.linearize(model, last, jnp.zeros(2), stepper=stepper, dt=DT, mocap={"table": poses[-2:]})
    A, B = linear.A, linear.B
    gain = np.linalg.solve(1e-3 * np.eye(2) + B.T @ B, B.T @ A)
    np.testing.assert_allclose(policy.gains[-1], gain, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_pictures_files_and_worlds_have_the_table_where_it_is(tmp_path):
    from jaxcontact.viz.film import film_of

    model, start, poses = lifted(0.5)
    motion = rolled(0.5)
    np.testing.assert_allclose(motion.mocap.position[:, 0, 2], poses[:, 1])
    motion.save(tmp_path / "motion.npz")
    loaded = jc.simulate.Trajectory.load(tmp_path / "motion.npz")
    table = model.structure.bodies.index("table")
    for shown in (motion, loaded):
        film = film_of(shown, model, None, 1.0 / DT)
        np.testing.assert_allclose(film.frames.positions[:, table, 1], poses[:, 1])
        np.testing.assert_allclose(film.frames.positions[:, 1 - table, 1], motion.states.q[:, 1] + 0.1)
    speeds = jnp.array([0.5, -0.2])
    worlds = jax.vmap(rolled)(speeds)
    film = film_of(worlds, model, None, 1.0 / DT)
    heights = film.ghosts.frames.positions[:, :, table, 1]
    np.testing.assert_allclose(heights, np.outer(speeds, DT * np.arange(FEW + 1)) - 0.05, atol=1e-15)
    film = film_of(motion, model, {"still": motion.replace(mocap=None)}, 1.0 / DT)  # as in the file
    np.testing.assert_allclose(film.ghosts.frames.positions[0, :, table, 1], -0.05)
    jc.viz.animate(motion, model, tmp_path / "motion.html")
    # A motion that ends early keeps the table at its last pose.
    early = jax.jit(lambda n: rolled(0.5, n))(3)
    np.testing.assert_allclose(early.mocap.position[3:, 0, 2], poses[3, 1])
    inputs = jc.simulate.Inputs(jnp.zeros((FEW, 2)), mocap={"table": poses})
    settings = jc.simulate.MotionSettings(
        stepper=jc.simulate.Compliant(), duration=FEW * DT, dt=DT, controls=inputs
    )
    many = jc.simulate.ensemble(model, start, settings, num_worlds=2)
    for world in range(2):
        np.testing.assert_allclose(many.states.q[world], motion.states.q[-1], rtol=0, atol=1e-12)
    alone = jc.simulate.run(model, start, settings)
    np.testing.assert_allclose(alone.mocap.position, motion.mocap.position)


@pytest.mark.long
def test_a_motion_of_the_table_is_found_that_lifts_a_ball_as_far_as_asked():
    @jax.jit
    def cost(speed):
        return 1e4 * (rolled(speed[0]).states.q[-1, 1] - 0.01) ** 2

    speed, info = jc.optimize.trajectory(cost, jnp.array([0.4]), num_steps=20)
    assert info.cost < 1e-6
    assert 0.2 < speed[0] < 0.3  # the ball rises by 10 mm in 40 ms, and bounces by little

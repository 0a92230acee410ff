"""`EventDriven`: closed forms of bounces, slides and rolls, chatter at its limit, derivatives through impacts."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_disc
from helpers import sliding_rod as rod

import jaxcontact as jc
from jaxcontact._pytree import Record
from jaxcontact.simulate.augmented.contact_forces import accelerations, shortest_forces
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, ContactModes, ContactProblem, mode_equations

G, N, DT, R = 9.81, 60, 0.01, 0.1
SYSTEM, PARAMS = sliding_disc.SYSTEM, sliding_disc.PARAMS
HEAVY = PARAMS.replace(inertia=jnp.array([1e12]))  # does not roll
NONE = jnp.zeros((N, 3))
AT = DT * np.arange(N + 1)


class Told(NamedTuple):
    status: jax.Array
    impulse: jax.Array


class Bounce(Record):
    """Frictionless restitution of the single contact of a disc."""

    restitution: jax.Array

    def __call__(self, terms, v, key=None):
        mass = 1.0 / (terms.J_n[0] @ jnp.linalg.solve(terms.M, terms.J_n[0]))
        impulse = -(1.0 + self.restitution) * mass * (terms.J_n @ v)
        return v + jnp.linalg.solve(terms.M, terms.J_n[0] * impulse[0]), Told(jnp.uint32(0), impulse)


def at(height, *v):
    return jc.State(q=jnp.zeros(3).at[1].set(R + height), v=jnp.array(v), t=jnp.array(0.0))


def moved(params, state, controls, restitution, dt):
    stepper = jc.simulate.EventDriven(impact=Bounce(restitution=restitution))
    return jc.simulate.rollout(
        jc.Model(system=SYSTEM, params=params), state, controls, stepper=stepper, dt=dt
    )


MOVED = jax.jit(moved)


def found(params=PARAMS, start=sliding_disc.STATE, controls=NONE, restitution=0.5, dt=DT):
    motion = MOVED(params, start, controls, jnp.asarray(restitution), dt)
    assert not np.any(jc.Status.failed(motion.status)), jc.Status.describe(motion.status)
    assert float(jnp.min(motion.states.q[:, 1])) > R - 1e-12
    return motion


def energy(motion, params=PARAMS):
    q, v = np.asarray(motion.states.q), np.asarray(motion.states.v)
    return 0.5 * v**2 @ np.array([2.0, 2.0, float(params.inertia[0])]) + 2.0 * G * q[:, 1]


def bounces(height, restitution, until):
    """Times of impact and speeds behind them; the last time is the limit, if that is before `until`."""
    fall = math.sqrt(2.0 * height / G)
    speed = restitution * G * fall
    times, speeds = [], []
    t = fall
    while t < until and speed > 1e-9:
        times.append(t)
        speeds.append(speed)
        t, speed = t + 2.0 * speed / G, restitution * speed
    return np.array(times), np.array(speeds), fall * (1.0 + restitution) / (1.0 - restitution)


@pytest.mark.long
def test_a_ball_bounces_to_its_limit_and_rests():
    motion = found(start=at(jnp.array(0.1), 0.0, 0.0, 0.0))
    times, speeds, limit = bounces(0.1, 0.5, N * DT)
    count = int(motion.impacts.count)
    np.testing.assert_allclose(motion.impacts.t[: count - 1], times[: count - 1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.impacts.t[count - 1], limit, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(np.flatnonzero(motion.impacts.plastic), [count - 1])
    np.testing.assert_allclose(motion.impacts.v_plus[: count - 1, 1], speeds[: count - 1], atol=1e-13)
    assert motion.notes == [f"t = {limit:.6g} s: contact 0 chatters and is made plastic (ZENO)"]
    step = int(limit / DT)
    np.testing.assert_array_equal(np.asarray(motion.status) & int(jc.Status.ZENO) > 0, np.arange(N) == step)
    before = AT[:step]
    last = np.searchsorted(times, before) - 1
    since = np.where(last < 0, before, before - times[last])
    height = np.where(last < 0, 0.1, 0.0) + np.where(last < 0, 0.0, speeds[last]) * since - G * since**2 / 2
    np.testing.assert_allclose(motion.states.q[:step, 1] - R, height, rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.states.q[step + 1 :, 1], R, rtol=0, atol=1e-15)
    np.testing.assert_allclose(motion.impulse[-1, 0], [2.0 * G * DT, 0.0], rtol=0, atol=1e-12)
    assert np.all(np.diff(energy(motion)) < 1e-13) and bool(motion.contacts[-1, 0])


@pytest.mark.long
def test_a_disc_slides_until_it_rolls_or_stops_or_turns_back():
    """v = v_0 - mu g t up to the time of sticking, in the middle of a step; then rolling, rest, or downhill."""
    start = sliding_disc.STATE.replace(v=jnp.array([0.9, 0.0, 0.0]))
    slow = 0.3 * G
    for params, end in ((PARAMS, 0.3 / slow), (HEAVY, 0.9 / slow)):
        motion = found(params, start)
        slid = np.minimum(AT, end)
        x = 0.9 * slid - slow * slid**2 / 2 + (0.9 - slow * end) * (AT - slid)
        np.testing.assert_allclose(motion.states.q[:, 0], x, rtol=0, atol=1e-12)
        assert int(motion.impacts.count) == 0 and bool(motion.contacts.all())
        assert np.all(np.diff(energy(motion, params)) < 1e-12) or params is HEAVY
    up = HEAVY.replace(gravity=G * jnp.array([-jnp.sin(0.5), -jnp.cos(0.5)]))
    motion = found(up, start)
    slows, speeds = G * (math.sin(0.5) + 0.3 * math.cos(0.5)), G * (math.sin(0.5) - 0.3 * math.cos(0.5))
    top = 0.9 / slows
    x = np.where(top > AT, 0.9 * AT - slows * AT**2 / 2, 0.9 * top / 2 - speeds * (AT - top) ** 2 / 2)
    np.testing.assert_allclose(motion.states.q[:, 0], x, rtol=0, atol=1e-12)


def test_a_mass_that_is_pulled_up_leaves_where_the_pull_exceeds_its_weight():
    pull = NONE.at[:, 1].set(0.5 * jnp.arange(N))  # 2 g = 19.62 N is exceeded in step 40
    motion = found(start=at(jnp.array(0.0), 0.0, 0.0, 0.0), controls=pull)
    np.testing.assert_array_equal(motion.contacts[:, 0], np.arange(N + 1) <= 40)
    np.testing.assert_allclose(
        motion.impulse[:, 0, 0], DT * np.maximum(2 * G - np.asarray(pull[:, 1]), 0), atol=1e-12
    )
    v = np.concatenate([[0.0], np.cumsum(DT * np.maximum(np.asarray(pull[:, 1]) / 2 - G, 0))])
    np.testing.assert_allclose(motion.states.v[:, 1], v, rtol=0, atol=1e-12)


def test_a_gap_that_closes_and_opens_within_a_step_is_found():
    """Down with 1 m/s, 40 m/s^2 upwards: 1 / 80 m further down it turns, and after 50 ms it is back."""
    push = NONE.at[:, 1].set(2.0 * (G + 40.0))
    for height in (0.0124, 0.0126):
        motion = found(start=at(jnp.array(height), 0.0, -1.0, 0.0), controls=push, dt=0.06)
        assert int(motion.impacts.count) == (height < 1 / 80)
        if height < 1 / 80:
            hit = (1.0 - math.sqrt(1.0 - 80.0 * height)) / 40.0
            np.testing.assert_allclose(motion.impacts.t[0], hit, rtol=0, atol=1e-13)


@jax.jit
def dropped_again(heights):
    """When the chatters of a ball end that is dropped from one height after another, and where it is then."""
    stepper = jc.simulate.EventDriven(impact=Bounce(restitution=jnp.array(0.5)))
    controls = jnp.zeros((8, 3))

    def drop(state, height):
        state = state.replace(q=state.q.at[1].set(R + height), v=jnp.zeros(3))
        motion = jc.simulate.rollout(
            jc.Model(system=SYSTEM, params=PARAMS), state, controls, stepper=stepper, dt=0.13
        )
        last = jax.tree.map(lambda leaf: leaf[-1], motion.states)
        end = motion.impacts.t[motion.impacts.count - 1] - state.t
        return last, (end, last.q[1], jnp.bitwise_or.reduce(motion.status), jnp.sum(motion.impacts.plastic))

    return jax.lax.scan(drop, at(jnp.array(0.0), 0.0, 0.0, 0.0), heights)[1]


@pytest.mark.slow
def test_a_thousand_drops_end_at_their_times():
    heights = 0.05 + 0.4 * np.random.default_rng(1).random(1000)
    ends, rest, status, plastic = dropped_again(jnp.asarray(heights))
    np.testing.assert_allclose(ends, 3.0 * np.sqrt(2.0 * heights / G), rtol=0, atol=1e-9)
    np.testing.assert_allclose(rest, R, rtol=0, atol=1e-9)
    assert np.all(np.asarray(status) == int(jc.Status.ZENO)) and np.all(np.asarray(plastic) >= 1)


def last_height(z):
    """Height and speed at the end, by height, speed, restitution, a control that lifts, and gravity."""
    height, speed, restitution, lift, gravity = z
    start = at(height, 0.0, 0.0, 0.0)
    start = start.replace(v=start.v.at[1].set(speed))
    params = PARAMS.replace(gravity=jnp.stack([0.0 * gravity, -gravity]))
    states = moved(params, start, NONE.at[:, 1].set(lift), restitution, DT).states
    return jnp.stack([states.q[-1, 1], states.v[-1, 1]])


def flight(z, count):
    """The same after so many bounces, in closed form."""
    y, v, restitution, lift, gravity = z
    fall = gravity - lift / PARAMS.mass[0]
    left = N * DT
    for _ in range(count):
        hit = (v + jnp.sqrt(v**2 + 2.0 * fall * y)) / fall
        y, v, left = 0.0 * y, restitution * (fall * hit - v), left - hit
    return jnp.stack([R + y + v * left - fall * left**2 / 2, v - fall * left])


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_through_bounces_are_those_of_the_closed_form(reverse):
    """d y_T / d y_0 = 1 without an impact; by all numbers through one to five."""
    slope = jax.jit((jax.jacrev if reverse else jax.jacfwd)(last_height))
    for z, count in (
        ((2.0, 0.3, 0.5, 1.0, G), 0),
        ((0.5, 0.2, 1.0, 0.0, G), 1),
        ((0.3, -1.0, 0.6, -3.0, G), 2),
        ((0.03, 0.0, 0.9, 0.0, G), 5),
    ):
        z = jnp.array(z)
        np.testing.assert_allclose(slope(z), jax.jacfwd(flight)(z, count), rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        slope(jnp.array([0.05, 0.0, 0.5, 0.0, G])), 0.0, atol=1e-12
    )  # behind its limit


@pytest.mark.slow
def test_the_final_height_is_a_smooth_curve_of_the_initial_one():
    """No saw-tooth: over 1000 heights the motion of one bounce is its closed form, and its slope, too."""
    heights = jnp.linspace(0.4, 0.6, 1000)

    @jax.jit
    def ends(heights):
        return jax.lax.map(
            lambda h: jax.jvp(lambda h: last_height(jnp.stack([h, 0.0, 0.8, 0.0, G])), (h,), (1.0,)), heights
        )

    exact = jax.vmap(
        lambda h: jax.jvp(
            lambda h: flight(jnp.stack([h, 0.0 * h, 0.8 + 0.0 * h, 0.0 * h, G + 0.0 * h]), 1), (h,), (1.0,)
        )
    )
    for own, closed in zip(ends(heights), exact(heights), strict=True):
        np.testing.assert_allclose(own, closed, rtol=0, atol=1e-11)


def shaken(structure, state, params):
    """The frame shakes: a force of inertia in step with time."""
    return jnp.stack([0.0, 20.0 * jnp.cos(2.0 * jnp.pi * state.t / 0.4), 0.0])


SHAKEN = jc.System(SYSTEM.structure, jc.free_poses, drive=shaken)


@jax.jit
def period(z):
    """(y, v) one period of the shaking later."""
    start = at(z[0], 0.0, 0.0, 0.0)
    start = start.replace(v=start.v.at[1].set(z[1]))
    stepper = jc.simulate.EventDriven(impact=Bounce(restitution=jnp.array(0.7)))
    motion = jc.simulate.rollout(
        jc.Model(system=SHAKEN, params=PARAMS), start, jnp.zeros((20, 3)), stepper=stepper, dt=0.02
    )
    return jnp.stack([motion.states.q[-1, 1] - R, motion.states.v[-1, 1]])


@pytest.mark.slow
def test_multipliers_of_a_periodic_motion_are_those_of_differences():
    z = jnp.array([0.1, 0.5])
    slope = jax.jit(jax.jacfwd(period))
    for _ in range(20):
        z = z - jnp.linalg.solve(slope(z) - jnp.eye(2), period(z) - z)
    np.testing.assert_allclose(period(z), z, rtol=0, atol=1e-12)
    h = 1e-5
    differences = np.stack([(period(z + h * e) - period(z - h * e)) / (2 * h) for e in np.eye(2)], axis=1)
    monodromy = np.asarray(slope(z))
    np.testing.assert_allclose(
        np.sort_complex(np.linalg.eigvals(monodromy)),
        np.sort_complex(np.linalg.eigvals(differences)),
        atol=1e-6,
    )
    np.testing.assert_allclose(np.linalg.det(monodromy), 0.7**2, rtol=1e-9)  # of one impact a period


SLIDES = jnp.array([-1.0, 0.0, 0.0])


@jax.jit
def rods(mu):
    start = rod.state(jnp.array(1.0), -1.0, 0.0).replace(v=SLIDES)
    stepper = jc.simulate.EventDriven()
    return jc.simulate.rollout(rod.model(mu), start, jnp.zeros((200, 3)), stepper=stepper, dt=1e-3)


@pytest.mark.slow
def test_a_jam_is_an_impact_without_a_collision_on_record():
    """mu = 3 is inconsistent, and the end sticks behind a plastic impact; mu = 0.5 is ordinary."""
    for mu in (3.0, 0.5):
        motion = rods(mu)
        assert not np.any(jc.Status.failed(motion.status))
        q, v = np.asarray(motion.states.q), np.asarray(motion.states.v)
        gap = q[:, 1] - rod.HALF * np.abs(np.sin(q[:, 2]))
        total = 0.5 * v**2 @ [1.0, 1.0, rod.HALF**2 / 3] + rod.GRAVITY * q[:, 1]
        assert np.min(gap) > -1e-12 and np.max(np.diff(total)) < 1e-12
        if mu == 3.0:
            jams = motion
    c, s = rod.HALF * np.cos(1.0), rod.HALF * np.sin(1.0)
    rows, inverse = np.array([[0, 1, -c], [1, 0, s]]), np.diag([1.0, 1.0, 3.0 / rod.HALF**2])
    impulse = np.linalg.solve(rows @ inverse @ rows.T, -rows @ np.asarray(SLIDES))
    np.testing.assert_allclose(jams.impacts.v_plus[0], SLIDES + inverse @ rows.T @ impulse, atol=1e-12)
    np.testing.assert_allclose(jams.impacts.impulse[0], [impulse[0], 0.0], atol=1e-12)
    assert jams.notes == ["t = 0 s: contact 0 jams, an impact without a collision"]
    force = rod.GRAVITY / rod.slope(1.0, 0.5)
    np.testing.assert_allclose(rods(0.5).impulse[0, 0], 1e-3 * force * np.array([1.0, 0.5]), rtol=1e-5)


BLOCK = jc.models.rocking_block(all_corners=True)


@jax.jit
def rocked(state):
    stepper = jc.simulate.EventDriven()
    return jc.simulate.rollout(BLOCK, state, jnp.zeros((150, 3)), stepper=stepper, dt=0.02)


@pytest.mark.slow
def test_a_block_rocks_to_rest_at_the_limit_of_its_impacts():
    """Each plastic impact on the other corner keeps 0.7 of the angular velocity (Housner)."""
    tilt = 0.2
    height = 0.5 * math.sin(tilt) + math.cos(tilt)
    motion = rocked(BLOCK.initial_state().replace(q=jnp.array([0.0, height, tilt]), v=jnp.zeros(3)))
    assert not np.any(jc.Status.failed(motion.status))
    assert np.bitwise_or.reduce(np.asarray(motion.status)) & int(jc.Status.ZENO)
    count = int(motion.impacts.count) - 1  # the last one is the limit
    spin = np.asarray(motion.impacts.v_plus[:count, 2])
    # The time of an impact has the round-off of a gap over its rate.
    assert np.all(np.abs(spin[1:] / spin[:-1] + 0.7) < 1e-9 + 1e-15 / spin[1:] ** 2)
    np.testing.assert_allclose(motion.states.v[-1], 0.0, atol=1e-12)
    np.testing.assert_allclose(motion.states.q[-1, 1:], [1.0, 0.0], atol=1e-12)
    gaps = jax.vmap(lambda q: jc.terms.contact_gaps(BLOCK, q))(motion.states.q)
    assert float(jnp.min(gaps)) > -1e-9
    total = jax.vmap(lambda state: sum(f(BLOCK, state) for f in (jc.kinetic_energy, jc.potential_energy)))
    assert np.max(np.diff(total(motion.states))) < 1e-12


@pytest.mark.slow
def test_a_poisoned_world_is_alone():
    v = jnp.array([[1.0, -1.0, 2.0], [jnp.nan, 0.0, 0.0], [0.0, -2.0, 0.0]])
    starts = jax.vmap(lambda v: at(jnp.array(0.1), 0.0, 0.0, 0.0).replace(v=v))(v)
    together = jax.jit(jax.vmap(moved, in_axes=(None, 0, None, None, None)))(
        PARAMS, starts, NONE, jnp.array(0.5), DT
    )
    for k in (0, 2):
        alone = found(start=jax.tree.map(lambda leaf, k=k: leaf[k], starts))
        np.testing.assert_allclose(together.states.q[k], alone.states.q, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(together.status[k], alone.status)
    assert np.all(np.asarray(together.status)[1] & jc.Status.NONFINITE)


def test_what_cannot_be_stepped_is_named():
    stepper = jc.simulate.EventDriven()
    with pytest.raises(ValueError, match=r"state: expected no penetration, got one of 0.05 m; jc.project"):
        jc.simulate.rollout(
            jc.Model(system=SYSTEM, params=PARAMS),
            at(jnp.array(-0.05), 0.0, 0.0, 0.0),
            NONE,
            stepper=stepper,
            dt=DT,
        )
    with pytest.raises(TypeError, match="impact: expected a function"):
        jc.simulate.EventDriven(impact="routh")
    with pytest.raises(ValueError, match="max_events: expected an integer >= 1, got 0"):
        jc.simulate.EventDriven(max_events=0)
    with pytest.raises(ValueError, match="rtol: expected"):
        jc.simulate.EventDriven(rtol=0.0)


def test_too_few_events_and_depth_under_jit_are_told():
    deep = MOVED(PARAMS, at(jnp.array(-0.05), 0.0, 0.0, 0.0), NONE, jnp.array(0.5), DT)
    assert np.asarray(deep.status)[0] & jc.Status.PENETRATION
    # Elastic from 0.2 mm: 0.6 s take 47 impacts with the flights between, and a step has room for 64 pieces.
    many = MOVED(PARAMS, at(jnp.array(2e-4), 0.0, 0.0, 0.0), NONE, jnp.array(1.0), 0.6)
    assert np.asarray(many.status)[0] & jc.Status.MAX_ITERS
    assert float(many.states.t[1]) < 0.6


@pytest.mark.slow
def test_a_block_chatters_to_rest_under_a_law_without_friction():
    """Both corners strike in no order that repeats, so there is no series: the chatter is made inelastic."""
    model = jc.models.rocking_block()
    stepper = jc.simulate.EventDriven(
        impact=jc.impact.Propagative(restitution=jnp.array(0.5)), max_events=128
    )

    @jax.jit
    def dropped(v):
        state = model.initial_state().replace(q=model.initial_state().q.at[1].add(0.01), v=v)
        none = jnp.zeros((60, 3))
        return jc.simulate.rollout(model, state, none, stepper=stepper, dt=DT)

    for v in ((0.0, 0.0, 0.0), (0.0, 0.0, 0.2)):
        motion = dropped(jnp.array(v))
        assert not np.any(jc.Status.failed(motion.status)), jc.Status.describe(motion.status)
        assert np.any(np.asarray(motion.status) & int(jc.Status.ZENO)) and bool(jnp.all(motion.contacts[-1]))
        np.testing.assert_allclose(motion.states.v[-1], 0.0, atol=1e-12)
        np.testing.assert_allclose(motion.states.q[-1, 1:], [1.0, 0.0], rtol=0, atol=1e-12)
        q, v = np.asarray(motion.states.q), np.asarray(motion.states.v)
        energy = 0.5 * v**2 @ np.array([1.0, 1.0, float(model.params.inertia[0])]) + G * q[:, 1]
        assert np.all(np.diff(energy) < 1e-12)


@pytest.mark.slow
def test_a_block_thrown_at_random_takes_every_step_under_a_law_without_friction():
    """Corners that return from nearly the same height at nearly the same time: none of 64 throws fails."""
    law = jc.impact.Propagative(order=(0, 1, 2, 3), restitution=0.5)
    stepper = jc.simulate.EventDriven(impact=law, max_events=256)

    @jax.jit
    def thrown(key):
        tilt, speed = jax.random.split(key)
        height, angle = 0.05 * jax.random.normal(tilt, (2,))
        q = jnp.stack([0.0, BLOCK.initial_state().q[1] + 0.3 + height, angle])
        v = jax.random.normal(speed, (3,)) * jnp.array([1.0, 0.5, 0.5])
        none = jnp.zeros((150, 3))
        state = BLOCK.initial_state().replace(q=q, v=v)
        motion = jc.simulate.rollout(BLOCK, state, none, stepper=stepper, dt=0.02)
        return motion.status

    for key in jax.random.split(jax.random.key(3), 64):
        status = thrown(key)
        assert not np.any(jc.Status.failed(status)), jc.Status.describe(status)


@pytest.mark.slow
def test_a_ball_that_spins_comes_to_roll():
    """About the vertical at up to 80 rad/s: it rolls after 2 v / (7 mu g), at 5/7 of its speed, in few pieces."""
    shapes = (
        jc.Sphere(name="ball", body="ball", radius="radius"),
        jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
    )
    structure = jc.Structure(
        dim=3, bodies=("ball",), num_positions=7, quaternions=(3,), shapes=shapes, pairs=(("ball", "floor"),)
    )
    params = PARAMS.replace(inertia=jnp.full((1, 3), 0.4 * 2.0 * R**2), gravity=jnp.array([0.0, 0.0, -G]))
    system = jc.System(structure, jc.free_poses)
    stepper = jc.simulate.EventDriven()

    def rolled(spin):
        q, v = jnp.array([0.0, 0.0, R, 1.0, 0.0, 0.0, 0.0]), jnp.array([1.0, 0.0, 0.0, 0.0, 0.0, spin])
        start = jc.State(q=q, v=v, t=jnp.array(0.0))
        return jc.simulate.rollout(
            jc.Model(system=system, params=params), start, jnp.zeros((12, 6)), stepper=stepper, dt=DT
        )

    rolled = jax.jit(rolled)
    stops = 2.0 / (7.0 * 0.3 * G)
    for spin in (5.0, 20.0, 80.0):
        motion = rolled(spin)
        assert not np.any(jc.Status.failed(motion.status)), jc.Status.describe(motion.status)
        assert int(jnp.max(motion.info.num_iters)) <= 20
        speed = 1.0 - 0.3 * G * np.minimum(DT * np.arange(13), stops)
        np.testing.assert_allclose(motion.states.v[:, 0], speed, atol=1e-9)
        np.testing.assert_allclose(motion.states.v[-1, 0], 5.0 / 7.0, atol=1e-9)


def test_a_disc_rolls_on_where_nothing_presses_it():
    """Without a load a force of round-off neither ends a stretch nor lets the contact go."""
    floating = PARAMS.replace(gravity=jnp.zeros(2), mu=jnp.array(0.9))
    for speed in (0.0131, 0.3, 7.0):
        motion = found(floating, at(0.0, speed, 0.0, -speed / R))
        assert np.all(np.asarray(motion.info.num_iters) == 1) and np.all(np.asarray(motion.contacts))
        np.testing.assert_allclose(motion.states.q[:, 0], speed * AT, atol=1e-15 + 1e-15 * speed)


CUBE = jc.models.tossed_cube()


def tossed(state, dt, steps):
    """The cube, by steps that have room for the pieces in which it slides and spins to rest."""
    stepper = jc.simulate.EventDriven(max_events=256)
    return jc.simulate.rollout(CUBE, state, jnp.zeros((steps, 6)), stepper=stepper, dt=dt)


@pytest.mark.long
def test_shares_of_a_load_move_with_the_corners_of_a_face():
    """The shortest forces that four corners slide by, against pseudo-inverses at states nearby."""
    kind = jnp.array([SLIDE] * 4 + [SEPARATE] * 4)

    def asked(push):
        q = jnp.array([0.0, 0.0, 0.05, 1.0, 0.0, 0.0, 0.0]) + push * jnp.array(
            [0.1, 0.2, 0.0, 0.0, 0.0, 0.0, 0.3]
        )
        v = jnp.array([0.2, 0.1, 0.0, 0.0, 0.0, -4.0]) + push * jnp.array([0.5, 0.2, 0.0, 0.0, 0.0, 1.0])
        state = jc.State(q=jc.retract(CUBE, q, jnp.zeros(6)), v=v, t=jnp.array(0.0))
        here = accelerations(CUBE, state, kind != SEPARATE)
        slip = here.terms.J_t @ v
        return here, slip / jnp.linalg.norm(slip, axis=1, keepdims=True)

    @jax.jit
    def shortest(push):
        here, way = asked(push)
        return shortest_forces(here.space, here.rate, kind, way)

    @jax.jit
    def direct(push):
        here, way = asked(push)
        uncapped = jnp.zeros(8)
        problem = ContactProblem(
            delassus=here.space.delassus,
            velocity=here.rate,
            mu=here.space.mu,
            cap=uncapped,
            mask=here.space.active,
        )
        rows, rhs = mode_equations(problem, ContactModes(kind=kind, capped=uncapped > 0, direction=way))
        return jnp.linalg.pinv(rows, rtol=1e-9) @ rhs

    h = 1e-6
    np.testing.assert_allclose(shortest(0.0), direct(0.0), atol=1e-12)
    np.testing.assert_allclose(
        jax.jit(jax.jacfwd(shortest))(0.0), (direct(h) - direct(-h)) / (2.0 * h), rtol=0, atol=1e-7
    )


@pytest.mark.long
def test_a_box_slides_straight_and_stops_within_a_step_or_at_its_end():
    """Round-off turns it, by directions of friction that no step across its rest resolves."""
    dt, mu = 0.02, 0.9
    inertia = jnp.array([[0.0104, 0.0104, 0.02]]) / 3.0
    box = CUBE.params.replace(
        mass=jnp.ones(1), inertia=inertia, mu=jnp.full(8, mu), constants={"size": jnp.array([0.2, 0.2, 0.04])}
    )
    to_rest = jnp.asarray([3.13, 3.48, 3.8, 4.0])  # times over dt

    @jax.jit
    def ends(speed):
        q = CUBE.initial_state().q.at[2].set(0.02)
        start = jc.State(q=q, v=jnp.zeros(6).at[0].set(speed), t=jnp.array(0.0))
        stepper = jc.simulate.EventDriven()
        motion = jc.simulate.rollout(
            CUBE.replace(params=box), start, None, num_steps=5, stepper=stepper, dt=dt
        )
        return motion.states.q[-1], motion.states.v[-1], motion.status

    q, v, status = jax.lax.map(ends, mu * G * dt * to_rest)
    assert not np.any(status), jc.Status.describe(np.bitwise_or.reduce(np.asarray(status).ravel()))
    np.testing.assert_allclose(q[:, 0], 0.5 * mu * G * (dt * to_rest) ** 2, rtol=0, atol=1e-12)
    assert np.max(np.abs(v)) < 1e-12


@pytest.mark.slow
def test_derivatives_of_a_cube_that_slides_and_spins_on_its_face_to_rest():
    """Friction shares the load of four corners, which all stop at once: against differences, and zero at rest."""
    q, v = jnp.array([0.0, 0.0, 0.05, 1.0, 0.0, 0.0, 0.0]), jnp.array([0.2, 0.1, 0.0, 0.0, 0.0, -4.0])

    @jax.jit
    def ends(push, dt):
        start = jc.State(q=q, v=v + push * jnp.array([0.5, 0.2, 0.0, 0.0, 0.0, 1.0]), t=jnp.array(0.0))
        motion = tossed(start, dt, 1)
        return (motion.states.q[-1], motion.states.v[-1]), motion.status

    slope = jax.jit(lambda dt: jax.jvp(lambda push: ends(push, dt)[0], (0.0,), (1.0,))[1])
    h = 1e-5
    for dt in (0.01, 0.5):
        (above, status), (below, _) = ends(h, dt), ends(-h, dt)
        assert not np.any(jc.Status.failed(status)), jc.Status.describe(status)
        for own, a, b in zip(slope(dt), above, below, strict=True):
            np.testing.assert_allclose(own, (a - b) / (2.0 * h), rtol=0, atol=1e-7)
    assert np.max(np.abs(above[1])) < 1e-12 and np.max(np.abs(slope(0.5)[1])) < 1e-12


@pytest.mark.slow
def test_the_slope_of_a_tossed_cube_is_the_same_in_steps_of_any_length():
    """It lands on three corners in turn, chatters on an edge, falls on a face, slides and spins to rest."""

    def far(speed, dt, steps):
        motion = tossed(CUBE.initial_state().replace(v=CUBE.initial_state().v.at[0].set(speed)), dt, steps)
        return motion.states.q[-1, 0], motion.status

    slopes = []
    for dt, steps in ((0.5, 2), (0.05, 20), (0.01, 100)):
        end = jax.jit(functools.partial(far, dt=dt, steps=steps))
        _, slope, status = jax.jit(lambda v, end=end: jax.jvp(end, (v,), (1.0,), has_aux=True))(1.0)
        assert not np.any(jc.Status.failed(status)), jc.Status.describe(status)
        slopes.append(slope)
    difference = (end(1.0 + 1e-5)[0] - end(1.0 - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(slopes, difference, rtol=0, atol=1e-6)

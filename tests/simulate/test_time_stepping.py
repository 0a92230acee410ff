"""`TimeStepping`: first order against closed forms, no penetration, no energy, any law."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_disc

import jaxcontact as jc

G, N = 9.81, 80
DISC, DISC_STATE = sliding_disc.MODEL, sliding_disc.STATE
HEAVY = DISC.params.replace(inertia=jnp.array([1e12]))  # does not roll
DROPPED = DISC_STATE.replace(q=jnp.array([0.0, 0.4, 0.0]), v=jnp.array([1.0, 0.0, 0.0]))
FREE = jnp.zeros((N, 3))
DTS = (0.01, 0.005, 0.0025)


class Told(NamedTuple):
    status: jax.Array
    impulse: jax.Array


def newton(terms, v, key=None):
    """A law of a user: the disc comes back with 0.8 of its speed."""
    mass = 1.0 / (terms.J_n[0] @ jnp.linalg.solve(terms.M, terms.J_n[0]))
    impulse = -1.8 * mass * (terms.J_n @ v)
    return v + jnp.linalg.solve(terms.M, terms.J_n[0] * impulse[0]), Told(jnp.uint32(0), impulse)


def moved(params, state, dt, controls=FREE):
    return jc.simulate.rollout(
        DISC.replace(params=params), state, controls, stepper=jc.simulate.TimeStepping(), dt=dt
    )


THREE = jax.jit(jax.vmap(moved, in_axes=(None, 0, 0)))


def three(params, state, dts):
    """The motions at three lengths of a step; one program serves all tests."""
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), state)
    found = THREE(params, states, jnp.array(dts))
    return [(dt, jax.tree.map(lambda leaf, k=k: leaf[k], found)) for k, dt in enumerate(dts)]


@jax.jit
def struck(params, state, dt):
    stepper = jc.simulate.TimeStepping(impact=newton)
    return jc.simulate.rollout(DISC.replace(params=params), state, FREE, stepper=stepper, dt=dt)


def energy(states, params=DISC.params):
    q, v = states.q, states.v
    heights = -(q[:, :2] @ params.gravity)
    return (
        params.mass[0] * (0.5 * jnp.sum(v[:, :2] ** 2, 1) + heights) + 0.5 * params.inertia[0] * v[:, 2] ** 2
    )


def halves(errors):
    """Errors of the first order: each step half as long makes half the error."""
    assert errors[-1] > 0
    ratios = np.array(errors[:-1]) / errors[1:]
    assert np.all((ratios > 1.6) & (ratios < 2.6)), errors


def fine(found):
    assert not np.any(jc.Status.failed(found.status)), jc.Status.describe(found.status)
    assert float(jnp.min(found.states.q[:, 1])) >= 0.1 - 1e-14


@pytest.mark.slow
def test_a_disc_slides_until_it_rolls():
    """Sliding: v = v_0 - mu g t, omega = -(mu g m r / I) t; rolling from v = 2/3 v_0 on."""
    errors = []
    start = DISC_STATE.replace(v=jnp.array([0.9, 0.0, 0.0]))  # it rolls within a step, not at its end
    for _, found in three(DISC.params, start, DTS):
        fine(found)
        t = np.asarray(found.states.t)
        rolls = 0.3 / (0.3 * G)
        slid = np.minimum(t, rolls)
        x = 0.9 * slid - 0.5 * 0.3 * G * slid**2 + 0.6 * (t - slid)
        errors.append(np.max(np.abs(np.asarray(found.states.q)[t <= 0.2, 0] - x[t <= 0.2])))
        np.testing.assert_allclose(found.states.v[-1], [0.6, 0.0, -6.0], rtol=1e-12, atol=1e-12)
        assert np.all(np.diff(energy(found.states)) <= 1e-12)
        assert bool(found.contacts.all())
    halves(errors)


@pytest.mark.slow
def test_a_disc_that_falls_lands_and_stays():
    """The impulse of the impact is the momentum that is lost; friction takes 1/3 of the speed at once."""
    for dt, found in three(DISC.params.replace(mu=jnp.array(0.0)), DROPPED, (0.02, 0.01, 0.005)):
        fine(found)
        t = np.asarray(found.states.t)
        height = np.maximum(0.4 - 0.5 * G * t**2, 0.1)
        np.testing.assert_allclose(found.states.q[:, 1], height, rtol=0, atol=1e-13)  # at the ends of steps
        np.testing.assert_allclose(found.states.q[-1, 1], 0.1, rtol=0, atol=1e-14)
        total = np.sum(np.asarray(found.impulse)[:, 0, 0]) - 2.0 * G * N * dt
        np.testing.assert_allclose(total, 0.0, atol=1e-11)  # what fell has landed
        assert np.all(np.diff(energy(found.states)) <= 1e-12)


@pytest.mark.slow
def test_a_law_of_ones_own_strikes_once_per_bounce():
    """Bounces at 0.8 of the speed: heights 0.3 and 0.192, at their times; what rests, rests."""
    for dt in (0.01, 0.005, 0.0025):
        found = struck(DISC.params, DROPPED, dt)
        fine(found)
        fall = np.sqrt(0.6 / G)
        t = np.asarray(found.states.t)
        up = 0.1 + 0.8 * np.sqrt(0.6 * G) * (t - fall) - 0.5 * G * (t - fall) ** 2
        height = np.where(t < fall, 0.4 - 0.5 * G * t**2, up)
        seen = t <= fall + 1.6 * np.sqrt(0.6 / G)
        np.testing.assert_allclose(found.states.q[seen, 1], height[seen], rtol=0, atol=1e-12)
        assert np.all(np.diff(energy(found.states)) <= 1e-12)
        assert int(np.sum(np.asarray(found.impulse)[t[:-1] < 0.5, 0, 0] > 1.0)) == (dt > 0.003)
    resting = struck(DISC.params, DISC_STATE.replace(v=jnp.zeros(3)), 0.01)
    chex.assert_trees_all_equal(resting.states.q[-1], DISC_STATE.q)


def on_a_slope(angle):
    return HEAVY.replace(gravity=G * jnp.array([jnp.sin(angle), -jnp.cos(angle)]))


@pytest.mark.long
def test_what_sticks_does_not_creep_and_what_slides_does():
    """mu = 0.3 holds up to 0.2915 rad."""
    start = DISC_STATE.replace(v=jnp.zeros(3))
    (_, held), *_ = three(on_a_slope(0.29), start, DTS)
    np.testing.assert_allclose(held.states.q, np.tile(start.q, (N + 1, 1)), rtol=0, atol=1e-11)
    (_, found), *_ = three(on_a_slope(0.30), start, DTS)
    speed = G * (np.sin(0.30) - 0.3 * np.cos(0.30)) * 0.01 * N
    np.testing.assert_allclose(found.states.v[-1, 0], speed, rtol=1e-9)


@pytest.mark.slow
def test_nothing_creeps_in_a_hundred_seconds():
    stepper = jc.simulate.TimeStepping()
    start = DISC_STATE.replace(v=jnp.zeros(3))
    found = jc.simulate.run(
        DISC.replace(params=on_a_slope(0.29)),
        start,
        jc.simulate.MotionSettings(stepper=stepper, dt=0.01, duration=100.0),
    )
    np.testing.assert_allclose(found.states.q, np.tile(start.q, (10001, 1)), rtol=0, atol=1e-8)


def hill(structure, q, params):
    return jnp.zeros(0, q.dtype), jnp.array([q[1] + 0.5 * q[0] ** 2 * params.constants["bend"]])


BEAD = jc.System(jc.Structure(dim=2, bodies=("bead",), num_positions=3), jc.free_poses, constraints=hill)


@jax.jit
def slid(dt):
    params = DISC.params.replace(constants={"bend": jnp.array(-1.0)}, gravity=jnp.zeros(2))
    start = jc.State(q=jnp.zeros(3), v=jnp.array([1.0, 0.0, 0.0]), t=jnp.array(0.0))
    return jc.simulate.rollout(
        jc.Model(system=BEAD, params=params),
        start,
        jnp.zeros((40, 3)),
        stepper=jc.simulate.TimeStepping(),
        dt=dt,
    )


@pytest.mark.slow
def test_a_step_in_a_bowl_has_no_depth_and_gains_no_energy_after_the_first():
    """In a bowl y >= x^2 / 2, a limit without friction, the path bends with it; velocities are half a step late."""
    for dt in DTS:
        found = slid(dt)
        assert not np.any(jc.Status.failed(found.status))
        np.testing.assert_array_equal(found.info.details.depth, 0.0)
        gap = np.asarray(found.states.q)[:, 1] - 0.5 * np.asarray(found.states.q)[:, 0] ** 2
        assert np.all(gap >= -1e-13) and np.max(gap) < 0.3 * dt**3
        gain = np.diff(np.sum(np.asarray(found.states.v)[:, :2] ** 2, axis=1))
        assert gain[0] == pytest.approx(0.25 * dt**2, rel=1e-3) and np.all(gain[1:] <= 1e-15)


@pytest.mark.slow
def test_derivatives_are_those_of_differences():
    """By params, state and controls, through an impact and a slide."""
    controls = 0.1 * jnp.asarray(np.random.default_rng(2).normal(size=(N, 3)))
    point, back = jax.flatten_util.ravel_pytree((DISC.params, DROPPED.q, DROPPED.v, controls))

    @jax.jit
    def end(z):
        params, q, v, u = back(z)
        last = moved(params, DROPPED.replace(q=q, v=v), 0.01, u).states
        return jnp.concatenate([last.q[-1], last.v[-1]])

    rng = np.random.default_rng(3)
    along, weight = jnp.asarray(rng.normal(size=point.shape)), jnp.asarray(rng.normal(size=6))
    difference = (end(point + 1e-6 * along) - end(point - 1e-6 * along)) / 2e-6
    _, back_from = jax.vjp(end, point)
    np.testing.assert_allclose(back_from(weight)[0] @ along, difference @ weight, rtol=1e-6)


@pytest.mark.slow
def test_a_poisoned_world_is_alone():
    v = jnp.array([[1.0, -1.0, 2.0], [jnp.nan, 0.0, 0.0], [0.0, -2.0, 0.0]])
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), DROPPED).replace(v=v)
    found = THREE(DISC.params, states, jnp.array([0.01] * 3))
    beside = THREE(DISC.params, states.replace(v=v.at[1].set(v[0])), jnp.array([0.01] * 3))
    for k in (0, 2):
        chex.assert_trees_all_equal(*(jax.tree.map(lambda x, k=k: x[k], each) for each in (found, beside)))
        fine(jax.tree.map(lambda x, k=k: x[k], found))
    assert np.all(np.asarray(found.status)[1] & jc.Status.NONFINITE)


@pytest.mark.slow
def test_a_key_draws_an_order_for_every_step():
    block = jc.models.rocking_block()
    stepper = jc.simulate.TimeStepping(impact=jc.impact.Routh(impulse_step=0.4, max_steps=24))

    @jax.jit
    def end(key):
        found = jc.simulate.rollout(
            block, block.initial_state(), jnp.zeros((4, 3)), stepper=stepper, dt=0.01, key=key
        )
        return found.states.v[2], jnp.bitwise_or.reduce(found.status)

    (first, good), (again, _), (other, _) = (end(jax.random.key(k)) for k in (1, 1, 2))
    chex.assert_trees_all_equal(first, again)
    assert not jc.Status.failed(good) and float(jnp.max(jnp.abs(first - other))) > 1e-3


BLOCK = jc.models.rocking_block()
ORDERS = jc.impact.Routh(impulse_step=0.3, max_steps=20)


def orders_of_strikes(terms, v, key=None):
    """`Routh` as a law of a user, which gets strikes alone."""
    return ORDERS(terms, v, key)


@pytest.mark.slow
def test_an_order_for_strikes_alone_lets_a_block_rest():
    """Under `Routh` itself a block that stands draws an order in every step, and trembles."""
    standing = BLOCK.initial_state().replace(v=jnp.zeros(3))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), standing, BLOCK.initial_state())
    keys = jax.random.split(jax.random.key(1), 16)
    stepper = jc.simulate.TimeStepping(impact=orders_of_strikes)

    def one(state, key):
        start = (BLOCK, state, jnp.zeros((40, 3)))
        return jc.simulate.rollout(*start, stepper=stepper, dt=0.01, key=key)

    found = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(both, keys)
    assert not np.any(jc.Status.failed(found.status))
    still, fell = np.asarray(found.states.v)[..., 2]  # of those that stand, of those that fall flat
    assert np.all(still == 0.0) and np.ptp(fell[:, 1]) > 0.02


@pytest.mark.slow
def test_in_a_batch_a_law_of_strikes_has_nothing_to_do_for_worlds_without_one():
    """Else a batch, in which all lanes are asked, would solve contacts that rest."""
    asked = []

    def law(terms, v, key=None):
        jax.debug.callback(lambda active: asked.append(np.asarray(active)), terms.active)
        return jnp.zeros_like(v), Told(jnp.uint32(0), jnp.zeros(2))

    def one(state):
        stepper = jc.simulate.TimeStepping(impact=law)
        memory = stepper.init(BLOCK, state)
        return stepper.step(BLOCK, state, jnp.zeros(3), memory, dt=0.01)[0]

    standing = BLOCK.initial_state().replace(v=jnp.zeros(3))
    jax.block_until_ready(
        jax.jit(jax.vmap(one))(jax.tree.map(lambda *x: jnp.stack(x), standing, BLOCK.initial_state()))
    )
    jax.effects_barrier()
    active = [tuple(row) for row in np.reshape(asked, (-1, 2)) if any(row)]
    assert active == [(True, True)]  # of the block that falls, once


def test_states_and_mechanisms_that_cannot_be_stepped_are_named():
    stepper = jc.simulate.TimeStepping()
    deep = DISC_STATE.replace(q=jnp.array([0.0, 0.05, 0.0]))
    with pytest.raises(ValueError, match=r"state: expected no penetration, got one of 0.05 m; jc.project"):
        jc.simulate.rollout(DISC, deep, FREE, stepper=stepper, dt=0.01)
    with pytest.raises(TypeError, match="impact: expected a function"):
        jc.simulate.TimeStepping(impact="routh")
    (_, found), *_ = three(DISC.params, deep, DTS)  # under vmap the state is not known
    assert np.flatnonzero(np.asarray(found.status) & jc.Status.PENETRATION).tolist() == [0]


@pytest.mark.slow
def test_steppers_agree_where_the_outcome_is_unique():
    """A disc lands without a bounce and rolls at once: v = 2/3, x(t) = t_0 + 2/3 (t - t_0), to the first order."""
    landed = np.sqrt(0.6 / G)
    x = landed + (0.6 - landed) * 2.0 / 3.0
    stiff = DISC.params.replace(
        material=jc.compliant.Material(stiffness=jnp.array(1e9), damping=jnp.array(1e6))
    )
    law = jc.impact.AnitescuPotra()
    steppers = {
        "time stepping": (jc.simulate.TimeStepping(impact=law), 5e-3),
        "compliant": (jc.simulate.Compliant(), 5e-3),
        "variational": (jc.simulate.Variational(impact=law), 1e-6),
        "event driven": (jc.simulate.EventDriven(impact=law), 1e-12),
    }
    for name, (stepper, allowed) in steppers.items():
        dt = 0.005
        found = jc.simulate.rollout(
            DISC.replace(params=stiff), DROPPED, jnp.zeros((120, 3)), stepper=stepper, dt=dt
        )
        assert not np.any(jc.Status.failed(found.status)), name
        np.testing.assert_allclose(found.states.q[-1, :2], [x, 0.1], rtol=0, atol=allowed, err_msg=name)
        np.testing.assert_allclose(found.states.v[-1], [2 / 3, 0.0, -20 / 3], rtol=0, atol=1e-5, err_msg=name)

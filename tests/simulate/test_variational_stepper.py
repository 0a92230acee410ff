"""`Variational` as a stepper: the motion of `variational`, with controls, laws and their derivatives."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_disc

import jaxcontact as jc
from jaxcontact._pytree import Record

DT, STEPS = 0.01, 30
DISC = sliding_disc.MODEL
DISC_STATE = sliding_disc.STATE.replace(q=jnp.array([0.0, 0.15, 0.0]), v=jnp.array([1.0, -1.0, 2.0]))
BLOCK = jc.models.rocking_block()
DROPPED = BLOCK.initial_state().replace(q=jnp.array([0.0, 1.04, 0.0]), v=jnp.array([0.3, -1.0, 0.0]))
ROUTH = jc.impact.Routh(impulse_step=0.4, max_steps=8)


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


@jax.jit
def moved(params, state, controls, restitution):
    stepper = jc.simulate.Variational(impact=Bounce(restitution=restitution))
    return jc.simulate.rollout(DISC.replace(params=params), state, controls, stepper=stepper, dt=DT)


NONE = jnp.zeros((STEPS, 3))


def same_motion(found, expected):
    chex.assert_trees_all_close(found.states, expected.states, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.contacts, expected.contacts)
    np.testing.assert_array_equal(found.status, expected.status)
    # How two corners of one body share their friction is not unique, and shows rounding.
    np.testing.assert_allclose(found.impulse, expected.impulse, rtol=0, atol=1e-9)
    count = int(expected.impacts.count)
    assert int(found.impacts.count) == count > 0
    # A chatter ends with speeds so small that rounding of the gaps moves the times of impact.
    chex.assert_trees_all_close(
        *(jax.tree.map(lambda x: x[:count], x.impacts.replace(count=x.impacts.t)) for x in (found, expected)),
        rtol=0,
        atol=1e-8,
    )
    assert np.all(np.isnan(found.impacts.t[count:]))
    assert found.notes == expected.notes


@pytest.mark.slow_cases("None", "law")
@pytest.mark.parametrize("impact", [None, "law"])
def test_the_steps_are_the_motion_of_variational(impact):
    """A disc that bounces until it slides; a block that lands on two corners, whose order is drawn."""
    if impact is None:
        mechanism, options, key = (DISC, DISC_STATE), {"restitution": 0.5}, None
    else:
        mechanism, options, key = (BLOCK, DROPPED), {}, jax.random.key(4)
    stepper = jc.simulate.Variational(impact=impact and ROUTH, max_impacts=24, **options)
    controls = jnp.zeros((STEPS, mechanism[0].num_controls))
    found = jc.simulate.rollout(*mechanism, controls, stepper=stepper, dt=DT, key=key)
    own = None if key is None else jax.random.split(key)[0]
    all_impacts = stepper.replace(max_impacts=None)
    expected = jc.simulate.variational(*mechanism, all_impacts, dt=DT, duration=STEPS * DT, key=own)
    same_motion(found, expected)
    assert float(jnp.max(found.info.residual)) < 1e-12 and int(jnp.min(found.info.num_iters)) >= 1
    if key is not None:
        other = jc.simulate.rollout(*mechanism, controls, stepper=stepper, dt=DT, key=jax.random.key(5))
        assert float(jnp.max(jnp.abs(other.states.q - found.states.q))) > 1e-3


@pytest.mark.slow
def test_controls_are_forces_at_the_midpoint():
    """In flight a constant force per step gives its impulse, and the midpoint rule its path, to rounding."""
    force = jnp.asarray(np.random.default_rng(1).normal(size=(STEPS, 3))).at[:, 1].add(40.0)
    found = moved(DISC.params, DISC_STATE, force, 0.5)
    assert int(found.impacts.count) == 0
    mass = np.array([2.0, 2.0, 0.01])
    fall = np.array([0.0, -2.0 * 9.81, 0.0])
    v = np.asarray(DISC_STATE.v) + np.cumsum((np.asarray(force) + fall) * DT / mass, axis=0)
    np.testing.assert_allclose(found.states.v[1:], v, rtol=1e-12, atol=1e-12)
    mean = 0.5 * (np.asarray(found.states.v)[1:] + np.asarray(found.states.v)[:-1])
    np.testing.assert_allclose(
        found.states.q[1:], np.asarray(DISC_STATE.q) + DT * np.cumsum(mean, 0), rtol=1e-12, atol=1e-12
    )


@pytest.mark.slow
def test_a_batch_is_the_single_motions_and_a_poisoned_world_is_alone():
    v = jnp.array([[1.0, -1.0, 2.0], [0.0, -2.0, 0.0], [jnp.nan, -1.0, 0.0], [-1.0, 0.5, 1.0]])
    states = jax.vmap(lambda v: DISC_STATE.replace(v=v))(v)
    together = jax.vmap(moved, in_axes=(None, 0, None, 0))(DISC.params, states, NONE, jnp.full(4, 0.5))
    for k in (0, 1, 3):
        alone = moved(DISC.params, jax.tree.map(lambda x, k=k: x[k], states), NONE, 0.5)
        chex.assert_trees_all_close(
            jax.tree.map(lambda x, k=k: x[k], together.states), alone.states, atol=1e-12
        )
        np.testing.assert_array_equal(together.status[k], alone.status)
        assert not np.any(np.asarray(alone.status) & jc.Status.FAILURES)
    assert np.all(np.asarray(together.status)[2] & jc.Status.NONFINITE)


CONTROLS = 0.1 * jnp.asarray(np.random.default_rng(2).normal(size=(STEPS, 3)))
POINT, BACK = jax.flatten_util.ravel_pytree(
    (DISC.params, DISC_STATE.q, DISC_STATE.v, CONTROLS, jnp.array(0.5))
)


def outcome(z):
    """The last row and the time of the first of two bounces and a slide, by all numbers; restitution last."""
    params, q, v, controls, restitution = BACK(z)
    found = moved(params, DISC_STATE.replace(q=q, v=v), controls, restitution)
    return jnp.concatenate([found.states.q[-1], found.states.v[-1], found.impacts.t[:1]])


def difference(along):
    return (outcome(POINT + 1e-6 * along) - outcome(POINT - 1e-6 * along)) / 2e-6


@pytest.mark.slow
def test_derivatives_are_those_of_differences():
    """By parameters, state, controls and the restitution of a law."""
    assert int(moved(DISC.params, DISC_STATE, CONTROLS, 0.5).impacts.count) >= 2
    slope = jax.jit(lambda along: jax.jvp(outcome, (POINT,), (along,))[1])
    rng = np.random.default_rng(3)
    law = jnp.zeros_like(POINT).at[-1].set(1.0)
    for along in (law, jnp.asarray(rng.normal(size=POINT.shape)), jnp.asarray(rng.normal(size=POINT.shape))):
        np.testing.assert_allclose(slope(along), difference(along), rtol=1e-6, atol=1e-6)
    assert abs(slope(law)[1]) > 1e-3


@pytest.mark.slow
def test_the_reverse_mode_is_the_transpose_of_the_forward_mode():
    rng = np.random.default_rng(4)
    along, weight = jnp.asarray(rng.normal(size=POINT.shape)), jnp.asarray(rng.normal(size=7))

    @jax.jit
    def both(z):
        _, push = jax.linearize(outcome, z)
        return push(along), jax.linear_transpose(push, z)(weight)[0]

    forward, reverse = both(POINT)
    np.testing.assert_allclose(forward @ weight, reverse @ along, rtol=1e-10)


@pytest.mark.slow
def test_other_numbers_of_a_law_do_not_compile_again():
    traced = []

    class Counting(Bounce):
        def __call__(self, terms, v, key=None):
            traced.append(1)
            return super().__call__(terms, v, key)

    for restitution in (0.2, 0.7):
        stepper = jc.simulate.Variational(impact=Counting(restitution=restitution))
        jc.simulate.rollout(DISC, DISC_STATE, NONE, stepper=stepper, dt=DT)
        once = len(traced)
        if restitution == 0.2:
            first = once
    assert once == first > 0
    for restitution in (0.2, 0.7):
        jc.simulate.variational(
            DISC,
            DISC_STATE,
            jc.simulate.Variational(impact=Counting(restitution=restitution)),
            dt=DT,
            duration=STEPS * DT,
        )
        last = len(traced)
        if restitution == 0.2:
            second = last
    assert last == second > first

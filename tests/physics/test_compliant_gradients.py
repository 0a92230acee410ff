"""Derivatives through contact where simulators are known to get them wrong: a bounce, and a tossed cube."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import compliant_reference as reference

import jaxcontact as jc


def final(model, state, steps, dt, cone="associated"):
    """Last state and the status of all steps; any number of steps compiles once."""

    def again(_, carry):
        state, lam, status = carry
        state, info = jc.compliant.step(
            model,
            state,
            jnp.zeros_like(state.v),
            dt=dt,
            settings=jc.compliant.Settings(cone=cone),
            memory=jc.compliant.StepMemory(forces=lam),
        )
        return state, info.lam, status | info.status

    rows = jax.eval_shape(jc.constraint_terms, model, state).phi
    start = state, jnp.zeros(rows.shape, rows.dtype), jnp.uint32(0)
    end, _, status = jax.lax.fori_loop(0, steps, again, start)
    return end, status


# --- a bounce


def upright(structure, q, params):
    return jnp.stack([jnp.zeros_like(q), q], axis=1), jnp.zeros(1, q.dtype)


def above(structure, q, params):
    return jnp.zeros(0, q.dtype), q


STIFFNESS, TIME = 1e4, 0.8
BALL = jc.Model(
    system=jc.System(jc.Structure(dim=2, bodies=("ball",), num_positions=1), upright, constraints=above),
    params=jc.Params(
        mass=np.ones(1),
        inertia=np.zeros(1),
        mu=np.array(0.0),
        gravity=np.array([0.0, -9.81]),
        constants={},
        material=jc.compliant.Material(stiffness=np.array(STIFFNESS)),
    ),
    initial=jc.State(q=np.ones(1), v=np.zeros(1), t=np.array(0.0)),
)


@jax.jit
def bounces(heights, steps):
    """Final height, its derivative by the height of the drop, and status, for every height."""

    def one(height):
        def height_after(h):
            state = jax.tree.map(jnp.asarray, BALL.initial_state()).replace(q=h[None])
            end, status = final(BALL, state, steps, TIME / steps)
            return end.q[0], status

        z, slope, status = jax.jvp(height_after, (height,), (jnp.ones_like(height),), has_aux=True)
        return z, slope, status

    return jax.lax.map(one, heights)


@pytest.mark.slow
def test_height_after_a_bounce_has_no_sawtooth():
    """It rises with the height of the drop, and jumps at most by what gravity moves in a step, at the one phase
    of the step at which a touch-down falls on its end: there the ball changes from free flight, of second
    order, to a step of the contact, of first order.
    """
    heights = np.linspace(0.5, 0.52, 801)
    z, slope, status = (np.asarray(x) for x in bounces(jnp.array(heights), 800))
    assert not np.any(status)
    assert slope.min() > 0.5 and slope.max() < 5.0
    # Between neighbours, 25 micrometres apart, the height rises as one of their slopes says: nothing jumps.
    rise = np.diff(z)
    ends = np.stack([slope[:-1], slope[1:]]) * np.diff(heights)
    off = np.maximum(ends.min(axis=0) - rise, rise - ends.max(axis=0))
    assert off.max() < 0.5 * 9.81 * (TIME / 800) ** 2 and np.sum(off > 1e-11) <= 1


@pytest.mark.slow
def test_slope_of_a_bounce_converges_with_the_step():
    heights = np.linspace(0.5, 0.5005, 21)
    step = 1e-6
    truth = [reference.bounced_height(heights + d, STIFFNESS, TIME) for d in (-step, step)]
    truth = (truth[1] - truth[0]) / (2 * step)
    errors = []
    for steps in (8_000, 32_000):
        _, slope, _ = bounces(jnp.array(heights), steps)
        errors.append(np.abs(np.asarray(slope) / truth - 1.0).max())
    assert errors[0] < 0.2 and errors[1] < 0.5 * errors[0]


# --- a tossed cube

SLOPE = 0.42575  # m per m/s, by central differences of tossed_cube_distance at tolerances 1e-8 and 1e-10
DISTANCE = 0.44689  # m


CUBE = jc.models.tossed_cube()


@jax.jit
def toss(speed, steps):
    def distance(speed):
        state = CUBE.initial_state().replace(v=CUBE.initial_state().v.at[0].set(speed))
        end, status = final(CUBE, state, steps, 1.0 / steps)
        return end.q[0], status

    x, slope, status = jax.jvp(distance, (speed,), (jnp.ones_like(speed),), has_aux=True)
    return x, slope, status


@pytest.mark.slow
def test_reference_of_the_tossed_cube():
    near = [reference.tossed_cube_distance(1.0 + e, rtol=1e-7) for e in (-1e-3, 1e-3)]
    assert np.mean(near) == pytest.approx(DISTANCE, abs=1e-4)
    assert (near[1] - near[0]) / 2e-3 == pytest.approx(SLOPE, rel=1e-3)


@pytest.mark.slow
def test_gradient_of_a_tossed_cube_has_the_sign_and_size_of_the_truth():
    """Also at steps where MJX's does not; and it is the derivative of what was computed."""
    found = {steps: toss(jnp.array(1.0), steps) for steps in (100, 1000, 3333)}
    assert all(int(status) == 0 for *_, status in found.values())
    assert found[100][1] > 0.1
    for steps in (1000, 3333):
        x, slope, _ = found[steps]
        assert float(slope) == pytest.approx(SLOPE, rel=0.1)
        assert float(x) == pytest.approx(DISTANCE, abs=0.04)
    ahead, behind = (toss(jnp.array(1.0 + e), 1000)[0] for e in (1e-6, -1e-6))
    assert float(found[1000][1]) == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-6)

"""A body on many feet, nearly all of them redundant: every step ends in balance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

SIDE, MU = 0.1, 0.5


def on_feet(count):
    """A cube of 1 kg on feet along two edges of its bottom."""
    feet = np.full((count, 3), -SIDE / 2)
    feet[1::2, 1] += SIDE
    feet[:, 0] += SIDE * (np.arange(count) // 2) / max(1, (count - 1) // 2)
    structure = jc.Structure(
        dim=3,
        bodies=("cube",),
        num_positions=7,
        quaternions=(3,),
        shapes=(
            jc.Points(name="feet", body="cube", at="feet", count=count),
            jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
        ),
        pairs=(("feet", "floor"),),
    )
    params = jc.Params(
        mass=jnp.ones(1), inertia=jnp.full((1, 3), SIDE**2 / 6), mu=jnp.array(MU),
        gravity=jnp.array([0.0, 0.0, -9.81]), constants={"feet": jnp.asarray(feet)},
        material=jc.compliant.Material(stiffness=jnp.array(1e6), damping=jnp.array(1e2)),
    )  # fmt: skip
    state = jc.State(q=jnp.array([0, 0, SIDE / 2, 1.0, 0, 0, 0]), v=jnp.zeros(6), t=jnp.array(0.0))
    return jc.Model(system=jc.System(structure, jc.free_poses), params=params), state


@pytest.mark.slow
def test_random_motions_on_eight_feet_end_in_balance(rng):
    """Where sliding feet come to rest one after the other, and tumbling ones land."""
    model, state = on_feet(8)
    v = jnp.asarray(rng.normal(size=(64, 6)) * [1.0, 1.0, 0.3, 3.0, 3.0, 3.0])

    @jax.jit
    @jax.vmap
    def moved(v):
        controls = jnp.zeros((50, 6))
        return jc.compliant.rollout(model, state.replace(v=v), controls, dt=0.01)[1]

    info = moved(v)
    assert not np.any(info.status)
    assert np.max(info.residual) < 1e-9


@pytest.mark.long
def test_a_search_that_converges_is_not_softened():
    """A hundred feet start to slide: four steps to the modes of all, two for what redundant feet share."""
    model, state = on_feet(100)
    _, info = jc.compliant.step(model, state.replace(v=state.v.at[0].set(1.0)), jnp.zeros(6), dt=0.01)
    assert info.status == 0
    assert info.num_iters <= 7


@pytest.mark.slow
def test_feet_that_stay_as_they_are_cost_one_step_of_newton():
    """The last impulses tell which feet rest: a robot that stands is solved at once."""
    pytest.importorskip("mujoco")
    model = jc.models.half_cheetah()
    for cone, iterations in (("associated", 1), ("coulomb", 2)):
        settings = jc.compliant.Settings(cone=cone)
        controls = jnp.zeros((60, 6))
        _, info = jc.compliant.rollout(model, model.initial_state(), controls, dt=0.004, settings=settings)
        assert not np.any(info.status)
        assert np.sum(np.asarray(info.lam[-1]) > 0) >= 2
        assert np.all(info.num_iters[20:] <= iterations)


@pytest.mark.slow
def test_feet_whose_slip_turns_round_cost_few_steps_of_newton(rng):
    """Stiff friction flips from one bound to the other unless the modes are chosen: that took up to 18 steps."""
    pytest.importorskip("mujoco")
    model = jc.models.half_cheetah()
    v = jnp.asarray(0.3 * rng.normal(size=(64, 9)))

    @jax.jit
    @jax.vmap
    def iterations(v):
        state, controls = model.initial_state().replace(v=v), jnp.zeros((25, 6))
        settings = jc.compliant.Settings(cone="associated")
        info = jc.compliant.rollout(model, state, controls, dt=0.004, settings=settings)[1]
        return info.num_iters, info.status, info.lam

    counts, status, lam = iterations(v)
    assert not np.any(status)
    assert np.mean(np.any(np.asarray(lam) > 0, axis=2)) > 0.3
    assert np.max(counts) <= 6

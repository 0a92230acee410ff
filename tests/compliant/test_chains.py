"""Steps of chains of free bodies, kept by body, against the same steps with whole matrices."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.compliant.solve import solve_velocity
from jaxcontact.compliant.step import assemble
from jaxcontact.geometry import Disc, HalfSpace
from jaxcontact.mechanics.system import Structure, System, free_poses
from jaxcontact.terms import kept_by_body


def discs(number):
    """A row of discs that lie on a floor and lean on each other; pairs in both orders."""
    names = [f"disc_{i}" for i in range(number)]
    pairs = [(name, "floor") for name in names] + list(itertools.pairwise(names))
    shapes = [Disc(name=name, body=name, radius="radius") for name in names]
    floor = HalfSpace(name="floor", normal=(0.0, 1.0))
    structure = Structure(
        dim=2, bodies=tuple(names), num_positions=3 * number, shapes=(*shapes, floor), pairs=tuple(pairs)
    )
    params = jc.Params(
        mass=jnp.linspace(1.0, 2.0, number), inertia=jnp.full(number, 0.01), mu=jnp.array(0.3),
        gravity=jnp.array([0.0, -9.81]), constants={"radius": jnp.array(0.1)},
        material=jc.compliant.Material(stiffness=jnp.array(1e6), damping=jnp.array(10.0)),
    )  # fmt: skip
    q = np.zeros((number, 3))
    q[:, 0], q[:, 1] = 0.1999 * np.arange(number), 0.0999
    return jc.Model(system=System(structure, free_poses), params=params), jnp.asarray(q.ravel())


def outcome(model, q, v, by_body, cone="associated"):
    """Velocities, forces and status of one step."""
    state = jc.State(q=q, v=v, t=jnp.zeros((), q.dtype))
    problem = assemble(model, state, jnp.zeros_like(v), 0.01, by_body=by_body)
    v, info = solve_velocity(problem, None, jc.compliant.Settings(cone=cone))
    return v, info.lam, info.status


@pytest.mark.slow
@pytest.mark.float32
def test_discs_in_a_row_move_as_with_whole_matrices(rng, tolerance):
    """Sliding, sticking and parting, one alone and a batch."""
    model, q = discs(3)
    v = jnp.asarray(rng.normal(size=(3, 9)), q.dtype)

    @jax.jit
    def both(v):
        return [outcome(model, q, v, by_body) for by_body in (True, False)]

    found, expected = jax.vmap(both)(v)
    np.testing.assert_allclose(found[0], expected[0], atol=tolerance(1e-12, 1e-4))
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=tolerance(1e-9, 1.0))
    assert not np.any(found[2]) and not np.any(expected[2])


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["associated", "pyramid"])
def test_derivatives_of_spheres_are_those_of_whole_matrices(rng, cone):
    """By state, masses, friction and radius, alone and in a batch; rollouts of ten spheres forward and back."""
    model = jc.models.sphere_stack(3, offset=1e-3)
    q = model.initial_state().q.at[2::7].add(-0.0101 * jnp.arange(1, 4) + 0.0001)
    v = jnp.asarray(0.1 * rng.normal(size=(2, 18)))
    weight = jnp.asarray(rng.normal(size=18))

    def slopes(by_body):
        def loss(params, q, v):
            return jnp.sum(weight * outcome(model.replace(params=params), q, v, by_body, cone)[0])

        return jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1, 2)), in_axes=(None, None, 0)))(
            model.params, q, v
        )

    for found, expected in zip(*map(jax.tree.leaves, (slopes(True), slopes(False))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.max(np.abs(expected)))


@pytest.mark.slow
def test_a_rollout_of_a_hundred_spheres_has_the_slope_of_differences():
    """Height of all spheres after 20 steps by their speed at the start; the lowest has landed."""
    model = jc.models.sphere_stack(100)
    down = jnp.zeros(600).at[2::6].set(-1.0)

    @jax.jit
    def height(speed):
        state = model.initial_state().replace(v=speed * down)
        states, _ = jc.compliant.rollout(model, state, jnp.zeros((20, 600)), dt=0.01)
        return jnp.mean(states.q[-1, 2::7])

    assert kept_by_body(model.system)
    slope = jax.jit(jax.grad(height))(1.0)
    np.testing.assert_allclose(slope, (height(1.0 + 1e-5) - height(1.0 - 1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.long
def test_what_is_kept_by_body():
    assert kept_by_body(jc.models.sphere_stack(20).system)
    assert kept_by_body(discs(20)[0].system)
    assert not kept_by_body(jc.models.sphere_stack(20, all_pairs=True).system)
    assert not kept_by_body(jc.models.sphere_stack(10).system)
    assert not kept_by_body(jc.models.box_on_foundation(100).system)


def test_wrong_sizes_are_named_as_with_whole_matrices():
    model = jc.models.sphere_stack(20)
    with pytest.raises(ValueError, match="memory.forces: expected shape"):
        jc.compliant.step(
            model,
            model.initial_state(),
            jnp.zeros(120),
            dt=0.01,
            memory=jc.compliant.StepMemory(forces=jnp.zeros(20)),
        )

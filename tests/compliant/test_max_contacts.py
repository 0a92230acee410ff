"""A step that sees the nearest contacts alone: the same motion, answers in the places of all candidates."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import geometry
from jaxcontact.terms import nearest_terms

HALF = 0.05


def cube(poses=jc.free_poses):
    """A cube of 1 kg with eight corners over a floor, every contact with numbers of its own."""
    structure = jc.Structure(
        dim=3,
        bodies=("cube",),
        num_positions=7,
        quaternions=(3,),
        shapes=(jc.Box(name="cube", body="cube", size="size"), jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0))),
        pairs=(("cube", "floor"),),
    )  # fmt: skip
    params = jc.Params(
        mass=jnp.ones(1),
        inertia=jnp.full((1, 3), 2 / 3 * HALF**2),
        mu=jnp.linspace(0.3, 0.6, 8),
        gravity=jnp.array([0.0, 0.0, -9.81]),
        constants={"size": jnp.full(3, 2 * HALF)},
        material=jc.compliant.Material(
            stiffness=jnp.linspace(1e4, 2e4, 8), damping=jnp.linspace(10.0, 20.0, 8)
        ),
    )
    v = jnp.array([0.4, 0.1, -1.0, 0.5, -1.0, 0.3])
    state = jc.State(q=jnp.array([0, 0, 0.06, 1.0, 0.05, 0.02, 0]), v=v, t=jnp.array(0.0))
    return jc.Model(system=jc.System(structure, poses), params=params), state


def slow_poses(structure, q, params):
    """A pose function that the package does not know."""
    return jc.free_poses(structure, q, params)


@pytest.mark.slow
def test_a_cube_that_lands_on_its_corners_needs_four_of_eight():
    model, state = cube()

    def motion(params, max_contacts):
        stepper = jc.simulate.Compliant(settings=jc.compliant.Settings(max_contacts=max_contacts))
        return jc.simulate.rollout(
            model.replace(params=params), state, jnp.zeros((60, 6)), stepper=stepper, dt=0.01
        )

    def reach(params, max_contacts):
        found = motion(params, max_contacts)
        return found.states.q[-1, 0], found

    slopes = jax.jit(jax.grad(reach, has_aux=True), static_argnums=1)
    (by_all, every), (by_few, few) = slopes(model.params, None), slopes(model.params, 4)
    assert not np.any(every.status)
    assert not np.any(few.status)
    assert len(np.unique(np.argmax(few.impulse[:, :, 0], axis=1))) > 1
    for name in ("states", "impulse", "contacts"):
        for ours, theirs in zip(
            *map(jax.tree.leaves, (getattr(few, name), getattr(every, name))), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
    details, whole = few.info.details, every.info.details
    np.testing.assert_array_equal(jnp.sum(details.seen, axis=1), 4)
    assert np.all(whole.seen)
    np.testing.assert_allclose(
        np.where(details.seen, details.gap, 0.0), np.where(details.seen, whole.gap, 0.0), atol=1e-9
    )
    for ours, theirs in zip(*map(jax.tree.leaves, (by_few, by_all)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7 * (1e-300 + float(jnp.max(jnp.abs(theirs)))))


@pytest.mark.slow
def test_more_that_touch_set_a_bit_on_their_lane_alone():
    model, state = cube()
    flat = state.replace(q=jnp.array([0, 0, HALF - 1e-4, 1.0, 0, 0, 0]), v=jnp.zeros(6))
    heights = jnp.array([0.0, 1.0, 0.0])

    @jax.jit
    @jax.vmap
    def stepped(height):
        now = flat.replace(q=flat.q.at[2].add(height))
        return jc.compliant.step(
            model, now, jnp.zeros(6), dt=0.01, settings=jc.compliant.Settings(max_contacts=3)
        )[1]

    info = stepped(heights)
    np.testing.assert_array_equal(info.status, [jc.Status.OVERFLOW, 0, jc.Status.OVERFLOW])
    assert info.lam.shape == (3, 24)
    np.testing.assert_array_equal(jnp.sum(info.seen, axis=1), 3)
    with pytest.raises(ValueError, match="max_contacts: expected"):
        jc.compliant.step(model, state, jnp.zeros(6), dt=0.01, settings=jc.compliant.Settings(max_contacts=0))
    with pytest.raises(ValueError, match="memory.forces: expected shape"):
        jc.compliant.step(
            model,
            state,
            jnp.zeros(6),
            dt=0.01,
            settings=jc.compliant.Settings(max_contacts=3),
            memory=jc.compliant.StepMemory(forces=jnp.zeros(9)),
        )


@pytest.mark.long
@pytest.mark.slow_cases("tree")
@pytest.mark.parametrize("kind", ["free", "poses", "tree"])
def test_rows_of_the_nearest_are_those_of_all(kind, rng):
    """Whatever computes the Jacobians: free bodies, poses of one's own, a tree."""
    if kind == "tree":
        pytest.importorskip("mujoco")
        model = jc.models.quadruped()
        model, state = model, model.initial_state()
    else:
        model, state = cube(jc.free_poses if kind == "free" else slow_poses)
    q = jc.retract(model, state.q, 0.3 * jnp.asarray(rng.normal(size=state.v.size)))
    state = state.replace(q=q, v=jnp.asarray(rng.normal(size=state.v.size)))
    every = jc.constraint_terms(model, state)
    few, nearest = nearest_terms(model, state, 3)
    nc, dim = model.structure.num_contacts, 3
    first = len(every.kind) - dim * nc
    gaps = np.asarray(every.phi)[first::dim]
    np.testing.assert_array_equal(nearest.index, np.argsort(gaps)[:3])
    kept = np.concatenate(
        [np.arange(first), *(first + dim * i + np.arange(dim) for i in np.asarray(nearest.index))]
    )
    for name in ("G", "phi", "gdot_v"):
        np.testing.assert_allclose(getattr(few, name), np.asarray(getattr(every, name))[kept], atol=1e-12)
    np.testing.assert_array_equal(few.mu, every.mu[nearest.index])
    assert few.kind == tuple(every.kind[i] for i in kept)


@pytest.mark.long
def test_far_pairs_of_polytopes_are_not_looked_at_closely():
    """Three rectangles in a row: the near pair as ever, the others by their distance; a bit if one touches."""
    names = ("a", "b", "c")
    shapes = {name: geometry.Box(name=name, body=name, size="size") for name in names}
    pairs = (("a", "b"), ("b", "c"), ("a", "c"))
    constants = {"size": jnp.array([0.2, 0.1])}

    @jax.jit
    def found(places):
        turns = jnp.broadcast_to(jnp.eye(2), (3, 2, 2))
        row = jnp.stack([places, jnp.zeros(3)], axis=1)
        return [
            geometry.candidates(2, names, shapes, pairs, row, turns, constants, near_pairs)
            for near_pairs in (None, geometry.NearPairs(1))
        ]

    every, few = found(jnp.array([0.0, 0.21, 0.45]))
    for name in ("point", "point_b", "phi", "normal"):
        np.testing.assert_array_equal(getattr(few, name), getattr(every, name)[:8])
    np.testing.assert_array_equal(few.place, np.arange(8))
    np.testing.assert_array_equal(few.gaps[:8], every.phi[:8])
    np.testing.assert_allclose(few.gaps[8:16], 0.04, rtol=1e-12)
    np.testing.assert_allclose(few.gaps[16:], 0.25, rtol=1e-12)
    assert np.all(np.asarray(every.gaps) >= np.asarray(few.gaps) - 1e-12)
    assert not few.left_out
    _, few = found(jnp.array([0.0, 0.19, 0.3899]))
    assert few.left_out
    assert np.sum(np.asarray(few.gaps) <= 0.0) <= 8


@pytest.mark.long
def test_far_pairs_of_capsules_are_known_by_their_distance():
    """Six capsules in space, some parallel or of no length: what is left out has the least gap of its pair."""
    names = tuple("abcdef")
    shapes = {n: geometry.Capsule(name=n, body=n, radius="radius", ends=f"ends_{n}") for n in names}
    pairs = tuple(itertools.combinations(names, 2))

    @jax.jit
    @jax.vmap
    def found(places, ends):
        constants = {"radius": jnp.array(0.4)} | {
            f"ends_{n}": each for n, each in zip(names, ends, strict=True)
        }
        turns = jnp.broadcast_to(jnp.eye(3), (6, 3, 3))
        return [
            geometry.candidates(3, names, shapes, pairs, places, turns, constants, near_pairs)
            for near_pairs in (None, geometry.NearPairs(2))
        ]

    rng = np.random.default_rng(3)
    places, ends = rng.normal(size=(64, 6, 3)), rng.normal(size=(64, 6, 2, 3))
    places[::2] *= 0.2  # so that more than four pairs touch
    ends[::4, 1] = ends[::4, 0]
    ends[1::4, 2, 1] = ends[1::4, 2, 0]
    every, few = jax.tree.map(np.asarray, found(jnp.asarray(places), jnp.asarray(ends)))
    for name in ("point", "point_b", "phi", "normal"):
        for ours, theirs, place in zip(getattr(few, name), getattr(every, name), few.place, strict=True):
            np.testing.assert_allclose(ours, theirs[place], rtol=0.0, atol=1e-14)
    gaps, nearest = (each.reshape(64, 15, 5) for each in (few.gaps, every.gaps))
    computed = np.any(few.place[:, :, None] // 5 == np.arange(15), axis=1)
    assert np.all(computed.sum(axis=1) == 4)
    least = nearest.min(axis=2)
    apart = ~computed & (least > 1e-5)
    assert apart.sum() > 100
    np.testing.assert_allclose(gaps[apart], np.broadcast_to(least[..., None], gaps.shape)[apart], atol=1e-12)
    touches = ~computed & (least <= 1e-6)
    assert touches.any(axis=1).sum() > 10
    np.testing.assert_array_equal(few.left_out, touches.any(axis=1))
    assert np.all(gaps[touches] > 0.2)


@pytest.mark.slow
def test_arrays_of_a_step_do_not_grow_with_candidates():
    """A cube over several floors: of the contacts that a step does not see only gaps and answers are left."""

    def largest(count, max_contacts):
        """Elements of the largest array that the solver of a step with so many floors works on."""
        model, state = cube(slow_poses)
        floors = tuple(jc.HalfSpace(name=f"floor_{i}", normal=(0.0, 0.0, 1.0)) for i in range(count))
        structure = dataclasses.replace(
            model.structure,
            shapes=(model.structure.shapes[0], *floors),
            pairs=tuple(("cube", floor.name) for floor in floors),
        )
        law = jc.compliant.Material(stiffness=jnp.array(1e4), damping=jnp.array(10.0))
        params = model.params.replace(mu=jnp.array(0.5), material=law)
        model = model.replace(params=params, system=jc.System(structure, slow_poses))
        settings = jc.compliant.Settings(max_contacts=max_contacts)
        program = jax.make_jaxpr(functools.partial(jc.compliant.step, dt=0.01, settings=settings))
        return max(sizes_in_loops(program(model, state, jnp.zeros(6)).jaxpr))

    assert largest(3, 4) == largest(1, 4)
    assert largest(3, None) >= 3 * largest(1, None)


def sizes_in_loops(jaxpr, inside=False):
    """Elements of every array that a `while` of a program computes."""
    for equation in jaxpr.eqns:
        loop = inside or equation.primitive.name == "while"
        if loop:
            yield from (
                int(np.prod(out.aval.shape)) for out in equation.outvars if hasattr(out.aval, "shape")
            )
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from sizes_in_loops(inner, loop)

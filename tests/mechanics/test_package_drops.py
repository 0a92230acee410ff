"""Robots of other packages dropped at random come to rest, as deep as weight over stiffness explains."""

import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import package_robots

import jaxcontact as jc
from jaxcontact import geometry
from jaxcontact.terms import contact_gaps

pytestmark = pytest.mark.slow
DROPS, STEPS = 20, 100
LANDING, RESTING = 5e-3, 2e-2  # s, steps while robots fall and while they come to rest
UNSETTLED = 1e-2  # share of steps whose search says MAX_ITERS
STILL = 1e-4  # m/s, rad/s; friction holds by a stiff damper, and creeps
# Seconds of falling, and most seconds until all are at rest: joints of the ant are as slow as its damping.
ROBOTS = {
    "walker2d": ("gymnasium walker2d", 2, 6),
    "ant": ("gymnasium ant", 2, 30),
    "go1": ("playground go1", 2, 30),
    "humanoid": ("gymnasium humanoid", 2, 30),
}


def on_the_floor(system):
    """Which candidates (nc,) are with a half-space."""
    structure = system.structure
    return np.concatenate(
        [
            np.full(
                geometry.num_contacts(structure.dim, structure.shape_table, (pair,)),
                isinstance(structure.shape(pair[1]), geometry.HalfSpace),
            )
            for pair in structure.pairs
        ]
    )


def thrown(mj, model, floor, rng):
    """q (20, nq): joints anywhere in their ranges, limbs apart, the trunk at any angle 5 cm above the floor."""
    gaps = jax.jit(lambda q: contact_gaps(model, q))
    poses = []
    while len(poses) < DROPS:
        q, height = mj.qpos0.copy(), 1
        for j, at in enumerate(mj.jnt_qposadr):
            if mj.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
                turn, height = rng.normal(size=4), at + 2
                q[at + 3 : at + 7] = turn / np.linalg.norm(turn)
            elif mj.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE:
                q[at] = rng.uniform(*(mj.jnt_range[j] if mj.jnt_limited[j] else (-np.pi, np.pi)))
        gap = np.asarray(gaps(jnp.asarray(q)))
        if np.all(gap[~floor] > 0.0):
            q[height] += 0.05 - gap[floor].min()
            poses.append(q)
    return jnp.asarray(np.array(poses))


@pytest.mark.parametrize("name", ROBOTS)
def test_it_comes_to_rest(name, rng):
    file, falling, resting = ROBOTS[name]
    mj = package_robots.compiled(package_robots.WHOLE[file])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jc.io.mjcf.IgnoredOptionWarning)
        model = jc.load_mjcf(mj)
    law = jc.compliant.stiff_material(float(model.params.mass.sum()))
    model = model.replace(params=model.params.replace(material=law))
    floor = on_the_floor(model.system)
    controls = jnp.zeros((STEPS, model.num_controls))

    @jax.jit
    @jax.vmap
    def moved(state, dt):
        stepper = jc.simulate.Compliant()
        path = jc.simulate.rollout(model, state, controls, stepper=stepper, dt=dt)
        normal = path.impulse[-1, :, 0] / dt
        return jax.tree.map(lambda x: x[-1], path.states), normal, path.status, path.info.num_iters

    states = jax.vmap(lambda q: model.initial_state().replace(q=q))(thrown(mj, model, floor, rng))
    lengths = [LANDING] * round(falling / (STEPS * LANDING)) + [RESTING] * round(resting / (STEPS * RESTING))
    for dt in lengths:
        states, force, status, iterations = moved(states, jnp.full(DROPS, dt))
        assert not np.any(status & ~int(jc.Status.MAX_ITERS)), [
            jc.Status.describe(int(s)) for s in np.unique(status)
        ]
        assert np.mean(status != 0) <= UNSETTLED
        speed = float(jnp.max(jnp.abs(states.v)))
        print(name, f"dt {dt}: Newton steps {int(iterations.max())} at most, then {speed:.1e} m/s")
        if dt == RESTING and speed < STILL:
            break
    assert speed < STILL
    gaps = jax.vmap(lambda q: contact_gaps(model, q))(states.q)
    depth = np.maximum(-gaps, 0.0)
    weight = -float(model.params.gravity[-1] * jnp.sum(model.params.mass))
    np.testing.assert_allclose(force[:, floor].sum(axis=1) / weight, 1.0, atol=1e-3)
    np.testing.assert_allclose(force / weight, model.params.material.stiffness * depth / weight, atol=1e-3)

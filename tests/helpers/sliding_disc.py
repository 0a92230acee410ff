"""A disc that slides on a floor."""

import jax.numpy as jnp

import jaxcontact as jc

STRUCTURE = jc.Structure(
    dim=2,
    bodies=("disc",),
    num_positions=3,
    shapes=(
        jc.Disc(name="disc", body="disc", radius="radius"),
        jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
    ),
    pairs=(("disc", "floor"),),
)
PARAMS = jc.Params(
    mass=jnp.array([2.0]),
    inertia=jnp.array([0.01]),
    mu=jnp.array(0.3),
    gravity=jnp.array([0.0, -9.81]),
    constants={"radius": jnp.array(0.1)},
    material=jc.compliant.Material(stiffness=jnp.array(1e6), damping=jnp.array(1e2)),
)
STATE = jc.State(q=jnp.array([0.0, 0.1, 0.0]), v=jnp.array([1.0, 0.0, 0.0]), t=jnp.array(0.0))
SYSTEM = jc.System(STRUCTURE, jc.free_poses)
MODEL = jc.Model(system=SYSTEM, params=PARAMS, initial=STATE)

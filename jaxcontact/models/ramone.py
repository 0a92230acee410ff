"""RAMone, a five-link planar biped, at foot strike (Remy 2017; Halm & Posa, Fig. 13)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.geometry import Capsule, Disc, HalfSpace
from jaxcontact.mechanics.system import Model, Params, State, Structure, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Place the trunk, then thigh and shank of the leading and of the trailing leg."""
    lengths = params.constants

    def below(origin: jax.Array, angle: jax.Array, distance: jax.Array) -> jax.Array:
        return origin + distance * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])

    trunk, pitch = q[:2], q[2]
    hip = below(trunk, pitch, lengths["trunk_to_hip"])
    positions, angles = [trunk], [pitch]
    for thigh_angle, knee_angle in ((q[3], q[4]), (q[5], q[6])):
        thigh = pitch + thigh_angle
        shank = thigh + knee_angle
        knee = below(hip, thigh, lengths["thigh"])
        positions += [
            below(hip, thigh, lengths["hip_to_thigh"]),
            below(knee, shank, lengths["knee_to_shank"]),
        ]
        angles += [thigh, shank]
    return jnp.stack(positions), jnp.stack(angles)


LIMBS = {
    "trunk": "trunk",
    **{f"{side}_{part}": part for side in ("leading", "trailing") for part in ("thigh", "shank")},
}
RAMONE = System(
    Structure(
        dim=2,
        bodies=("trunk", "leading_thigh", "leading_shank", "trailing_thigh", "trailing_shank"),
        num_positions=7,
        shapes=(
            Disc(name="leading_foot", body="leading_shank", radius="foot_radius", at="shank_to_foot"),
            Disc(name="trailing_foot", body="trailing_shank", radius="foot_radius", at="shank_to_foot"),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
            # For pictures; they touch nothing.
            *(
                Capsule(name=f"{body}_limb", body=body, radius="limb_radius", ends=f"{limb}_ends")
                for body, limb in LIMBS.items()
            ),
        ),
        pairs=(("leading_foot", "floor"), ("trailing_foot", "floor")),
    ),
    _poses,
)


def ramone() -> Model:
    """Make RAMone at the strike of its leading foot: it turns at 1 rad/s about the resting trailing foot.

    A is the leading foot, B the trailing one. Inertial data of Remy (2017), posture of Halm & Posa, Table 7,
    friction 1e5. q = (x, y, pitch) of the trunk, then hip and knee angle of the leading and of the trailing
    leg, all relative to the parent. The trailing knee (about -92.49 degrees) is such that both feet touch.
    """
    trunk_to_hip, hip_to_thigh, thigh, shank, radius = 0.137675, 0.019399, 0.2, 0.2385, 0.0563 / 2.0
    shank_to_foot = 0.073265
    knee_to_shank = shank - shank_to_foot
    pitch, hip_angle, knee = math.radians(16.0), math.radians(70.0), math.radians(-2.0)
    drop = shank * math.cos(pitch - hip_angle + knee) + thigh * math.cos(pitch - hip_angle)
    y = drop + trunk_to_hip * math.cos(pitch) + radius
    # cos of the trailing shank's angle to the vertical, at which its foot is as low as the leading one
    trailing = -math.acos((drop - thigh * math.cos(pitch + hip_angle)) / shank)
    trailing_knee = trailing - pitch - hip_angle
    # The trunk turns about the point of contact of the trailing foot.
    foot_x = trunk_to_hip * math.sin(pitch) + thigh * math.sin(pitch + hip_angle) + shank * math.sin(trailing)
    return Model(
        system=RAMONE,
        params=Params(
            mass=jnp.array([7.9026, 0.7887, 0.510, 0.7887, 0.510]),
            inertia=jnp.array([0.08, 0.00221, 0.00652, 0.00221, 0.00652]),
            mu=jnp.array([1e5, 1e5]),
            gravity=jnp.array([0.0, -9.81]),
            constants={
                "trunk_to_hip": jnp.array(trunk_to_hip),
                "hip_to_thigh": jnp.array(hip_to_thigh),
                "thigh": jnp.array(thigh),
                "knee_to_shank": jnp.array(knee_to_shank),
                "shank_to_foot": jnp.array([0.0, -shank_to_foot]),
                "foot_radius": jnp.array(radius),
                "limb_radius": jnp.array(0.015),
                "trunk_ends": jnp.array([[0.0, -trunk_to_hip], [0.0, trunk_to_hip]]),
                "thigh_ends": jnp.array([[0.0, hip_to_thigh], [0.0, hip_to_thigh - thigh]]),
                "shank_ends": jnp.array([[0.0, knee_to_shank], [0.0, -shank_to_foot]]),
            },
        ),
        initial=State(
            q=jnp.array([0.0, y, pitch, -hip_angle, knee, hip_angle, trailing_knee]),
            v=jnp.array([-y, -foot_x, 1.0, 0.0, 0.0, 0.0, 0.0]),
            t=jnp.array(0.0),
        ),
        impulse_step=1.0,
        max_steps=10,
    )

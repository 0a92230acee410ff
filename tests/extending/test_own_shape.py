"""A shape of one's own: a ring of points, such as the rim of a round foot, and its picture.

What touches by points is a `Points`: gaps, frames, laws and steppers know it already. It names its numbers,
which live in `params.constants`, so that one may differentiate by them.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from jaxcontact.viz.solids import Solid, solids_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ring(jc.Points):
    """`count` points of a circle about the z axis of its body; `at` names their coordinates."""


def ring_points(radius, count):
    angle = 2.0 * jnp.pi * jnp.arange(count) / count
    return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros(count)], axis=1)


@solids_of.register
def _picture(shape: Ring, dim, constants):
    """Drawn as the plate that its points span, not as points."""
    return [Solid(np.asarray(constants[shape.at], float), 0.01)]


RING = Ring(name="rim", body="foot", at="rim", count=6)
FLOOR = jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0))
FOOT = jc.System(
    jc.Structure(
        dim=3, bodies=("foot",), num_positions=7, quaternions=(3,), shapes=(RING, FLOOR), pairs=(("rim", "floor"),)
    ),
    jc.free_poses,
)  # fmt: skip


def gaps(radius, tilt, height):
    mass, down = jnp.array([1.0]), jnp.array([0.0, 0.0, -9.81])
    constants = {"rim": ring_points(radius, RING.count)}
    params = jc.Params(
        mass=mass, inertia=jnp.ones((1, 3)), mu=jnp.array(0.5), gravity=down, constants=constants
    )
    q = jnp.array([0.0, 0.0, height, jnp.cos(tilt / 2), 0.0, jnp.sin(tilt / 2), 0.0])
    state = jc.State(q=q, v=jnp.zeros(6), t=jnp.array(0.0))
    return jc.contact_terms(jc.Model(system=FOOT, params=params), state).phi


def test_gaps_of_a_tilted_ring_and_their_derivative_by_its_radius():
    angle = 2.0 * np.pi * np.arange(6) / 6
    found, slope = jax.jvp(lambda radius: gaps(radius, 0.3, 0.2), (0.1,), (1.0,))
    np.testing.assert_allclose(found, 0.2 - 0.1 * np.cos(angle) * np.sin(0.3), atol=1e-12)
    np.testing.assert_allclose(slope, -np.cos(angle) * np.sin(0.3), atol=1e-12)

"""The angular momentum of quaternions in a step whose contacts change the rate at which it turns them.

A free step turns a body by h w. Where contacts act it turns by h v+, so its momentum, which stays in the world
but for impulses, has other components in the axes of the body at the end. With S the rows of quaternions,
R(h w) the turn, p the momentum at the start and j all angular impulses of the step,

    S M v' = R(h v+)^T (p + j).

Entries: `TurnedMomentum`, which `free_step` makes, and `velocity_at_end`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record
from jaxcontact.mechanics.half_turns import spin_places, turn_back
from jaxcontact.mechanics.system import Structure


class TurnedMomentum(Record):
    """Angular momenta of k quaternions in a free step, in axes of their bodies.

    Attributes:
        start: (k, 3) at the start.
        midway: (k, 3) in the axes of the middle of the free step, without impulses.
        impulse: (k, 3) of all forces of the free step.
        rows: angular momentum by velocity: (k, 3, nv), of free bodies their inertia (k, 3).
        mobility: velocity by angular impulse: (k, 3, nv), of free bodies (k, 3).
    """

    start: jax.Array
    midway: jax.Array
    impulse: jax.Array
    rows: jax.Array
    mobility: jax.Array

    def _momentum(self, structure: Structure, v: jax.Array) -> jax.Array:
        """Compute the angular momenta (k, 3) of a velocity (nv,)."""
        return self.rows @ v if self.rows.ndim == 3 else self.rows * v[spin_places(structure)]

    def velocity_by(self, structure: Structure, v: jax.Array, impulse: jax.Array) -> jax.Array:
        """Add to a velocity (nv,) what angular impulses (k, 3) change."""
        if self.mobility.ndim == 3:
            return v + jnp.tensordot(impulse, self.mobility, 2)
        return v.at[spin_places(structure)].add(self.mobility * impulse)

    def before_last_half_turn(self, structure: Structure, v: jax.Array, half: jax.Array) -> jax.Array:
        """Compute the velocity (nv,) whose momentum is that of v before the last half turn, `half` (nv,)."""
        whole = self.midway + self.impulse
        turned = jax.vmap(turn_back)(whole, half[spin_places(structure)])
        return self.velocity_by(structure, v, whole - turned)

    def velocity_at_end(
        self, structure: Structure, v: jax.Array, ahead: jax.Array, dt: jax.Array
    ) -> jax.Array:
        """Compute the velocity (nv,) at the end of a step that moved at v.

        `ahead` (nv,) is the velocity before impulses of constraints and stiff springs.
        """
        impulse = self.impulse + self._momentum(structure, v - ahead)
        turned = jax.vmap(turn_back)(self.start + impulse, dt * v[spin_places(structure)])
        return self.velocity_by(structure, v, turned - self.midway - impulse)

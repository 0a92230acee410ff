"""The momentum of free bodies in a step whose contacts change how it moves them.

A free step turns a body by h w. Where contacts act it turns by h v+, so its angular momentum, which stays in
the world but for impulses, has other components in the axes of the body at the end. With S the rows of
quaternions, R(h w) the turn, p the momentum at the start and j all angular impulses of the step,

    S M v' = R(h v+)^T (p + j),

about the centre of mass of the tree of each free joint, whose linear momentum changes by the impulses alone.
Entries: `TurnedMomentum`, which `free_step` makes, and its `velocity_at_end`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record
from jaxcontact.mechanics.half_turns import spin_places, turn_back
from jaxcontact.mechanics.mass_centres import Centres
from jaxcontact.mechanics.system import Structure


class TurnedMomentum(Record):
    """Angular momenta of k quaternions in a free step, in axes of their bodies.

    Attributes:
        start: (k, 3) at the start.
        midway: (k, 3) in the axes of the middle of the free step, without impulses.
        impulse: (k, 3) of all forces of the free step.
        rows: angular momentum by velocity: (k, 3, nv), of free bodies their inertia (k, 3).
        mobility: velocity of centres by angular impulse: (k, 3, nv), of free bodies (k, 3).
        centres: at the start; None without free joints of a tree.
        lag: (nv,) mean velocity of free joints in the step less that at its start, for the same of centres.
    """

    start: jax.Array
    midway: jax.Array
    impulse: jax.Array
    rows: jax.Array
    mobility: jax.Array
    centres: Centres | None = None
    lag: jax.Array | None = None

    def _changed(self, structure: Structure, v: jax.Array, impulse: jax.Array) -> jax.Array:
        """Add to a velocity (nv,) of centres what angular impulses (k, 3) change."""
        if self.mobility.ndim == 3:
            return v + jnp.tensordot(impulse, self.mobility, 2)
        return v.at[spin_places(structure)].add(self.mobility * impulse)

    def velocity_ahead(self, structure: Structure, end: jax.Array, half: jax.Array) -> jax.Array:
        """Compute the velocity (nv,) from which impulses of constraints start.

        It moves q over the step as joints do, and has the momentum of `end` (nv,), a velocity of centres,
        before the last half turn, `half` (nv,).
        """
        whole = self.midway + self.impulse
        turned = jax.vmap(turn_back)(whole, half[spin_places(structure)])
        v = self._changed(structure, end, whole - turned)
        return v if self.centres is None else self.centres.velocity_of_joints(v) + self.lag

    def velocity_at_end(
        self, structure: Structure, v: jax.Array, ahead: jax.Array, dt: jax.Array
    ) -> jax.Array:
        """Compute the velocity (nv,) of centres at the end of a step that moved q at v.

        `ahead` (nv,) is the velocity before impulses of constraints and stiff springs.
        """
        places, change = spin_places(structure), v - ahead
        changed = self.rows @ change if self.rows.ndim == 3 else self.rows * change[places]
        impulse = self.impulse + changed
        turned = jax.vmap(turn_back)(self.start + impulse, dt * v[places])
        if self.centres is not None:
            v = self.centres.velocity_of_centres(v - self.lag)
        return self._changed(structure, v, turned - self.midway - impulse)

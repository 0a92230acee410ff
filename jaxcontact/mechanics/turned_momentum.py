"""The momentum of free bodies in a step whose contacts change how it moves them.

A free step turns a body by h w. Where contacts act it turns by h v+, so its angular momentum, which stays in
the world but for impulses, has other components in the axes of the body at the end. With S the rows of
quaternions, R(h w) the turn, p the momentum at the start and j all angular impulses of the step,

    S M v' = R(h v+)^T (p + j),

about the centre of mass of the tree of each free joint, whose linear momentum changes by the impulses alone.
Entries: `TurnedMomentum`, and `momentum_of_tree`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.mechanics.half_turns import spin_places, turn_back
from jaxcontact.mechanics.mass_centres import linear_places
from jaxcontact.mechanics.system import Structure


class FreeJoints(NamedTuple):
    """The k free joints of a tree in a free step.

    A centre drifts along them at `drift` v at first and at `drift` v - `lag` on the mean, where v is that of
    the start: a lag by the velocity of the free step would move a robot whose contacts hold it at rest.

    Attributes:
        mean: (nv,) velocity of centres that moves q over the step.
        centre: (k, 3) centres of mass of their trees at the start.
        drift: (k, 3, nv) velocity of the centres relative to them, by v, at the start.
        lag: (k, 3) m/s.
    """

    mean: jax.Array
    centre: jax.Array
    drift: jax.Array
    lag: jax.Array

    def velocity_of_centres(self, structure: Structure, v: jax.Array) -> jax.Array:
        """Convert a velocity (nv,) that moves q over the step to that of the centres."""
        return v.at[linear_places(structure)].add(self.drift @ v - self.lag)


class TurnedMomentum(Record):
    """Angular momenta of k quaternions in a free step, in axes of their bodies.

    Attributes:
        start: (k, 3) at the start.
        midway: (k, 3) in the axes of the middle of the free step, without impulses.
        impulse: (k, 3) of all forces of the free step.
        rows: angular momentum by velocity: (k, 3, nv), of free bodies their inertia (k, 3).
        mobility: velocity of centres by angular impulse: (k, 3, nv), of free bodies (k, 3).
        joints: free joints of a tree; None without any.
    """

    start: jax.Array
    midway: jax.Array
    impulse: jax.Array
    rows: jax.Array
    mobility: jax.Array
    joints: FreeJoints | None = None

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
        momentum = self.midway + self.impulse
        turned = jax.vmap(turn_back)(momentum, half[spin_places(structure)])
        v = self._changed(structure, end, momentum - turned)
        if self.joints is None:
            return v
        return v.at[linear_places(structure)].add(self.joints.lag - self.joints.drift @ v)

    def momentum_at_end(
        self, structure: Structure, v: jax.Array, ahead: jax.Array, dt: jax.Array
    ) -> jax.Array:
        """Compute the angular momenta (k, 3) at the end of a step that moved q at v (nv,).

        `ahead` (nv,) is the velocity before impulses of constraints and stiff springs.
        """
        places = spin_places(structure)
        return jax.vmap(turn_back)(self.start + self._impulse(places, v - ahead), dt * v[places])

    def velocity_at_end(
        self, structure: Structure, v: jax.Array, ahead: jax.Array, momentum: jax.Array
    ) -> jax.Array:
        """Compute the velocity (nv,) of centres at the end of a step, from its `momentum_at_end`."""
        impulse = self._impulse(spin_places(structure), v - ahead)
        if self.joints is not None:
            v = self.joints.velocity_of_centres(structure, v)
        return self._changed(structure, v, momentum - self.midway - impulse)

    def _impulse(self, places: np.ndarray, change: jax.Array) -> jax.Array:
        """Compute the angular impulses (k, 3) of a step whose constraints change its velocity (nv,)."""
        changed = self.rows @ change if self.rows.ndim == 3 else self.rows * change[places]
        return self.impulse + changed


def momentum_of_tree(
    structure: Structure,
    momenta: tuple[jax.Array, jax.Array, jax.Array],
    rows: jax.Array,
    divide_by_mass: Callable[[jax.Array], jax.Array],
    joints: FreeJoints | None,
) -> TurnedMomentum:
    """Make the record of a tree: `momenta` (nv,) are start, midway and impulse, of centres.

    `rows` (nv, nv) are momenta of centres by velocity; `divide_by_mass` is of the end of the free step.
    """
    places = spin_places(structure)
    mobility = jax.vmap(jax.vmap(divide_by_mass))(jnp.eye(rows.shape[0], dtype=rows.dtype)[places])
    if joints is not None:  # a torque does not move a centre
        mobility = mobility.at[:, :, linear_places(structure)].set(0.0)
    start, midway, impulse = (momentum[places] for momentum in momenta)
    return TurnedMomentum(
        start=start, midway=midway, impulse=impulse, rows=rows[places], mobility=mobility, joints=joints
    )

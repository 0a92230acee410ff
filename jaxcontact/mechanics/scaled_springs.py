"""Springs and dampers in proportion to the effective mass of each limit and contact: `ScaledSprings`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_fraction, check_not_negative, check_positive
from jaxcontact.front_door import checked


@checked(
    stiffness=check_not_negative,
    damping=check_not_negative,
    mobility=check_not_negative,
    lowest=check_fraction,
    highest=check_fraction,
    width=check_positive,
    midpoint=check_fraction,
    power=check_positive,
    joint_stiffness=check_not_negative,
    joint_damping=check_not_negative,
)
class ScaledSprings(Record):
    """Hold springs and dampers per effective mass, for `Material.stiffness`: MuJoCo's solref and solimp.

    With d = -phi the depth and u = phidot, the force f of a limit or contact that pushes has

        udot + (1 - I(d)) / I(d) A f = k I(d) d - b u,

    where A is the mobility of the row and I(d) its impedance: a single contact accelerates to the share I by
    k I d - b u, whatever the mass, and to the rest by the forces without it. k, b and A are numbers or
    (nu,), limits before contacts; I rises from `lowest` at d = 0 to `highest` at d = `width`, by two powers
    that meet at `midpoint`. A step takes udot, d and u at its end.

    Attributes:
        stiffness: k, 1/s^2.
        damping: b, 1/s.
        mobility: A, 1/kg or 1/(kg m^2), of a robot's file that of its reference pose.
        lowest, highest: impedances, in (0, 1).
        width: m or rad.
        midpoint: of the width, in (0, 1).
        power: >= 1.
        joint_stiffness, joint_damping: K and B of bilateral rows, numbers or (nb,), N/m and N s/m.
    """

    stiffness: float | jax.Array
    damping: float | jax.Array
    mobility: float | jax.Array
    lowest: float | jax.Array = 0.9
    highest: float | jax.Array = 0.95
    width: float | jax.Array = 1e-3
    midpoint: float | jax.Array = 0.5
    power: float | jax.Array = 2.0
    joint_stiffness: float | jax.Array = 0.0
    joint_damping: float | jax.Array = 0.0

    __array_ufunc__ = None  # a number of NumPy on the left leaves the product to `__rmul__`

    def __mul__(self, factor: PyTree) -> ScaledSprings:
        """Make springs `factor` times as stiff, with dampers of the same damping ratio.

        k and `joint_stiffness` times the factor, b and `joint_damping` times its root: time constants shrink
        by the root. Impedances and mobilities stay.
        """
        if isinstance(factor, ScaledSprings):
            return NotImplemented
        root = jnp.sqrt(factor)
        return self.replace(
            stiffness=self.stiffness * factor,
            damping=self.damping * root,
            joint_stiffness=self.joint_stiffness * factor,
            joint_damping=self.joint_damping * root,
        )

    __rmul__ = __mul__

    def impedance(self, depth: jax.Array) -> jax.Array:
        """Compute I (nu,) at depths (nu,)."""
        share = jnp.clip(depth / self.width, 0.0, 1.0)
        below = share <= self.midpoint
        side = jnp.where(below, share, 1.0 - share)
        end = jnp.where(below, self.midpoint, 1.0 - jnp.asarray(self.midpoint))
        inside = side > 0.0
        part = jnp.where(inside, end * (jnp.where(inside, side, end) / end) ** self.power, 0.0)
        return self.lowest + jnp.where(below, part, 1.0 - part) * (self.highest - self.lowest)

    def carried_mass(self, depth: jax.Array) -> jax.Array:
        """Compute I / ((1 - I) A) (nu,), which multiplies k I d - b u - udot; zero if A is zero."""
        impedance = self.impedance(depth)
        mobility = jnp.broadcast_to(jnp.asarray(self.mobility, depth.dtype), depth.shape)
        moves = mobility > 0.0
        return jnp.where(moves, impedance / ((1.0 - impedance) * jnp.where(moves, mobility, 1.0)), 0.0)

"""Materials: stiffness, damping, friction and elastic potential of each compliant constraint.

Constraints count in the order of `ConstraintTerms`: every bilateral row, every limit, then each contact. The
normal and the tangents of a contact share one entry; dry friction of joints has no entry. A material is a
pytree, and any of its numbers may be differentiated by.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_not_negative, check_positive
from jaxcontact.front_door import checked
from jaxcontact.mechanics.scaled_springs import ScaledSprings

FRICTION_DAMPING = 1e8  # N s/m; under 1 N of friction a contact creeps at 1e-8 m/s, 1e-6 m in 100 s


def friction_damping_of(mass: jax.typing.ArrayLike) -> PyTree:
    """Compute the friction damping, N s/m, of a mass in kg: by its weight it creeps at 1e-7 m/s at most."""
    return FRICTION_DAMPING * jnp.maximum(jnp.asarray(mass, float), 1.0)


@checked(stiffness=check_not_negative, damping=check_not_negative)
class FrictionSpring(Record):
    """A spring and a damper side by side along the tangents of a contact, in series with friction.

    The contact sticks to the tip of the spring and slides over it if the force reaches mu lam_n (Drumwright,
    eqs 94-98, K_r and B_r). A mass m that sticks swings at sqrt(stiffness / m) rad/s. The spring remembers
    its stretch xi, which a simulation carries: `info.stretch` of a step is the `stretch` of the next.

    In the associated cone sliding pushes the contact apart, and there a spring softer than mu^2 times the
    normal stiffness makes it hop unless it has a damper.

    Attributes:
        stiffness: K_t >= 0 of each contact, a number or (nc,), N/m.
        damping: B_t >= 0 of each contact, a number or (nc,), N s/m. If the stiffness is zero, this is the
            `friction_damping` of a contact without memory.
    """

    stiffness: PyTree
    damping: PyTree = 0.0


def _check_damping(name: str, value: object) -> None:
    if not callable(value):
        check_not_negative(name, value)


def _check_stiffness(name: str, value: object) -> None:
    if not isinstance(value, ScaledSprings):
        check_not_negative(name, value)


def _check_smoothing(name: str, value: object) -> None:
    if value is not None:
        check_positive(name, value)


@checked(
    smoothing=_check_smoothing,
    stiffness=_check_stiffness,
    damping=_check_damping,
    friction=check_not_negative,
    friction_damping=check_not_negative,
)
class Material(Record):
    """Springs and dampers of the constraints; a single number holds for all constraints.

    With d = -phi the depth and u the rate of phi at the end of the step, a bilateral row pushes with
    K d - B u, a limit or the normal of a contact with max(0, K d - B u + potential'(d)), and friction with
    -friction_damping u_t inside the cone |lam_t| <= mu lam_n, or with a `friction_spring` of stretch xi with
    -K_t xi - B_t u_t. Zero K, B and potential: no force. Springs and dampers of limits, and of
    contacts with cone="coulomb", have no force if a gap stays open through the step, and up to their force if
    the step ends at the gap zero. A damper B jumps to B |u| at touch; `HuntCrossley` grows from zero. Other
    cones push from a gap of B |u| / K. A `potential` acts at any depth that it covers.

    Attributes:
        stiffness: K >= 0 of each constraint, a number or (nk,), N/m (N m/rad for angles); or `ScaledSprings`,
            per effective mass, with their own damping beside which `damping` acts.
        damping: B >= 0 of each constraint, a number or (nk,), N s/m; or B(d), any callable pytree such as
            `HuntCrossley` that takes the depths (nk,) at the start of the step, negative if apart
            (Drumwright, section 4.1).
        friction: mu of each contact, a number or (nc,); None, the default, reads `Params.mu`.
        friction_damping: of each dry joint and then of each contact, a number or (nd + nc,), N s/m. It
            approximates stiction: make it so large that the bound, not the damper, limits friction. Contacts
            do not use it if there is a `friction_spring`.
        friction_spring: the tangential springs of the contacts; None, the default, for friction without
            memory.
        potential: convex energy (J) of each limit and contact at depth (nu,), any callable pytree, or None.
            Its force adds to that of the spring.
        smoothing: k > 0, J; None, the default, for the law itself. Forces on the central path of interior
            points, lam_n gap = k for every limit and contact: a force k / gap acts across an open gap, and
            gradients see contacts before they close. As k tends to zero, the error of a step is of first
            order in k. For planning, with cone="coulomb" and no potential.
    """

    stiffness: PyTree = 0.0
    damping: PyTree = 0.0
    friction: PyTree = None
    friction_damping: PyTree = FRICTION_DAMPING
    friction_spring: FrictionSpring | None = None
    potential: Callable[[jax.Array], jax.Array] | None = None
    smoothing: PyTree = None

    def damping_at(self, depth: jax.Array) -> PyTree:
        """Return B at depths (nk,), N s/m: a number or (nk,)."""
        return self.damping(depth) if callable(self.damping) else self.damping


@checked(modulus=check_positive, radius=check_positive)
class Hertz(Record):
    """Potential of a sphere pressed into an elastic half-space, (8/15) E* sqrt(r) d^2.5 for d > 0.

    The force is (4/3) E* sqrt(r) d^1.5. (Drumwright, eq (121), lacks the 4/3 and makes d^1.5 the gap.)

    Attributes:
        modulus: effective modulus E*, 1/E* = (1 - nu_1^2)/E_1 + (1 - nu_2^2)/E_2, N/m^2.
        radius: of the sphere, m; of two spheres, 1/r = 1/r_1 + 1/r_2.
    """

    modulus: float | jax.Array
    radius: float | jax.Array

    def __call__(self, depth: jax.Array) -> jax.Array:
        """Return the energy (nu,) in J at depth (nu,) in m."""
        inside = depth > 0
        power = jnp.where(inside, jnp.where(inside, depth, 1.0) ** 2.5, 0.0)  # all derivatives 0 outside
        return (8.0 / 15.0) * self.modulus * jnp.sqrt(self.radius) * power


@checked(coefficient=check_not_negative, exponent=check_positive)
class HuntCrossley(Record):
    """Damping in proportion to a power of the depth, B(d) = coefficient d^exponent for d > 0, 0 outside.

    Beside a force K d^exponent it does not pull, and the loss grows with the speed: of the speed v before an
    impact the fraction e is left, s - log(1 + s) = -e s - log(1 - e s) with s = coefficient v / K, for every
    exponent (Hunt & Crossley 1975). Pass it as `Material.damping`.

    Attributes:
        coefficient: >= 0 of each constraint, a number or (nk,), N s/m^(1 + exponent).
        exponent: > 0, that of the spring: 1 beside a stiffness, 1.5 beside `Hertz`.
    """

    coefficient: float | jax.Array
    exponent: float | jax.Array = 1.0

    def __call__(self, depth: jax.Array) -> jax.Array:
        """Return the damping (nk,) in N s/m at depth (nk,) in m."""
        inside = depth > 0
        return self.coefficient * jnp.where(inside, jnp.where(inside, depth, 1.0) ** self.exponent, 0.0)


@checked(stiffness=check_positive, kappa=check_positive)
class Smooth(Record):
    """Potential of a spring that pushes before it is touched: the relaxed law of an interior-point method.

    The force at depth d is lam = (K d + sqrt((K d)^2 + 4 kappa)) / 2, so lam (lam - K d) = kappa. With kappa
    = 0 it is the unilateral spring max(0, K d). The force is sqrt(kappa) at d = 0 and about kappa / (K |d|)
    far away, so contacts act on gradients before they close. Use it in a search, not in a simulation. Pass it
    as `Material.potential` and leave `Material.stiffness` at 0.

    Attributes:
        stiffness: K > 0 of each limit and contact, a number or (nu,), N/m.
        kappa: relaxation, > 0, N^2; a number or (nu,).
    """

    stiffness: PyTree
    kappa: float | jax.Array

    def __call__(self, depth: jax.Array) -> jax.Array:
        """Return the energy (nu,) in J at depth (nu,) in m, 0 at depth 0."""
        push = self.stiffness * depth
        root = jnp.sqrt(push**2 + 4.0 * self.kappa)
        # push (push + root) / 4, without a difference of large numbers on either side.
        touches = push > 0
        product = jnp.where(touches, 0.5 * push**2, 0.0)
        product = product + self.kappa * push / (root + jnp.where(touches, push, -push))
        energy = product + self.kappa * jnp.arcsinh(push / jnp.sqrt(4.0 * self.kappa))
        return energy / self.stiffness


@checked(modulus=check_positive, area=check_positive, depth=check_positive)
def foundation_stiffness(
    modulus: float | jax.Array, area: float | jax.Array, depth: float | jax.Array
) -> PyTree:
    """Return the stiffness E A / depth (N/m) of each element of an elastic (Winkler) foundation.

    Args:
        modulus: Young's modulus E, N/m^2.
        area: of one element, m^2.
        depth: of the foundation, m.
    """
    return modulus * area / depth


@checked(mass=check_not_negative, depth=check_positive, gravity=check_not_negative)
def stiff_material(mass: float | jax.Array, depth: float = 1e-3, gravity: float = 9.81) -> Material:
    """Return the material with which one contact carries a mass at a depth, critically damped for it.

    Args:
        mass: kg, such as the sum of `params.mass`.
        depth: m.
        gravity: m/s^2.
    """
    stiffness = gravity * jnp.asarray(mass, float) / depth
    return Material(
        stiffness=stiffness,
        damping=2.0 * jnp.sqrt(stiffness * mass),
        friction_damping=friction_damping_of(mass),
    )

"""Restitution of all contacts at once: Newton's law of speeds and Poisson's law of impulses.

Entries `newton` and `poisson`; docs/methods/restitution.md has the equations, and the energy of each law.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.arguments import check_corner, check_number, check_sides
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.circular_cone import settle, settle_one_sided
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    ImpactInfo,
    contact_space,
    energy_ratio,
    mass_norm,
    residual_limit,
)
from jaxcontact.precision import jit
from jaxcontact.solvers.contact_directions import border_size, negative_part
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import ZERO_FORCE, rounding

if TYPE_CHECKING:
    from jaxtyping import Float


@checked(restitution=check_number, num_directions=check_sides, corner=check_corner)
def newton(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    *,
    restitution: float | Float[jax.Array, ""] | Float[jax.Array, " nc"],
    num_directions: int | None = None,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve all contacts at once by Newton's law: speeds of separation are e times those of approach.

    Moreau's generalised law (1988): 0 <= lam_n perp J_n v_plus + e min(J_n v, 0) >= 0, with Coulomb friction
    on J_t v_plus. If several solutions exist, this is the one that the solver finds.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        restitution: e in 0..1, a number or (nc,); 0 is `anitescu_potra`.
        num_directions: None for the circular friction cone, or its sides; see `anitescu_potra`.
        corner: as `anitescu_potra`; in space "one_sided" is for the circular cone.

    Returns:
        v_plus (nv,) and ImpactInfo.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; e of another shape or outside 0..1.

    Status: ENERGY if the kinetic energy rises, which friction or different coefficients can cause (Kane's
        paradox); STALLED or RAY if the law has no solution, as when friction drives a contact in; as
        `anitescu_potra`; inside jit INVALID for e outside 0..1.

    Derivative: as `anitescu_potra`, also by e. Of min(J_n v, 0) at 0 that of rest, or one-sided.
    """
    inputs.check(terms, v)
    inputs.check_restitution(terms, restitution)
    return _resolve_by_newton(terms, v, jnp.asarray(restitution, v.dtype), num_directions, corner)


@checked(restitution=check_number, num_directions=check_sides, corner=check_corner)
def poisson(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    *,
    restitution: float | Float[jax.Array, ""] | Float[jax.Array, " nc"],
    num_directions: int | None = None,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve all contacts at once by Poisson's law: expansion gives e times the impulse of compression.

    Anitescu & Potra (1997), section 5; Pfeiffer & Glocker (1996): compression is `anitescu_potra`. Expansion
    begins with its velocity: lam_n >= e lam_n of compression, more only if a contact would else approach,
    0 <= lam_n - e lam_n' perp J_n v_plus >= 0, with Coulomb friction by lam_n on J_t v_plus.

    Args, Returns, Raises, Status, Derivative: as `newton`; `info.impulse` is the sum of both phases.
    """
    inputs.check(terms, v)
    inputs.check_restitution(terms, restitution)
    return _poisson(terms, v, jnp.asarray(restitution, v.dtype), num_directions, corner)


def _prepare(
    terms: ContactTerms, v: jax.Array, restitution: jax.Array
) -> tuple[ContactTerms, jax.Array, jax.Array, jax.Array]:
    """Return usable terms, velocity and coefficients (nc,), and the status bits for bad numbers."""
    terms, v, status = inputs.prepare(terms, v)
    valid = jnp.all((restitution >= 0) & (restitution <= 1))
    e = jnp.broadcast_to(jnp.where(valid, restitution, 0.0), terms.phi.shape)
    return terms, v, e, status | flag(~valid, Status.INVALID)


@functools.partial(jit, static_argnames=("num_directions", "corner"))
def _resolve_by_newton(
    terms: ContactTerms, v: jax.Array, restitution: jax.Array, num_directions: int | None, corner: str
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    v_in = v
    terms, v, e, bad = _prepare(terms, v, restitution)
    rate, one_sided = terms.J_n @ v, corner == "one_sided"
    approach = (
        negative_part(rate, _at_border(terms, rate, v)) if one_sided else jnp.where(rate < 0, rate, 0.0)
    )
    space = contact_space(terms, e * approach)
    v_plus, impulse, worst, status = (settle_one_sided if one_sided else settle)(space, v, num_directions)
    return _make_outcome(terms, space, (v_in, v, v_plus), impulse, (bad | status, bad, worst))


def _at_border(terms: ContactTerms, rate: jax.Array, v: jax.Array) -> jax.Array:
    """Decide which contacts (nc,) neither approach nor separate; see `border_size`."""
    unit = contact_space(terms).scale[:: 1 + terms.J_t.shape[1]]
    return jnp.abs(unit * rate) <= border_size(v.dtype, mass_norm(terms.M, v))


@functools.partial(jit, static_argnames=("num_directions", "corner"))
def _poisson(
    terms: ContactTerms, v: jax.Array, restitution: jax.Array, num_directions: int | None, corner: str
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    v_in = v
    terms, v, e, bad = _prepare(terms, v, restitution)
    space = contact_space(terms)
    solve = settle
    if corner == "one_sided":  # compression may end at rest
        solve = functools.partial(settle_one_sided, size=mass_norm(terms.M, v))
    compressed, first, worst, first_status = solve(space, v, num_directions)
    load = first[:: 1 + space.num_tangents]
    stored = e * (load - lax.stop_gradient(jnp.minimum(load, 0.0)))
    v_plus, second, last, second_status = solve(space, compressed, num_directions, impulse_min=stored)
    # Relative to the speed before the impact, because compression may end at rest.
    last = last * _speed_unit(terms, compressed) / _speed_unit(terms, v)
    worst = jnp.maximum(worst, last)
    note = second_status & jnp.uint32(int(Status.JUMP))
    second_status = jnp.where(last <= residual_limit(v.dtype), note, second_status)
    status = bad | first_status | second_status
    return _make_outcome(terms, space, (v_in, v, v_plus), first + second, (status, bad, worst))


def _speed_unit(terms: ContactTerms, v: jax.Array) -> jax.Array:
    """Return the unit of residuals at v: |v|_M, 1 at rest."""
    speed = mass_norm(terms.M, v)
    return jnp.where(speed > 0, speed, 1.0)


def _make_outcome(
    terms: ContactTerms,
    space: ContactSpace,
    velocities: tuple[jax.Array, jax.Array, jax.Array],
    impulse: jax.Array,
    account: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Return v_plus, unchanged v for bad numbers, and the info with its ENERGY bit."""
    v_in, v, v_plus = velocities
    status, bad, worst = account
    ratio = energy_ratio(terms.M, v, v_plus)
    round_off = rounding(v.dtype, ZERO_FORCE)
    info = ImpactInfo(
        status=status | flag(ratio > 1.0 + round_off, Status.ENERGY),
        residual=worst,
        impulse=(space.scale * impulse).reshape(terms.J_t.shape[0], -1),
        energy_ratio=ratio,
        num_iters=jnp.int32(1),
    )
    return jnp.where(bad != 0, v_in, v_plus), info

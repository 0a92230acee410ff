"""One step of compliant constraints as algebra, and its translation into a convex program.

With h = dt, A = G M^-1 G^T, D = h^2 K + h B and c = -K phi - (h K + B)(G v + h G M^-1 f + h Gdot v), the
forces of springs and dampers evaluated at the end of the step satisfy (I + D A) lam = c (Drumwright, eqs
53-62, without his M_hat terms). D = 0 means lam = 0; D^-1 is never formed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.algebra.body_rows import BodyRows
from jaxcontact.batching.once import computed_once
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.scaled_springs import ScaledSprings
from jaxcontact.solvers.cone_program import ConeProgram
from jaxcontact.solvers.row_algebra import apply_rows, diagonal, row_mobility
from jaxcontact.terms import BILATERAL, DRY, LIMIT, NORMAL, TANGENT, ConstraintTerms, Kind

ROUNDING = 0.625  # of the precision; a gap of this share of a contact's motion in a step is rounding, 2e-10


class Problem(Record):
    """What a step needs to know: algebra only.

    Attributes:
        M: (nv, nv) mass matrix; or `Diagonal`, where the rows are `BodyRows`.
        v: (nv,) velocity from which impulses start; of a mechanism the one that its free step leads to.
        f: (nv,) generalized force other than of the constraints, tau - bias, without gyroscopic ones.
        terms: rows G, gaps phi, Gdot v, friction and kinds.
        material: stiffness, damping and friction of the constraints.
        dt: h, s.
        stretch: (nc, nt) of the friction springs at the start of the step, m; None for none.
        start: (nv,) velocity at the start of the step; None is `v`, and so it is without `ScaledSprings`.
        beside: (nr,) rates of rows beside G v at the start of the step, of mocap bodies; None is zero.
    """

    M: PyTree
    v: jax.Array
    f: jax.Array
    terms: ConstraintTerms
    material: Material
    dt: float | jax.Array
    stretch: jax.Array | None = None
    start: jax.Array | None = None
    beside: jax.Array | None = None


class RowMaterial(Record):
    """A material over the rows of a program: the force at the end of a step is base - rate u, u = G v+.

    Attributes:
        base: (nr,) force at u = 0, N.
        rate: (nr,) h K + B, N s/m, and the carried mass of `ScaledSprings` over h.
        mu: (nc,).
    """

    base: jax.Array
    rate: jax.Array
    mu: jax.Array


def count_rows(kind: tuple[Kind, ...]) -> tuple[int, int, int, int]:
    """Count rows of either sign (bilateral, then dry), limits, contacts, and rows per contact.

    Raises:
        ValueError: the rows are not in the order of `ConstraintTerms`.
    """
    joints, nd, nl, nc = (kind.count(row_kind) for row_kind in (BILATERAL, DRY, LIMIT, NORMAL))
    axes = (len(kind) - joints - nd - nl) // nc if nc else 2
    contacts = (NORMAL, *(TANGENT,) * (axes - 1)) * nc
    if kind != (BILATERAL,) * joints + (DRY,) * nd + (LIMIT,) * nl + contacts or axes == 1:
        raise ValueError(
            "terms.kind: expected all bilateral rows, all dry ones, all limits, then contacts as (n, t1) or "
            f"(n, t1, t2), got {tuple(Kind(k).name for k in kind)}"
        )
    return joints + nd, nl, nc, axes


def by_axis(rows: jax.Array, kind: tuple[Kind, ...]) -> jax.Array:
    """Order rows (nr, ...) of terms, n, t1[, t2] of each contact, as in programs: all n, then all t1."""
    nb, nl, nc, axes = count_rows(kind)
    return _transpose_contacts(rows, nb + nl, nc, axes)


def by_contact(rows: jax.Array, kind: tuple[Kind, ...]) -> jax.Array:
    """Invert `by_axis`."""
    nb, nl, nc, axes = count_rows(kind)
    return _transpose_contacts(rows, nb + nl, axes, nc)


def _transpose_contacts(rows: jax.Array, singles: int, outer: int, inner: int) -> jax.Array:
    """Transpose the rows of contacts (outer, inner, ...), which follow `singles` others."""
    contacts = rows[singles:].reshape(outer, inner, *rows.shape[1:])
    ordered = jnp.swapaxes(contacts, 0, 1).reshape(-1, *rows.shape[1:])
    return jnp.concatenate([rows[:singles], ordered]) if singles else ordered


def columns_of(terms: ConstraintTerms) -> PyTree:
    """Return the columns G^T (nv, nr) of the rows, by axis; `BodyRows` stay as they are."""
    if isinstance(terms.G, BodyRows):
        return terms.G
    nb, nl, nc, axes = count_rows(terms.kind)
    nv = terms.G.shape[1]
    ordered = terms.G[nb + nl :].reshape(nc, axes, nv).transpose(2, 1, 0).reshape(nv, nc * axes)
    return jnp.concatenate([terms.G[: nb + nl].T, ordered], axis=1) if nb + nl else ordered


def spread(name: str, value: PyTree, count: int, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Broadcast `value`, a number or (count,), to (count,).

    Raises:
        ValueError: it has another shape.
    """
    array = jnp.asarray(value, dtype)
    if array.shape not in ((), (count,)):
        raise ValueError(f"{name}: expected a number or shape ({count},), got {array.shape}")
    return jnp.broadcast_to(array, (count,))


def spread_heads(name: str, value: PyTree, kind: tuple[Kind, ...], dtype: jax.typing.DTypeLike) -> jax.Array:
    """Spread `value`, a number or (nk,) of constraints, over all rows but tangents; 0 on dry ones.

    Raises:
        ValueError: it has another shape.
    """
    nb, nl, nc, _ = count_rows(kind)
    nd = kind.count(DRY)
    numbers = spread(name, value, nb - nd + nl + nc, dtype)
    return jnp.insert(numbers, nb - nd, jnp.zeros(nd, dtype)) if nd else numbers


def damping_of(problem: Problem) -> PyTree:
    """Return the damping B of constraints at the start of the step, a number or (nk,)."""
    kind = problem.terms.kind
    nb, nl, nc, _ = count_rows(kind)
    phi = by_axis(problem.terms.phi, kind)[: nb + nl + nc]
    return problem.material.damping_at(-jnp.concatenate([phi[: nb - kind.count(DRY)], phi[nb:]]))


class RowSprings(NamedTuple):
    """Springs and dampers (n,) of joints, limits and normals; masses that `ScaledSprings` carry along."""

    stiffness: jax.Array
    damping: jax.Array
    mass: jax.Array | None


def spread_springs(problem: Problem, lifts: bool) -> RowSprings:
    """Spread the springs and dampers of the material over joints, limits and normals: all but tangents.

    In a cone that `lifts` what slides nothing else keeps `ScaledSprings` from pushing across a gap that
    stays open: there they have no force.

    Raises:
        ValueError: a number has another shape.
    """
    material, kind, dtype = problem.material, problem.terms.kind, problem.terms.phi.dtype
    damping = spread_heads("material.damping", damping_of(problem), kind, dtype)
    if not isinstance(material.stiffness, ScaledSprings):
        return RowSprings(spread_heads("material.stiffness", material.stiffness, kind, dtype), damping, None)
    springs, (nb, nl, nc, _), nd = material.stiffness, count_rows(kind), kind.count(DRY)
    mass = jnp.zeros(nb + nl + nc, dtype).at[nb:].set(springs.carried_mass(-gaps_of(problem).start))
    k, b = _scaled_in_step(problem, springs)
    if lifts:
        _, end, is_open = gaps_of(problem)
        acts = ~is_open | (end < 0.0) | (np.arange(nl + nc) < nl)
        mass = mass.at[nb:].multiply(acts)

    def beside_joints(of_joints: PyTree, heads: jax.Array) -> jax.Array:
        joints = spread("material.stiffness of joints", of_joints, nb - nd, dtype)
        return jnp.concatenate([joints, jnp.zeros(nd, dtype), mass[nb:] * heads])

    damping = damping + beside_joints(springs.joint_damping, b)
    return RowSprings(beside_joints(springs.joint_stiffness, k), damping, mass)


def _scaled_in_step(problem: Problem, springs: ScaledSprings) -> tuple[jax.Array, jax.Array]:
    """Compute the stiffness and damping (nu,) per mass with which a step takes `ScaledSprings`.

    A spring at the end of the step damps by h k more than at its start, so the damper gives up that much. A
    row that closes after the fraction 1 - s of the step has s^2 / 2 of its damper: the mean time since then.
    """
    h, (gap, end, is_open) = problem.dt, gaps_of(problem)
    k = springs.impedance(-gap) * springs.stiffness
    b = jnp.broadcast_to(jnp.asarray(springs.damping, gap.dtype), gap.shape)
    closes = is_open & (end < 0.0) & (gap > 0.0)
    share = jnp.where(closes, -end / jnp.where(closes, gap - end, 1.0), 0.0)
    closed = k, jnp.maximum(b - h * k, 0.0)
    opened = jnp.maximum(k - b / h, 0.0), 0.5 * share**2 * b
    return jnp.where(is_open, opened[0], closed[0]), jnp.where(is_open, opened[1], closed[1])


class StepGaps(NamedTuple):
    """Gaps (nu,) of limits and contacts: at the start of a step, at its end without impulses, and if open.

    Of gaps and depths that are rounding of the motion in the step, those that grow are open: otherwise the
    last digit of a foot on the ground would decide between two laws.
    """

    start: jax.Array
    end: jax.Array
    is_open: jax.Array


def gaps_of(problem: Problem) -> StepGaps:
    """Compute the gaps of limits and contacts in a step."""
    terms, h = problem.terms, problem.dt
    nb, nl, nc, axes = count_rows(terms.kind)
    heads = slice(nb, nb + nl + nc)
    gap, moved = (by_axis(rows, terms.kind)[heads] for rows in (terms.phi, terms.phi + h * h * terms.gdot_v))
    u = apply_rows(columns_of(terms), problem.v)
    end = moved + h * u[heads]
    squares = (u[heads] ** 2).at[nl:].add(jnp.sum(u[heads.stop :].reshape(axes - 1, nc) ** 2, axis=0))
    is_rounding = gap**2 < (float(jnp.finfo(u.dtype).eps) ** ROUNDING * h) ** 2 * squares
    return StepGaps(gap, end, jnp.where(is_rounding, end > gap, gap > 0.0))


def start_rates(problem: Problem) -> jax.Array:
    """Compute the rates (nr,) of all rows, by axis, at the start of the step."""
    velocity = problem.v if problem.start is None else problem.start
    rates = apply_rows(columns_of(problem.terms), velocity)
    return rates if problem.beside is None else rates + by_axis(problem.beside, problem.terms.kind)


def friction_springs(material: Material, nc: int, dtype: jax.typing.DTypeLike) -> tuple[jax.Array, jax.Array]:
    """Return stiffness and damping (nc,) of the friction springs of a material that has them."""
    assert material.friction_spring is not None
    name = "material.friction_spring."
    return (
        spread(name + "stiffness", material.friction_spring.stiffness, nc, dtype),
        spread(name + "damping", material.friction_spring.damping, nc, dtype),
    )


def stretch_after(
    material: Material, stretch: jax.Array | None, force: jax.Array, dt: float | jax.Array
) -> jax.Array | None:
    """Compute the stretch (nc, nt) of friction springs after a step with `force` (nc, nt); None without any.

    A spring follows its own law lam = -K xi' - B (xi' - xi) / h: of its contact while that sticks, at the
    bound while it slides, and back to zero under its damper alone where the contact is open.
    """
    if material.friction_spring is None:
        return None
    start = jnp.zeros_like(force) if stretch is None else stretch
    stiffness, damping = (
        numbers[:, None] for numbers in friction_springs(material, force.shape[0], force.dtype)
    )
    rate = dt * stiffness + damping
    return jnp.where(rate > 0, (damping * start - dt * force) / jnp.where(rate > 0, rate, 1.0), 0.0)


def rubs_by_mass(problem: Problem, lifts: bool) -> bool:
    """Tell whether tangents have the mass and the damper of their normal, as in MuJoCo."""
    material, nc = problem.material, problem.terms.mu.shape[0]
    return (
        lifts
        and nc > 0
        and isinstance(material.stiffness, ScaledSprings)
        and material.friction_spring is None
    )


def row_material(problem: Problem, lifts: bool = False) -> RowMaterial:
    """Spread the springs and dampers of the material over all rows; its elastic potential is left out.

    In a cone that `lifts` what slides, friction with `ScaledSprings` is MuJoCo's: the mass and the damper of
    the normal, f_t = -I / ((1 - I) A) (b u_t + d u_t / dt) within the cone.
    """
    terms, material, h = problem.terms, problem.material, problem.dt
    nb, _, nc, axes = count_rows(terms.kind)
    dtype, nd = terms.phi.dtype, terms.kind.count(DRY)
    stiffness, damping, mass = spread_springs(problem, lifts)
    rubbing = spread("material.friction_damping", material.friction_damping, nd + nc, dtype)
    mu = terms.mu if material.friction is None else spread("material.friction", material.friction, nc, dtype)
    sticking, tangent_rate = jnp.zeros(nc, dtype), rubbing[nd:]
    if material.friction_spring is not None:
        sticking, beside = friction_springs(material, nc, dtype)
        tangent_rate = h * sticking + beside
    springs = jnp.concatenate([stiffness, *[sticking] * (axes - 1)])
    rate = jnp.concatenate([h * stiffness + damping, *[tangent_rate] * (axes - 1)])
    if mass is not None:
        rate = rate.at[: mass.shape[0]].add(mass / h)
    rubs = rubs_by_mass(problem, lifts)
    if mass is not None and rubs:
        rate = jnp.concatenate(
            [rate[: mass.shape[0]], *[rate[mass.shape[0] - nc : mass.shape[0]]] * (axes - 1)]
        )
    rate = rate.at[nb - nd : nb].set(rubbing[:nd]) if nd else rate
    phi, drift = (by_axis(rows, terms.kind) for rows in (terms.phi, h * terms.gdot_v))
    if material.friction_spring is not None and problem.stretch is not None:
        phi = phi.at[stiffness.shape[0] :].set(problem.stretch.T.ravel())
    rate, phi, drift = computed_once((rate, phi, drift))
    # The rate of phi at the end of the step is u = G v+ + h Gdot v.
    base = -springs * phi - rate * drift
    if mass is not None:
        carried = jnp.concatenate([mass, *[mass[mass.shape[0] - nc :]] * (axes - 1)]) if rubs else mass
        base = base.at[: carried.shape[0]].add(carried / h * start_rates(problem)[: carried.shape[0]])
    return RowMaterial(base=base, rate=rate, mu=mu)


def slope_cap(dtype: jax.typing.DTypeLike) -> float:
    """Return the largest slope times mobility of a row of a convex program: eps^-0.375, 7.5e5 in double."""
    return float(jnp.finfo(dtype).eps) ** -0.375


def convex_program(
    problem: Problem,
    row: RowMaterial,
    *,
    pyramid: bool = False,
    gate: str,
    cap: float | None = None,
) -> ConeProgram:
    """Make the program of a step in v+ and the impulses h lam; rows stiffer than the cap keep their impulse.

    Rows of `gate`, "none", "limits" or "all" with the contacts, push only where their gap closes in the step.
    """
    terms, h, columns = problem.terms, problem.dt, columns_of(problem.terms)
    nb, nl, nc, _ = count_rows(terms.kind)
    stiff = h * row.rate
    # Exact for free bodies, and of the right order elsewhere.
    mobility = row_mobility(diagonal(problem.M), columns, nb + nl, nc)
    product = lax.stop_gradient(stiff * mobility)
    cap = slope_cap(terms.phi.dtype) if cap is None else cap
    share = jnp.where(product > cap, cap / jnp.where(product > cap, product, 1.0), 1.0)
    extra: dict[str, Any] = {}  # fields of a record
    if problem.material.potential is not None:
        future = by_axis(terms.phi + h * h * terms.gdot_v, terms.kind)[nb : nb + nl + nc]
        extra = {"potential": problem.material.potential, "depth": -future, "dt": h}
    if gate != "none" and nl + nc:
        heads = slice(nb, nb + nl + nc)
        gap = by_axis(terms.phi + h * h * terms.gdot_v, terms.kind)[heads]
        is_open = gaps_of(problem).is_open & ((np.arange(nl + nc) < nl) | (gate == "all"))
        reach = lax.stop_gradient(mobility)[heads]
        extra["touch"] = jnp.where(is_open & (reach > 0), -gap / h, jnp.inf)
        extra["stop"] = jnp.maximum((share * stiff)[heads], cap / jnp.where(reach > 0, reach, 1.0))
    if terms.dry is not None:
        free = jnp.full(nb - terms.dry.shape[0], jnp.inf, terms.phi.dtype)
        extra["dry_bound"] = jnp.concatenate([free, h * terms.dry])
    return ConeProgram(
        M=problem.M,
        v=problem.v,
        push=h * problem.f,
        columns=columns,
        offset=share * (h * row.base),
        slope=share * stiff,
        keep=1.0 - share,
        mu=row.mu,
        **extra,
        num_equalities=nb,
        num_limits=nl,
        limits_apart=terms.apart,
        pyramid=pyramid,
    )

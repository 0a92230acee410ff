"""Interior points for a `ConeProgram` under Coulomb's law: entry `approach_by_interior_points`.

Each iteration solves one system in the velocities, nv x nv, however many rows there are. Page:
docs/methods/compliant.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import branch_factor
from jaxcontact.algebra.cones import positive
from jaxcontact.batching import compacting_loop
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.solvers import cone_program, friction_cone, row_algebra
from jaxcontact.solvers.cone_newton import ConeSolution
from jaxcontact.solvers.cone_program import ConeProgram, Response, apply_slopes, row_heads, split
from jaxcontact.solvers.coulomb_program import TILE
from jaxcontact.solvers.friction_cone import ConeChange, FrictionCone
from jaxcontact.solvers.friction_interior import CENTRING_POWER, centring, distance_to_zero, fraction
from jaxcontact.solvers.friction_law import Rows
from jaxcontact.solvers.row_algebra import apply_columns, apply_rows, diagonal, multiply
from jaxcontact.tolerances import HALF_DIGITS, MEAN_PRODUCT, rounding

STEPS = 40  # most iterations; hard steps of robots on the floor take ten to twenty
JAMMED = 0.1  # length of a step; the next one holds the bounds of friction, and is no corrector
FAR = 4.0  # times the speed that all energy would give a row; one whose gap needs more takes no part
LOST = 1e-3  # length of a step after which the search ends


class _InteriorConstants(NamedTuple):
    """The constants of a search.

    Attributes:
        program: the problem.
        masses: diagonal (nv,) of M.
        mobility: (nu,) of limits and normals.
        size: root of m v^2.
        pushes: (nu,) limits and contacts that may have an impulse, not those that are too far to close.
        rubs: (nc,) contacts with friction.
        dry: (ne,) equality rows with a bound that is not zero.
    """

    program: ConeProgram
    masses: jax.Array
    mobility: jax.Array
    size: jax.Array
    pushes: jax.Array
    rubs: jax.Array
    dry: jax.Array


class _InteriorPoint(NamedTuple):
    """A point strictly inside the cones.

    Attributes:
        x: (nv,) velocities, which need not be in balance.
        p: (nr,) impulses.
        rate: (nu,) > 0, of limits and normals beyond the rate at which they ask for their impulses.
        speed: (nc,) > |u_t| of contacts.
        dry_speed: (ne,) the same of the equality rows that have a bound.
        product: mean product of impulses and rates, which tends to zero.
        length: of the last step, 1 at the start.
        steps, done: of the search.
    """

    x: jax.Array
    p: jax.Array
    rate: jax.Array
    speed: jax.Array
    dry_speed: jax.Array
    product: jax.Array
    length: jax.Array
    steps: jax.Array
    done: jax.Array


class _Linear(NamedTuple):
    """The law near a point.

    Attributes:
        contacts, dry: friction of contacts and of equality rows that have a bound.
        compliance: (nu,) of limits and normals.
        misfit: (nu,) by which rates differ from those of the velocities.
        momentum: (nv,) misfit of the momenta.
        held: (ne,) change of impulse that equality rows ask for, where they have no bound.
        lean: (nc,) per tangent, the change of friction per normal impulse.
        response: loss of impulse per rate.
        factor: of the system of the velocities.
    """

    contacts: FrictionCone
    dry: FrictionCone
    compliance: jax.Array
    misfit: jax.Array
    momentum: jax.Array
    held: jax.Array
    lean: Rows
    response: Response
    factor: branch_factor.Factor


class _Move(NamedTuple):
    """Changes of a point."""

    x: jax.Array
    p: jax.Array
    rate: jax.Array
    contacts: ConeChange
    dry: ConeChange


def _split_tangents(program: ConeProgram, rows: jax.Array) -> Rows:
    """Split off the rows (nc,) of each tangent."""
    return split(rows, program.num_equalities + program.num_limits, program.mu.shape[0])[1:]


def _approach(program: ConeProgram, u: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the rates (nu,) of limits and normals beyond those they ask for, and their compliance.

    A row that closes within the step has two lines, its spring and its stop, and asks for the less impulse.
    """
    heads = row_heads(program)
    held, compliance = (1.0 - program.keep[heads]) * p[heads], 1.0 / positive(program.slope[heads])
    rate = u[heads] + (held - program.offset[heads]) * compliance
    if program.touch is None or program.stop is None:
        return rate, compliance
    opens, at_stop = jnp.isfinite(program.touch), 1.0 / positive(program.stop)
    stopped = u[heads] - jnp.where(opens, program.touch, 0.0) + held * at_stop
    stops = opens & (stopped > rate)
    return jnp.where(stops, stopped, rate), jnp.where(stops, at_stop, compliance)


def _contact_cones(
    program: ConeProgram, acts: jax.Array, u: jax.Array, p: jax.Array, speed: jax.Array
) -> FrictionCone:
    """Return the friction of contacts at rates u and impulses p (nr,)."""
    compliance = 1.0 / positive(_split_tangents(program, program.slope)[0])
    rows = (_split_tangents(program, x) for x in (u, p, program.keep, program.offset))
    bound = program.mu * p[row_heads(program)][program.num_limits :]
    return FrictionCone(
        acts=acts,
        bound=jnp.where(acts, bound, 1.0),
        speed=jnp.where(acts, speed, 1.0),
        force=_split_tangents(program, p),
        slip=[w + ((1.0 - keep) * f - o) * compliance for w, f, keep, o in zip(*rows, strict=True)],
        compliance=compliance,
    )


def _dry_cones(
    program: ConeProgram, acts: jax.Array, u: jax.Array, p: jax.Array, speed: jax.Array
) -> FrictionCone:
    """Return the friction of equality rows at rates u and impulses p (nr,)."""
    rows = slice(program.num_equalities)
    compliance = 1.0 / positive(program.slope[rows])
    bound = jnp.ones_like(compliance) if program.dry_bound is None else program.dry_bound
    return FrictionCone(
        acts=acts,
        bound=jnp.where(acts, bound, 1.0),
        speed=jnp.where(acts, speed, 1.0),
        force=[p[rows]],
        slip=[u[rows] + ((1.0 - program.keep[rows]) * p[rows] - program.offset[rows]) * compliance],
        compliance=compliance,
    )


def _linearise_rows(fixed: _InteriorConstants, now: _InteriorPoint) -> _Linear:
    """Linearise the law of every row at a point, and factor the system of the velocities."""
    program, heads = fixed.program, row_heads(fixed.program)
    ne, nl = program.num_equalities, program.num_limits
    u = apply_rows(program.columns, now.x)
    rate, compliance = _approach(program, u, now.p)
    contacts = _contact_cones(program, fixed.rubs, u, now.p, now.speed)
    dry = _dry_cones(program, fixed.dry, u, now.p, now.dry_speed)
    impulse = now.p[heads]
    loss = jnp.where(fixed.pushes, impulse / positive(now.rate + compliance * impulse), 0.0)
    # The bound of friction follows the normal impulse: dp_t = lean dp_n - give du_t.
    coupled = jnp.where(now.length < JAMMED, 0.0, program.mu)
    pairs = zip(contacts.force, contacts.slip, strict=True)
    lean = friction_cone.solve_force(
        contacts, [coupled * (f / contacts.bound * contacts.speed - w) for f, w in pairs]
    )
    block = [[loss[nl:]] + [jnp.zeros_like(contacts.bound)] * len(lean)]
    block += [
        [a * loss[nl:], *row] for a, row in zip(lean, friction_cone.force_per_slip(contacts), strict=True)
    ]
    give = program.slope[:ne]
    if program.dry_bound is not None:
        give = jnp.where(jnp.isfinite(program.dry_bound), friction_cone.force_per_slip(dry)[0][0], give)
    response = Response(now.p, program.slope, jnp.concatenate([give, loss[:nl]]), block, program.keep)
    return _Linear(
        contacts=contacts,
        dry=dry,
        compliance=compliance,
        misfit=jnp.where(fixed.pushes, rate - now.rate, 0.0),
        momentum=multiply(program.M, now.x - program.v)
        - program.push
        - apply_columns(program.columns, now.p),
        held=(program.keep[:ne] - 1.0) * now.p[:ne] + program.offset[:ne] - program.slope[:ne] * u[:ne],
        lean=lean,
        response=response,
        factor=cone_program.factor(program, response),
    )


def _direct(
    fixed: _InteriorConstants, now: _InteriorPoint, law: _Linear, target: jax.Array, before: _Move | None
) -> _Move:
    """Solve for the step to products of `target`, less the products of the predictor `before`."""
    program, heads, contacts, dry = fixed.program, row_heads(fixed.program), law.contacts, law.dry
    ne, nl = program.num_equalities, program.num_limits
    impulse, second, dry_second = now.p[heads], None, None
    pushing = target - impulse * now.rate
    if before is not None:
        pushing, second, dry_second = pushing - before.p[heads] * before.rate, before.contacts, before.dry
    normal = (pushing - impulse * law.misfit) / positive(now.rate + law.compliance * impulse)
    normal = jnp.where(fixed.pushes, normal, 0.0)
    turning, product = friction_cone.right_hand_sides(contacts, target, second)
    dry_turning, dry_product = friction_cone.right_hand_sides(dry, target, dry_second)
    turned = friction_cone.solve_force(contacts, turning)
    rubbed = [t + a * normal[nl:] for t, a in zip(turned, law.lean, strict=True)]
    held = law.held
    if program.dry_bound is not None:
        dry_turned = friction_cone.solve_force(dry, dry_turning)[0]
        held = jnp.where(jnp.isfinite(program.dry_bound), dry_turned, held)
    aims = jnp.concatenate([held, normal, *rubbed])
    x = branch_factor.solve_factored(law.factor, apply_columns(program.columns, aims) - law.momentum)
    du = apply_rows(program.columns, x)
    p = aims - apply_slopes(law.response, du)
    force = _split_tangents(program, p)
    slip = [w + contacts.compliance * f for w, f in zip(_split_tangents(program, du), force, strict=True)]
    change = ConeChange(
        jnp.where(contacts.acts, program.mu * p[heads][nl:], 0.0), jnp.zeros_like(now.speed), force, slip
    )
    dry_slip = [du[:ne] + dry.compliance * p[:ne]]
    dry_change = ConeChange(jnp.zeros_like(dry.bound), jnp.zeros_like(dry.bound), [p[:ne]], dry_slip)
    return _Move(
        x=x,
        p=p,
        rate=jnp.where(fixed.pushes, du[heads] + law.compliance * p[heads] + law.misfit, 0.0),
        contacts=change._replace(speed=friction_cone.speed_change(contacts, product, change)),
        dry=dry_change._replace(speed=friction_cone.speed_change(dry, dry_product, dry_change)),
    )


def _longest_step(fixed: _InteriorConstants, now: _InteriorPoint, law: _Linear, move: _Move) -> jax.Array:
    """Compute the length in [0, 1] of a step that stays strictly inside the cones."""
    heads = row_heads(fixed.program)
    single = jnp.minimum(distance_to_zero(now.p[heads], move.p[heads]), distance_to_zero(now.rate, move.rate))
    limits = [
        jnp.where(fixed.pushes, single, jnp.inf),
        friction_cone.longest_step(law.contacts, move.contacts),
    ]
    if fixed.program.dry_bound is not None:
        limits.append(friction_cone.longest_step(law.dry, move.dry))
    return jnp.maximum(fraction(jnp.concatenate(limits)), 0.0)


def _product_at(
    fixed: _InteriorConstants, now: _InteriorPoint, law: _Linear, move: _Move, step: jax.Array
) -> jax.Array:
    """Compute the mean product of impulses and rates after a fraction of a step."""
    heads = row_heads(fixed.program)
    pushed = (now.p[heads] + step * move.p[heads]) * (now.rate + step * move.rate)
    contacts = friction_cone.move(law.contacts, move.contacts, step)
    total = jnp.sum(jnp.where(fixed.pushes, pushed, 0.0)) + jnp.sum(friction_cone.products(contacts))
    if fixed.program.dry_bound is not None:
        total = total + jnp.sum(friction_cone.products(friction_cone.move(law.dry, move.dry, step)))
    count = jnp.sum(fixed.pushes) + jnp.sum(fixed.rubs) + jnp.sum(fixed.dry)
    return jnp.maximum(total, 0.0) / jnp.maximum(count, 1).astype(total.dtype)


def _take_interior_step(fixed: _InteriorConstants, now: _InteriorPoint) -> _InteriorPoint:
    """Take one step: a predictor to products of zero, then a corrector to a fraction of those before."""
    eps, law = float(jnp.finfo(now.x.dtype).eps), _linearise_rows(fixed, now)
    misfit = jnp.sum(law.momentum**2 / fixed.masses) + jnp.sum(law.misfit**2 / positive(fixed.mobility))
    is_close = (now.product <= eps**MEAN_PRODUCT * fixed.size**2) & (
        misfit <= (eps**HALF_DIGITS * fixed.size) ** 2
    )
    predictor = _direct(fixed, now, law, jnp.zeros_like(now.product), None)
    after = _product_at(fixed, now, law, predictor, _longest_step(fixed, now, law, predictor))
    # After a step that the cones cut short, the next one moves toward their middle.
    left = jnp.maximum(centring(now.product, after), (1.0 - now.length) ** CENTRING_POWER)
    corrected = jnp.where(now.length < JAMMED, 0.0, 1.0)
    second = jax.tree.map(lambda change: corrected * change, predictor)
    move = _direct(fixed, now, law, left * now.product, second)
    length = _longest_step(fixed, now, law, move)
    then = _InteriorPoint(
        x=now.x + length * move.x,
        p=now.p + length * move.p,
        rate=now.rate + length * move.rate,
        speed=now.speed + length * move.contacts.speed,
        dry_speed=now.dry_speed + length * move.dry.speed,
        product=_product_at(fixed, now, law, move, length),
        length=length,
        steps=now.steps + 1,
        done=now.done,
    )
    is_finite = jnp.all(jnp.isfinite(then.x)) & jnp.isfinite(then.product)
    ends = now.done | is_close | (now.length < LOST) | ~is_finite
    then = jax.tree.map(lambda new, old: jnp.where(ends, old, new), then, now)
    return then._replace(done=ends)


def _begin_inside(program: ConeProgram, x: jax.Array) -> tuple[_InteriorConstants, _InteriorPoint]:
    """Start from velocities x, with impulses along normals whose products with the rates are equal."""
    masses, heads, ne = diagonal(program.M), row_heads(program), program.num_equalities
    singles, nc = ne + program.num_limits, program.mu.shape[0]
    mobility = row_algebra.row_mobility(masses, program.columns, singles, nc)[heads]
    energy = program.v @ multiply(program.M, program.v) + program.push @ (program.push / masses)
    size = jnp.sqrt(energy) + jnp.finfo(masses.dtype).tiny
    pushes = (program.slope[heads] > 0) & (mobility > 0)
    if program.touch is not None:
        opens = jnp.isfinite(program.touch)
        pushes = pushes & ~(opens & (program.touch < -FAR * size * jnp.sqrt(mobility)))
    grips = (_split_tangents(program, program.slope)[0] > 0) & (
        program.mu > 4.0 * jnp.finfo(masses.dtype).eps
    )
    limit = jnp.zeros(ne, masses.dtype) if program.dry_bound is None else program.dry_bound
    fixed = _InteriorConstants(
        program=program,
        masses=masses,
        mobility=mobility,
        size=size,
        pushes=pushes,
        rubs=pushes[program.num_limits :] & grips,
        dry=jnp.isfinite(limit) & (limit > 0) & (program.slope[:ne] > 0),
    )
    u, p, product = apply_rows(program.columns, x), jnp.zeros_like(program.offset), size**2
    rate = jnp.maximum(_approach(program, u, p)[0], size * jnp.sqrt(positive(mobility)))
    p = p.at[heads].set(jnp.where(pushes, product / rate, 0.0))
    contacts = _contact_cones(program, fixed.rubs, u, p, jnp.ones_like(product))
    dry = _dry_cones(program, fixed.dry, u, p, jnp.ones_like(product))
    return fixed, _InteriorPoint(
        x=x,
        p=p,
        rate=jnp.where(pushes, rate, 1.0),
        speed=friction_cone.centred_speed(contacts, product),
        dry_speed=friction_cone.centred_speed(dry, product),
        product=product,
        length=jnp.ones_like(product),
        steps=jnp.int32(0),
        done=jnp.asarray(False),
    )


def approach_by_interior_points(
    program: ConeProgram, x: jax.Array, max_iters: int = STEPS, early_exit: bool = True
) -> ConeSolution:
    """Approach the solution of a program with `coulomb=True` and no potential, from velocities x (nv,).

    Of limits and normals p_n (u_n + R p_n - o) = k, of friction (mu p_n, p_t) o (psi, u_t + R p_t - o) =
    (k, 0) in the Jordan algebra of second-order cones, while k tends to zero by Mehrotra's rule. Friction
    does not push back on the normal, as Coulomb's law has it. The impulses of a contact follow from its
    rates, so a step solves one nv x nv system. `converged` tells whether k and the misfits became small.

    Derivative: none.
    """
    program, x = lax.stop_gradient((program, x))

    def running(now: _InteriorPoint) -> jax.Array:
        return ~now.done & (now.steps < max_iters)

    def solution(fixed: _InteriorConstants, now: _InteriorPoint) -> ConeSolution:
        close = rounding(now.x.dtype, MEAN_PRODUCT) * fixed.size**2
        converged = now.done & (now.product <= close)
        return ConeSolution(x=now.x, p=now.p, iterations=now.steps, converged=converged)

    def one(program: ConeProgram, x: jax.Array) -> ConeSolution:
        fixed, now = _begin_inside(program, x)
        step = functools.partial(_take_interior_step, fixed)
        return solution(fixed, bounded_loop(running, step, now, max_iters=max_iters, early_exit=early_exit))

    def many(program: ConeProgram, x: jax.Array) -> ConeSolution:
        fixed, now = jax.vmap(_begin_inside)(program, x)
        now = compacting_loop.while_lanes(
            running, jax.vmap(_take_interior_step), lambda _, now: now, fixed, now, wide=TILE
        )
        return jax.vmap(solution)(fixed, now)

    found: ConeSolution = batch_first(one, many if ends_early(early_exit) else jax.vmap(one), program, x)
    return found

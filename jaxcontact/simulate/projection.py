"""The nearest configuration without penetration and with loops closed; it removes depth in q alone.

Owns the search for it and its derivative; entry `project`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.arguments import is_concrete
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.front_door import checked
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.motion_equations import body_frames, mass_matrix
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.solvers.lcp import solve_lcp
from jaxcontact.status import Info, Status, flag, is_finite
from jaxcontact.terms import CONTACT_TOLERANCE, contact_gaps
from jaxcontact.terms.closed_loops import project_velocity
from jaxcontact.tolerances import HALF_DIGITS, rounding

MAX_ITERS = 50  # linearised steps; a search that needs more ends with the bit MAX_ITERS


class ProjectionInfo(Info):
    """The outcome of `project` beside the state.

    Attributes:
        status: uint32 bits of `Status`.
        residual: relative change of the displacement by the last iteration, in the kinetic metric.
        num_iters: int32, iterations.
        depth: largest deviation of a loop or depth of a contact or limit before, m or rad; 0 is none.
        displacement: (nv,) tangent step from the configuration given to the one returned.
    """

    depth: jax.Array
    displacement: jax.Array


@checked()
def project(model: Model, state: State) -> tuple[State, ProjectionInfo]:
    """Move a state to the nearest one without penetration, with limits kept and loops closed.

    q+ = q retracted by the smallest step d in the kinetic metric of q, min d^T M(q) d over gap(q+) >= 0,
    limit(q+) >= 0, deviation(q+) = 0. The velocity stays as it is, but for loops, whose rates are zero at the
    velocity nearest in that metric; a contact that approaches is left to an impact law.

    Args:
        model: the mechanism and its numbers.
        state: anywhere near; bodies that are deeper than through the middle may leave on the other side.

    Returns:
        The State, t as it was, and ProjectionInfo. A state without penetration comes back bit by bit.

    Raises:
        TypeError: arguments that are no Model and State, in this order.

    Status: PENETRATION if a gap stays below -1e-6 m (or a deviation above), MAX_ITERS if the step is not yet
        the nearest after 50 iterations, NONFINITE for gaps, velocities or a time that are not finite, INVALID
        for a mass matrix that is not positive definite, the bits of `solve_lcp`.

    Derivative: of the contacts, limits and loops that hold at q+, by state and params, forward and reverse.
    """
    check_mechanism(model, state)
    return _project(model, state)


@jit
def _project(model: Model, state: State) -> tuple[State, ProjectionInfo]:
    q, info = nearest_configuration(model, state.q)
    rows, v = held_rows(model, q), state.v
    if rows is not None:
        v = project_velocity(mass_matrix(model, q), rows, v)
    status = info.status | flag(~is_finite((v, state.t)), Status.NONFINITE)  # q has its bit already
    return state.replace(q=q, v=v), info.replace(status=status)


def constraint_values(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute deviations (nb,), zero where loops are closed, and gaps and limits (nu,) that are kept >= 0."""
    gaps = [jnp.zeros(0, q.dtype)]
    if model.structure.num_contacts:
        gaps.append(contact_gaps(model, q))
    if model.system.constraints is not None:
        gaps.append(model.system.constraints(model.structure, q, model.params)[1])
    return deviations(model, q), jnp.concatenate(gaps)


def deviations(model: Model, q: jax.Array) -> jax.Array:
    """Compute the deviations (nb,) of loops and of joints that `constraints` holds."""
    structure, held = model.structure, [jnp.zeros(0, q.dtype)]
    if structure.tree is not None and structure.tree.closes:
        assert model.system.mechanics is not None
        held.append(model.system.mechanics.closures(structure, *body_frames(model, q), model.params))
    if model.system.constraints is not None:
        held.append(model.system.constraints(structure, q, model.params)[0])
    return jnp.concatenate(held)


def held_rows(model: Model, q: jax.Array) -> jax.Array | None:
    """Compute the derivatives (nb, nv) of the deviations of loops and held joints; None without any."""
    if not deviations(model, q).shape[0]:
        return None
    rows = jax.jacfwd(lambda d: deviations(model, retract(model.system, q, d)))
    return rows(jnp.zeros(model.structure.num_velocities, q.dtype))


def least_penetration(q: jax.Array) -> jax.Array:
    """Compute the depth in m beyond which a state is in penetration: 1e-6 m, and no less than round-off."""
    return jnp.maximum(CONTACT_TOLERANCE, allowed_depth(lax.stop_gradient(q)))


def check_no_penetration(model: Model, state: State) -> None:
    """Raise ValueError for a state of known numbers that is deeper than 1e-6 m; traced ones set a bit."""
    if not model.structure.num_contacts or not is_concrete(model.params, state.q):
        return
    with jax.ensure_compile_time_eval():  # a trace around this call would trace known numbers, too
        depth = -float(jnp.min(contact_gaps(model, state.q), initial=0.0))
        allowed = float(least_penetration(state.q))
    if depth > allowed:
        raise ValueError(
            f"state: expected no penetration, got one of {depth:.3g} m; jc.project(model, state) removes it"
        )


def allowed_depth(q: jax.Array) -> jax.Array:
    """Compute the largest depth in m that is round-off."""
    return 256.0 * float(jnp.finfo(q.dtype).eps) * jnp.maximum(1.0, jnp.max(jnp.abs(q)))


class _ProjectionSearch(NamedTuple):
    step: jax.Array  # d (nv,)
    forces: jax.Array  # (nb + nu,) multipliers of the rows
    worst: jax.Array  # depth or deviation at d
    change: jax.Array
    status: jax.Array
    tries: jax.Array


def nearest_configuration(model: Model, q: jax.Array) -> tuple[jax.Array, ProjectionInfo]:
    """Find the configuration nearest to q in the kinetic metric that meets all constraints; see `project`."""
    return nearest_and_pushes(model, q)[:2]


def nearest_and_pushes(model: Model, q: jax.Array) -> tuple[jax.Array, ProjectionInfo, jax.Array]:
    """Find the nearest configuration and its info; return also which gaps and limits (nu,) push it out."""
    fixed, start = lax.stop_gradient((model.params, q))
    mass = mass_matrix(model.replace(params=fixed), start)
    inverse, pivot = small_dense.spd_inverse(mass)
    held, gaps = constraint_values(model.replace(params=fixed), start)
    none = jnp.zeros(mass.shape[0], q.dtype)
    forces = jnp.zeros(held.shape[0] + gaps.shape[0], q.dtype)
    depth = _largest_violation(held, gaps)
    allowed = allowed_depth(start)
    # If a step is itself nearly round-off, the gaps determine it only to that relative accuracy.
    settled = jnp.maximum(rounding(q.dtype, HALF_DIGITS), allowed / jnp.where(depth > 0, depth, 1.0))
    good = jnp.isfinite(depth) & (pivot > 0)

    def searching(carry: _ProjectionSearch) -> jax.Array:
        rough = (carry.worst > allowed) | (carry.change > settled)
        return good & rough & (carry.status == 0) & (carry.tries < MAX_ITERS)

    def improve(carry: _ProjectionSearch) -> _ProjectionSearch:
        step, forces, status = _linear_step(model.replace(params=fixed), start, carry.step, inverse)
        worst = _largest_violation(
            *constraint_values(model.replace(params=fixed), retract(model.system, start, step))
        )
        moved, total = (jnp.sqrt(jnp.maximum(x @ mass @ x, 0.0)) for x in (step - carry.step, step))
        change = jnp.where(total > 0, moved / jnp.where(total > 0, total, 1.0), 0.0)
        return _ProjectionSearch(step, forces, worst, change, carry.status | status, carry.tries + 1)

    first = _ProjectionSearch(none, forces, depth, jnp.zeros_like(depth), jnp.uint32(0), jnp.int32(0))
    search = bounded_loop(searching, improve, first, max_iters=MAX_ITERS)
    step = _attach_derivative(model, q, search, held.shape[0])
    moved = retract(model.system, q, step)
    if held.shape[0]:  # loops that are closed stay so under a change of q
        still = lax.stop_gradient(q) + (moved - lax.stop_gradient(moved))
        q_plus = jnp.where(search.tries > 0, moved, still)
    else:
        q_plus = jnp.where(search.tries > 0, moved, q)
    unfinished = (search.tries >= MAX_ITERS) & ((search.worst > allowed) | (search.change > settled))
    status = (
        search.status
        | flag(unfinished, Status.MAX_ITERS)
        | flag(search.worst > least_penetration(start), Status.PENETRATION)
        | flag(~jnp.isfinite(depth), Status.NONFINITE)
        | flag(jnp.isfinite(depth) & ~good, Status.INVALID)
    )
    info = ProjectionInfo(
        status=status, residual=search.change, num_iters=search.tries, depth=depth, displacement=step
    )
    return q_plus, info, (search.forces[held.shape[0] :] > 0) & (search.tries > 0)


def _largest_violation(held: jax.Array, gaps: jax.Array) -> jax.Array:
    """Find the largest deviation or depth."""
    return jnp.maximum(jnp.max(jnp.abs(held), initial=0.0), jnp.max(-gaps, initial=0.0))


def _linear_step(
    model: Model, q: jax.Array, step: jax.Array, inverse: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Find the smallest step that meets the constraints linearised at `step`; return multipliers and bits."""

    def values(d: jax.Array) -> jax.Array:
        return jnp.concatenate(constraint_values(model, retract(model.system, q, d)))

    held = constraint_values(model, q)[0].shape[0]
    values_at_step, J = values(step), jax.jacfwd(values)(step)
    square = jnp.sum((J @ inverse) * J, axis=1)
    size = jnp.where(square > 0, lax.rsqrt(jnp.where(square > 0, square, 1.0)), 1.0)
    J, rhs = J * size[:, None], (J @ step - values_at_step) * size
    response = inverse @ J.T
    gram = J @ response
    onto = gram[:held, :held]
    if held:
        onto, _ = small_dense.generalized_inverse(onto)
    first = onto @ rhs[:held]  # of the loops alone
    answer = onto @ gram[:held, held:]  # of the loops to each contact
    W = gram[held:, held:] - gram[held:, :held] @ answer
    if W.shape[0]:
        pushes, info = solve_lcp(W, gram[held:, :held] @ first - rhs[held:])
        status = info.status
    else:
        pushes, status = rhs[:0], jnp.uint32(0)
    forces = jnp.concatenate([first - answer @ pushes, pushes])
    return response @ forces, size * forces, status


def _attach_derivative(model: Model, q: jax.Array, search: _ProjectionSearch, held: int) -> jax.Array:
    """Attach the derivative to the step: M d = J^T lam, with the constraints that push at zero."""
    pushes = (search.forces > 0) & (search.tries > 0)
    holds = (pushes | (jnp.arange(search.forces.shape[0]) < held)).astype(q.dtype)

    def residual(data: PyTree, root: PyTree) -> PyTree:
        (params, q, holds), (d, forces) = data, root
        at_params = model.replace(params=params)
        values, back = jax.vjp(
            lambda x: jnp.concatenate(constraint_values(at_params, retract(model.system, q, x))), d
        )
        balance = mass_matrix(at_params, q) @ d - back(forces)[0]
        return balance, jnp.where(holds > 0, values, -forces)

    def correct(data: PyTree, root: PyTree, rhs: PyTree) -> PyTree:
        d, forces = root
        nv = d.shape[0]

        def equations(x: jax.Array) -> jax.Array:
            return jnp.concatenate(residual(data, (x[:nv], x[nv:])))

        K = jax.jacfwd(equations)(jnp.concatenate([d, forces]))
        size = lax.rsqrt(jnp.diagonal(mass_matrix(model.replace(params=data[0]), data[1])))
        rows = jnp.max(jnp.abs(K[nv:, :nv] * size[None]), axis=1)
        size = jnp.concatenate([size, 1.0 / jnp.where((data[2] > 0) & (rows > 0), rows, 1.0)])
        inverse, _ = small_dense.generalized_inverse(size[:, None] * K * size[None])
        x = size * (inverse @ (size * jnp.concatenate(rhs)))
        return x[:nv], x[nv:]

    data = (model.params, q, lax.stop_gradient(holds))
    step, _ = implicit.attach(residual, correct, data, (search.step, search.forces))
    return step

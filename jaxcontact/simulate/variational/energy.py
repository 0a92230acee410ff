"""The energy of a move or an impact, compared with the work done in it.

Owns the tests for the bit ENERGY; entries: `move_gains`, with the equation, and `impact_gains`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.algebra import implicit
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.motion_equations import energies
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.variational.contact_state import Node, contacts_of, drag_at, find_touching
from jaxcontact.simulate.variational.discrete_mechanics import MidpointStep, mean_velocities
from jaxcontact.simulate.variational.discrete_momenta import Start, applied_force
from jaxcontact.terms.surfaces import shared_velocity
from jaxcontact.tolerances import HALF_DIGITS, rounding

ROUNDING = 1024.0  # machine epsilons of the energies that are compared; a smaller rise is rounding


def move_gains(
    model: Model,
    node: Node,
    step: MidpointStep,
    arrived: Node,
    second: jax.Array,
    h: jax.Array,
    controls: jax.Array | None = None,
) -> jax.Array:
    """Decide whether a move of length h from `node` gains more energy than the work and its errors explain.

    With a move from (q_0, v_0) by the mean velocity w, forces F at its midpoint, impulses lam_0 and lam_1 of
    closed contacts at its ends, velocities v_0+ after the first and v_1- before the second, and u = J v,

        E_1 - E_0 = h w . F + delta + lam_0 . u(w) + lam_1 . u_1 + curvature,
        curvature = lam_0 . (u_0+ - u(w)) - lam_0 . (u_0+ - u_0) / 2 - lam_1 . (u_1 - u_1-) / 2.

    delta is the error of the midpoint rule for T and V along the move, of third order in h: if a step
    resolves the motion, it is less than the terms of second order, the energy |2 (w - v_0+)|^2 / 2 of the
    change of velocity and the second differences of T and V. The next two terms are never positive by the
    law of contact. So a rise is explained up to h w . F, these terms, the curvature, and rounding.
    The displacement that closes gaps left by round-off is no motion, and does not count. Loops are contacts
    with u(w) = u_1 = 0, and dry joints that slide are among the forces F. Surfaces that move do any work:
    their moves are not compared.
    """
    if node.terms.surface is not None:
        return jnp.array(False)
    w, lam = step.w, step.impulse
    rows_0, rows_1 = (contacts_of(n.terms, n.closed).rows for n in (node, arrived))
    p_plus = node.p + jnp.einsum("cdv,cd->v", rows_0, lam)
    if step.held is not None:
        p_plus = p_plus + step.held
    v_plus, v_minus = (
        implicit.solve_spd(n.terms.M, p[:, None])[:, 0] for n, p in ((node, p_plus), (arrived, step.p))
    )
    middle, end = retract(model.system, node.q, 0.5 * h * w), retract(model.system, node.q, h * w)
    (_, kinetic, _), (v_0, v_m, v_1) = jax.vmap(lambda q, v: energies(model, q, v))(
        jnp.stack([node.q, middle, end]), jnp.stack([jnp.zeros_like(w), w, jnp.zeros_like(w)])
    )
    before, after = 0.5 * node.v @ node.p, 0.5 * arrived.v @ arrived.p
    # The velocity to which start and middle of the move lead, without its end.
    ahead = 2.0 * w - v_plus
    plus, minus = 0.5 * v_plus @ p_plus, 0.5 * ahead @ arrived.terms.M @ ahead
    force, drags = applied_force(model, State(q=middle, v=w, t=node.t + 0.5 * h), controls), drag_at(node)
    work = h * w @ (force if drags is None else force + drags)
    change = ahead - v_plus
    explained = 0.5 * change @ arrived.terms.M @ change + jnp.abs(v_0 + v_1 - 2.0 * v_m)
    explained = explained + jnp.abs(plus + minus - 2.0 * kinetic)
    compared = [before, after, plus, minus, v_0, v_m, v_1, work]
    parts = []
    if step.held is not None:
        pull = arrived.p - step.p - jnp.einsum("cdv,cd->v", rows_1, second)
        parts = [0.5 * step.held @ (v_plus + node.v), 0.5 * pull @ (v_minus - arrived.v)]
    if lam.shape[0]:
        mean = mean_velocities(model, Start(node.q, node.p, node.t, controls), w, h)
        start, lifted, left = rows_0 @ node.v, rows_0 @ v_plus, rows_1 @ (arrived.v - v_minus)
        parts += [
            jnp.sum(lam * (lifted - mean)),
            jnp.sum(lam * (start - lifted)) / 2,
            -jnp.sum(second * left) / 2,
        ]
    if parts:
        explained = explained + jnp.maximum(sum(parts), 0.0)
        compared += parts
    rise = (after - before) + (v_1 - v_0) - work
    return rise > explained + ROUNDING * float(jnp.finfo(w.dtype).eps) * sum(map(jnp.abs, compared))


def impact_gains(before: Node, after: Node) -> jax.Array:
    """Decide whether an impact gains energy beyond a fraction eps^0.5, the error that a law may have.

    With surfaces that move, the energy of velocities relative to them counts.
    """
    old, new = 0.5 * before.v @ before.p, 0.5 * after.v @ after.p
    terms = before.terms
    if terms.surface is not None:
        shift, _ = shared_velocity(terms.replace(active=find_touching(terms)), terms.surface)
        old, new = (0.5 * v @ terms.M @ v for v in (before.v + shift, after.v + shift))
    return new > old * (1.0 + rounding(old.dtype, HALF_DIGITS))

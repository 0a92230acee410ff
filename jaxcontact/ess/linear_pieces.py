"""The linear pieces of the B-derivative of a flow, one per order of crossing: entry `one_sided_jacobian`.

Owns the enumeration of orders on the host; `b_derivative.py` propagates a direction in a given order.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_not_empty, check_number_leaves
from jaxcontact.ess.b_derivative import (
    BDerivativeInfo,
    Direction,
    PlannedRun,
    b_derivative,
    corner_width,
    numbers_of,
    propagate_direction,
)  # fmt: skip
from jaxcontact.ess.run import list_events, run
from jaxcontact.ess.settings import Settings
from jaxcontact.ess.simultaneous_crossing import ForcedOrder
from jaxcontact.front_door import checked
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.precision import jit
from jaxcontact.solvers.strict_inequalities import has_interior
from jaxcontact.status import Status

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

MAX_PIECES = 5040  # orders that are enumerated, 7!; one takes about as long as a b_derivative per direction
ROUNDING = 1e4  # eps of the largest lead: a lead below is zero whatever the direction


class LinearPieces(Record):
    """The pieces of a piecewise linear map of k coefficients of directions.

    Along the directions `basis`, coefficients c lie in piece p if conditions[p] @ c >= 0, and dx1 is then
    jacobians[p] @ c. The cones cover all coefficients and meet in their boundaries, where pieces agree.

    Near a tie, whose crossings lie within `corner_tol`, the pieces are those of the tie, moved: x1 changes by
    offsets[p] + jacobians[p] @ c where conditions[p] @ c + margins[p] >= 0, with an error of second order in
    c and in the time between the crossings.

    Attributes:
        jacobians: (p, n, k).
        conditions: (p, r, k) s; rows of zeros hold always.
        orders: (p, max_events) guards in the order of their crossing, -1 beyond.
        offsets: (p, n), zero at a tie.
        margins: (p, r) s, zero at a tie.
    """

    jacobians: jax.Array
    conditions: jax.Array
    orders: jax.Array
    offsets: jax.Array
    margins: jax.Array

    def rate(self, coefficients: jax.Array) -> jax.Array:
        """Return dx1 (n,) along coefficients (k,): that of the piece whose worst condition is best."""
        margins = jnp.min(self.conditions @ coefficients, axis=1, initial=0.0)
        return self.jacobians[jnp.argmax(margins)] @ coefficients

    def of_cost(self, by_end: jax.Array, by_coefficients: jax.Array) -> LinearPieces:
        """Return the pieces of a cost: its gradients are `by_end` (n,) and, at a fixed end, (k,)."""
        slopes = jnp.einsum("i,pik->pk", by_end, self.jacobians) + by_coefficients[None]
        return self.replace(jacobians=slopes[:, None], offsets=self.offsets @ by_end[:, None])


@checked(x0=check_not_empty, control=check_number_leaves)
def one_sided_jacobian(
    model: Model,
    x0: Float[jax.Array, " n"],
    t0: float | Float[jax.Array, ""],
    t1: float | Float[jax.Array, ""],
    *,
    settings: Settings,
    basis: jax.Array | Direction | None = None,
    control: PyTree = None,
    crossed0: Bool[jax.Array, " m"] | None = None,
) -> tuple[LinearPieces, BDerivativeInfo]:
    """Compute the linear pieces of the B-derivative of the flow, and the cones of directions that take them.

    A host function. Without corners there is one piece, the Jacobian; a corner of k guards has up to k!, of
    which those that no direction takes are left out. `corner_tol` of the settings decides how far apart
    crossings still make a corner; the wider, the farther from a tie are its pieces known.

    Args:
        model, x0, t0, t1, settings, control, crossed0: as `flow`.
        basis: k directions, an array (k, n) of starts or a `Direction` of such arrays; None is the n axes.

    Returns:
        LinearPieces, and the BDerivativeInfo of the trajectory itself.

    Raises:
        ValueError: as `b_derivative`; more than 5040 orders; the run failed, or has no B-derivative
            (SIMULTANEOUS).

    Derivative: none.
    """
    still = jnp.zeros_like(x0)
    _, info = b_derivative(model, x0, still, t0, t1, settings=settings, control=control, crossed0=crossed0)
    bad = int(info.status) & int(Status.FAILURES | Status.SIMULTANEOUS)
    if bad:
        raise ValueError(f"x0: expected a run with a B-derivative, got status {Status.describe(bad)}")
    if basis is None:
        basis = jnp.eye(x0.shape[0], dtype=x0.dtype)
    basis = basis if isinstance(basis, Direction) else Direction(x=basis)
    inputs, mask, plan, widths = run(model, x0, t0, t1, settings, control, crossed0)
    planned = PlannedRun(inputs, mask, plan, widths, corner_width(settings, inputs.x0))
    propagated = functools.partial(_propagate_in_order, model.system, settings.max_events, planned, basis)
    natural = np.asarray(list_events(plan, settings.max_events)[0])
    run_end, _, first, _ = (np.asarray(a) for a in propagated(jnp.asarray(natural)))
    orders = _list_orders(natural, first[0])
    ends = [jax.device_get(propagated(jnp.asarray(order))) for order in orders]
    dx, leads, _, stuck = (np.stack(a) for a in zip(*ends, strict=True))
    offsets = dx[:, -1] - run_end[-1]
    jacobians, conditions = np.swapaxes(dx[:, :-1], 1, 2), np.moveaxis(leads, 1, -1)
    conditions = conditions.reshape(len(orders), -1, conditions.shape[-1])
    conditions, margins = conditions[..., :-1], conditions[..., -1]
    possible = [p for p in range(len(orders)) if not stuck[p].any() and _can_hold(conditions[p])]
    used = np.any(conditions[possible] != 0, axis=(0, 2))
    return LinearPieces(
        jacobians=jnp.asarray(jacobians[possible]),
        conditions=jnp.asarray(conditions[possible][:, used]),
        orders=jnp.asarray(orders[possible]),
        offsets=jnp.asarray(offsets[possible]),
        margins=jnp.asarray(margins[possible][:, used]),
    ), info


def _list_orders(natural: np.ndarray, first: np.ndarray) -> np.ndarray:
    """List all orders of the events (p, max_events): permutations within corners, -1 beyond the last."""
    count = int(np.sum(first >= 0))
    corners = [natural[:count][first[:count] == start] for start in np.unique(first[:count])]
    number = math.prod(math.factorial(len(corner)) for corner in corners)
    if number > MAX_PIECES:
        raise ValueError(f"x0: expected at most {MAX_PIECES} orders of crossing at corners, got {number}")
    lists = [list(itertools.permutations(corner)) for corner in corners]
    rows = [np.concatenate([*choice, natural[count:]]) for choice in itertools.product(*lists)]
    return np.stack(rows).astype(np.int32)


def _can_hold(conditions: np.ndarray) -> bool:
    """Decide whether some coefficients fulfil all conditions (r, k) strictly, but for rows of zeros."""
    size = np.linalg.norm(conditions, axis=1)
    rows = conditions[size > ROUNDING * np.finfo(conditions.dtype).eps * size.max(initial=0.0)]
    return has_interior(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@functools.partial(jit, static_argnames=("es", "max_events"))
def _propagate_in_order(
    es: EventSystem,
    max_events: int,
    planned: PlannedRun,
    basis: Direction,
    order: jax.Array,
) -> tuple[jax.Array, ...]:
    """Propagate all directions (k, ...) in one order (max_events,); return dx, leads, corners, stuck.

    A last row, k + 1, has the displacement and the leads that the values of the guards make.
    """
    rows = jax.tree.map(lambda a: jnp.concatenate([a, jnp.zeros_like(a[:1])]), basis)
    weights = jnp.zeros(rows.x.shape[0], planned.eps.dtype).at[-1].set(1.0)
    padded = jnp.concatenate([order, jnp.full(planned.crossed0.shape[0], -1, order.dtype)])

    def along(direction: Direction, weight: jax.Array) -> tuple[jax.Array, ...]:
        numbers, forced = numbers_of(planned.inputs, direction), ForcedOrder(padded, weight)
        end = propagate_direction(es, max_events, planned, numbers, direction.x, forced)
        return end.dx, end.leads, end.first, end.grazed >= 0

    return jax.vmap(along)(rows, weights)

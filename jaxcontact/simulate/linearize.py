"""The derivative of one step of any stepper along tangents: entry `linearize`, with A, B around a state."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_array, check_number
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.configuration import difference, retract
from jaxcontact.mechanics.mocap import Mocap, apply_mocap, mocap_rows
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.simulate.stepper import Stepper, StepperInfo
from jaxcontact.simulate.stepping import check_stepper
from jaxcontact.status import Status, flag, is_finite

if TYPE_CHECKING:
    from jaxtyping import Float


class Linearization(Record):
    """A step around a state: x+ = A x + B u, plus terms of second order if requested.

    x (2 nv,) is a tangent step of q, then the change of v; x+ is that of the state after the step. Positions
    are in m and rad along the velocities of the mechanism, so a quaternion counts as a rotation vector.

    Attributes:
        A: (2 nv, 2 nv) derivative by x.
        B: (2 nv, nu) derivative by u.
        second: (2 nv, 2 nv + nu, 2 nv + nu) second derivatives by (x, u), or None.
        state: the state after the step, around which x+ is measured.
    """

    A: jax.Array
    B: jax.Array
    second: jax.Array | None
    state: State


@checked(dt=POSITIVE)
def linearize(
    model: Model,
    state: State,
    controls: Float[jax.Array, " nu"],
    *,
    stepper: Stepper,
    dt: float | jax.Array,
    order: int = 1,
    mocap: Mocap | None = None,
) -> tuple[Linearization, StepperInfo]:
    """Differentiate one step by state and controls; return the matrices A and B and the info of the step.

    A linear-quadratic regulator and differential dynamic programming use these matrices. A batch is a `vmap`.

    Args:
        model: the mechanism and its numbers.
        state: the state before the step.
        controls: (nu,) u.
        stepper: the method, such as `Compliant()`, without memory of earlier steps.
        dt: s.
        order: 1, or 2 for the second derivatives as well; not every stepper has them.
        mocap: poses (2, 7) of named mocap bodies at the start and at the end of the step, in the plane
            (2, 3), as in `compliant.step`; they stay as they are. `Compliant` has them.

    Returns:
        Linearization; the `StepperInfo` of the step.

    Raises:
        TypeError, ValueError: arguments of another kind or shape.

    Status: that of the step; NONFINITE if the derivative is not finite.

    Derivative: that of the stepper, one order higher.
    """
    check_mechanism(model, state)
    check_stepper(stepper)
    check_array("controls", controls, (model.num_controls,))
    if order not in (1, 2):
        raise ValueError(f"order: expected 1 or 2, got {order!r}")
    if not isinstance(dt, jax.Array):
        check_number("dt", dt)
    rows = mocap_rows(model, mocap, dt, 1)
    return _linearize(
        order, apply_mocap(model, jax.tree.map(lambda x: x[0], rows), state.t), stepper, state, controls, dt
    )


@functools.partial(jit, static_argnames="order")
def _linearize(
    order: int, model: Model, stepper: Stepper, state: State, u: jax.Array, dt: jax.typing.ArrayLike
) -> tuple[Linearization, StepperInfo]:
    dt = jnp.asarray(dt, state.q.dtype)
    memory = stepper.init(model, state, None)
    nv = model.structure.num_velocities

    def change(x: jax.Array) -> tuple[jax.Array, PyTree]:
        """Step from the state displaced by x; return the change of the end, the end and the info."""
        moved = state.replace(q=retract(model.system, state.q, x[:nv]), v=state.v + x[nv : 2 * nv])
        after, _, info = stepper.step(model, moved, u + x[2 * nv :], memory, dt=dt)
        fixed = lax.stop_gradient(after)
        return jnp.concatenate([difference(model.system, fixed.q, after.q), after.v - fixed.v]), (after, info)

    def first(x: jax.Array) -> tuple[jax.Array, PyTree]:
        rates, step = jax.jacfwd(change, has_aux=True)(x)
        return rates, (rates, step)

    still = jnp.zeros(2 * nv + u.shape[0], state.q.dtype)
    if order == 2:
        second, (both, (after, info)) = jax.jacfwd(first, has_aux=True)(still)
    else:
        second, (both, (after, info)) = None, first(still)[1]
    status = info.status | flag(~is_finite((both, second)), Status.NONFINITE)
    result = Linearization(A=both[:, : 2 * nv], B=both[:, 2 * nv :], second=second, state=after)
    return result, info.replace(status=status)

"""Motion by any stepper: `rollout` inside jit, `run` on the host with progress and errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.arguments import check_array, check_number
from jaxcontact.mechanics.system import Params, State, System, check_mechanism
from jaxcontact.simulate.stepper import Policy, Stepper
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.status import raise_if_failed

CHUNK = 1024  # steps of one call of the program of `run`


def rollout(
    system: System,
    params: Params,
    state: State,
    controls: jax.Array | Policy,
    *,
    stepper: Stepper,
    dt: Any,
    key: jax.Array | None = None,
    num_steps: int | None = None,
    policy_memory: Any = None,
) -> Trajectory:
    """Steps of a mechanism under controls or a policy, in one scan.

    Args:
        system: the mechanism (static).
        params: its numbers.
        state: where it starts.
        controls: (T, nu) controls of the actuators; without actuators nu = nv, and they are generalized
            forces beside gravity and the forces of the system. Or a policy (params, state, t, memory, key) ->
            (u, memory), a module-level function or a pytree.
        stepper: the method, such as `Compliant()`.
        dt: s.
        key: for the policy, which gets it folded with the number of the step, and for the stepper.
        num_steps: T, with a policy.
        policy_memory: what the policy gets first.

    Returns:
        Trajectory with T + 1 rows of states and contacts, T of inputs, impulses and info.

    Raises:
        TypeError: arguments in another order, a stepper or controls of the wrong kind.
        ValueError: controls of another shape, no number of steps for a policy; what the stepper raises.

    Status: of each step, in `trajectory.status`.

    Derivative: that of the stepper, by state, params, controls and the numbers of stepper and policy.
    """
    check_mechanism(system, params, state)
    _check_stepper(stepper)
    if not isinstance(dt, jax.Array):
        check_number("dt", dt)
    if callable(controls):
        steps = _count("num_steps", num_steps, "a policy says nothing about how long it goes on")
        policy: Any = controls if _is_pytree(controls) else jax.tree_util.Partial(controls)
        inputs = None
    else:
        check_array("controls", controls)
        nu = system.num_controls
        if jnp.ndim(controls) != 2 or jnp.shape(controls)[1] != nu:
            raise ValueError(f"controls: expected shape (T, {nu}), got {jnp.shape(controls)}")
        steps, policy, inputs = jnp.shape(controls)[0], None, controls
        if num_steps is not None and num_steps != steps:
            raise ValueError(f"num_steps: controls have {steps} rows, got {num_steps}")
    stepper_key = policy_key = None
    if key is not None:
        stepper_key, policy_key = jax.random.split(key)
    carry = state, stepper.init(system, params, state, stepper_key), policy_memory
    rows, _ = _steps(system, params, carry, inputs, policy, stepper, dt, policy_key, jnp.int32(0), steps)
    return _trajectory(rows, state, stepper.closed(system, params, state))


def run(
    system: System,
    params: Params,
    state: State,
    *,
    stepper: Stepper,
    duration: float,
    dt: float,
    control: jax.Array | Policy | None = None,
    key: jax.Array | None = None,
    policy_memory: Any = None,
    progress: Callable[[int, int], None] | None = None,
    check: bool = True,
) -> Trajectory:
    """The motion over a duration, on the host: with progress, and an error where a step fails.

    Args:
        system, params, state, stepper, key, policy_memory: as `rollout`.
        duration: s, rounded to a number of steps.
        dt: s.
        control: (T, nu), or a policy; None is none.
        progress: called with (steps done, T).
        check: raise where a step fails; False leaves it to `trajectory.status`.

    Returns:
        Trajectory with T + 1 rows.

    Raises:
        FailureError: a step failed; the message names it and its bits.
        TypeError, ValueError: as `rollout`.

    Derivative: none; a driver for the host.
    """
    check_mechanism(system, params, state)
    _check_stepper(stepper)
    for name, value in (("dt", dt), ("duration", duration)):
        if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
            raise ValueError(f"{name}: expected a finite number > 0, got {value!r}")
    steps = max(1, round(duration / dt))
    nu = system.num_controls
    policy: Any = None
    if callable(control):
        policy = control if _is_pytree(control) else jax.tree_util.Partial(control)
    elif control is not None and jnp.shape(control) != (steps, nu):
        raise ValueError(f"control: expected shape ({steps}, {nu}), got {jnp.shape(control)}")
    stepper_key = policy_key = None
    if key is not None:
        stepper_key, policy_key = jax.random.split(key)
    carry = state, stepper.init(system, params, state, stepper_key), policy_memory
    inputs = jnp.zeros((steps, nu), state.v.dtype) if control is None else control
    parts = []
    for begin in range(0, steps, CHUNK):
        size = min(CHUNK, steps - begin)
        some = None if policy is not None else jnp.asarray(inputs)[begin : begin + size]
        rows, carry = _steps(
            system, params, carry, some, policy, stepper, dt, policy_key, jnp.int32(begin), size
        )
        parts.append(rows)
        if check:
            raise_if_failed(jnp.concatenate([part[2].status for part in parts]), "step")
        if progress is not None:
            progress(begin + size, steps)
    whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    return _trajectory(whole, state, stepper.closed(system, params, state))


@functools.partial(jax.jit, static_argnums=(0, 9))
def _steps(
    system: System, params: Params, carry: Any, inputs: jax.Array | None, policy: Any, stepper: Any, dt: Any,
    key: jax.Array | None, first: jax.Array, num_steps: int,
) -> tuple[Any, Any]:  # fmt: skip
    """(states, inputs, info) of the steps, and the last carry (state, stepper's memory, policy's)."""
    dt = jnp.asarray(dt, carry[0].q.dtype)

    def one(carry: Any, row: tuple[jax.Array, Any]) -> tuple[Any, Any]:
        state, memory, policy_memory = carry
        number, u = row
        if policy is not None:
            own = None if key is None else jax.random.fold_in(key, number)
            u, policy_memory = policy(params, state, state.t, policy_memory, own)
        then, memory, info = stepper.step(system, params, state, u, memory, dt=dt)
        return (then, memory, policy_memory), (then, u, info)

    numbers = first + jnp.arange(num_steps, dtype=jnp.int32)
    carry, rows = lax.scan(one, carry, (numbers, inputs))
    return rows, carry


def _trajectory(rows: Any, start: State, closed: jax.Array) -> Trajectory:
    states, inputs, info = rows
    return Trajectory(
        states=jax.tree.map(lambda first, later: jnp.concatenate([first[None], later]), start, states),
        contacts=jnp.concatenate([closed[None], info.contacts]),
        impulse=info.impulse,
        impacts=None,
        status=info.status,
        inputs=inputs,
        info=info,
    )


def _is_pytree(policy: Any) -> bool:
    """Whether a callable is a node of a pytree, whose numbers count."""
    return not jax.tree_util.all_leaves([policy])


def _check_stepper(stepper: Any) -> None:
    for name in ("init", "step", "closed"):
        if not callable(getattr(stepper, name, None)):
            raise TypeError(
                f"stepper: expected one such as jc.simulate.Compliant(), got {type(stepper).__name__} "
                f"without `{name}`"
            )


def _count(name: str, value: Any, why: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: expected an integer >= 1, for {why}; got {value!r}")
    return value

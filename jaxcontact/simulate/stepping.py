"""Motion by any stepper: `rollout` inside jit, `run` on the host with progress and errors.

Page: docs/methods/motion.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, callable_as_pytree
from jaxcontact.arguments import (
    check_array,
    check_count,
    check_integer,
    check_number,
    check_rows,
    is_concrete,
    is_staged,
)
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.costs import bytes_of, count_steps
from jaxcontact.front_door import POSITIVE, anything, checked
from jaxcontact.mechanics.applied import applied_rows, apply_wrenches
from jaxcontact.mechanics.mocap import (
    MocapPoses,
    MocapRows,
    apply_mocap,
    mocap_poses,
    rows_of_poses,
)
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import all_digits, jit
from jaxcontact.simulate.motion import Controls, Inputs, MotionSettings, as_inputs
from jaxcontact.simulate.stepper import Stepper
from jaxcontact.simulate.trajectory import Trajectory, in_one_list, motion_record
from jaxcontact.status import raise_if_failed
from jaxcontact.terms.slip_friction import apply_friction

CHUNK = 1024  # steps of one call of the compiled program of `run`; progress and errors come between calls
BLOCK = 64  # steps of one call of that of `rollout` with a policy; reverse mode keeps as many more at most


@checked(dt=POSITIVE, checkpoint_every=check_rows, num_steps=anything)
def rollout(
    model: Model,
    state: State,
    controls: Controls,
    *,
    stepper: Stepper,
    dt: float | jax.Array,
    key: jax.Array | None = None,
    num_steps: int | jax.Array | None = None,
    checkpoint_every: int | None = None,
) -> Trajectory:
    """Compute steps of a mechanism under controls or a policy, in one scan; return the trajectory.

    Called outside of `jit` with a policy it is a scan of 64 steps, one program for any number, that is
    called again and again, but with `checkpoint_every`.

    Args:
        model: the mechanism and its numbers.
        state: the start.
        controls: (T, nu) controls, a policy, or `Inputs` with these and wrenches, mocap poses, friction.
        stepper: the method, such as `Compliant()`.
        dt: s.
        key: split in two, one for the stepper and one for the policy, which gets it folded with the number
            of the step.
        num_steps: T, with a policy or None for controls; with controls (T, nu) the number of steps to make,
            at most T, which may be traced: one program for any number. Later rows repeat the last state.
        checkpoint_every: reverse mode keeps the state after every so many steps, and computes the steps
            between once more; its memory is smallest near the square root of T. None keeps all of every step.

    Returns:
        Trajectory with T + 1 rows of states and contacts, T of inputs, impulses and info.

    Raises:
        TypeError: arguments in another order, a stepper or controls of the wrong kind.
        ValueError: controls of another shape, no number of steps for a policy, more steps than controls;
            errors of the stepper.

    Status: of each step, in `trajectory.status`.

    Derivative: that of the stepper, by state, params, inputs, stepper and policy.
    """
    if not isinstance(dt, jax.Array):
        check_number("dt", dt)
    inputs = as_inputs(controls)
    setup, steps, poses = _set_up(model, state, stepper, inputs, num_steps, dt, key)
    if checkpoint_every is not None:
        check_rows("checkpoint_every", checkpoint_every)
    end = _steps_to_make(inputs.controls, num_steps, steps)
    setup = setup._replace(end=end)
    if setup.policy is not None and steps and checkpoint_every is None and not is_staged():
        blocks = [rows for _, rows in _scan_blocks(model, setup, stepper, dt, steps, BLOCK)]
        rows = _join_blocks(blocks, steps)
    else:
        rows, _ = _scan_steps(model, setup, stepper, dt, jnp.int32(0), steps, checkpoint_every)
    if poses is not None and end is not None:
        poses = jax.tree.map(lambda x: x[jnp.minimum(jnp.arange(steps + 1), end)], poses)
    trajectory = _make_trajectory(rows, state, setup.closed, poses)
    return jax.device_put(trajectory) if isinstance(trajectory.status, np.ndarray) else trajectory


@checked()
@all_digits
def run(
    model: Model,
    state: State,
    motion: MotionSettings,
    *,
    key: jax.Array | None = None,
    check: bool = True,
    run: Run = DEFAULT_RUN,
) -> Trajectory:
    """Compute a motion on the host: with progress, and an error if a step fails.

    One program moves any number of steps, in blocks of 1024.

    Args:
        model, state, key: as `rollout`.
        motion: the method, the step, the duration, and what acts.
        check: raise if a step fails; False leaves it to `trajectory.status`.
        run: progress, called with (steps done, T).

    Returns:
        Trajectory with T + 1 rows.

    Raises:
        FailureError: a step failed; the message names it and its bits.
        TypeError, ValueError: as `rollout`.

    Derivative: none; a driver for the host.
    """
    check_run(run, unused=("chunk", "devices", "checkpoint", "about", "executor"))
    stepper, dt, acting = motion.stepper, motion.dt, as_inputs(motion.controls)
    steps = count_steps(motion.duration, dt, num_bytes=bytes_of(state))
    setup, _, poses = _set_up(model, state, stepper, acting, steps, dt, key, exactly=True)
    parts = []
    for first, rows in _scan_blocks(model, setup, stepper, dt, steps, CHUNK):
        size = min(CHUNK, steps - first)
        parts.append(jax.tree.map(lambda x, size=size: x[:size], jax.device_get(rows)))
        if check:
            raise_if_failed(np.concatenate([part[2].status for part in parts]), "step")
        if run.progress is not None:
            run.progress(first + size, steps)
    rows_of_all = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    trajectory = _make_trajectory(rows_of_all, state, setup.closed, poses)
    return jax.device_put(trajectory)  # `jnp.asarray` would compile a program for every shape


def _scan_blocks(
    model: Model, setup: _Setup, stepper: Stepper, dt: float | jax.Array, steps: int, size: int
) -> Iterator[tuple[int, PyTree]]:
    """Compute the steps in blocks of `size`, by one program for any number; yield first steps and rows."""
    setup = setup._replace(end=jnp.int32(steps))
    rows_of_inputs = setup.inputs, setup.pushes
    for first in range(0, steps, size):
        inputs, pushes = jax.tree.map(lambda x, first=first: _pad_block(x, first, size), rows_of_inputs)
        part = setup._replace(inputs=inputs, pushes=pushes)
        rows, carry = _scan_steps(model, part, stepper, dt, jnp.int32(first), size)
        setup = setup._replace(carry=carry)
        yield first, rows


def _pad_block(rows: jax.Array, first: int, size: int) -> jax.Array:
    """Take `size` rows from `first` on, with zeros behind the last one."""
    xp: ModuleType = np if is_concrete(rows) else jnp  # NumPy compiles nothing for a size
    block = xp.asarray(rows)[first : first + size]
    return jnp.asarray(xp.pad(block, [(0, size - len(block)), *[(0, 0)] * (block.ndim - 1)]))


def _join_blocks(blocks: list[PyTree], steps: int) -> PyTree:
    """Join rows of blocks and drop those after the last step, in NumPy if it can read them."""
    if is_concrete(blocks):  # JAX would compile a program for every number of steps
        blocks = jax.device_get(blocks)
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:steps], *blocks)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:steps], *blocks)


def _steps_to_make(controls: PyTree, num_steps: int | jax.Array | None, rows: int) -> jax.Array | None:
    """Return the number of steps to make, if it is not that of the rows of controls; else None."""
    if callable(controls) or controls is None or num_steps is None:
        return None
    if is_concrete(num_steps):
        check_integer("num_steps", num_steps, 0, rows)
    return jnp.asarray(num_steps, jnp.int32)


class _Pushes(NamedTuple):
    """What acts in each of T steps beside controls: wrenches (T, nb, 6 or 3), and mocap bodies that move."""

    wrenches: jax.Array | None
    mocap: MocapRows | None


class _Setup(NamedTuple):
    """The start of the steps of a motion, and their controls or policy."""

    carry: PyTree  # the state, the memory of the stepper, the memory of the policy
    inputs: jax.Array | None  # (T, nu), or None with a policy
    policy: PyTree
    key: jax.Array | None  # of the policy
    closed: jax.Array  # (nc,) bool, contacts at the start
    pushes: _Pushes
    friction: PyTree = None  # function of slip and time, or None
    end: jax.Array | None = None  # number of steps of the whole motion, None for that of the rows


def _set_up(
    model: Model, state: State, stepper: Stepper, inputs: Inputs, num_steps: PyTree, dt: float | jax.Array,
    key: jax.Array | None, *, exactly: bool = False,
) -> tuple[_Setup, int, MocapPoses | None]:  # fmt: skip
    """Check the arguments of a motion; return its setup, T, `exactly` that of the controls, and all poses."""
    check_mechanism(model, state)
    check_stepper(stepper)
    if callable(inputs.controls):
        policy, rows = callable_as_pytree(inputs.controls), None
        check_count("num_steps", num_steps)  # a policy does not determine the number of steps
    else:
        policy, rows = None, _control_rows(model.num_controls, state, inputs.controls, num_steps, exactly)
        num_steps = int(rows.shape[0])
    stepper_key = policy_key = None
    if key is not None:
        stepper_key, policy_key = jax.random.split(key)
    poses = mocap_poses(model, inputs.mocap, num_steps)
    moving = None if poses is None else rows_of_poses(poses, dt, model.structure.dim)
    pushes = _Pushes(applied_rows(model, inputs.applied, num_steps), moving)
    begin = apply_mocap(model, jax.tree.map(lambda rows: rows[0], moving), state.t) if num_steps else model
    carry = state, stepper.init(begin, state, stepper_key), inputs.memory
    friction = inputs.friction
    if friction is not None:
        if not callable(friction):
            raise TypeError(f"friction: expected a function of slip and t, got {type(friction).__name__}")
        friction = callable_as_pytree(friction)
    closed = stepper.closed(begin, state)
    return _Setup(carry, rows, policy, policy_key, closed, pushes, friction), num_steps, poses


def _control_rows(nu: int, state: State, controls: PyTree, num_steps: PyTree, exactly: bool) -> jax.Array:
    """Check the controls and return them as an array (T, nu), zeros for None."""
    xp: ModuleType = np if exactly else jnp  # `run` pads rows in NumPy, which compiles nothing for a size
    if controls is None and num_steps is not None:
        check_count("num_steps", num_steps)
        return xp.zeros((num_steps, nu), state.v.dtype)
    check_array("controls", controls)
    shape = jnp.shape(controls)
    if shape != (*((num_steps,) if exactly else shape[:1]), nu):
        raise ValueError(f"controls: expected shape ({num_steps if exactly else 'T'}, {nu}), got {shape}")
    return xp.asarray(controls)


@functools.partial(jit, static_argnames=("num_steps", "checkpoint_every"))
def _scan_steps(
    model: Model, setup: _Setup, stepper: Stepper, dt: float | jax.Array, first: jax.Array, num_steps: int,
    checkpoint_every: int | None = None,
) -> tuple[PyTree, PyTree]:  # fmt: skip
    """Compute the steps; return their (states, inputs, info), and the last carry."""
    dt = jnp.asarray(dt, setup.carry[0].q.dtype)

    def one(carry: PyTree, row: tuple[jax.Array, PyTree, _Pushes]) -> tuple[PyTree, PyTree]:
        state, memory, policy_memory = carry
        number, u, pushes = row
        if setup.policy is not None:
            key = None if setup.key is None else jax.random.fold_in(setup.key, number)
            u, policy_memory = setup.policy(model, state, state.t, policy_memory, key)
        moved = apply_mocap(apply_wrenches(model, pushes.wrenches), pushes.mocap, state.t)
        moved = apply_friction(moved, state, setup.friction)
        then, memory, info = stepper.step(moved, state, u, memory, dt=dt)
        return (then, memory, policy_memory), (then, u, info)

    def one_or_none(carry: PyTree, row: tuple[jax.Array, PyTree, _Pushes]) -> tuple[PyTree, PyTree]:
        shapes = jax.eval_shape(one, carry, row)[1]
        _, u, info = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        more = row[0] < num_steps if setup.end is None else row[0] < setup.end
        return lax.cond(more, one, lambda carry, _: (carry, (carry[0], u, info)), carry, row)

    numbers = first + jnp.arange(num_steps, dtype=jnp.int32)
    inputs = numbers, setup.inputs, setup.pushes
    step = one if setup.end is None else one_or_none
    carry, rows = _checkpointed_scan(step, setup.carry, inputs, num_steps, checkpoint_every)
    return rows, carry


def _checkpointed_scan(
    step: Callable[[PyTree, PyTree], PyTree], carry: PyTree, rows: PyTree, length: int, every: int | None
) -> tuple[PyTree, PyTree]:
    """Scan as `lax.scan`, but keep for reverse mode only the carry at the end of every `every` rows."""
    if every is None:
        return lax.scan(step, carry, rows)
    in_blocks = length - length % every
    blocks = jax.tree.map(lambda x: x[:in_blocks].reshape(length // every, every, *x.shape[1:]), rows)
    rest = jax.tree.map(lambda x: x[in_blocks:], rows)

    @jax.checkpoint
    def block(carry: PyTree, block_rows: PyTree) -> tuple[PyTree, PyTree]:
        return lax.scan(step, carry, block_rows)

    carry, first = lax.scan(block, carry, blocks)
    carry, last = block(carry, rest)
    return carry, jax.tree.map(
        lambda a, b: jnp.concatenate([a.reshape(in_blocks, *b.shape[1:]), b]), first, last
    )


def _make_trajectory(rows: PyTree, start: State, closed: jax.Array, poses: MocapPoses | None) -> Trajectory:
    states, inputs, info = rows
    impacts = None if info.impacts is None else in_one_list(info.impacts)
    record = motion_record(start, closed, states, info.replace(impacts=None), impacts, inputs)
    return record.replace(mocap=poses)


def check_stepper(stepper: Stepper) -> None:
    """Raise TypeError if an object lacks one of the methods of a stepper."""
    for name in ("init", "step", "closed"):
        if not callable(getattr(stepper, name, None)):
            raise TypeError(
                f"stepper: expected one such as jc.simulate.Compliant(), got {type(stepper).__name__} "
                f"without `{name}`"
            )

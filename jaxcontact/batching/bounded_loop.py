"""Loops that end when their work is done, or of static length: `bounded_loop`, `bounded_count`.

Over many lanes, a loop that ends early runs as long as its slowest lane. A loop of static length always runs
all iterations, but no device has to test a condition between them, and it has a reverse mode.
`fixed_iterations` makes all loops of a function static.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked, loops_are_static

P = ParamSpec("P")
T = TypeVar("T")


@checked()
def fixed_iterations(function: Callable[P, T]) -> Callable[P, T]:
    """Make every loop of this package inside a function run its largest number of iterations.

    The program has no loop with a condition, only scans: no device waits for another, its time does not
    depend on the data, it lowers for every platform, and it has a reverse mode. Values and statuses are those
    of loops that end early. Limits such as `max_iters` and `max_steps` set the cost: choose small ones.

        step = jax.jit(jc.fixed_iterations(lambda state: jc.compliant.step(model, state, u, dt=0.01)))

    Args:
        function: any function of arrays that calls this package; write `jit`, `vmap` and derivatives around
            the result.

    Returns:
        A function of the same arguments.

    Raises:
        TypeError: function cannot be called.

    Derivative: as the function, forward and reverse.
    """
    if not callable(function):
        raise TypeError(f"function: expected a function, got {type(function).__name__}")

    @functools.wraps(function)
    def static(*arguments: P.args, **options: P.kwargs) -> T:
        with loops_are_static(True):
            return function(*arguments, **options)

    return static


def ends_early(early_exit: bool = True) -> bool:
    """Decide whether a loop with this setting may end early: not inside of `fixed_iterations`."""
    return early_exit and not loops_are_static.value


def bounded_loop(
    running: Callable[[PyTree], jax.Array],
    body: Callable[[PyTree], PyTree],
    start: PyTree,
    *,
    max_iters: int,
    early_exit: bool = True,
) -> PyTree:
    """Run `lax.while_loop(running, body, start)`, or exactly `max_iters` iterations if it does not end early.

    `running` must end the loop within `max_iters` iterations. Those after the end of the work change nothing.
    """
    if ends_early(early_exit):
        return lax.while_loop(running, body, start)

    def iteration(carry: PyTree, _: None) -> tuple[PyTree, None]:
        active = running(carry)
        return jax.tree.map(
            lambda updated, unchanged: jnp.where(active, updated, unchanged), body(carry), carry
        ), None

    return lax.scan(iteration, start, length=max_iters)[0]


def bounded_count(
    count: jax.Array, body: Callable[[jax.Array, PyTree], PyTree], start: PyTree, *, max_iters: int
) -> PyTree:
    """Run `lax.fori_loop(0, count, body, start)` for a traced count of at most `max_iters`."""
    if ends_early():
        return lax.fori_loop(0, count, body, start)

    def iteration(carry: PyTree, k: jax.Array) -> tuple[PyTree, None]:
        return jax.tree.map(lambda new, old: jnp.where(k < count, new, old), body(k, carry), carry), None

    return lax.scan(iteration, start, jnp.arange(max_iters, dtype=jnp.int32))[0]

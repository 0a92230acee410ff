"""A loop that ends when its work is done, or the same loop of a static number of iterations: `bounded_loop`.

Over many lanes, a loop that ends early runs as long as its slowest lane. A loop of static length always runs
all iterations, but no device has to test a condition between them, and it has a reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def bounded_loop(
    running: Callable[[Any], jax.Array],
    body: Callable[[Any], Any],
    start: Any,
    *,
    most: int,
    early_exit: bool,
) -> Any:
    """Run `lax.while_loop(running, body, start)` for at most `most` iterations, or all without `early_exit`.

    Iterations after the end of the work change nothing.
    """
    if early_exit:
        return lax.while_loop(running, body, start)

    def iteration(carry: Any, _: None) -> tuple[Any, None]:
        active = running(carry)
        return jax.tree.map(
            lambda updated, unchanged: jnp.where(active, updated, unchanged), body(carry), carry
        ), None

    return lax.scan(iteration, start, length=most)[0]

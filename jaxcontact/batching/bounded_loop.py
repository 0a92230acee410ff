"""A loop that ends when its work is done, or the same turns as a loop of static length.

A loop that ends early does the turns of the slowest of many lanes. One of static length always does all, but
no device has to look at a condition between turns, and it has a reverse mode.
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
    """`lax.while_loop(running, body, start)` of at most `most` turns; exactly so many without `early_exit`.

    Turns behind the end change nothing.
    """
    if early_exit:
        return lax.while_loop(running, body, start)

    def turn(now: Any, _: None) -> tuple[Any, None]:
        on = running(now)
        return jax.tree.map(lambda new, old: jnp.where(on, new, old), body(now), now), None

    return lax.scan(turn, start, length=most)[0]

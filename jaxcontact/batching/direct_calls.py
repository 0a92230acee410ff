"""Programs that are called from Python, not traced: on a CPU they are compiled in less time.

Entries: `jit_quickly`, and `quick_options` for programs that are never traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from jaxcontact.precision import jit

P = ParamSpec("P")
T = TypeVar("T")

# On a CPU a robot's steps are compiled in 0.7 of the time without XLA's newer code for merged loops.
QUICK = {"xla_cpu_use_fusion_emitters": False}


def jit_quickly(function: Callable[P, T], **options: object) -> Callable[P, T]:
    """Compile a function by `precision.jit`, and a call that is not traced with options that compile quickly.

    JAX takes such options only for a program that is not part of another.
    """
    traced_program = jit(function, **options)

    @functools.cache
    def direct_program() -> Callable[P, T]:
        program: Callable[P, T] = jit(function, **options, compiler_options=quick_options())
        return program

    @functools.wraps(function)
    def program(*arguments: P.args, **keywords: P.kwargs) -> T:
        leaves = [jnp.zeros(()), *jax.tree.leaves((arguments, keywords))]
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            result: T = traced_program(*arguments, **keywords)
            return result
        return direct_program()(*arguments, **keywords)

    return program


@functools.cache
def quick_options() -> dict[str, bool]:
    """Return `QUICK` if this version of JAX has these options for the default device, or none."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x, compiler_options=QUICK).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return QUICK

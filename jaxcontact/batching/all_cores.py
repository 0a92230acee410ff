"""The CPU cores: one for a single world, and all of them for a batch, one share of it per core.

XLA does not use the cores well by itself: it hands small operations of one world from core to core, which
takes longer than the operations, and keeps a program of a batch mostly on one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from jaxcontact.batching import platforms

# Compiler options of programs that are long sums over lanes. They ask for vectors as wide as the CPU has;
# XLA's default is half of AVX-512. The bits of the results stay the same.
WIDE = {"xla_cpu_prefer_vector_width": 512}
# The order of operations that keeps them in one thread.
IN_ORDER = {"xla_cpu_enable_concurrency_optimized_scheduler": False}


def workers(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """One entry per worker thread: a program keeps a GPU busy, but only one CPU core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    per_device = max(1, cores // len(devices)) if platforms.is_cpu(devices[0].platform) else 1
    return list(devices) * per_device


def on_one_core(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled for one CPU core, the quickest way to run a single world; `jax.jit` elsewhere.

    Args:
        function: maps pytrees of arrays to a pytree of arrays; a rollout of one robot is an example.

    Returns:
        The compiled function, for calls from outside any `jit`, `grad` or `scan`.

    Raises:
        ValueError: by JAX, when called within another compiled function or a derivative of one.

    Derivative: none; let `function` return derivatives.
    """
    in_order = platforms.is_cpu(jax.default_backend()) and _xla_knows(IN_ORDER)
    return jax.jit(function, compiler_options=IN_ORDER if in_order else None)


def _xla_knows(options: dict[str, Any]) -> bool:
    """Whether this version of XLA has the options."""
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def on_all_cores(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs a batch on all CPU cores, with one share of the batch per core.

    The result compiles `function` for a share, once for each size of batch, and runs the shares in threads.
    All shares have one size; where the batch does not divide evenly, the last share repeats a few worlds. On
    other devices the whole batch is one share.

    Args:
        function: maps pytrees of arrays to a pytree of arrays. The batch is the first axis of all arrays, and
            no world may depend on another; `jax.vmap` of a rollout is an example. `jax.jit` compiles it.

    Returns:
        The function, for calls from outside any `jit`.

    Raises:
        ValueError: when called with no arrays, an empty batch, or first axes that differ.

    Derivative: none, because the result cannot be traced; let `function` return derivatives.
    """
    jitted = jax.jit(function)
    compiled: dict[Any, Any] = {}

    def run(*batch: Any) -> Any:
        sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
        if len(sizes) != 1 or not min(sizes) or min(sizes) == (0,):
            raise ValueError(f"batch: expected arrays with one first axis, not empty, got {sorted(sizes)}")
        ((size,),) = sizes
        width = -(-size // len(workers(jax.local_devices()[:1])))
        count = -(-size // width)
        begins = [min(k * width, size - width) for k in range(count)]
        shares = [
            jax.tree.map(lambda a, begin=begin: jnp.asarray(a)[begin : begin + width], batch)
            for begin in begins
        ]
        # Compile here, else every thread would compile.
        key = jax.tree.structure(batch), tuple((a.shape, a.dtype) for a in jax.tree.leaves(shares[0]))
        if key not in compiled:
            compiled[key] = jitted.lower(*shares[0]).compile()
        with ThreadPoolExecutor(count) as pool:
            results = list(pool.map(lambda share: jax.block_until_ready(compiled[key](*share)), shares))
        num_new = size - (count - 1) * width  # worlds of the last share that no other has
        kept_ranges = [(0, width)] * (count - 1) + [(width - num_new, width)]
        return jax.tree.map(
            lambda *leaves: jnp.concatenate([p[a:b] for p, (a, b) in zip(leaves, kept_ranges, strict=True)]),
            *results,
        )

    return run

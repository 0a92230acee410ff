"""Every core of this machine at once: which workers there are, and a batch in one part for each of them.

XLA runs one program of small operations on one CPU core, however many there are; threads use the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from jaxcontact.batching import platforms

# Compiler options of programs that are long sums over lanes: vectors as wide as the CPU has, where XLA's
# default is half of AVX-512. The bits stay the same.
WIDE = {"xla_cpu_prefer_vector_width": 512}


def workers(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """One entry per worker thread: a program keeps a GPU busy, but only one CPU core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    per_device = max(1, cores // len(devices)) if platforms.is_cpu(devices[0].platform) else 1
    return list(devices) * per_device


def on_all_cores(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a batch that runs on every CPU core, each with a share of the batch.

    Compiles `function` for a share, once for each size of batch, and runs the shares in threads. The shares
    are of one size; where the batch does not divide evenly, the last repeats a few worlds. On other devices
    there is one share: the batch.

    Args:
        function: of pytrees of arrays, to a pytree of arrays, all with the batch as their first axis, each
            world apart; `jax.vmap` of a rollout, say. It is compiled with `jax.jit`.

    Returns:
        The function, for calls from outside any `jit`.

    Raises:
        ValueError: when called with no arrays, an empty batch, or first axes that differ.

    Derivative: none, for it cannot be traced; let `function` return derivatives.
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
        shares = [jax.tree.map(lambda a, at=at: jnp.asarray(a)[at : at + width], batch) for at in begins]
        # Compiled here, and not by every thread.
        key = jax.tree.structure(batch), tuple((a.shape, a.dtype) for a in jax.tree.leaves(shares[0]))
        if key not in compiled:
            compiled[key] = jitted.lower(*shares[0]).compile()
        with ThreadPoolExecutor(count) as pool:
            done = list(pool.map(lambda share: jax.block_until_ready(compiled[key](*share)), shares))
        last = size - (count - 1) * width  # worlds of the last share that no other has
        ends = [(0, width)] * (count - 1) + [(width - last, width)]
        return jax.tree.map(
            lambda *parts: jnp.concatenate([p[a:b] for p, (a, b) in zip(parts, ends, strict=True)]), *done
        )

    return run

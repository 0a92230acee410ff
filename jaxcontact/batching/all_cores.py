"""All CPU cores at once: the list of workers, and a batch split into one share per worker.

The entry function is `on_all_cores`. XLA runs a program of small operations mostly on one CPU core, whatever
the number of cores. Threads use the other cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.batching import platforms
from jaxcontact.front_door import checked

# Compiler options of programs that are long sums over lanes. They ask for the widest vectors of the CPU, in
# bits; XLA's default is half of AVX-512. The bits of the results stay the same.
WIDE_VECTORS = {"xla_cpu_prefer_vector_width": 512}

SHARES = 8  # of a batch, on however many cores up to as many: the width of a program decides its last bits
MIN_WORLDS = 4  # worlds of a share, unless the batch has fewer


def num_cores() -> int:
    """Count the CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """List one device per worker thread: a program keeps a GPU busy, but only one CPU core."""
    per_device = max(1, num_cores() // len(devices)) if platforms.is_cpu(devices[0].platform) else 1
    return list(devices) * per_device


@checked()
def on_all_cores(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Make a function that runs a batch on all CPU cores, share by share.

    The result compiles `function` for a share, once for each size of batch, and runs the shares in threads,
    one per core. A batch has eight shares of one size, or one per core if there are more cores, so that the
    bits are the same on one to eight cores; if it does not divide evenly, the last share repeats some worlds.
    On other devices the whole batch is one share.

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
    compiled: dict[object, Callable[..., PyTree]] = {}

    def run(*batch: PyTree) -> PyTree:
        sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
        if len(sizes) != 1 or not min(sizes) or min(sizes) == (0,):
            raise ValueError(f"batch: expected arrays with one first axis, not empty, got {sorted(sizes)}")
        ((size,),) = sizes
        (device,), threads = jax.local_devices()[:1], len(workers(jax.local_devices()[:1]))
        shares_wanted = max(SHARES, threads) if platforms.is_cpu(device.platform) else 1
        width = max(-(-size // shares_wanted), min(size, MIN_WORLDS))
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
        with ThreadPoolExecutor(min(count, threads)) as pool:
            results = list(pool.map(lambda share: jax.block_until_ready(compiled[key](*share)), shares))
        num_new = size - (count - 1) * width  # worlds that only the last share has
        kept_ranges = [(0, width)] * (count - 1) + [(width - num_new, width)]
        return jax.tree.map(
            lambda *leaves: jnp.concatenate([p[a:b] for p, (a, b) in zip(leaves, kept_ranges, strict=True)]),
            *results,
        )

    return run

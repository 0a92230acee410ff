"""The properties of a process, besides its program, that decide the bits of a result.

Owns `environment`, which workers compare with the process that asks them, and `settings_of_jax`, which a
block carries with it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import sys
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import lax

from jaxcontact.batching.all_cores import WIDE_VECTORS

SIZE = 23  # rows of the matrices whose bits are compared; no multiple of a vector's width


def versions() -> dict[str, str]:
    """Return the versions of this package and of JAX; another version of either may give other bits."""
    package = sys.modules[__name__.partition(".")[0]]
    return {"version": package.__version__, "jax version": jax.__version__}


def environment() -> dict[str, str]:
    """Describe this process under the current settings of JAX: versions, devices, bits of its arithmetic."""
    return {
        **versions(),
        "jaxlib version": jaxlib.__version__,
        "python version": ".".join(platform.python_version_tuple()[:2]),
        "platform": jax.default_backend(),
        "arithmetic": _arithmetic(bool(jax.config.jax_enable_x64)),  # type: ignore[attr-defined]
    }


def settings_of_jax() -> dict[str, object]:
    """Return the settings of JAX that decide bits: precision and random numbers."""
    names = ("enable_x64", "default_matmul_precision", "default_prng_impl", "threefry_partitionable")
    return {name: getattr(jax.config, f"jax_{name}") for name in names}


@contextlib.contextmanager
def with_settings(settings: Mapping[str, object]) -> Iterator[None]:
    """Apply `settings_of_jax` of another process to this thread."""
    with contextlib.ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(getattr(jax, name)(value))
        yield


@functools.cache
def _arithmetic(is_double: bool) -> str:
    """Hash the bits of sums, products and functions: other instructions or compiler flags change them."""
    dtype = jnp.float64 if is_double else jnp.float32
    rows = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(dtype)
    on_host = rows @ rows.T, *np.linalg.eigh(rows + rows.T)  # by the LAPACK of NumPy, also part of programs
    wide = (
        jax.jit(_probe, compiler_options=WIDE_VECTORS) if jax.default_backend() == "cpu" else jax.jit(_probe)
    )
    bits = hashlib.sha256()
    for leaf in (*jax.jit(_probe)(rows), *wide(rows), *on_host):
        bits.update(np.asarray(leaf).tobytes())
    return bits.hexdigest()[:16]


def _probe(rows: jax.Array) -> tuple[jax.Array, ...]:
    """Compute numbers whose last bits depend on the order of sums, fused products and approximations."""
    square = jnp.matmul(rows, rows.T, precision="highest") + SIZE * jnp.eye(SIZE, dtype=rows.dtype)
    curved = jnp.exp(-(rows**2)) * jnp.sin(3.0 * rows) + jnp.sqrt(jnp.abs(rows)) / (1.0 + rows * rows)
    looped = lax.fori_loop(0, 9, lambda i, x: x * rows * 0.3 + rows[i][None], rows)
    products = rows @ rows[0], jax.vmap(jnp.dot)(rows, rows.T), jnp.sum(curved), jnp.sum(curved, axis=0)
    return square, curved, looped, jnp.cumsum(curved[0]), jnp.linalg.cholesky(square), *products

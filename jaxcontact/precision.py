"""Precision: products that keep all digits, and a warning if single precision is known to be insufficient."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

FRICTION = 100.0  # coefficient of friction; above it single precision solves fewer impacts
SPREAD = 1e4  # largest over smallest entry of a mass matrix's diagonal; above it likewise

_said: set[str] = set()
P = ParamSpec("P")
T = TypeVar("T")


def all_digits(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function compute products with all digits; by default a GPU rounds factors of single precision.

    That holds for operations traced while the function runs, not for its own rules that JAX calls later.
    """

    @functools.wraps(function)
    def exact(*arguments: P.args, **options: P.kwargs) -> T:
        with jax.default_matmul_precision("highest"):
            return function(*arguments, **options)

    return exact


def jit(function: Callable[..., Any], **options: Any) -> Any:  # as `jax.jit`, without its types
    """Compile a function by `jax.jit`, with `all_digits`."""
    return jax.jit(all_digits(function), **options)


class PrecisionWarning(UserWarning):
    """A warning of a computation in single precision that needs double precision."""


def warn_if_single(dtype: jax.typing.DTypeLike, what: str) -> None:
    """Warn, the first time in a process, that `what` is computed in single precision, if it is."""
    if jnp.finfo(dtype).bits >= 64 or _said:
        return
    warnings.warn(
        f"single precision with {what}: more results fail, or have few digits; "
        'use double precision, jax.config.update("jax_enable_x64", True)',
        PrecisionWarning,
        stacklevel=3,
    )
    _said.add(what)  # after the warning: a warning turned into an error is raised each time


def check_precision(mass: jax.typing.ArrayLike, mu: jax.typing.ArrayLike) -> None:
    """Warn, by `warn_if_single`, for a mass matrix (nv, nv) and friction (nc,) that are not traced."""
    diagonal = np.diag(np.asarray(mass))
    if np.any(np.asarray(mu) > FRICTION):
        warn_if_single(diagonal.dtype, f"friction above {FRICTION:g}")
    elif np.max(diagonal) > SPREAD * np.min(diagonal):
        warn_if_single(diagonal.dtype, f"masses spread by more than {SPREAD:g}")

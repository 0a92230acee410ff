"""Checks of the numbers of a mechanism: at the construction of its records, and of traced ones in a step."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import small_dense
from jaxcontact.arguments import check_number, check_type


def check_leaf(name: str, value: PyTree) -> None:
    """Raise TypeError for what is neither an array nor a number, which may be an axis of `vmap`."""
    if value is None or isinstance(value, int | float):
        return
    if not hasattr(value, "shape"):
        raise TypeError(f"{name}: expected an array, got {type(value).__name__}; use jnp.asarray")
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise TypeError(f"{name}: expected real numbers, got {value.dtype}")


def check_part(kind: type) -> Callable[[str, object], None]:
    """Make a check of an optional part of a mechanism, which may be an axis of `vmap`."""

    def check(name: str, value: object) -> None:
        if value is not None and not isinstance(value, int):
            check_type(name, value, kind)

    return check


def check_mirror(name: str, value: jax.typing.ArrayLike) -> None:
    """Raise an error if a value is no square matrix of numbers."""
    check_number(name, value)
    shape = np.shape(value)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise ValueError(f"{name}: expected shape (nv, nv), got {shape}")


def usable_numbers(params: PyTree, state: PyTree) -> jax.Array:
    """Tell whether no number is NaN, and none is infinite except in a tree, as a force range."""
    plain = jax.tree.leaves((params.replace(tree=None), state))
    finite = [jnp.all(jnp.isfinite(x)) for x in plain if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    of_tree = [x for x in jax.tree.leaves(params.tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return jnp.stack([*finite, *(~jnp.any(jnp.isnan(x)) for x in of_tree)]).all()


def is_mechanism(params: PyTree, mass: jax.Array) -> jax.Array:
    """Decide whether a mass matrix is positive definite, and no mass, inertia or friction negative."""
    positive = (small_dense.spd_inverse(mass)[1] > 0) & jnp.all(params.mass >= 0)
    return positive & is_inertia(params.inertia) & jnp.all(params.mu >= 0)


def is_inertia(inertia: jax.Array) -> jax.Array:
    """Decide whether moments (nb,), (nb, 3) or tensors (nb, 3, 3) of inertia have no negative eigenvalue.

    A symmetric matrix has none if all its principal minors are at least zero, up to round-off.
    """
    if inertia.ndim < 3:
        return jnp.all(inertia >= 0)
    moments = jnp.diagonal(inertia, axis1=1, axis2=2)
    size = jnp.max(jnp.abs(moments), axis=1)
    scaled = inertia / jnp.where(size > 0, size, 1.0)[:, None, None]
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = jnp.moveaxis(scaled, 0, -1)
    pairs = [yy * zz - yz * zy, xx * zz - xz * zx, xx * yy - xy * yx]
    determinant = xx * pairs[0] - xy * (yx * zz - yz * zx) + xz * (yx * zy - yy * zx)
    round_off = -64.0 * float(jnp.finfo(inertia.dtype).eps)
    return jnp.all(moments >= 0) & jnp.all(jnp.stack([*pairs, determinant]) >= round_off)

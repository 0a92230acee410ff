"""Checks of arguments: errors name the argument, the expected value and the value passed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree

LARGEST_TABLE = 10**7  # rows of events or impacts that one program keeps, some GB
Value = Any  # of a user, of any type: checks look at it, and return it as it is or converted
SEEDS = 2**64  # seeds below it have keys of their own


def check_type(name: str, value: object, kind: type, hint: str = "") -> None:
    """Raise TypeError if a value is not of the class `kind`; `hint` says how to get one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {kind.__name__}, got {type(value).__name__}{hint}")


def check_array(name: str, value: object, shape: tuple[int, ...] | None = None) -> None:
    """Raise TypeError if a value is no array of floating dtype, ValueError if it has another shape."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise TypeError(f"{name}: expected an array, got {type(value).__name__}; use jnp.asarray")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name}: expected a floating dtype, got {value.dtype}")
    if shape is not None and jnp.shape(value) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {jnp.shape(value)}")


def check_float_leaves(name: str, tree: PyTree) -> None:
    """Raise TypeError, with its place in the tree, if a leaf is not of floats."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            place = name + jax.tree_util.keystr(path)
            raise TypeError(f"{place}: expected floats, which a gradient can move, got {dtype}")


def check_number_leaves(name: str, tree: PyTree) -> None:
    """Raise TypeError, with its place in the tree, if a leaf is neither a number nor an array of numbers."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        dtype = getattr(leaf, "dtype", None)
        fits = isinstance(leaf, bool | float | complex) or (isinstance(leaf, int) and -SEEDS < leaf < SEEDS)
        if dtype is not None:
            is_masked = isinstance(leaf, np.ma.MaskedArray)
            kinds = (np.number, np.bool_, jax.dtypes.prng_key)
            fits = not is_masked and any(jnp.issubdtype(dtype, kind) for kind in kinds)
        if not fits:
            place = name + jax.tree_util.keystr(path)
            came = type(leaf).__name__ if dtype is None else f"{type(leaf).__name__} of {dtype}"
            raise TypeError(f"{place}: expected a number or an array of numbers, got {came}")


def check_count(name: str, value: object) -> None:
    """Raise ValueError if a value is not an integer >= 1."""
    check_integer(name, value, 1)


def check_rows(name: str, value: Value) -> None:
    """Raise ValueError if a value is no count of rows that a program can keep in memory."""
    check_count(name, value)
    if value > LARGEST_TABLE:
        raise ValueError(f"{name}: expected an integer <= {LARGEST_TABLE}, got {value}")


def check_sides(name: str, value: object) -> None:
    """Raise ValueError if a value is no number of sides of a friction cone, even and at least 4."""
    if not isinstance(value, int | np.integer) or value < 4 or value % 2:
        raise ValueError(f"{name}: expected an even number >= 4, got {value!r}")
    check_rows(name, value)


def check_entries(name: str, value: object) -> None:
    """Raise TypeError if a value is neither an array nor a sequence of entries."""
    if isinstance(value, str) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"{name}: expected an array or a sequence, got {type(value).__name__}")


def check_integer(name: str, value: object, minimum: float = -math.inf, maximum: float = math.inf) -> None:
    """Raise ValueError if a value is not an integer in minimum..maximum."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not minimum <= value <= maximum:
        lower = f" >= {minimum:.0f}" if math.isfinite(minimum) else ""
        upper = f" and <= {maximum:.0f}" if math.isfinite(maximum) else ""
        raise ValueError(f"{name}: expected an integer{lower}{upper}, got {value!r}")


def is_concrete(*trees: object) -> bool:
    """Return whether no array in `trees` is traced, so that values can be read."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def is_staged() -> bool:
    """Return whether operations are recorded for a program, as inside of `jax.jit`, and not computed."""
    return not is_concrete(jnp.add(np.int32(0), np.int32(1)))


def check_number(name: str, value: object, minimum: float = -math.inf) -> None:
    """Raise TypeError if a value is no number or array, ValueError if one is not finite or < minimum.

    A traced value passes, because it cannot be read.
    """
    if isinstance(value, jax.core.Tracer):
        return
    if isinstance(value, list | tuple) and not value:
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    if np.any(array < minimum):
        raise ValueError(f"{name}: expected a finite number >= {minimum:g}, got {value!r}")


def check_positive(name: str, value: object) -> None:
    """Check as `check_number` does; raise ValueError if a number is not > 0."""
    check_number(name, value)
    if not isinstance(value, jax.core.Tracer) and np.any(np.asarray(value) <= 0):
        raise ValueError(f"{name}: expected a finite number > 0, got {value!r}")


def check_not_negative(name: str, value: object) -> None:
    """Check as `check_number` does; raise ValueError if a number is < 0."""
    check_number(name, value, 0.0)


def check_fraction(name: str, value: object) -> None:
    """Check as `check_number` does; raise ValueError if a number is not in 0..1."""
    check_number(name, value)
    if is_concrete(value) and not np.all((np.asarray(value) >= 0) & (np.asarray(value) <= 1)):
        raise ValueError(f"{name}: expected numbers in 0..1, got {value!r}")


def check_positive_or_inf(name: str, value: object) -> None:
    """Check as `check_positive` does; infinity passes."""
    if is_concrete(value) and isinstance(value, float | int | np.number) and value == math.inf:
        return
    check_positive(name, value)


def check_whole(name: str, value: object) -> None:
    """Raise ValueError if a value is not an integer >= 0."""
    check_integer(name, value, 0)


def check_probability(name: str, value: object) -> None:
    """Check as `check_number` does; raise ValueError if a number is not between 0 and 1."""
    check_number(name, value)
    if is_concrete(value) and not np.all((np.asarray(value) > 0) & (np.asarray(value) < 1)):
        raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")


def check_choice(*choices: str) -> Callable[[str, object], None]:
    """Make a check that raises ValueError if a value is none of the choices."""

    def check(name: str, value: Value) -> None:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")

    return check


check_corner = check_choice("smooth", "one_sided")  # derivatives: of the mode taken, or of the direction


def check_not_empty(name: str, value: Value) -> None:
    """Raise ValueError if an array has no entries."""
    if 0 in jnp.shape(value):
        raise ValueError(f"{name}: expected at least one number, got none")


def check_numbers(name: str, value: object) -> None:
    """Check a Python number, or those of a mapping, as `check_number` does; arrays and empty lists pass."""
    for part in value.values() if isinstance(value, Mapping) else [value]:
        is_empty = isinstance(part, list | tuple) and not part
        if not is_empty and not isinstance(part, np.ndarray | np.generic | jax.Array):
            check_number(name, part)


def check_mapping(name: str, value: object) -> None:
    """Raise TypeError if a value is no mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected a mapping, got {type(value).__name__}")


def check_names(*names: str) -> Callable[[str, object], None]:
    """Make a check that raises TypeError or ValueError if a value is no mapping that has these names."""

    def check(name: str, value: Value) -> None:
        check_mapping(name, value)
        missing = [key for key in names if key not in value]
        if missing:
            raise ValueError(f"{name}: expected {', '.join(names)}, got no {', '.join(missing)}")

    return check


def check_seed(name: str, value: Value) -> None:
    """Raise ValueError if a value is not an integer >= 0 of at most 64 bits."""
    check_integer(name, value, 0)
    if value >= SEEDS:
        raise ValueError(f"{name}: expected an integer < 2^64, got {value}")


def is_key(value: object) -> TypeGuard[jax.Array]:
    """Return whether a value is one JAX random key, typed or as raw data."""
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape == ()
    return value.dtype == np.uint32 and value.shape in ((2,), (4,))

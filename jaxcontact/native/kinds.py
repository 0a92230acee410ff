"""Kinds of numbers: one name for the types of JAX, NumPy and LLVM. The entry function is `kind_of`."""

from __future__ import annotations

from typing import Any  # Any: a bool, an int or a float, by kind

import jax
import numpy as np

BOOL = "b"
_NUMPY: dict[str, type] = {
    "f8": np.float64,
    "f4": np.float32,
    "i8": np.int64,
    "i4": np.int32,
    "i2": np.int16,
    "i1": np.int8,
    "u8": np.uint64,
    "u4": np.uint32,
    "u2": np.uint16,
    "u1": np.uint8,
    BOOL: np.bool_,
}


def kind_of(dtype: jax.typing.DTypeLike) -> str:
    """Return the kind of a dtype.

    Raises:
        NotImplementedError: for complex numbers, half precision and keys of random numbers.
    """
    try:
        name = np.dtype(dtype).str[1:]
    except TypeError:
        name = str(dtype)
    kind = BOOL if name == "b1" else name
    if kind not in _NUMPY:
        raise NotImplementedError(f"function: jc.simd has no numbers of dtype {dtype}")
    return kind


def numpy_type(kind: str) -> type:
    """Return NumPy's scalar type of a kind."""
    return _NUMPY[kind]


def is_float(kind: str) -> bool:
    """Return whether numbers of this kind are floating."""
    return kind[0] == "f"


def least(kind: str) -> Any:
    """Return the smallest number of a kind."""
    return False if kind == BOOL else -np.inf if is_float(kind) else np.iinfo(_NUMPY[kind]).min


def greatest(kind: str) -> Any:
    """Return the largest number of a kind."""
    return True if kind == BOOL else np.inf if is_float(kind) else np.iinfo(_NUMPY[kind]).max

"""Kinds of numbers: what JAX, NumPy and LLVM call them."""

from __future__ import annotations

from typing import Any

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


def kind_of(dtype: Any) -> str:
    """The kind of a dtype.

    Raises:
        NotImplementedError: complex numbers, half precision, keys of random numbers.
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
    """The scalar type of NumPy."""
    return _NUMPY[kind]


def is_float(kind: str) -> bool:
    """Whether numbers of this kind are floating."""
    return kind[0] == "f"


def least(kind: str) -> Any:
    """The smallest number of a kind."""
    return False if kind == BOOL else -np.inf if is_float(kind) else np.iinfo(_NUMPY[kind]).min


def greatest(kind: str) -> Any:
    """The largest number of a kind."""
    return True if kind == BOOL else np.inf if is_float(kind) else np.iinfo(_NUMPY[kind]).max

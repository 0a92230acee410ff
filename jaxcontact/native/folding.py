"""Operations on numbers that are known when a program is built. Entries: `unary`, `binary`, `convert`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any  # Any: constants of each kind

import numpy as np

from jaxcontact.native.kinds import is_float, kind_of, numpy_type

Number = Any  # a NumPy scalar of any dtype, whose operators np.generic does not declare


def _divide(a: Number, b: Number) -> Number:
    """Divide as XLA: integers towards zero, and an integer by zero gives -1."""
    if is_float(kind_of(a.dtype)):
        return a / b
    if b == 0:
        return type(a)(-1)
    quotient = abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)
    return np.array(quotient & (2 ** (8 * a.dtype.itemsize) - 1), f"u{a.dtype.itemsize}").view(a.dtype)[()]


def _take_remainder(a: Number, b: Number) -> Number:
    """Compute the remainder with the sign of a; of an integer by zero it is a."""
    if is_float(kind_of(a.dtype)):
        return np.fmod(a, b)
    return a if b == 0 else type(a)(0) if b == -1 else np.fmod(a, b)


def _shift_left(a: Number, b: Number) -> Number:
    """Shift the bits of an integer left; a shift outside its width gives zero."""
    return np.left_shift(a, b) if 0 <= b < 8 * a.dtype.itemsize else type(a)(0)


def _shift_right(a: Number, b: Number) -> Number:
    """Shift the bits of an integer right and fill with zeros; a shift outside its width gives zero."""
    size = a.dtype.itemsize
    moved = int(a.view(f"u{size}")) >> int(b) if 0 <= b < 8 * size else 0
    return np.array(moved, f"u{size}").view(a.dtype)[()]


def _shift_right_signed(a: Number, b: Number) -> Number:
    """Shift the bits of an integer right and fill with copies of its first bit."""
    size = a.dtype.itemsize
    moved = int(a.view(f"i{size}")) >> (int(b) if 0 <= b < 8 * size else 8 * size - 1)
    return np.array(moved, f"i{size}").view(a.dtype)[()]


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "rem": _take_remainder,
    "max": np.maximum,
    "min": np.minimum,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "pow": np.power,
    "atan2": np.arctan2,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "shift_right_signed": _shift_right_signed,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "not": np.invert,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "is_finite": np.isfinite,
    "is_nan": np.isnan,
}


def unary(op: str, a: Number) -> Number:
    """Apply the operation `op` to a known number; return the result."""
    with np.errstate(all="ignore"):
        return _UNARY[op](a)


def binary(op: str, a: Number, b: Number) -> Number:
    """Apply the operation `op` to two known numbers; return the result."""
    with np.errstate(all="ignore"):
        return _BINARY[op](a, b)


def convert(a: Number, kind: str) -> Number:
    """Convert a known number to another kind; an integer kind takes its nearest number, and zero for NaN."""
    target = numpy_type(kind)
    if is_float(kind_of(a.dtype)) and kind[0] in "iu":
        limits = np.iinfo(target)
        if np.isnan(a):
            return target(0)
        return target(limits.max if a >= limits.max else limits.min if a <= limits.min else int(a))
    with np.errstate(all="ignore"):
        return a.astype(target)

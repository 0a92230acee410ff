"""Mark a tangent that is not linear: its value passes, reverse mode and second derivatives do not.

Owns one JAX primitive, the identity; entry `forward_only`.
"""

from __future__ import annotations

from typing import NoReturn

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def forward_only(tangent: jax.Array, at: jax.Array, *, reverse: str, second: str) -> jax.Array:
    """Return the tangent; raise NotImplementedError if it is transposed or differentiated.

    Args:
        tangent: an array that depends on a direction, not linearly.
        at: an array of the same shape that moves with the point of the tangent. A tangent that is constant
            between kinks has no derivative of its own, and a second derivative would be a silent zero.
        reverse: message of the error in reverse mode.
        second: message of the error of a second derivative.
    """
    return _identity.bind(tangent, at, reverse=reverse, second=second)


def _refuse_transpose(*_: object, reverse: str, **__: object) -> NoReturn:
    raise NotImplementedError(reverse)


def _refuse_derivative(*_: object, second: str, **__: object) -> NoReturn:
    raise NotImplementedError(second)


_identity = Primitive("forward_only")
_identity.def_impl(lambda x, *_, **__: x)
_identity.def_abstract_eval(lambda x, *_, **__: x)
mlir.register_lowering(_identity, lambda _, x, *__, **___: [x])
batching.defbroadcasting(_identity)
ad.primitive_jvps[_identity] = _refuse_derivative
ad.primitive_transposes[_identity] = _refuse_transpose

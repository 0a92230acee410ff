"""Mark a tangent that is not linear: its value passes, reverse mode and second derivatives do not.

Owns one JAX primitive, the identity; entry `forward_only`.
"""

from __future__ import annotations

from typing import NoReturn

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def forward_only(tangent: jax.Array, *, reverse: str, second: str) -> jax.Array:
    """Return the tangent; raise NotImplementedError if it is transposed or differentiated.

    Args:
        tangent: an array that depends on a direction, not linearly.
        reverse: message of the error in reverse mode.
        second: message of the error of a second derivative.
    """
    return _identity.bind(tangent, reverse=reverse, second=second)


def _refuse_transpose(*_: object, reverse: str, **__: object) -> NoReturn:
    raise NotImplementedError(reverse)


def _refuse_derivative(*_: object, second: str, **__: object) -> NoReturn:
    raise NotImplementedError(second)


_identity = Primitive("forward_only")
_identity.def_impl(lambda x, **_: x)
_identity.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_identity, lambda _, x, **__: [x])
batching.defvectorized(_identity)
ad.primitive_jvps[_identity] = _refuse_derivative
ad.primitive_transposes[_identity] = _refuse_transpose

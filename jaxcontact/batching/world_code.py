"""Whether a program is code of one world for vectors of a CPU, `jc.simd`: `compiles_one_world`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jaxcontact.native import registry

if TYPE_CHECKING:
    from jaxcontact.native.interpreter import Interpreter
    from jaxcontact.native.jaxprs import Equation


def compiles_one_world() -> jax.Array:
    """Return a bool, True in the program of `jc.simd` and False in XLA's; a branch on it costs nothing."""
    return _one_world.bind()


_one_world = Primitive("one_world")
_one_world.def_impl(lambda: jax.numpy.asarray(False))
_one_world.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
mlir.register_lowering(_one_world, mlir.lower_fun(lambda: jax.numpy.asarray(False), multiple_results=False))


@registry.rule(_one_world.name)
def _true(program: Interpreter, equation: Equation, inputs: list[registry.Numbers]) -> Any:
    return program.constants(np.asarray(True))

"""What a function asks and tells its compiler: `compiles_one_world`, `takes_one_at_a_time`, `mark_seldom`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxcontact.native import registry

if TYPE_CHECKING:
    from jaxcontact.native.interpreter import Interpreter
    from jaxcontact.native.jaxprs import Equation


def compiles_one_world() -> jax.Array:
    """Return a bool, True in the program of `jc.simd` and False in XLA's; a branch on it costs nothing."""
    return _one_world.bind()


def takes_one_at_a_time(x: jax.Array) -> jax.Array:
    """Return a bool, True where a program takes one world after another; a branch on it costs nothing.

    That is so in the program of `jc.simd`, and in XLA's for a CPU unless x has an axis of a batch: there a
    branch that is not taken costs no time.
    """
    answer: jax.Array = _in_turn.bind(x)
    return answer


def mark_seldom(x: jax.Array) -> jax.Array:
    """Mark the body of the loop or branch in which x is made as one to which few runs come; return x.

    `jc.simd` compiles such a body quickly, not to quick code.

    Derivative: none.
    """
    same: jax.Array = _seldom.bind(x)
    return same


_one_world = Primitive("one_world")
_one_world.def_impl(lambda: jax.numpy.asarray(False))
_one_world.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
mlir.register_lowering(_one_world, mlir.lower_fun(lambda: jax.numpy.asarray(False), multiple_results=False))


@registry.rule(_one_world.name)
def _answer_true(
    program: Interpreter, equation: Equation, inputs: list[registry.Numbers]
) -> registry.Numbers:
    return program.constants(np.asarray(True))


_in_turn = Primitive("takes_one_at_a_time")
_in_turn.def_impl(lambda x: jax.numpy.asarray(True))
_in_turn.def_abstract_eval(lambda x: ShapedArray((), np.dtype(bool)))
batching.primitive_batchers[_in_turn] = lambda *_: (jax.numpy.asarray(False), None)
for platform, answer in ((None, False), ("cpu", True)):
    mlir.register_lowering(
        _in_turn,
        mlir.lower_fun(lambda x, answer=answer: jax.numpy.asarray(answer), multiple_results=False),
        platform=platform,
    )

registry.rule(_in_turn.name)(_answer_true)


_seldom = Primitive("mark_seldom")
_seldom.def_impl(lambda x: x)
_seldom.def_abstract_eval(lambda x: x)
batching.defvectorized(_seldom)
mlir.register_lowering(_seldom, lambda _, x: [x])


@registry.rule(_seldom.name)
def _mark(program: Interpreter, equation: Equation, inputs: list[registry.Numbers]) -> list[registry.Numbers]:
    program.ops.now.is_marked_seldom = True
    return inputs

"""From a jaxpr of one world to operations on numbers.

An array is a NumPy array of numbers. A rule, by the name of its primitive, takes the interpreter, the
equation and the arrays of its inputs, and returns the array of its output, or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxcontact.native.control import Fill, Table
from jaxcontact.native.kinds import kind_of
from jaxcontact.native.operations import Operations

Numbers = np.ndarray
FILLED = 256  # numbers of a table that are written at once
Rule = Callable[["Interpreter", Any, list[Numbers]], Any]
RULES: dict[str, Rule] = {}
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call", "fun")  # parameters that hold what a primitive calls


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule under the names of its primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def is_key(array: Any) -> bool:
    """Whether an array has keys of random numbers; they must be keys of threefry."""
    dtype = getattr(array, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return False
    if str(dtype) != "key<fry>":
        raise NotImplementedError(f"function: jc.simd has random numbers of threefry, got {dtype}")
    return True


def array_of(v: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of the numbers that a variable is: a key of random numbers is a pair of integers."""
    if is_key(v.aval):
        return jax.ShapeDtypeStruct((*v.aval.shape, 2), np.uint32)
    return jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)


def numbers_of(array: Any) -> np.ndarray:
    """The numbers of an array: a key of random numbers is a pair of integers."""
    return np.asarray(jax.random.key_data(array) if is_key(array) else array)


class Interpreter:
    """Runs a jaxpr on numbers.

    Attributes:
        ops: the operations so far.
        index_kind: kind of addresses in tables.
        going: the bit that tells which worlds a loop or branch is for; None outside.
    """

    def __init__(self, index_kind: str, nan: bool = True) -> None:
        self.ops = Operations(nan)
        self.index_kind = index_kind
        self.going: int | None = None

    def constants(self, values: Any) -> Numbers:
        """Known numbers."""
        array = numbers_of(values)
        kind = kind_of(array.dtype)
        numbers = [self.ops.constant(value, kind) for value in array.ravel()]
        return np.array(numbers, np.int64).reshape(array.shape)

    def inputs(self, shape: tuple[int, ...], dtype: Any, start: int) -> Numbers:
        """Numbers of an argument, of which the first has place `start` among all arguments."""
        size, kind = int(np.prod(shape, dtype=int)), kind_of(dtype)
        numbers = [self.ops.new("input", (), kind, start + i) for i in range(size)]
        return np.array(numbers, np.int64).reshape(shape)

    def are_known(self, numbers: Numbers) -> bool:
        """Whether all are constants."""
        return all(self.ops.is_known(n) for n in numbers.ravel())

    def values(self, numbers: Numbers, dtype: Any) -> np.ndarray:
        """The values of constants."""
        return np.array([self.ops.value[n] for n in numbers.ravel()], dtype).reshape(numbers.shape)

    def each(self, function: Callable[..., int], *arrays: Numbers) -> Numbers:
        """function(...) of every entry of arrays that broadcast."""
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        columns = [np.broadcast_to(array, shape).ravel().tolist() for array in arrays]
        return np.array([function(*row) for row in zip(*columns, strict=True)], np.int64).reshape(shape)

    def table(self, numbers: Numbers) -> Table:
        """A table of numbers."""
        flat = [int(n) for n in numbers.ravel()]
        uniform = all(self.ops.uniform[n] for n in flat)
        table = Table(len(flat), self.ops.kind[flat[0]], uniform)
        for begin in range(0, len(flat), FILLED):
            self.ops.now.items.append(Fill(table, flat[begin : begin + FILLED], begin))
        return table

    def run(self, jaxpr: Any, constants: Any, arguments: list[Numbers]) -> list[Numbers]:
        """The outputs of an open jaxpr."""
        known: dict[Any, Numbers] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {v: self.constants(x) for v, x in zip(jaxpr.constvars, constants, strict=True)}

        def read(v: Any) -> Numbers:
            return self.constants(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else known[v]

        for equation in jaxpr.eqns:
            outputs = self._apply(equation, [read(v) for v in equation.invars])
            known |= dict(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def run_closed(self, closed: Any, arguments: list[Numbers]) -> list[Numbers]:
        """The outputs of a closed jaxpr."""
        return self.run(closed.jaxpr, closed.consts, arguments)

    def _apply(self, equation: Any, inputs: list[Numbers]) -> list[Numbers]:
        name = equation.primitive.name
        apply = RULES.get(name)
        if apply is not None:
            outputs = apply(self, equation, inputs)
            return outputs if isinstance(outputs, list) else [outputs]
        for key in _CALLED:
            inner = equation.params.get(key)
            if hasattr(inner, "consts"):
                return self.run_closed(inner, inputs)
            if hasattr(inner, "eqns"):
                return self.run(inner, (), inputs)
        raise NotImplementedError(
            f"function: jc.simd has no rule for the JAX primitive {name!r}; "
            "use jc.on_all_cores(jax.vmap(function))"
        )

"""The interpreter: makes operations on numbers of the function of one world, by the rules of its primitives.

The entry function is `Interpreter.run`. An array is a NumPy array of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: constants of JAX's programs

import jax
import numpy as np

from jaxcontact.native.control import Fill, Table
from jaxcontact.native.jaxprs import Array, Equation, Function, Known, Variable, numbers_of
from jaxcontact.native.kinds import kind_of
from jaxcontact.native.operations import INPUT, Operations
from jaxcontact.native.registry import RULES, Numbers

FILLED = 256  # numbers of a table written at once; limits the size of one item


class Interpreter:
    """A run of a function on numbers.

    Attributes:
        ops: the operations so far.
        index_kind: kind of addresses in tables.
        going: the bit set for the worlds that run the loop or branch; None outside.
    """

    def __init__(self, index_kind: str, nan: bool = True) -> None:
        self.ops = Operations(nan)
        self.index_kind = index_kind
        self.going: int | None = None
        self.tables: dict[bytes, Table] = {}  # of matrices that loops multiply
        self.earlier: dict[Any, Any] = {}  # assumptions that held of inner loops in the last run of a body
        self.settled: dict[Any, Any] = {}  # assumptions that hold of inner loops in this run of the body

    def constants(self, values: Any) -> Numbers:
        """Make constants of known values; return their numbers."""
        array = numbers_of(values)
        kind = kind_of(array.dtype)
        numbers = [self.ops.constant(value, kind) for value in array.ravel()]
        return np.array(numbers, np.int64).reshape(array.shape)

    def inputs(self, array: Array, start: int, shared: bool = False) -> Numbers:
        """Make the numbers of an argument; the first has place `start` among all; worlds may share them."""
        kind = kind_of(array.dtype)
        numbers = [self.ops.new(INPUT, (), kind, start + i, shared) for i in range(array.size)]
        return np.array(numbers, np.int64).reshape(array.shape)

    def are_known(self, numbers: Numbers) -> bool:
        """Return whether all numbers are constants."""
        return all(self.ops.is_known(n) for n in numbers.ravel())

    def values(self, numbers: Numbers, dtype: jax.typing.DTypeLike) -> np.ndarray:
        """Return the values of numbers that are constants."""
        return np.array([self.ops.value[n] for n in numbers.ravel()], dtype).reshape(numbers.shape)

    def each(self, function: Callable[..., int], *arrays: Numbers) -> Numbers:
        """Apply a function to every entry of arrays that broadcast; return the array of its results."""
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        columns = [np.broadcast_to(array, shape).ravel().tolist() for array in arrays]
        return np.array([function(*row) for row in zip(*columns, strict=True)], np.int64).reshape(shape)

    def table(self, numbers: Numbers) -> Table:
        """Make a table and fill it with numbers; return it."""
        flat = [int(n) for n in numbers.ravel()]
        uniform = all(self.ops.uniform[n] for n in flat)
        table = Table(len(flat), self.ops.kind[flat[0]], uniform)
        for begin in range(0, len(flat), FILLED):
            self.ops.now.items.append(Fill(table, flat[begin : begin + FILLED], begin))
        return table

    def run(self, function: Function, arguments: list[Numbers]) -> list[Numbers]:
        """Run a function on the numbers of its arguments; return the numbers of its results."""
        numbers_of: dict[Variable, Numbers] = dict(zip(function.arguments, arguments, strict=True))
        numbers_of |= {v: self.constants(x) for v, x in function.constants.items()}

        def read(v: Variable | Known) -> Numbers:
            return self.constants(v.value) if isinstance(v, Known) else numbers_of[v]

        for equation in function.equations:
            outputs = self._apply(equation, [read(v) for v in equation.arguments])
            numbers_of |= dict(zip(equation.results, outputs, strict=True))
        return [read(v) for v in function.results]

    def _apply(self, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
        """Apply the rule of an equation, to both parts of keys; without a rule run the function it calls."""
        if equation.name in RULES:
            if not equation.arranges_keys:
                return self._apply_rule(equation, inputs)
            pairs = list(zip(inputs, equation.inputs, strict=True))
            parts = [[x[..., k] if array.is_key else x for x, array in pairs] for k in (0, 1)]
            halves = zip(*(self._apply_rule(equation.of_part, part) for part in parts), strict=True)
            return [np.stack(half, -1) for half in halves]
        if equation.called is not None:
            return self.run(equation.called, inputs)
        raise NotImplementedError(f"function: jc.simd has no rule for the JAX primitive {equation.name!r}")

    def _apply_rule(self, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
        outputs = RULES[equation.name](self, equation, inputs)
        return outputs if isinstance(outputs, list) else [outputs]

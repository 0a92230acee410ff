"""Records of traced functions: the only file that knows JAX's jaxprs. Entries: `trace`, `function_of`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any  # Any: what JAX's programs hold has no public types

import jax
import numpy as np

if TYPE_CHECKING:
    import jax.extend

_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call", "fun")  # parameters with the function that is called
Variable = int


@dataclasses.dataclass(frozen=True)
class Array:
    """Shape and dtype of the numbers of an array; a key of random numbers is a pair of integers."""

    shape: tuple[int, ...]
    dtype: Any
    is_key: bool = False

    @property
    def size(self) -> int:
        """Count the entries."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def part(self) -> Array:
        """Return the first or second integers of keys; any other array itself."""
        return Array(self.shape[:-1], self.dtype) if self.is_key else self


@dataclasses.dataclass(frozen=True)
class Known:
    """A known argument of an equation."""

    value: object


@dataclasses.dataclass(eq=False)
class Equation:
    """A primitive on arguments.

    Attributes:
        name: of the primitive.
        params: its parameters; functions among them are of type `Function`.
        arguments: variables and known arrays.
        results: the variables that it defines.
        inputs: shape and dtype of each argument.
        outputs: shape and dtype of each result.
        evaluate: (arrays, changed parameters) -> the result of the primitive itself.
    """

    name: str
    params: dict[str, Any]
    arguments: list[Variable | Known]
    results: list[Variable]
    inputs: list[Array]
    outputs: list[Array]
    evaluate: Callable[..., Any]

    @property
    def called(self) -> Function | None:
        """Return the function that the primitive calls with its arguments; None if it calls none."""
        functions = (self.params.get(name) for name in _CALLED)
        return next((function for function in functions if isinstance(function, Function)), None)

    @property
    def arranges_keys(self) -> bool:
        """Decide whether the equation does the same to the first and the second integers of keys."""
        has_keys = any(array.is_key for array in (*self.inputs, *self.outputs))
        return has_keys and not self.functions and not self.name.startswith("random_")

    @property
    def of_part(self) -> Equation:
        """Return the equation for the first or the second integers of keys."""
        inputs, outputs = ([array.part for array in arrays] for arrays in (self.inputs, self.outputs))
        return dataclasses.replace(self, inputs=inputs, outputs=outputs)

    @property
    def functions(self) -> list[Function]:
        """List all functions among the parameters."""
        found = []
        for value in self.params.values():
            parts = value if isinstance(value, list | tuple) else [value]
            found += [part for part in parts if isinstance(part, Function)]
        return found


@dataclasses.dataclass(eq=False)
class Function:
    """Equations in their order, between the variables of the arguments and the results."""

    arguments: list[Variable]
    constants: dict[Variable, Any]
    equations: list[Equation]
    results: list[Variable | Known]
    inputs: list[Array]
    outputs: list[Array]
    keys: list[bool]  # which results are keys of random numbers


def is_key(array: object) -> bool:
    """Return whether an array, or the array of a tracer, holds keys of random numbers."""
    dtype = getattr(array, "dtype", None)
    return dtype is not None and bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def numbers_of(array: jax.typing.ArrayLike) -> np.ndarray:
    """Return the numbers of an array; a key of random numbers gives a pair of integers."""
    return np.asarray(jax.random.key_data(array) if is_key(array) else array)


def keys_of(pairs: np.ndarray) -> jax.Array:
    """Wrap pairs of integers as keys of random numbers."""
    return jax.random.wrap_key_data(jax.device_put(pairs), impl="threefry2x32")


def function_of(closed: jax.extend.core.ClosedJaxpr) -> Function:
    """Read a closed jaxpr; return its record.

    Raises:
        NotImplementedError: if it has keys of a generator other than threefry.
    """
    return _Reader().read_closed(closed)


def trace(function: Callable[..., Any], *arrays: Array) -> Function:
    """Trace a function of arrays; return its record."""
    return function_of(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays)))


class _Reader:
    """A reader of jaxprs, which reads each once."""

    def __init__(self) -> None:
        self._functions: dict[int, Function] = {}
        self._variables: dict[Any, Variable] = {}

    def read_closed(self, closed: Any) -> Function:
        return self._read_function(closed.jaxpr, closed.consts)

    def _read_function(self, jaxpr: Any, constants: Any) -> Function:
        if id(jaxpr) not in self._functions:
            self._functions[id(jaxpr)] = Function(
                [self._number_variable(v) for v in jaxpr.invars],
                dict(zip(map(self._number_variable, jaxpr.constvars), constants, strict=True)),
                [self._read_equation(equation) for equation in jaxpr.eqns],
                [self._read_argument(v) for v in jaxpr.outvars],
                [_array_of(v.aval) for v in jaxpr.invars],
                [_array_of(v.aval) for v in jaxpr.outvars],
                [is_key(v.aval) for v in jaxpr.outvars],
            )
        return self._functions[id(jaxpr)]

    def _read_equation(self, equation: jax.extend.core.JaxprEqn) -> Equation:
        def evaluate(*arrays: Any, **changed: Any) -> Any:
            return equation.primitive.bind(*arrays, **{**equation.params, **changed})

        return Equation(
            equation.primitive.name,
            {name: self._read_parameter(value) for name, value in _parameters(equation).items()},
            [self._read_argument(v) for v in equation.invars],
            [self._number_variable(v) for v in equation.outvars],
            [_array_of(v.aval) for v in equation.invars],
            [_array_of(v.aval) for v in equation.outvars],
            evaluate,
        )

    def _number_variable(self, v: Any) -> Variable:
        """Return the number of a variable, the next one for a new variable."""
        return self._variables.setdefault(v, len(self._variables))

    def _read_argument(self, v: Any) -> Variable | Known:
        return Known(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else self._number_variable(v)

    def _read_parameter(self, value: object) -> Any:
        """Read the functions in a parameter; leave other values."""
        if hasattr(value, "consts") and hasattr(value, "jaxpr"):
            return self.read_closed(value)
        if hasattr(value, "eqns"):
            return self._read_function(value, ())
        if isinstance(value, list | tuple):
            parts = [self._read_parameter(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value


def _parameters(equation: jax.extend.core.JaxprEqn) -> dict[str, Any]:
    """Return the parameters of an equation; JAX 0.11 counts those of a scan by trees."""
    if "ft_in" not in equation.params:
        return dict(equation.params)
    fixed, carry, _ = equation.params["ft_in"].unpack()
    return equation.params | {"num_consts": len(fixed), "num_carry": len(carry)}


def _array_of(aval: Any) -> Array:
    if not is_key(aval):
        return Array(getattr(aval, "shape", ()), getattr(aval, "dtype", None))
    if str(aval.dtype) != "key<fry>":
        raise NotImplementedError(f"function: jc.simd has random numbers of threefry, got {aval.dtype}")
    return Array((*aval.shape, 2), np.dtype(np.uint32), True)

"""Rules of primitives that treat every entry of arrays alike."""

from __future__ import annotations

import functools

import numpy as np

from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Equation
from jaxcontact.native.kinds import BOOL, is_float, kind_of, numpy_type
from jaxcontact.native.operations import Operations
from jaxcontact.native.registry import RULES, Numbers, Rule, rule, unchanged

_BINARY = {
    **{name: name for name in ("add", "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor")},
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "atan2", "shift_left")},
    "add_any": "add",
    "shift_right_logical": "shift_right",
    "shift_right_arithmetic": "shift_right_signed",
}
_UNARY = {
    **{name: name for name in ("neg", "not", "abs", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos")},
    **{name: name for name in ("atan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log1p")},
    **{name: name for name in ("floor", "ceil", "is_finite")},
}


def _make_rule(op: str, method: str) -> Rule:
    """Make the rule that applies one operation to every entry; `method` is "unary" or "binary"."""

    def apply(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
        return program.each(functools.partial(getattr(program.ops, method), op), *inputs)

    return apply


RULES.update({name: _make_rule(op, "binary") for name, op in _BINARY.items()})
RULES.update({name: _make_rule(op, "unary") for name, op in _UNARY.items()})


@rule("pow")
def _power(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Raise a float to the power of a float or an integer."""
    ops = program.ops
    return program.each(lambda a, b: ops.binary("pow", a, ops.convert(b, ops.kind[a])), *inputs)


rule("stop_gradient", "copy", "copy_p", "optimization_barrier", "pvary", "sharding_constraint")(unchanged)


@rule("sign")
def _sign(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops = program.ops

    def sign(a: int) -> int:
        kind = ops.kind[a]
        zero, plus, minus = (ops.constant(v, kind) for v in (0, 1, -1 if kind[0] != "u" else 0))
        below = ops.select(ops.binary("lt", a, zero), minus, a)
        return ops.select(ops.binary("gt", a, zero), plus, below)

    return program.each(sign, *inputs)


@rule("square")
def _square(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return program.each(lambda a: program.ops.binary("mul", a, a), *inputs)


@rule("one_minus_square")  # of JAX 0.11, in the derivatives of tanh and others
def _one_minus_square(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops = program.ops

    def product(a: int) -> int:
        unit = ops.constant(1, ops.kind[a])
        return int(ops.binary("mul", ops.binary("add", unit, a), ops.binary("sub", unit, a)))

    return program.each(product, *inputs)


@rule("rsqrt")
def _inverse_root(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops = program.ops
    return program.each(
        lambda a: ops.binary("div", ops.constant(1, ops.kind[a]), ops.unary("sqrt", a)), *inputs
    )


@rule("logistic")
def _logistic(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops = program.ops

    def logistic(a: int) -> int:
        unity = ops.constant(1, ops.kind[a])
        return ops.binary("div", unity, ops.binary("add", unity, ops.unary("exp", ops.unary("neg", a))))

    return program.each(logistic, *inputs)


@rule("integer_pow")
def _integer_power(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops, exponent = program.ops, equation.params["y"]

    def power(a: int, n: int) -> int:
        if n == 0:
            return ops.constant(1, ops.kind[a])
        half = power(a, n // 2)
        square = ops.binary("mul", half, half)
        return ops.binary("mul", square, a) if n % 2 else square

    def signed(a: int) -> int:
        positive_power = power(a, abs(exponent))
        if exponent >= 0:
            return positive_power
        return ops.binary("div", ops.constant(1, ops.kind[a]), positive_power)

    return program.each(signed, *inputs)


@rule("round")
def _rounded(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Round to the nearest integer; at a tie to the even one, or to the one away from zero."""
    ops = program.ops
    if equation.params["rounding_method"].name == "TO_NEAREST_EVEN":
        return program.each(functools.partial(ops.unary, "rint"), *inputs)

    def away(a: int) -> int:
        half, zero = ops.constant(0.5, ops.kind[a]), ops.constant(0, ops.kind[a])
        size = ops.unary("floor", ops.unary("abs", a))
        rest = ops.binary("sub", ops.unary("abs", a), size)
        up = ops.binary("add", size, ops.constant(1, ops.kind[a]))
        size = ops.select(ops.binary("ge", rest, half), up, size)
        return ops.select(ops.binary("lt", a, zero), ops.unary("neg", size), size)

    return program.each(away, *inputs)


@rule("clamp")
def _clamped(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops = program.ops
    return program.each(lambda low, a, high: ops.binary("min", ops.binary("max", a, low), high), *inputs)


@rule("select_n")
def _selected(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops, (which, *cases) = program.ops, inputs
    if equation.inputs[0].dtype == np.bool_:
        return program.each(lambda w, no, yes: ops.select(w, yes, no), which, *cases)

    def choice(w: int, *numbers: int) -> int:
        chosen = numbers[-1]
        for k in range(len(numbers) - 2, -1, -1):
            chosen = ops.select(ops.binary("eq", w, ops.constant(k, ops.kind[w])), numbers[k], chosen)
        return chosen

    return program.each(choice, which, *cases)


@rule("convert_element_type")
def _converted(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    kind = kind_of(equation.outputs[0].dtype)
    return program.each(lambda a: program.ops.convert(a, kind), *inputs)


@rule("bitcast_convert_type")
def _same_bits(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    kinds = [kind_of(array.dtype) for array in (*equation.inputs, *equation.outputs)]
    if kinds[0][1:] != kinds[1][1:]:
        raise NotImplementedError(f"function: jc.simd has no bits of {kinds[0]} as {kinds[1]}")
    return program.each(lambda a: program.ops.same_bits(a, kinds[1]), *inputs)


@rule("reduce_precision")
def _of_less_precision(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    exponent, mantissa = (equation.params[name] for name in ("exponent_bits", "mantissa_bits"))
    return program.each(lambda a: _round_off(program.ops, a, exponent, mantissa), *inputs)


def _round_off(ops: Operations, a: int, exponent: int, mantissa: int) -> int:
    """Round a number to fewer bits: to even, to infinity above the largest, to zero below the smallest."""
    info = np.finfo(numpy_type(ops.kind[a]))
    dropped = info.nmant - mantissa
    kind = f"u{info.dtype.itemsize}"

    def constant(value: int) -> int:
        return ops.constant(value, kind)

    bits = ops.same_bits(a, kind)
    sign = ops.binary("and", bits, constant(1 << (info.bits - 1)))
    size = ops.binary("and", bits, constant((1 << (info.bits - 1)) - 1))
    if dropped > 0:
        even = ops.binary("and", ops.binary("shift_right", size, constant(dropped)), constant(1))
        half = ops.binary("add", even, constant((1 << (dropped - 1)) - 1))
        mask = ((1 << info.bits) - 1) ^ ((1 << dropped) - 1)
        size = ops.binary("and", ops.binary("add", size, half), constant(mask))
    if exponent < info.bits - 1 - info.nmant:
        bias, reach = (1 << (info.bits - 2 - info.nmant)) - 1, (1 << (exponent - 1)) - 1
        infinite = constant(((1 << (info.bits - 1 - info.nmant)) - 1) << info.nmant)
        above = ops.binary("ge", size, constant((bias + reach + 1) << info.nmant))
        below = ops.binary("le", size, constant((bias - reach) << info.nmant | ((1 << info.nmant) - 1)))
        size = ops.select(above, infinite, ops.select(below, constant(0), size))
    result = ops.same_bits(ops.binary("or", sign, size), ops.kind[a])
    return ops.select(ops.unary("is_nan", a), a, result)


def is_before(ops: Operations, relation: str, a: int, b: int) -> int:
    """Return the bit whether a is before b by the relation; NaN comes before all other numbers."""
    before = ops.binary(relation, a, b)
    if ops.kind[a] == BOOL or not is_float(ops.kind[a]):
        return before
    only_a = ops.binary("and", ops.binary("ne", a, a), ops.binary("eq", b, b))
    return ops.binary("or", before, only_a)

"""LLVM's text of single operations. The entry function is `write_operation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.native.kinds import BOOL, is_float
from jaxcontact.native.lanes import Lanes
from jaxcontact.native.operations import CONSTANT, RELATIONS

if TYPE_CHECKING:
    from jaxcontact.native.llvm_text import PieceWriter

INTRINSICS = {"abs": "fabs", **{op: op for op in ("sqrt", "floor", "ceil", "rint", "sin", "cos")}}
INTRINSICS |= {op: op for op in ("exp", "exp2", "log")}
OF_ONE = ("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "log1p", "expm1", "cbrt")  # of libm
OF_TWO = {"atan2": "atan2", "pow": "pow", "rem": "fmod"}
_FLOAT_RELATIONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def write_declarations(lanes: Lanes) -> str:
    """Write the declarations of the functions that the text of a program calls."""
    lines = []
    floats = [kind for kind in ("f8", "f4") if int(kind[1]) <= lanes.width]
    for kind in floats:
        vector, scalar = lanes.vector(kind), lanes.scalar(kind)
        bits, end = 8 * int(kind[1]), "" if kind == "f8" else "f"
        lines += [
            f"declare {vector} @llvm.{name}.v{lanes.count}f{bits}({vector})" for name in INTRINSICS.values()
        ]
        lines += [f"declare {scalar} @{name}{end}({scalar})" for name in OF_ONE]
        lines += [f"declare {scalar} @{name}{end}({scalar}, {scalar})" for name in OF_TWO.values()]
        for sign in "su":
            for wide in (8, 16, 32, 64):
                integers = f"<{lanes.count} x i{wide}>"
                name = f"llvm.fpto{sign}i.sat.v{lanes.count}i{wide}.v{lanes.count}f{bits}"
                lines.append(f"declare {integers} @{name}({vector})")
    lines.append(f"declare i1 @llvm.vector.reduce.or.v{lanes.count}i1({lanes.vector(BOOL)})")
    return "\n".join([*lines, "!0 = !{}"])


def write_operation(writer: PieceWriter, number: int) -> str:
    """Write the operation that computes a number from its arguments; return the name of its value."""
    ops = writer.ops
    op, kind, args = ops.op[number], ops.kind[number], ops.args[number]
    if op in ("max", "min"):
        return _write_extreme(writer, op, args)
    values = [writer.use(argument) for argument in args]
    of = ops.kind[args[0]]
    if op == "convert":
        return _write_conversion(writer, values[0], of, kind)
    if op == "bits":
        return _write_same_bits(writer, values[0], of, kind)
    if op == "select":
        vector = writer.lanes.vector(kind)
        bit = f"{writer.lanes.vector(BOOL)} {values[0]}"
        return writer.emit(f"select {bit}, {vector} {values[1]}, {vector} {values[2]}")
    if op in RELATIONS:
        return _write_comparison(writer, op, of, values)
    return (_write_float_operation if is_float(of) else _write_integer_operation)(writer, op, of, values)


def _write_comparison(writer: PieceWriter, op: str, kind: str, values: list[str]) -> str:
    """Write a comparison of two numbers of a kind; return the name of its bit."""
    vector = writer.lanes.vector(kind)
    if is_float(kind):
        return writer.emit(f"fcmp {_FLOAT_RELATIONS[op]} {vector} {values[0]}, {values[1]}")
    sign = "" if op in ("eq", "ne") else "u" if kind[0] in "ub" else "s"
    return writer.emit(f"icmp {sign}{op} {vector} {values[0]}, {values[1]}")


def _write_float_operation(writer: PieceWriter, op: str, kind: str, values: list[str]) -> str:
    """Write an operation on floats, by an instruction, an intrinsic or libm; return the name of its value."""
    lanes = writer.lanes
    vector = lanes.vector(kind)
    if op in ("add", "sub", "mul", "div"):
        return writer.emit(f"f{op} contract {vector} {values[0]}, {values[1]}")
    if op == "neg":
        return writer.emit(f"fneg {vector} {values[0]}")
    if op == "is_nan":
        return writer.emit(f"fcmp uno {vector} {values[0]}, {values[0]}")
    bits = 8 * int(kind[1])
    if op == "is_finite":
        size = writer.emit(f"call {vector} @llvm.fabs.v{lanes.count}f{bits}({vector} {values[0]})")
        infinite = lanes.splat(lanes.scalar(kind), "0x7FF0000000000000")
        return writer.emit(f"fcmp olt {vector} {size}, {infinite}")
    if op in INTRINSICS:
        name = f"llvm.{INTRINSICS[op]}.v{lanes.count}f{bits}"
        return writer.emit(f"call {vector} @{name}({vector} {values[0]})")
    return _write_world_by_world(writer, OF_TWO.get(op, op) + ("" if kind == "f8" else "f"), kind, values)


def _write_world_by_world(writer: PieceWriter, name: str, kind: str, values: list[str]) -> str:
    """Write a call of a function of libm for each world; return the name of the vector of results."""
    lanes = writer.lanes
    vector, scalar = lanes.vector(kind), lanes.scalar(kind)
    total = "undef"
    for k in range(lanes.count):
        entries = [writer.emit(f"extractelement {vector} {value}, i32 {k}") for value in values]
        result = writer.emit(f"call {scalar} @{name}({', '.join(f'{scalar} {entry}' for entry in entries)})")
        total = writer.emit(f"insertelement {vector} {total}, {scalar} {result}, i32 {k}")
    return total


def _write_extreme(writer: PieceWriter, op: str, args: tuple[int, ...]) -> str:
    """Write the larger or the smaller of two numbers; NaN if one is; of two zeros max is the positive one."""
    ops, lanes = writer.ops, writer.lanes
    kind = ops.kind[args[0]]
    if ops.op[args[1]] == CONSTANT:
        args = args[::-1]
    a, b = (writer.use(argument) for argument in args)
    vector, bits = lanes.vector(kind), lanes.vector(BOOL)
    relation = "gt" if op == "max" else "lt"
    if not is_float(kind):
        first = writer.emit(f"icmp {'u' if kind[0] == 'u' else 's'}{relation} {vector} {a}, {b}")
        return writer.emit(f"select {bits} {first}, {vector} {a}, {vector} {b}")
    if ops.op[args[0]] == CONSTANT:  # a constant is not NaN; at a tie of zeros its sign decides
        if bool(np.signbit(ops.value[args[0]])) == (op == "min"):
            relation = relation[0] + "e"
        first = writer.emit(f"fcmp o{relation} {vector} {a}, {b}")
        return writer.emit(f"select {bits} {first}, {vector} {a}, {vector} {b}")
    before = writer.emit(f"fcmp o{relation} {vector} {a}, {b}")
    nan = writer.emit(f"fcmp uno {vector} {a}, {a}")
    first = writer.emit(f"or {bits} {before}, {nan}")
    chosen = writer.emit(f"select {bits} {first}, {vector} {a}, {vector} {b}")
    tie = writer.emit(f"fcmp oeq {vector} {a}, {b}")
    words = f"<{lanes.count} x i{8 * int(kind[1])}>"
    both = [writer.emit(f"bitcast {vector} {x} to {words}") for x in (a, b)]
    joined = writer.emit(f"{'and' if op == 'max' else 'or'} {words} {both[0]}, {both[1]}")
    zero = writer.emit(f"bitcast {words} {joined} to {vector}")
    return writer.emit(f"select {bits} {tie}, {vector} {zero}, {vector} {chosen}")


def _write_integer_operation(writer: PieceWriter, op: str, kind: str, values: list[str]) -> str:
    """Write an operation on integers or bits; return the name of its value."""
    lanes = writer.lanes
    vector = lanes.vector(kind)
    if op in ("and", "or", "xor"):
        return writer.emit(f"{op} {vector} {values[0]}, {values[1]}")
    if op == "not":
        ones = lanes.splat(lanes.scalar(kind), "true" if kind == BOOL else -1)
        return _wrap(writer, kind, writer.emit(f"xor {vector} {values[0]}, {ones}"))
    if op in ("add", "sub", "mul"):
        return _wrap(writer, kind, writer.emit(f"{op} {vector} {values[0]}, {values[1]}"))
    if op == "neg":
        return _wrap(writer, kind, writer.emit(f"sub {vector} zeroinitializer, {values[0]}"))
    if op == "abs":
        below = writer.emit(f"icmp slt {vector} {values[0]}, zeroinitializer")
        minus = writer.emit(f"sub {vector} zeroinitializer, {values[0]}")
        size = writer.emit(f"select {lanes.vector(BOOL)} {below}, {vector} {minus}, {vector} {values[0]}")
        return _wrap(writer, kind, size)
    if op in ("div", "rem"):
        return _write_division(writer, op, kind, values)
    if op in ("shift_left", "shift_right"):
        return _write_shift(writer, op, kind, values)
    if op == "shift_right_signed":
        return _write_signed_shift(writer, kind, values)
    raise NotImplementedError(f"function: jc.simd has no {op} of integers")


def _wrap(writer: PieceWriter, kind: str, value: str) -> str:
    """Wrap an integer at the width of its kind, though its lane is wider; return the name of the result."""
    narrow, lanes = writer.lanes.narrow(kind), writer.lanes
    if narrow is None:
        return value
    few = f"<{lanes.count} x {narrow}>"
    low = writer.emit(f"trunc {lanes.vector(kind)} {value} to {few}")
    return writer.emit(f"{'zext' if kind[0] == 'u' else 'sext'} {few} {low} to {lanes.vector(kind)}")


def _write_division(writer: PieceWriter, op: str, kind: str, values: list[str]) -> str:
    """Write a quotient or remainder, towards zero.

    Division by zero, at which a CPU would stop, gives -1, and as a remainder the number itself.
    """
    lanes, (a, b) = writer.lanes, values
    vector, bits, signed = lanes.vector(kind), lanes.vector(BOOL), kind[0] == "i"
    minus, plus = lanes.splat(lanes.scalar(kind), -1), lanes.splat(lanes.scalar(kind), 1)
    zero = writer.emit(f"icmp eq {vector} {b}, zeroinitializer")
    odd = zero
    if signed:  # a CPU would also stop at the smallest number divided by -1
        negative = writer.emit(f"icmp eq {vector} {b}, {minus}")
        odd = writer.emit(f"or {bits} {zero}, {negative}")
    safe = writer.emit(f"select {bits} {odd}, {vector} {plus}, {vector} {b}")
    result = writer.emit(f"{'s' if signed else 'u'}{op} {vector} {a}, {safe}")
    if signed:
        by_minus = "zeroinitializer" if op == "rem" else writer.emit(f"sub {vector} zeroinitializer, {a}")
        result = writer.emit(f"select {bits} {negative}, {vector} {by_minus}, {vector} {result}")
    by_zero = a if op == "rem" else minus
    result = writer.emit(f"select {bits} {zero}, {vector} {by_zero}, {vector} {result}")
    return _wrap(writer, kind, result)


def _write_shift(writer: PieceWriter, op: str, kind: str, values: list[str]) -> str:
    """Write a shift that moves zeros in; a shift by the number of bits or more gives zero."""
    lanes, (a, b) = writer.lanes, values
    vector, bits, size = lanes.vector(kind), lanes.vector(BOOL), 8 * int(kind[1])
    inside = writer.emit(f"icmp ult {vector} {b}, {lanes.splat(lanes.scalar(kind), size)}")
    amount = writer.emit(f"select {bits} {inside}, {vector} {b}, {vector} zeroinitializer")
    if op == "shift_right" and lanes.narrow(kind):
        a = writer.emit(f"and {vector} {a}, {lanes.splat(lanes.scalar(kind), 2**size - 1)}")
    moved = writer.emit(f"{'shl' if op == 'shift_left' else 'lshr'} {vector} {a}, {amount}")
    result = writer.emit(f"select {bits} {inside}, {vector} {moved}, {vector} zeroinitializer")
    return _wrap(writer, kind, result)


def _write_signed_shift(writer: PieceWriter, kind: str, values: list[str]) -> str:
    """Write a shift to the right that moves in copies of the first bit."""
    lanes, (a, b) = writer.lanes, values
    vector, bits, size = lanes.vector(kind), lanes.vector(BOOL), 8 * int(kind[1])
    largest_shift = lanes.splat(lanes.scalar(kind), size - 1)
    inside = writer.emit(f"icmp ult {vector} {b}, {largest_shift}")
    amount = writer.emit(f"select {bits} {inside}, {vector} {b}, {vector} {largest_shift}")
    signed = _wrap(writer, f"i{kind[1]}", a)
    return _wrap(writer, kind, writer.emit(f"ashr {vector} {signed}, {amount}"))


def _write_same_bits(writer: PieceWriter, value: str, of: str, to: str) -> str:
    """Write a number as another kind of as many bits; an integer may have a wider lane."""
    lanes = writer.lanes
    few = f"<{lanes.count} x i{8 * int(of[1])}>"
    if is_float(of):
        bits = writer.emit(f"bitcast {lanes.vector(of)} {value} to {few}")
        if lanes.narrow(to) is None:
            return bits
        return writer.emit(f"{'zext' if to[0] == 'u' else 'sext'} {few} {bits} to {lanes.vector(to)}")
    if not is_float(to):
        return _wrap(writer, to, value)
    if lanes.narrow(of) is not None:
        value = writer.emit(f"trunc {lanes.vector(of)} {value} to {few}")
    return writer.emit(f"bitcast {few} {value} to {lanes.vector(to)}")


def _write_conversion(writer: PieceWriter, value: str, of: str, to: str) -> str:
    """Write the conversion of a value from one kind to another; floats saturate as integers."""
    lanes = writer.lanes
    source, target = lanes.vector(of), lanes.vector(to)
    if to == BOOL:
        compare = "fcmp une" if is_float(of) else "icmp ne"
        return writer.emit(f"{compare} {source} {value}, zeroinitializer")
    if of == BOOL:
        return writer.emit(f"{'uitofp' if is_float(to) else 'zext'} {source} {value} to {target}")
    if is_float(of) and is_float(to):
        return writer.emit(f"{'fptrunc' if to == 'f4' else 'fpext'} {source} {value} to {target}")
    if is_float(of):
        wide, sign = 8 * int(to[1]), "u" if to[0] == "u" else "s"
        integers = f"<{lanes.count} x i{wide}>"
        name = f"llvm.fpto{sign}i.sat.v{lanes.count}i{wide}.v{lanes.count}f{8 * int(of[1])}"
        result = writer.emit(f"call {integers} @{name}({source} {value})")
        if lanes.narrow(to) is None:
            return result
        return writer.emit(f"{'zext' if sign == 'u' else 'sext'} {integers} {result} to {target}")
    if is_float(to):
        return writer.emit(f"{'uitofp' if of[0] == 'u' else 'sitofp'} {source} {value} to {target}")
    return _wrap(writer, to, value)

"""The operations of a program on single numbers, simplified as they are added. The entry is `Operations`.

A number is an index; arrays of numbers are NumPy arrays of such indices. Known numbers are computed at once;
x + 0 and 1 x are no operations, and no operation is done twice. A product with a known zero stays, because
the other factor may be NaN or infinite; `Operations(nan=False)` takes it, and a known zero divided by any
number, for zero.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any  # Any: constants of each kind

import numpy as np

from jaxcontact.native import folding
from jaxcontact.native.kinds import BOOL, is_float, numpy_type

if TYPE_CHECKING:
    from jaxcontact.native.control import Item

CONSTANT = "constant"
INPUT = "input"  # a number of the arguments
CELL = "cell"  # a number that a loop carries or a branch leaves
READ = "read"  # a cell after its loop or branch
FROM_TABLE = "from table"
FROM_ROW = "from row"  # of a table that a loop reads row by row
COUNTER = "counter"
SYMMETRIC = ("add", "mul", "max", "min", "and", "or", "xor", "eq", "ne")
RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")
MOST_OPERATIONS = 6_000_000  # bodies of loops count each time they are tried; more take minutes to compile


@dataclasses.dataclass(eq=False)
class Block:
    """Operations and control in their order: those of the program, or of the body of a loop or branch.

    `is_marked_seldom`: a program said so of this block; `runs_seldom` asks the blocks around it, too.
    `is_of_loop`: this block is the body of a loop.
    """

    parent: Block | None = None
    is_marked_seldom: bool = False
    is_of_loop: bool = False
    items: list[int | Item] = dataclasses.field(default_factory=list)
    number_of: dict[Hashable, int] = dataclasses.field(default_factory=dict)

    @property
    def runs_seldom(self) -> bool:
        """Tell whether this block or one around it is marked."""
        return self.is_marked_seldom or (self.parent is not None and self.parent.runs_seldom)


class Operations:
    """The list of operations. Number n is the result of `op[n]` on the numbers `args[n]`.

    Attributes:
        nan: whether a known zero times NaN, or divided by NaN, is NaN.
        kind: kind of each number.
        value: the constant, or the place of an input, a table or a row.
        uniform: whether all worlds have the same number there.
        block: the block that computes the number.
        now: the block that new operations go to.
    """

    def __init__(self, nan: bool = True) -> None:
        self.nan = nan
        self.op: list[str] = []
        self.args: list[tuple[int, ...]] = []
        self.kind: list[str] = []
        self.value: list[Any] = []
        self.uniform: list[bool] = []
        self.block: list[Block] = []
        self.root = self.now = Block()
        self._constants: dict[Hashable, int] = {}

    def new(
        self, op: str, args: tuple[int, ...], kind: str, value: object = None, uniform: bool = False
    ) -> int:
        """Append an operation; return its number.

        Raises:
            NotImplementedError: if there are already `MOST_OPERATIONS`.
        """
        number = len(self.op)
        if number >= MOST_OPERATIONS:
            raise NotImplementedError(
                f"function: jc.simd takes at most {MOST_OPERATIONS} operations of one world, got more"
            )
        self.op.append(op)
        self.args.append(args)
        self.kind.append(kind)
        self.value.append(value)
        self.uniform.append(uniform)
        self.block.append(self.now)
        if op != CONSTANT:
            self.now.items.append(number)
        return number

    def find_or_append(self, op: str, args: tuple[int, ...], kind: str, value: Any = None) -> int:
        """Return the number of this operation; append it if neither this block nor an outer one has it."""
        key = op, args, kind, value
        block: Block | None = self.now
        while block is not None:
            number = block.number_of.get(key)
            if number is not None:
                return number
            block = block.parent
        uniform = bool(args) and all(self.uniform[a] for a in args)
        if op == FROM_TABLE:  # the table may differ between worlds at the same place
            uniform = uniform and value[0].uniform
        number = self.new(op, args, kind, value, uniform)
        self.now.number_of[key] = number
        return number

    def constant(self, value: object, kind: str) -> int:
        """Return the number of a constant."""
        exact = numpy_type(kind)(value)
        key = kind, exact.tobytes()
        number = self._constants.get(key)
        if number is None:
            number = self._constants[key] = self.new(CONSTANT, (), kind, exact, True)
        return number

    def is_known(self, number: int) -> bool:
        """Return whether a number is a constant."""
        return self.op[number] == CONSTANT

    def equals(self, number: int, value: object) -> bool:
        """Return whether a number is this constant."""
        return bool(self.op[number] == CONSTANT and self.value[number] == value)

    def is_finite(self, number: int) -> bool:
        """Return whether a number is known to be neither NaN nor infinite."""
        if not is_float(self.kind[number]):
            return True
        if self.is_known(number):
            return bool(np.isfinite(self.value[number]))
        return self.op[number] == "convert" and not is_float(self.kind[self.args[number][0]])

    def vanishes(self, zero: int, other: int) -> bool:
        """Return whether a product of two numbers is zero because the first is known to be."""
        return self.equals(zero, 0) and not (self.nan and not self.is_finite(other))

    def unary(self, op: str, a: int) -> int:
        """Return the number of op(a), simplified."""
        kind = BOOL if op in ("is_finite", "is_nan") else self.kind[a]
        if self.is_known(a):
            return self.constant(folding.unary(op, self.value[a]), kind)
        if op in ("neg", "not") and self.op[a] == op:
            return self.args[a][0]
        if op == "abs" and self.op[a] in ("neg", "abs"):
            return self.unary("abs", self.args[a][0])
        if op == "abs" and kind[0] == "u":
            return a
        return self.find_or_append(op, (a,), kind)

    def binary(self, op: str, a: int, b: int) -> int:
        """Return the number of a op b, simplified; both are of one kind."""
        if self.is_known(a) and self.is_known(b):
            kind = BOOL if op in RELATIONS else self.kind[a]
            return self.constant(folding.binary(op, self.value[a], self.value[b]), kind)
        simpler = _SIMPLER.get(op)
        simplified = simpler(self, a, b) if simpler else None
        if simplified is not None:
            return simplified
        if op in SYMMETRIC and a > b:
            a, b = b, a
        return self.find_or_append(op, (a, b), BOOL if op in RELATIONS else self.kind[a])

    def select(self, where: int, yes: int, no: int) -> int:
        """Return the number that is `yes` if the bit `where` is set, else `no`."""
        if self.is_known(where):
            return yes if self.value[where] else no
        if yes == no:
            return yes
        if self.op[where] == "not":
            return self.select(self.args[where][0], no, yes)
        if self.kind[yes] == BOOL and (self.is_known(yes) or self.is_known(no)):
            return self._select_bit(where, yes, no)
        # A choice by the same bit reaches only one of its branches.
        if self.op[yes] == "select" and self.args[yes][0] == where:
            return self.select(where, self.args[yes][1], no)
        if self.op[no] == "select" and self.args[no][0] == where:
            return self.select(where, yes, self.args[no][2])
        return self.find_or_append("select", (where, yes, no), self.kind[yes])

    def _select_bit(self, where: int, yes: int, no: int) -> int:
        """Return `select` of two bits, one of which is known."""
        if self.is_known(yes):
            if self.value[yes]:
                return self.binary("or", where, no)
            return self.binary("and", self.unary("not", where), no)
        if self.value[no]:
            return self.binary("or", self.unary("not", where), yes)
        return self.binary("and", where, yes)

    def convert(self, a: int, kind: str) -> int:
        """Convert a number to another kind."""
        if self.kind[a] == kind:
            return a
        if self.is_known(a):
            return self.constant(folding.convert(self.value[a], kind), kind)
        return self.find_or_append("convert", (a,), kind)

    def same_bits(self, a: int, kind: str) -> int:
        """Return the number of another kind that has the same bits."""
        if self.kind[a] == kind:
            return a
        if self.is_known(a):
            return self.constant(self.value[a].view(numpy_type(kind)), kind)
        return self.find_or_append("bits", (a,), kind)


# Simpler forms: each function returns the number of one, or None if there is none.


def _simplify_product(ops: Operations, a: int, b: int) -> int | None:
    for x, y in ((a, b), (b, a)):
        if ops.is_known(x):
            if ops.vanishes(x, y):
                return ops.constant(0, ops.kind[a])
            if ops.value[x] == 1:
                return y
            if ops.value[x] == -1:
                return ops.unary("neg", y)
    if ops.op[a] == "neg" and ops.op[b] == "neg":
        return ops.binary("mul", ops.args[a][0], ops.args[b][0])
    if ops.op[a] == "neg":
        return ops.unary("neg", ops.binary("mul", ops.args[a][0], b))
    if ops.op[b] == "neg":
        return ops.unary("neg", ops.binary("mul", a, ops.args[b][0]))
    return None


def _simplify_sum(ops: Operations, a: int, b: int) -> int | None:
    if ops.equals(a, 0):
        return b
    if ops.equals(b, 0):
        return a
    if ops.op[b] == "neg":
        return ops.binary("sub", a, ops.args[b][0])
    if ops.op[a] == "neg":
        return ops.binary("sub", b, ops.args[a][0])
    return None


def _simplify_difference(ops: Operations, a: int, b: int) -> int | None:
    if ops.equals(b, 0):
        return a
    if ops.op[b] == "neg":
        return ops.binary("add", a, ops.args[b][0])
    if a == b and not is_float(ops.kind[a]):
        return ops.constant(0, ops.kind[a])
    return None


def _simplify_quotient(ops: Operations, a: int, b: int) -> int | None:
    if ops.equals(b, 1) or (ops.equals(a, 0) and is_float(ops.kind[a]) and not ops.nan):
        return a
    return None


def _simplify_bits(zero_wins: bool, ops: Operations, a: int, b: int) -> int | None:
    if a == b:
        return a
    for x, y in ((a, b), (b, a)):
        if ops.equals(x, 0):
            return x if zero_wins else y
        if ops.kind[a] == BOOL and ops.is_known(x):
            return y if zero_wins else x
    return None


def _simplify_unequal(ops: Operations, a: int, b: int) -> int | None:
    if a != b:
        return None
    return ops.unary("is_nan", a) if is_float(ops.kind[a]) else ops.constant(False, BOOL)


def _bit_of(ops: Operations, number: int) -> int | None:
    """Return the bit that was converted to a number of value 0 or 1; None for other numbers."""
    if ops.op[number] == "convert" and ops.kind[ops.args[number][0]] == BOOL:
        return ops.args[number][0]
    return None


def _simplify_equal(ops: Operations, a: int, b: int) -> int | None:
    for x, y in ((a, b), (b, a)):
        bit = _bit_of(ops, y)
        if ops.is_known(x) and bit is not None:
            if ops.value[x] in (0, 1):
                return bit if ops.value[x] == 1 else ops.unary("not", bit)
            return ops.constant(False, BOOL)
    return None


def _find_nan(ops: Operations, a: int, b: int) -> int | None:
    """Return the one of two numbers that is known to be NaN; None if neither is."""
    for x in (a, b):
        if ops.is_known(x) and ops.value[x] != ops.value[x]:
            return x
    return None


def _simplify_extreme(of_bits: str, farthest: int, ops: Operations, a: int, b: int) -> int | None:
    """Simplify "max" or "min", of bits `of_bits`; a number that is a bit never passes `farthest`."""
    if ops.kind[a] == BOOL:
        return ops.binary(of_bits, a, b)
    if (nan := _find_nan(ops, a, b)) is not None:
        return nan
    if a == b or (ops.equals(b, farthest) and _bit_of(ops, a) is not None):
        return a
    return b if ops.equals(a, farthest) and _bit_of(ops, b) is not None else None


_SIMPLER: dict[str, Callable[[Operations, int, int], int | None]] = {
    "mul": _simplify_product,
    "add": _simplify_sum,
    "sub": _simplify_difference,
    "div": _simplify_quotient,
    "and": functools.partial(_simplify_bits, True),
    "or": functools.partial(_simplify_bits, False),
    "ne": _simplify_unequal,
    "eq": _simplify_equal,
    "max": functools.partial(_simplify_extreme, "or", 0),
    "min": functools.partial(_simplify_extreme, "and", 1),
    "lt": lambda ops, a, b: ops.constant(False, BOOL) if a == b else None,
    "gt": lambda ops, a, b: ops.constant(False, BOOL) if a == b else None,
}

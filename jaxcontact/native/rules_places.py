"""Rules of primitives that read and write at places known only to the running program: tables in memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any  # Any: parameters of JAX's operations

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.native.control import Put, Table
from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Equation
from jaxcontact.native.operations import FROM_TABLE
from jaxcontact.native.registry import RULES, Numbers, Rule, rule
from jaxcontact.native.rules_shapes import arrange, fill_of


def _find_window(shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    """Return the places (sizes) of the entries of an array's first window, in the list of all its entries."""
    return np.arange(math.prod(shape)).reshape(shape)[tuple(map(slice, sizes))]


def _compute_address(
    program: Interpreter, start: list[int], axes: PyTree, shape: tuple[int, ...], sizes: Any
) -> tuple[int, int]:
    """Compute the place of the first entry of a window that starts at `start`, and whether it lies inside.

    `start` has one number for each of `axes`. A start outside is moved to the nearest one inside.
    """
    ops, kind = program.ops, program.index_kind
    address, inside = ops.constant(0, kind), ops.constant(True, "b")
    for axis, number in zip(axes, start, strict=True):
        last = shape[axis] - sizes[axis]
        if ops.kind[number] == f"u{kind[1]}":  # it may be larger than the largest address
            number = ops.binary("min", number, ops.constant(last + 1, ops.kind[number]))
        at = ops.convert(number, kind)
        held = ops.binary("min", ops.binary("max", at, ops.constant(0, kind)), ops.constant(last, kind))
        inside = ops.binary("and", inside, ops.binary("eq", at, held))
        stride = ops.constant(math.prod(shape[axis + 1 :]), kind)
        address = ops.binary("add", address, ops.binary("mul", held, stride))
    return address, inside


def _read_place(program: Interpreter, array: Numbers, table: Table, address: int, offset: int) -> int:
    """Read the number at address + offset from a table that holds an array."""
    ops = program.ops
    if ops.is_known(address):
        return int(array.ravel()[int(ops.value[address]) + offset])
    return ops.find_or_append(FROM_TABLE, (address,), table.kind, (table, offset))


def _list_starts(starts: Numbers) -> list[tuple[tuple[int, ...], list[int]]]:
    """List the starts of windows: the place of each in its array, and its numbers."""
    return [(place, starts[place].tolist()) for place in np.ndindex(starts.shape[:-1])]


def _place_of_batch(place: tuple[int, ...], array_axes: Any, start_axes: Any, shape: tuple[int, ...]) -> int:
    """Return the place, in an array, of the first entry of the batch that the start at `place` belongs to."""
    pairs = zip(array_axes, start_axes, strict=True)
    return sum(place[other] * math.prod(shape[axis + 1 :]) for axis, other in pairs)


@rule("dynamic_slice")
def _window_of(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    array, *start = inputs
    sizes = equation.params["slice_sizes"]
    address, _ = _compute_address(program, [int(s) for s in start], range(len(start)), array.shape, sizes)
    window = _find_window(array.shape, sizes)
    if program.ops.is_known(address):
        return array.ravel()[window + int(program.ops.value[address])]
    table = program.table(array)
    return program.each(lambda offset: _read_place(program, array, table, address, offset), window)


@rule("dynamic_update_slice")
def _window_replaced(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    array, new, *start = inputs
    address, _ = _compute_address(program, [int(s) for s in start], range(array.ndim), array.shape, new.shape)
    return _write(program, array, [(address, None, new.ravel())], _find_window(array.shape, new.shape), "set")


@rule("gather")
def _gathered(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    array, starts = inputs
    if program.are_known(starts):
        return arrange(program, equation, inputs, (0,))
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    ops, batch_axes = program.ops, numbers.operand_batching_dims
    window = _find_window(array.shape, sizes)
    gone = (*numbers.collapsed_slice_dims, *batch_axes)
    window = window.reshape([s for d, s in enumerate(sizes) if d not in gone])
    table, rows = program.table(array), []
    clips = equation.params["mode"].name in ("CLIP", "PROMISE_IN_BOUNDS")
    outside = fill_of(program, equation)
    for place, start in _list_starts(starts):
        fixed = _place_of_batch(place, batch_axes, numbers.start_indices_batching_dims, array.shape)
        address, inside = _compute_address(program, start, numbers.start_index_map, array.shape, sizes)
        row = [_read_place(program, array, table, address, int(offset) + fixed) for offset in window.ravel()]
        rows.append(row if clips else [ops.select(inside, number, outside) for number in row])
    found = np.array(rows, np.int64).reshape((*starts.shape[:-1], *window.shape))
    along = [d for d in range(found.ndim) if d not in numbers.offset_dims]
    return found.transpose(np.argsort([*along, *numbers.offset_dims]))


def _make_scatter_rule(combine: str) -> Rule:
    """Make the rule of a scatter; `combine` joins a new entry with the old one, or is "set"."""

    def apply(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
        array, starts, new = inputs
        numbers = equation.params["dimension_numbers"]
        axes, batch_axes = numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims
        sizes, unit_axes = list(array.shape), (*numbers.inserted_window_dims, *batch_axes)
        for axis in unit_axes:
            sizes[axis] = 1
        others = [d for d in range(array.ndim) if d not in unit_axes]
        for axis, source in zip(others, numbers.update_window_dims, strict=True):
            sizes[axis] = new.shape[source]
        batch = [d for d in range(new.ndim) if d not in numbers.update_window_dims]
        updates = new.transpose(*batch, *numbers.update_window_dims)
        updates = updates.reshape(-1, math.prod(sizes))
        clips = equation.params["mode"].name in ("CLIP", "PROMISE_IN_BOUNDS")
        writes = []
        for (place, start), update in zip(_list_starts(starts), updates, strict=True):
            fixed = _place_of_batch(place, batch_axes, numbers.scatter_indices_batching_dims, array.shape)
            address, inside = _compute_address(program, start, axes, array.shape, sizes)
            address = program.ops.binary("add", address, program.ops.constant(fixed, program.index_kind))
            writes.append((address, None if clips else inside, update))
        return _write(program, array, writes, _find_window(array.shape, sizes), combine)

    return apply


RULES["scatter"] = _make_scatter_rule("set")
for _name, _op in (("add", "add"), ("mul", "mul"), ("max", "max"), ("min", "min"), ("sub", "sub")):
    RULES[f"scatter-{_name}"] = RULES[f"scatter_{_name}"] = _make_scatter_rule(_op)


def _write(
    program: Interpreter,
    array: Numbers,
    writes: list[tuple[int, int | None, Numbers]],
    window: np.ndarray,
    combine: str,
) -> Numbers:
    """Apply `writes` in their order; return the array.

    A write is the address of a window, the bit whether it counts (None: always), and its numbers.
    """
    ops = program.ops
    if all(ops.is_known(address) for address, _, _ in writes):
        flat = array.ravel().copy()
        for address, inside, update in writes:
            if inside is None or ops.value[inside]:
                places = window.ravel() + int(ops.value[address])
                flat[places] = (
                    update if combine == "set" else _combine(program, combine, flat[places], update)
                )
        return flat.reshape(array.shape)
    table, always = program.table(array), ops.constant(True, "b")
    for address, inside, update in writes:
        for offset, number in zip(window.ravel().tolist(), update.tolist(), strict=True):
            where = always if inside is None else inside
            ops.now.items.append(Put(table, address, offset, number, where, combine))
    read: Callable[[int], int] = lambda k: ops.new(FROM_TABLE, (), table.kind, (table, k))  # noqa: E731
    return np.array([read(k) for k in range(table.size)], np.int64).reshape(array.shape)


def _combine(program: Interpreter, combine: str, old: Numbers, new: Numbers) -> Numbers:
    """Apply the binary operation `combine` to every old and new entry."""
    return program.each(functools.partial(program.ops.binary, combine), old, new)

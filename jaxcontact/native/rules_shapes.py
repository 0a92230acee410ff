"""Rules of primitives that arrange the entries of arrays, at places known when a program is built."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Equation
from jaxcontact.native.kinds import greatest, is_float, kind_of, least
from jaxcontact.native.registry import Numbers, rule


def arrange(
    program: Interpreter, equation: Equation, inputs: list[Numbers], which: tuple[int, ...]
) -> Numbers:
    """Return the output of a primitive that arranges the entries of the inputs `which`; the others are known.

    The primitive itself is evaluated on the places of the numbers.
    """
    filled = fill_of(program, equation)
    numbers, arrays = [np.array([filled])], []
    for k, (source, x) in enumerate(zip(equation.inputs, inputs, strict=True)):
        if k in which:
            first = sum(part.size for part in numbers)
            arrays.append(jnp.asarray(np.arange(first, first + x.size, dtype=np.int32).reshape(x.shape)))
            numbers.append(x.ravel())
        else:
            arrays.append(jnp.asarray(program.values(x, source.dtype)))
    changed = {"fill_value": 0} if "fill_value" in equation.params else {}
    places = np.asarray(equation.evaluate(*arrays, **changed))
    return np.concatenate(numbers)[places]


def fill_of(program: Interpreter, equation: Equation) -> int:
    """Return the number that an equation fills in, as a gather does for places out of bounds."""
    kind = kind_of(equation.outputs[0].dtype)
    value = equation.params.get("fill_value")
    if value is None:
        value = np.nan if is_float(kind) else least(kind) if kind[0] == "i" else greatest(kind)
    return program.ops.constant(value, kind)


@rule("broadcast_in_dim")
def _broadcast(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    shape, (array, *_) = equation.outputs[0].shape, inputs
    axes = equation.params["broadcast_dimensions"]
    wide = [1] * len(shape)
    for axis, size in zip(axes, array.shape, strict=False):
        wide[axis] = size
    return np.broadcast_to(array.reshape(wide), shape)


@rule("reshape", "squeeze", "expand_dims")
def _reshaped(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return inputs[0].reshape(equation.outputs[0].shape)


@rule("transpose")
def _transposed(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return inputs[0].transpose(equation.params["permutation"])


@rule("slice")
def _sliced(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    p, (array,) = equation.params, inputs
    steps = p["strides"] or (1,) * len(p["start_indices"])
    return array[tuple(map(slice, p["start_indices"], p["limit_indices"], steps))]


@rule("concatenate")
def _joined(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return np.concatenate(inputs, equation.params["dimension"])


@rule("stack")
def _stacked(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return np.stack(inputs, equation.params["axis"])


@rule("unstack")
def _unstacked(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    return list(np.moveaxis(inputs[0], equation.params["axis"], 0))


@rule("split")
def _split(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return list(np.split(inputs[0], ends, equation.params["axis"]))


@rule("tile")
def _tiled(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return np.tile(inputs[0], equation.params["reps"])


@rule("rev")
def _reversed(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    return np.flip(inputs[0], equation.params["dimensions"])


@rule("iota")
def _count(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    numbers = program.constants(np.arange(shape[axis]).astype(equation.params["dtype"]))
    return np.broadcast_to(numbers.reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape)


@rule("empty", "empty2")
def _empty(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Return zeros for an array that is written before it is read."""
    output = equation.outputs[0]
    return program.constants(np.zeros(output.shape, output.dtype))


@rule("pad")
def _padded(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    array, filling = inputs
    widths = equation.params["padding_config"]
    if all(low >= 0 and high >= 0 and inside == 0 for low, high, inside in widths):
        return np.pad(array, [(low, high) for low, high, _ in widths], constant_values=int(filling))
    return arrange(program, equation, inputs, (0, 1))


@rule("platform_index")
def _platform(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Return the index of the branch of `lax.platform_dependent` that a CPU takes."""
    platforms = equation.params["platforms"]
    branch = next(k for k, names in enumerate(platforms) if names is None or "cpu" in names)
    return program.constants(np.int32(branch))

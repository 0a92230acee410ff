"""Rules of random numbers: keys and draws of JAX's default generator, threefry, equal bit by bit.

A key is a pair of integers: an array of keys has one more axis, of length two, than in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any  # Any: JAX's generators

import jax
import numpy as np
from jax.extend.random import threefry_prng_impl

from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Array, Equation, trace
from jaxcontact.native.registry import Numbers, rule, unchanged

_TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))  # bits; Salmon, Moraes, Dror and Shaw (2011), Threefry-2x32
_PARITY = 0x1BD11BDA  # the constant of Threefry's key schedule, same paper


def _run_generator(program: Interpreter, function: Callable[..., Any], *inputs: Numbers) -> Numbers:
    """Run a function of the generator on numbers of 32 bits each; return its output."""
    arrays = [Array(numbers.shape, np.uint32) for numbers in inputs]
    return program.run(trace(function, *arrays), list(inputs))[0]


def _for_each_key(
    program: Interpreter, function: Callable[..., Any], keys: Numbers, *others: Numbers
) -> Numbers:
    """Apply a function of one key to an array of keys."""
    for _ in range(keys.ndim - 1):
        function = jax.vmap(function)
    return _run_generator(program, function, keys, *others)


rule("random_wrap", "random_unwrap")(unchanged)


@rule("random_seed")
def _seeded(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    function: Callable[..., Any] = threefry_prng_impl.seed
    for _ in range(inputs[0].ndim):
        function = jax.vmap(function)
    return program.run(trace(function, equation.inputs[0]), inputs)[0]


@rule("random_split")
def _split(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    split = functools.partial(threefry_prng_impl.split, shape=equation.params["shape"])
    return _for_each_key(program, split, *inputs)


@rule("random_fold_in")
def _folded(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    keys, data = inputs
    shape = np.broadcast_shapes(keys.shape[:-1], data.shape)
    keys = np.broadcast_to(keys, (*shape, 2))
    return _for_each_key(program, threefry_prng_impl.fold_in, keys, np.broadcast_to(data, shape))


@rule("random_bits")
def _bits(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    settings = {name: equation.params[name] for name in ("bit_width", "shape")}
    return _for_each_key(program, functools.partial(threefry_prng_impl.random_bits, **settings), *inputs)


@rule("iota_2x32_shape")
def _counters(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Return the upper and lower halves of the places of all entries."""
    shape = equation.params["shape"]
    places = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64).reshape(shape)
    halves = (places >> np.uint64(32), places & np.uint64(2**32 - 1))
    return [program.constants(half.astype(np.uint32)) for half in halves]


@rule("threefry2x32")
def _threefry(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Run twenty rounds on pairs of counters; a part of the key is added after every four rounds."""
    ops = program.ops

    def constant(value: int) -> int:
        return ops.constant(value, "u4")

    def added(a: int, b: int) -> int:
        return ops.binary("add", a, b)

    def turned(a: int, by: int) -> int:
        left = ops.binary("shift_left", a, constant(by))
        return ops.binary("or", left, ops.binary("shift_right", a, constant(32 - by)))

    def hashed(k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
        keys = (k0, k1, ops.binary("xor", ops.binary("xor", k0, k1), constant(_PARITY)))
        x0, x1 = added(x0, k0), added(x1, k1)
        for block in range(5):
            for by in _TURNS[block % 2]:
                x0 = added(x0, x1)
                x1 = ops.binary("xor", x0, turned(x1, by))
            x0 = added(x0, keys[(block + 1) % 3])
            x1 = added(added(x1, keys[(block + 2) % 3]), constant(block + 1))
        return x0, x1

    shape = np.broadcast_shapes(*(numbers.shape for numbers in inputs))
    columns = [np.broadcast_to(numbers, shape).ravel().tolist() for numbers in inputs]
    pairs = [hashed(*row) for row in zip(*columns, strict=True)]
    return [np.array([pair[k] for pair in pairs], np.int64).reshape(shape) for k in (0, 1)]

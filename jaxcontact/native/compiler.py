"""The way from the function of one world to a compiled program. The entry function is `compile_function`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxcontact.native import (
    rules_control,
    rules_elementwise,
    rules_linear_algebra,
    rules_places,
    rules_random,
    rules_shapes,
    rules_sorting,
    rules_sums,
)
from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Function
from jaxcontact.native.lanes import Lanes
from jaxcontact.native.machine_code import MachineCode

# Importing these modules registers their rules.
RULE_MODULES = (
    rules_control, rules_elementwise, rules_linear_algebra, rules_places, rules_random,
    rules_shapes, rules_sorting, rules_sums,
)  # fmt: skip


def compile_function(
    function: Function, nan: bool, cores: int, shared: tuple[bool, ...] = ()
) -> tuple[MachineCode, Lanes]:
    """Compile a function of one world; return its machine code and its lanes.

    Args:
        function: of one world.
        nan: whether a known zero times NaN is NaN.
        cores: of the machine, for compiling.
        shared: which arguments all worlds share; by default none.

    Raises:
        NotImplementedError: if the function uses a primitive without a rule, or if it is too large.
    """
    lanes = Lanes(8 if jnp.zeros(0).dtype == np.float64 else 4)
    program = Interpreter(lanes.index_kind, nan)
    inputs, count = [], 0
    for array, is_shared in zip(function.inputs, shared or (False,) * len(function.inputs), strict=True):
        inputs.append(program.inputs(array, count, is_shared))
        count += array.size
    numbers = [int(n) for output in program.run(function, inputs) for n in output.ravel()]
    return MachineCode(program.ops, numbers, count, lanes, cores), lanes

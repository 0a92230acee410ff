"""The rules by which primitives become operations on numbers, by the names of the primitives.

A rule takes the interpreter, the equation and the arrays of numbers of its inputs, and returns the array of
its output, or a list of them. A module elsewhere that defines a primitive registers its rule with `rule`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any  # Any: parameters of JAX's operations

import numpy as np

if TYPE_CHECKING:
    from jaxcontact.native.interpreter import Interpreter
    from jaxcontact.native.jaxprs import Equation

Numbers = np.ndarray
Rule = Callable[["Interpreter", "Equation", list[Numbers]], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under the names of its primitives."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def unchanged(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Return the inputs: the rule of a primitive that only informs XLA or JAX."""
    return list(inputs)

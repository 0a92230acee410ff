"""FLOPs and bytes of a compiled program, with every turn of its loops.

XLA's cost analysis counts the body of a loop once. So each body is compiled on its own, too, and counted as
often as the loop turns: loops of static length by their length, the outermost loop of a length that data
decide by a measured number of turns. Loops of that kind inside of it, such as a line search, count once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one run: floating-point operations, transcendental functions among them, and bytes of memory."""

    flops: float
    bytes: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes * times)


def bodies_once(compiled: Any) -> Cost:
    """What XLA says of a compiled program: bodies of loops count once."""
    said = compiled.cost_analysis()
    flops = said.get("flops", 0.0) + said.get("transcendentals", 0.0)
    return Cost(max(flops, 0.0), max(said.get("bytes accessed", 0.0), 0.0))


def all_turns(jaxpr: core.Jaxpr, compiled: Any, turns: float) -> Cost:
    """The cost of a compiled program with all turns of its loops.

    Args:
        jaxpr: the program.
        compiled: the same, compiled.
        turns: of the outermost loop whose length the data decide, measured.
    """
    return bodies_once(compiled) + _more_turns(jaxpr, turns)


def _more_turns(jaxpr: core.Jaxpr, turns: float) -> Cost:
    """What the loops of a program cost beyond one turn of each."""
    more = Cost(0.0, 0.0)
    for loop in _loops(jaxpr):
        by_data = loop.primitive.name == "while"
        body = loop.params["body_jaxpr" if by_data else "jaxpr"]
        length = turns if by_data else float(loop.params["length"])
        more += _more_turns(body.jaxpr, 1.0 if by_data else turns) * length
        if length != 1.0:
            more += _one_turn(body) * (length - 1.0)
    return more


def _one_turn(body: core.ClosedJaxpr) -> Cost:
    given = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
    return bodies_once(jax.jit(core.jaxpr_as_fun(body)).lower(*given).compile())


def _loops(jaxpr: core.Jaxpr) -> Iterator[Any]:
    """Loops of a program and of the functions that it calls, but not those inside of other loops."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("while", "scan"):
            yield equation
            continue
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from _loops(getattr(inner, "jaxpr", inner))


def _is_program(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)

"""The checks in front of public functions and records of settings: `checked`.

A call is bound to the signature, and what came for each parameter is compared with its annotation, which has
the shape of an array in letters, and with the rule that the decorator names, such as a check of `arguments`.
An array that JAX traces passes by its shape and dtype, so nothing is added to a program. Page:
docs/extend/house.md.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import (
    Value,
    check_array,
    check_integer,
    check_not_negative,
    check_number,
    check_positive,
    check_probability,
    is_key,
)
from jaxcontact.shape_rules import check_record, check_shapes, describe_value, is_array

T = TypeVar("T", bound=Callable[..., Value])
Check = Callable[[str, Value], Value]  # (name, value): raise TypeError or ValueError
Rule = str | Check | tuple[str | Check, ...]
# Part of the key of every program that JAX keeps, so a module has it that loads before anything is traced: if
# one loads while a program is traced, JAX makes that program a second time at its next call.
loops_are_static = jax.make_user_context(False)
POSITIVE: Rule = ("", check_positive)
NOT_NEGATIVE: Rule = ("", check_not_negative)
PROBABILITY: Rule = ("", check_probability)


class ShapedArray:
    """An array with the dtype and the shape of an annotation such as `Float[jax.Array, "nc nv"]`."""

    rule: str


class _Dtype:
    """A dtype in annotations, as `jaxtyping` has it, which type checkers read; it is not needed to run."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __getitem__(self, item: tuple[type, str]) -> type[ShapedArray]:
        prefix = "" if self.kind == "float" else f"{self.kind} "
        return type("ShapedArray", (ShapedArray,), {"rule": prefix + item[1].strip()})


# Names of annotations that modules import for type checkers alone.
DTYPES = {name: _Dtype(name.lower()) for name in ("Float", "Real", "Bool", "Int")}


def anything(name: str, value: object) -> None:
    """Let a value pass that the function itself checks, with an error that says more than its annotation."""


# Errors of JAX about two dtypes, which name no argument.
UNEQUAL = re.compile(
    r"equal( output)? types|dtypes must be equal|same dtypes|type does not match|one dtype|, as \w+ has"
)


def checked(**rules: Rule) -> Callable[[T], T]:
    """Make a function, or the construction of a dataclass, refuse arguments that its signature excludes.

    Args:
        rules: by the name of a parameter: a check (name, value), a shape, or a tuple of these. A shape is in
            the annotation, `Float[jax.Array, "nc nv"]` or `Bool[jax.Array, " m"]`, or in a rule "nc nv",
            "T+1 nq" or "bool m", with alternatives such as " | nc", and "..." for any leading axes. Its
            letters stand for one number in the whole call. Letters of a `Model` or of records with `SHAPES`
            count; the shape of such a record is its leading axes.

    Raises:
        TypeError, ValueError: by the returned function, "name: expected ..., got ...".

    A list stands for a tuple. None passes if it is the default or in the annotation.
    """

    def decorate(function: T) -> T:
        door: Value = function if isinstance(function, type) else _in_front(function, rules)
        if isinstance(function, type):
            door.__init__ = _in_front(door.__init__, rules, function)
        door.checked = rules
        return door

    return decorate


def _in_front(function: Callable[..., Value], rules: Mapping[str, Rule], record: type | None = None) -> Value:
    """Wrap a function by its checks, which are made at the first call, when all modules are loaded."""

    @functools.cache
    def plan() -> tuple[tuple[str, ...], dict[str, _Parameter]]:
        home = sys.modules[(record or function).__module__]
        parameters = list(inspect.signature(function).parameters.values())[1 if record else 0 :]
        if unknown := set(rules) - {parameter.name for parameter in parameters}:
            raise TypeError(f"{function.__qualname__}: rules of no parameter: {sorted(unknown)}")
        positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        table = {p.name: _Parameter(p, rules.get(p.name), vars(home)) for p in parameters}
        return positional, table

    @functools.wraps(function)
    def front_door(*arguments: object, **options: object) -> Value:
        self, arguments = (arguments[:1], arguments[1:]) if record else ((), arguments)
        positional, table = plan()
        values = dict(zip(positional, arguments)) | options
        sizes: dict[str, int] = {}
        for name, parameter in table.items():
            if name in values:
                values[name] = parameter.check(values[name], sizes)
        named = tuple(values[name] for name in positional[: len(arguments)])
        more = arguments[len(positional) :]
        try:
            return function(*self, *named, *more, **{name: values[name] for name in options})
        except TypeError as error:
            problem = _mixed_precision(values) if UNEQUAL.search(str(error)) else None
            if problem is None:
                raise
            raise TypeError(problem) from error

    return front_door


def _mixed_precision(values: Mapping[str, object]) -> str | None:
    """Name an argument with floats of another precision than those before it; None if there is none."""
    first: tuple[str, np.dtype] | None = None
    for name, value in values.items():
        for leaf in jax.tree.leaves(value):
            if not is_array(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
                continue
            first = first or (name, leaf.dtype)
            if leaf.dtype != first[1]:
                return f"{name}: expected {first[1]}, as {first[0]} has, got {leaf.dtype}"
    return None


class _Parameter:
    """One parameter of a checked function: its annotation, or the rule in its place."""

    def __init__(self, parameter: inspect.Parameter, rule: Rule | None, home: dict[str, object]) -> None:
        self.name, self.default = parameter.name, parameter.default
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = eval(annotation, dict(home), _Unloaded(vars(builtins) | DTYPES | home))
        options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
        self.optional = parameter.default is None or types.NoneType in options
        self.kinds = tuple(_Kind(option) for option in options if option is not types.NoneType)
        self.rules = rule if isinstance(rule, tuple) else () if rule is None else (rule,)
        if any(kind.shape is not None for kind in self.kinds):
            number = any(kind.type is float for kind in self.kinds)
            shapes = ["" for _ in range(number)] + [k.shape for k in self.kinds if k.shape is not None]
            self.rules = (" | ".join(shapes), *(rule for rule in self.rules if rule))

    def check(self, value: object, sizes: dict[str, int]) -> Value:
        """Return the value, a tuple in place of a list; raise a named error if it does not fit."""
        if value is self.default or (value is None and self.optional):
            return value
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{self.name}: expected an array, got a masked one; use its method filled")
        record = next((kind for kind in self.kinds if kind.is_record), None)
        if not self.rules or record:
            value = self._by_annotation(value, sizes)
        for rule in self.rules:
            if callable(rule):
                rule(self.name, value)
            elif not record:
                check_shapes(self.name, value, rule, sizes)
        return value

    def _by_annotation(self, value: Value, sizes: dict[str, int]) -> Value:
        """Check and convert a value by the annotation of its argument."""
        kind = next((kind for kind in self.kinds if kind.fits(value)), None)
        if kind is None:
            expected = " or ".join(dict.fromkeys(kind.expected for kind in self.kinds))
            hint = getattr(self.kinds[0].type, "ARGUMENT_HINT", "")
            raise TypeError(f"{self.name}: expected {expected}, got {describe_value(value)}{hint}")
        if kind.is_record:
            lead = next((rule for rule in self.rules if isinstance(rule, str)), "")
            check_record(self.name, value, lead, sizes)
        elif kind.type is int:  # a dimension that shapes name
            sizes.setdefault(self.name, int(value))
        return kind.convert(self.name, value)


class _Unloaded(dict):
    """Names of annotations; a name that only type checkers import is a class known by its name."""

    def __missing__(self, name: str) -> Value:
        return _ByName(name, (), {})


class _ByName(type):
    """A class known by its name alone."""

    def __getattr__(cls, name: str) -> Value:
        if name.startswith("_") or name in ("SHAPES", "ARGUMENT_HINT", "_argument_sizes"):
            raise AttributeError(name)
        return _ByName(name, (), {})


def _is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _is_number(value: Value) -> bool:
    """Tell whether a value is one number, traced or not; a bool is none."""
    if isinstance(value, float | int | np.number):
        return not isinstance(value, bool)
    return is_array(value) and value.shape == () and jnp.issubdtype(value.dtype, jnp.number)


SIMPLE: dict[object, tuple[str, Callable[[Value], bool]]] = {
    Any: ("anything", lambda value: True),  # an annotation that allows all
    jax.Array: ("an array", lambda value: is_array(value) and not isinstance(value, np.generic)),
    np.ndarray: ("an array", lambda value: is_array(value) and not isinstance(value, np.generic)),
    float: ("a number", _is_number),
    int: ("an integer", lambda value: isinstance(value, int | np.integer) and not isinstance(value, bool)),
    bool: ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    str: ("a string", lambda value: isinstance(value, str)),
    Callable: ("a function", callable),
    Mapping: ("a mapping", lambda value: isinstance(value, Mapping)),
    dict: ("a mapping", lambda value: isinstance(value, Mapping)),
    os.PathLike: ("a path", lambda value: isinstance(value, os.PathLike)),
}


class _Kind:
    """One alternative of an annotation: whether a value fits it, and how it is named in an error."""

    def __init__(self, annotation: object) -> None:
        origin = typing.get_origin(annotation) or annotation
        self.type, self.parts, self.is_record = origin, typing.get_args(annotation), False
        self.shape: str | None = None  # the rule of a `ShapedArray`
        self.expected: str
        self.fits: Callable[[Value], bool]
        if _is_union(annotation):
            kinds = [_Kind(part) for part in self.parts]
            self.expected = " or ".join(kind.expected for kind in kinds)
            self.fits = lambda value: any(kind.fits(value) for kind in kinds)
        elif origin in SIMPLE:
            self.expected, self.fits = SIMPLE[origin]
        elif origin in (tuple, Sequence, list):
            self.expected, self.fits = _sequence(origin, self.parts)
        elif isinstance(origin, TypeVar) or not isinstance(origin, type):
            self.expected, self.fits = SIMPLE[Any]  # as for no annotation
        elif issubclass(origin, ShapedArray):
            self.shape = origin.rule
            self.expected, self.fits = SIMPLE[jax.Array]
        elif getattr(origin, "_is_protocol", False):
            names = [name for name in vars(origin) if not name.startswith("_")]
            self.expected = f"a {origin.__name__} with {', '.join(names)}"
            self.fits = lambda value: all(hasattr(value, name) for name in names)
        elif isinstance(origin, _ByName):
            self.expected = origin.__name__
            self.fits = lambda value: any(base.__name__ == origin.__name__ for base in type(value).__mro__)
        else:
            self.is_record = hasattr(origin, "SHAPES") or hasattr(origin, "_argument_sizes")
            self.expected, self.fits = origin.__name__, lambda value: isinstance(value, origin)

    def convert(self, name: str, value: object) -> Value:
        """Check what an annotation says beyond its class; turn the lists of a tuple into tuples."""
        if self.type is jax.Array:
            if name not in ("key", "seed") or not is_key(value):
                check_array(name, value)
        elif self.type is float:
            check_number(name, value)
        elif self.type is int:
            check_integer(name, value)
        elif self.type is tuple and not isinstance(value, jax.Array | np.ndarray):
            return _as_tuple(value)
        return value


def _sequence(origin: object, parts: tuple) -> tuple[str, Callable[[Value], bool]]:
    """Return the name of a sequence, and whether a value is one whose entries fit."""
    entries = [_Kind(part) for part in parts if part is not ...]
    count = len(entries) if origin is tuple and ... not in parts else None
    expected = f"a sequence of {_plural(entries[0].expected)}" if entries else "a sequence"
    if count == 2:
        expected = f"a pair of {entries[0].expected} and {entries[1].expected}"

    def fits(value: Value) -> bool:
        iterable = hasattr(value, "__len__") and hasattr(value, "__iter__")
        if not iterable or isinstance(value, str | bytes | Mapping | Set):
            return False
        if not entries or (isinstance(value, jax.Array | np.ndarray) and jnp.ndim(value) == 0):
            return not entries
        if count is not None and len(value) != count:
            return False
        return all(entries[k if count else 0].fits(entry) for k, entry in enumerate(value))

    return expected, fits


def _plural(words: str) -> str:
    article, _, noun = words.partition(" ")
    head, _, more = noun.partition(" ")
    return f"{head}s {more}".strip() if article in ("a", "an") else words


def _as_tuple(value: Value) -> Value:
    return tuple(map(_as_tuple, value)) if type(value) in (list, tuple) else value

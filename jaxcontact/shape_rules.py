"""Checks of arrays by rules: the sizes of their axes as letters, such as "nc nv | nc", and their dtype.

Entries: `check_shape`, `check_shapes` of a tuple, `check_record` of the fields of a record.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import (
    Value,
)

KINDS = {
    "float": ("a floating dtype", (jnp.floating,)),
    "real": ("real numbers", (jnp.floating, jnp.integer)),
    "bool": ("booleans", (jnp.bool_,)),
    "int": ("integers", (jnp.integer,)),
}
BATCHED = "; use vmap for batches"


def check_record(name: str, record: object, lead: str, sizes: dict[str, int]) -> None:
    """Check the fields of a record by its `SHAPES`, behind leading axes; add the sizes of a Model."""
    if hasattr(record, "_argument_sizes"):
        sizes |= record._argument_sizes(name)
    for field, shape in getattr(record, "SHAPES", {}).items():
        value = getattr(record, field)
        if value is not None:
            shapes = " | ".join(f"{lead} {option.strip()}" for option in shape.split("|"))
            check_shape(f"{name}.{field}", value, shapes, sizes)


def check_shapes(name: str, value: object, rule: str, sizes: dict[str, int]) -> None:
    """Check an array, or by a rule such as "dim; dim dim" the arrays of a tuple; see `check_shape`."""
    rules = rule.split(";")
    if len(rules) == 1:
        return check_shape(name, value, rule, sizes)
    if not isinstance(value, tuple | list) or len(value) != len(rules):
        raise TypeError(f"{name}: expected {len(rules)} arrays, got {describe_value(value)}")
    for k, (entry, part) in enumerate(zip(value, rules)):
        check_shape(f"{name}[{k}]", entry, part, sizes)


def check_shape(name: str, value: Value, rule: str, sizes: dict[str, int]) -> None:
    """Raise TypeError for a value that is no array of the dtype of a rule, ValueError for another shape.

    Letters with a size must have it; the others are given theirs. See `checked` for the rules.
    """
    options = [option.split() for option in rule.split("|")]
    kind = next((word for option in options for word in option if word in KINDS), "float")
    options = [[word for word in option if word not in KINDS] for option in options]
    scalar = any(option in ([], ["..."]) for option in options)
    if scalar and isinstance(value, int if kind == "int" else float | int) and not isinstance(value, bool):
        return
    if scalar and kind == "float" and is_array(value) and jnp.issubdtype(value.dtype, jnp.integer):
        return
    if not is_array(value):
        if scalar:
            expected = "an integer" if kind == "int" else "a number"
            expected += "" if all(option in ([], ["..."]) for option in options) else " or an array"
            raise TypeError(f"{name}: expected {expected}, got {describe_value(value)}")
        raise TypeError(f"{name}: expected an array, got {type(value).__name__}; use jnp.asarray")
    expected, dtypes = KINDS[kind]
    if not any(jnp.issubdtype(value.dtype, dtype) for dtype in dtypes):
        raise TypeError(f"{name}: expected {expected}, got {value.dtype}")
    shape = tuple(value.shape)
    if not any(_match(option, shape, sizes) for option in options):
        texts = [_text(option, sizes) for option in options]
        hint = BATCHED if len(shape) > max(map(len, options)) else ""
        raise ValueError(f"{name}: expected shape {' or '.join(dict.fromkeys(texts))}, got {shape}{hint}")


def _match(words: list[str], shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
    """Tell whether a shape fits; if it does, add the sizes of new letters."""
    if words[:1] == ["..."]:
        words, shape = words[1:], shape[max(0, len(shape) - len(words) + 1) :]
    if len(words) != len(shape):
        return False
    found: dict[str, int] = {}
    for word, size in zip(words, shape):
        total, letters = _size(word, sizes | found)
        if letters:
            found[letters[0]] = size - total
        if (size < total) if letters else (size != total):
            return False
    sizes.update(found)
    return True


def _size(word: str, sizes: Mapping[str, int]) -> tuple[int, list[str]]:
    """Return the sum of a word such as nq+nv or T+1, and its letters without a size."""
    terms = [int(term) if term.isdigit() else sizes.get(term, term) for term in word.split("+")]
    return sum(t for t in terms if isinstance(t, int)), [t for t in terms if isinstance(t, str)]


def _text(words: list[str], sizes: Mapping[str, int]) -> str:
    """Write the shape that a rule expects, with its sizes where they are known."""
    texts = []
    for word in words:
        total, letters = _size(word, sizes)
        texts.append(word.replace("+", " + ") if letters else str(total))
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def is_array(value: object) -> bool:
    """Tell whether a value has a shape and a dtype."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def describe_value(value: Value) -> str:
    """Describe what came in place of another kind of value."""
    if isinstance(value, str | int | float | bool):
        return repr(value)
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of shape {value.shape} and {value.dtype}"
    if type(value) in (list, tuple, dict):
        text = repr(value)
        return text if len(text) <= 60 else f"a {type(value).__name__} of length {len(value)}"
    return type(value).__name__

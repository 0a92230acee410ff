"""Records: frozen, keyword-only dataclasses that are JAX pytrees.

Every public record of the package derives from `Record`. A field marked `static()` is part of the
tree structure (hashable, fixed at trace time); all other fields are leaves or subtrees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any  # any nesting of arrays that `jax.tree` takes; type checkers have no narrower name


def static(**kwargs: Any) -> Any:  # as `dataclasses.field`, whose result stands for a value of any type
    """Mark a record field as static: hashable, compared by value, never traced."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(static,))
class Record:
    """Base of all records; a subclass becomes a frozen, keyword-only dataclass and a pytree."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
        _register(cls)

    def replace(self, **changes: object) -> Self:
        """Return a copy with the named fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def _register(cls: type) -> None:
    """Register a dataclass as a pytree whose unflattening calls no constructor.

    JAX puts anything in the place of a leaf, and what a record checks or converts at its construction holds
    for what users pass.
    """
    fields = dataclasses.fields(cls)
    meta = tuple(f.name for f in fields if f.metadata.get("static"))
    data = tuple(f.name for f in fields if not f.metadata.get("static"))
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in data)

    def flatten(record: object) -> tuple[list[PyTree], tuple[PyTree, ...]]:
        values = vars(record)
        return [values[name] for name in data], tuple([values[name] for name in meta])

    def flatten_with_keys(record: object) -> tuple[list[tuple], tuple[PyTree, ...]]:
        values, static_values = flatten(record)
        return list(zip(keys, values)), static_values

    def unflatten(static_values: tuple[PyTree, ...], values: PyTree) -> PyTree:
        record: PyTree = object.__new__(cls)
        record.__dict__.update(zip(data, values), **dict(zip(meta, static_values)))
        return record

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


class FixedArrays:
    """A pytree of arrays as static data: hashable, compared by value, never differentiated by.

    Traced arrays have no values: `unfreeze` refuses a record of them, but nothing else does, so that the
    params of a model can be made inside of `jit`.
    """

    def __init__(self, arrays: PyTree) -> None:
        leaves, self.treedef = jax.tree.flatten(arrays)
        self.leaves: tuple | None = None
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            values = [np.asarray(leaf) for leaf in leaves]
            self.leaves = tuple((value.shape, value.dtype.str, value.tobytes()) for value in values)

    def unfreeze(self) -> PyTree:
        """Return the arrays, in the precision that JAX has now."""
        if self.leaves is None:
            raise ValueError(
                "initial: the model was made inside of jit, vmap or grad, where its state has no numbers; "
                "make it outside, or hand a State of your own to the functions that take one"
            )
        values = [np.frombuffer(data, dtype).reshape(shape) for shape, dtype, data in self.leaves]
        return jax.tree.unflatten(self.treedef, [jnp.asarray(value) for value in values])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedArrays) and (self.treedef, self.leaves) == (other.treedef, other.leaves)

    def __hash__(self) -> int:
        return hash((self.treedef, self.leaves))


def callable_as_pytree(function: Callable[..., PyTree]) -> PyTree:
    """Make a callable an argument for a jitted function: a pytree keeps its numbers, any other is static."""
    is_leaf = jax.tree_util.all_leaves([function])
    return jax.tree_util.Partial(function) if is_leaf else function

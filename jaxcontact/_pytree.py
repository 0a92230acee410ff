"""Records: frozen, keyword-only dataclasses that are JAX pytrees.

Every public record of the package derives from `Record`. A field marked `static()` is part of the
tree structure (hashable, fixed at trace time); all other fields are leaves or subtrees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self, dataclass_transform

import jax


def static(**kwargs: Any) -> Any:
    """Mark a record field as static: hashable, compared by value, never traced."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(static,))
class Record:
    """Base of all records; a subclass becomes a frozen, keyword-only dataclass and a pytree."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        meta = [f.name for f in fields if f.metadata.get("static")]
        data = [f.name for f in fields if not f.metadata.get("static")]
        jax.tree_util.register_dataclass(cls, data, meta)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def callable_as_pytree(function: Callable[..., Any]) -> Any:
    """Make a callable an argument for a jitted function: a pytree keeps its numbers, any other is static."""
    is_leaf = jax.tree_util.all_leaves([function])
    return jax.tree_util.Partial(function) if is_leaf else function

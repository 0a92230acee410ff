"""What is computed of every shape, for all shapes of one kind at once.

Shapes are of one kind if they differ in their names, bodies and numbers alone. Entry: `of_shapes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.geometry.frames import rows
from jaxcontact.geometry.shapes import NUMBERS, Constants, Shape

Build = Callable[[Any, Constants], PyTree]  # takes the kinds of shapes that it can build


def of_shapes(build: Build, shapes: Sequence[Shape], constants: Constants) -> PyTree:
    """Compute build(shape, constants) of all shapes: arrays whose axis 0 is the shape."""
    groups = by_kind(build, shapes, constants)
    place = np.argsort([i for members, _ in groups for i in members]).tolist()
    columns = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(result for _, result in groups))
    return jax.tree.map(lambda column: rows(column, place), columns)


def by_kind(build: Build, shapes: Sequence[Shape], constants: Constants) -> list[tuple[list[int], PyTree]]:
    """Compute build(shape, constants) of the shapes of each kind: their indices, and arrays of them."""
    members_of_kind: dict[Shape, list[int]] = {}
    for i, shape in enumerate(shapes):
        members_of_kind.setdefault(_kind(shape), []).append(i)
    groups = []
    for kind, members in members_of_kind.items():
        numbers = {
            field: jnp.stack([jnp.asarray(constants[getattr(shapes[i], field)]) for i in members])
            for field in _numbers_of(kind)
        }
        build_one = jax.vmap(lambda numbers, kind=kind: build(kind, numbers), axis_size=len(members))
        groups.append((members, build_one(numbers)))
    return groups


def _numbers_of(shape: Shape) -> list[str]:
    """List the fields of a shape that name its numbers."""
    return [field for field in NUMBERS if getattr(shape, field, None) is not None]


def _kind(shape: Shape) -> Shape:
    """Replace the name of each number of a shape by that of its field, and leave out name and body."""
    names: PyTree = {field: field for field in _numbers_of(shape)}
    if hasattr(shape, "body"):
        names["body"] = None
    return dataclasses.replace(shape, name="", **names)

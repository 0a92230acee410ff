"""Surfaces that run over their shapes, such as the belt of a conveyor: `move_surfaces`."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_type
from jaxcontact.front_door import checked
from jaxcontact.mechanics.system import Model, Params


@checked()
def move_surfaces(model: Model, velocities: Mapping[str, jax.Array]) -> Model:
    """Let the surfaces of named shapes run, as belts and rollers do; the shapes themselves stay as they are.

    A contact then slides at the velocity of the material points plus that of the first surface minus that of
    the second, along the tangents, in every stepper.
    `model.params.surface_velocity` holds the numbers of all shapes.

    Args:
        model: the mechanism.
        velocities: of each named shape (geom), m/s, (dim,) along the axes of its body, or of the world for a
            shape that is fixed; or a twist (6,), in the plane (3,): velocity at the origin of the body, then
            the angular velocity, rad/s.

    Returns:
        The model, in which other surfaces are as before.

    Raises:
        TypeError: no mapping from names to arrays.
        ValueError: no such shape, or an array of another shape.

    Derivative: exact by the velocities.
    """
    check_type("velocities", velocities, Mapping, '; expected such as {"belt": [1.0, 0.0, 0.0]}')
    names = [shape.name for shape in model.structure.shapes]
    dim, params = model.structure.dim, model.params
    rows = params.surface_velocity
    if rows is None:
        rows = jnp.zeros((len(names), 3 * dim - 3), params.mass.dtype)
    for name, value in velocities.items():
        if name not in names:
            raise ValueError(f"velocities: expected names of shapes, {', '.join(names)}; got {name!r}")
        twist = jnp.asarray(value, rows.dtype)
        if twist.shape not in ((dim,), (3 * dim - 3,)):
            raise ValueError(
                f"velocities[{name!r}]: expected shape ({dim},) or ({3 * dim - 3},), got {twist.shape}"
            )
        rows = rows.at[names.index(name)].set(jnp.pad(twist, (0, rows.shape[1] - twist.shape[0])))
    return model.replace(params=params.replace(surface_velocity=rows))


def has_moving_surfaces(params: Params) -> bool:
    """Decide whether surfaces run or mocap bodies move."""
    return params.surface_velocity is not None or params.mocap_velocity is not None


def check_paths(model: Model) -> None:
    """Raise ValueError where mocap bodies move otherwise than steps that look for events know."""
    if model.params.mocap_velocity is None:
        return
    if model.structure.tree.closes:
        raise ValueError(
            "mocap: expected None for closed loops or welds, which `EventDriven` and `Variational` hold as "
            "if the mocap body rested; take `Compliant`"
        )
    if model.params.mocap_path is None:
        raise ValueError(
            "mocap: expected three poses or more, from which `EventDriven` and `Variational` take velocities "
            "and their rates"
        )


def refuse_surfaces(params: Params) -> None:
    """Raise ValueError if surfaces run or mocap bodies move, for a method that does not know them."""
    if params.mocap_velocity is not None:
        raise ValueError(
            "mocap: expected None, for mocap bodies move in the steppers of `jc.simulate` alone; take one of "
            "these, or a heavy body that moves in place of the mocap body"
        )
    if params.surface_velocity is not None:
        raise ValueError(
            "params.surface_velocity: expected None, for surfaces run in the steppers of `jc.simulate` "
            "alone; take one of these, or a heavy body that moves in place of a belt"
        )

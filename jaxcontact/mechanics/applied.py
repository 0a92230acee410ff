"""Forces and torques on named bodies over time, as the numbers `Params.applied` of each step."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_array, check_type
from jaxcontact.mechanics.system import Model

# Force (N) at the centre of mass and torque (N m) of bodies by their names, along world axes.
Applied = Mapping[str, jax.Array]


def applied_rows(model: Model, applied: Applied | None, num_steps: int | None = None) -> jax.Array | None:
    """Spread wrenches (w,), or (T, w) over time, of named bodies over all bodies: (nb, w) or (T, nb, w).

    w is 6 in space, 3 in the plane, where a torque turns from x to z as angles do. None stays None.

    Raises:
        TypeError: no mapping from names to arrays.
        ValueError: no such body, or an array of another shape.
    """
    if applied is None:
        return None
    check_type("applied", applied, Mapping, '; expected such as {"torso": wrench}')
    names, width = model.structure.bodies, 6 if model.structure.dim == 3 else 3
    steps = () if num_steps is None else (num_steps,)
    rows = jnp.zeros((*steps, len(names), width), model.params.mass.dtype)
    for name, wrench in applied.items():
        if name not in names:
            raise ValueError(f"applied: expected names of bodies, {', '.join(names)}; got {name!r}")
        check_array(f"applied[{name!r}]", wrench, (*steps, width))
        rows = rows.at[..., names.index(name), :].set(wrench)
    return rows


def apply_wrenches(model: Model, rows: jax.Array | None) -> Model:
    """Add wrenches (nb, w) to those of a model; None adds none."""
    if rows is None:
        return model
    before = model.params.applied
    return model.replace(params=model.params.replace(applied=rows if before is None else before + rows))

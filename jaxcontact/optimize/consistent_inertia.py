"""Numbers without bounds for masses and inertias that a body can have: `inertia_of`, `inertia_numbers`.

`inertias_of_bodies` and `with_inertias` read and write those of a robot of a file.

Log-Cholesky factors of the pseudo-inertia (Rucker & Wensing, Smooth parameterization of rigid-body inertia,
2022), for searches such as `identify`. Page: docs/start/which-call.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_type
from jaxcontact.front_door import checked
from jaxcontact.mechanics.system import Model
from jaxcontact.mechanics.tree import TreeParams

if TYPE_CHECKING:
    from jaxtyping import Float


@checked()
def inertia_of(numbers: Float[jax.Array, " 10"]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute mass, centre of mass (3,) and inertia about it (3, 3), kg, m, kg m^2, of ten numbers.

    The pseudo-inertia is J = U U^T, U = exp(a) [[exp(d), s, t], [0, 0, 0, 1]] upper triangular, of the
    numbers (a, d1, d2, d3, s12, s23, s13, t1, t2, t3). Every choice of them is a distribution of mass, and
    every body of a volume has one choice.

    Derivative: exact.
    """
    a, d1, d2, d3, s12, s23, s13, t1, t2, t3 = numbers
    zero, unit = jnp.zeros_like(a), jnp.ones_like(a)
    rows = [[jnp.exp(d1), s12, s13, t1], [zero, jnp.exp(d2), s23, t2], [zero, zero, jnp.exp(d3), t3]]
    factor = jnp.exp(a) * jnp.stack([jnp.stack(row) for row in [*rows, [zero, zero, zero, unit]]])
    pseudo = factor @ factor.T
    mass, com = pseudo[3, 3], pseudo[:3, 3] / pseudo[3, 3]
    spread = pseudo[:3, :3] - mass * jnp.outer(com, com)
    return mass, com, jnp.trace(spread) * jnp.eye(3, dtype=spread.dtype) - spread


@checked()
def inertia_numbers(
    mass: float | Float[jax.Array, ""], com: Float[jax.Array, " 3"], inertia: Float[jax.Array, "3 3"]
) -> jax.Array:
    """Compute the numbers (10,) of `inertia_of` from mass, centre of mass (3,) and inertia about it (3, 3).

    They are NaN if no body has this inertia: the largest principal moment is less than the sum of the others.
    """
    mass, com, inertia = jnp.asarray(mass, float), jnp.asarray(com, float), jnp.asarray(inertia, float)
    spread = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia
    upper = jnp.concatenate([spread + mass * jnp.outer(com, com), mass * com[:, None]], axis=1)
    pseudo = jnp.concatenate([upper, jnp.append(mass * com, mass)[None]])
    factor = jnp.linalg.cholesky(pseudo[::-1, ::-1])[::-1, ::-1]
    scale = factor[3, 3]
    u = factor / scale
    return jnp.stack([
        jnp.log(scale), jnp.log(u[0, 0]), jnp.log(u[1, 1]), jnp.log(u[2, 2]),
        u[0, 1], u[1, 2], u[0, 2], u[0, 3], u[1, 3], u[2, 3],
    ])  # fmt: skip


@checked()
def inertias_of_bodies(model: Model, bodies: Sequence[str]) -> dict[str, jax.Array]:
    """Compute the numbers (10,) of `inertia_of` of named bodies of a robot in space, by name.

    Raises:
        ValueError: no such body, a planar robot, or a mechanism that is not of a file.

    Derivative: exact by the masses and inertias of the model.
    """
    params, tree = model.params, _tree_in_space(model)
    places = [_place_of(model, name, "bodies") for name in bodies]
    return {
        name: inertia_numbers(params.mass[i], tree.com[i], params.inertia[i])
        for name, i in zip(bodies, places, strict=True)
    }


@checked()
def with_inertias(model: Model, numbers: Mapping[str, jax.Array]) -> Model:
    """Give named bodies of a robot in space the masses, centres of mass and inertias of `inertia_of`.

    Shapes and joints stay where they are, and so do stiffness and damping of contacts, and the resistance of
    a fluid, which a file scales by its masses.

    Args:
        model: a robot, as `load_mjcf` gives.
        numbers: (10,) for each named body, as `inertias_of_bodies` gives.

    Returns:
        The model, in which other bodies are as before.

    Raises:
        TypeError: no mapping from names to arrays.
        ValueError: no such body, an array of another shape, a planar robot, or a mechanism not of a file.

    Derivative: exact by the numbers.
    """
    check_type("numbers", numbers, Mapping, '; expected such as {"hand": inertia_numbers(...)}')
    params, tree = model.params, _tree_in_space(model)
    mass, com, inertia = params.mass, tree.com, params.inertia
    for name, row in numbers.items():
        i = _place_of(model, name, "numbers")
        if jnp.shape(row) != (10,):
            raise ValueError(f"numbers[{name!r}]: expected shape (10,), got {jnp.shape(row)}")
        of_body = inertia_of(jnp.asarray(row, mass.dtype))
        mass, com = mass.at[i].set(of_body[0]), com.at[i].set(of_body[1])
        inertia = inertia.at[i].set(of_body[2])
    return model.replace(params=params.replace(mass=mass, inertia=inertia, tree=tree.replace(com=com)))


def _tree_in_space(model: Model) -> TreeParams:
    """Return the numbers of a robot's tree; raise ValueError for another mechanism."""
    tree = model.params.tree
    if tree is None or model.structure.dim != 3:
        raise ValueError("model: expected a robot in space, as load_mjcf gives")
    return tree


def _place_of(model: Model, body: str, argument: str) -> int:
    """Return the index of a named body; raise ValueError that lists the names."""
    names = model.structure.bodies
    if body not in names:
        raise ValueError(f"{argument}: expected names of bodies, {', '.join(names)}; got {body!r}")
    return names.index(body)

"""Contacts for users (`contacts`): names, points, normals, gaps, forces in the world, by candidate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_number
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import jit
from jaxcontact.terms.contacts import bodies_of, body_motion, place, slip
from jaxcontact.terms.records import touch_tolerance
from jaxcontact.terms.surfaces import surface_velocities

if TYPE_CHECKING:
    from jaxtyping import Float


class Contacts(Record):
    """All candidate contacts of a mechanism at a state; axis 0 is the contact.

    Attributes:
        point: (nc, dim) contact point of the pair in the world, m: on the surface of the first shape, where
            two bodies that move overlap midway between their surfaces.
        normal: (nc, dim) unit vector from the second shape to the first.
        gap: (nc,) m; below 0 a depth.
        velocity: (nc, dim) of the first shape's surface relative to the second's, in the world, m/s.
        touching: (nc,) bool, whether the gap is at most `touch_tolerance`: 1e-6 m, or rounding if larger.
        force: (nc, dim) on the first shape, in the world, N; None without an impulse.
        power: (nc,) of that force on the relative motion, W; None without an impulse.
        pairs: names of the two shapes of each pair (static).
        bodies: names of the two bodies of each pair, None for the world (static).
        pair: index of the pair of each contact (static).
    """

    point: jax.Array
    normal: jax.Array
    gap: jax.Array
    velocity: jax.Array
    touching: jax.Array
    force: jax.Array | None
    power: jax.Array | None
    pairs: tuple[tuple[str, str], ...] = static()
    bodies: tuple[tuple[str | None, str | None], ...] = static()
    pair: tuple[int, ...] = static()

    @property
    def names(self) -> list[tuple[str, str]]:
        """Names of the two shapes of each contact."""
        return [self.pairs[k] for k in self.pair]

    def rows(self, *names: str) -> np.ndarray:
        """Return the indices of the contacts that involve all named shapes or bodies.

        Raises:
            ValueError: no contact has one of these names.
        """
        owned = [{*pair, *bodies} for pair, bodies in zip(self.pairs, self.bodies, strict=True)]
        for name in names:
            if not any(name in words for words in owned):
                names_seen = sorted({word for words in owned for word in words if word is not None})
                raise ValueError(
                    f"names: expected names of shapes or bodies, {', '.join(names_seen)}; got {name!r}"
                )
        return np.array([k for k, pair in enumerate(self.pair) if {*names} <= owned[pair]], int)

    def table(self) -> Iterator[str]:
        """Yield lines about the contacts that touch, outside of jit: names, gap, point, normal, force."""
        for k in np.flatnonzero(np.asarray(self.touching)):
            first, second = self.pairs[self.pair[k]]
            point, normal = (_numbers(x[k]) for x in (self.point, self.normal))
            force = "" if self.force is None else f", force {_numbers(self.force[k])} N"
            yield f"{first} on {second}: gap {float(self.gap[k]):.3g} m at {point}, normal {normal}{force}"


@checked(dt=POSITIVE)
def contacts(
    model: Model,
    state: State,
    *,
    impulse: Float[jax.Array, "nc dim"] | None = None,
    dt: float | jax.Array | None = None,
) -> Contacts:
    """List the candidate contacts of a mechanism at a state, by name and in the world.

    Args:
        model: the mechanism (its structure is static).
        state: configuration and velocity.
        impulse: (nc, dim) impulses of the contacts along normal and tangents, N s, such as a row of
            `Trajectory.impulse`; None gives no forces.
        dt: time in which the impulses acted, s.

    Returns:
        Contacts in the order of `model.structure.pairs`.

    Raises:
        TypeError: another kind of argument.
        ValueError: the mechanism has no contacts, `impulse` has another shape, or one of `impulse` and `dt`
            is missing.

    Derivative: exact by state, params, impulse and dt, any order; `touching` is piecewise constant.
    """
    structure = model.structure
    shape = (structure.num_contacts, structure.dim)
    if not structure.pairs:
        raise ValueError("model: the structure has no candidate contacts; give it shapes and pairs")
    if (impulse is None) != (dt is None):
        raise ValueError("dt: expected with `impulse`, and only with it")
    if impulse is not None and jnp.shape(impulse) != shape:
        raise ValueError(f"impulse: expected shape {shape}, got {jnp.shape(impulse)}")
    if isinstance(dt, int | float):
        check_number("dt", dt, 5e-324)
    return _contacts(model, state, None if impulse is None or dt is None else impulse / dt)


@jit
def _contacts(model: Model, state: State, force: jax.Array | None) -> Contacts:
    structure, table = model.structure, model.structure.shape_table
    frames = body_motion(model, state.q, state.v)
    places, _ = place(model, *frames[:2])
    relative = slip(bodies_of(model.system), places, frames)  # along normal and tangents
    counts = [geometry.num_contacts(structure.dim, table, (pair,)) for pair in structure.pairs]

    if model.params.surface_velocity is not None:
        running, _ = surface_velocities(model, bodies_of(model.system), places, frames)
        along = running - places.normal * jnp.sum(places.normal * running, axis=1, keepdims=True)
        relative = relative + jnp.einsum("nki,ni->nk", places.axes, along)

    def in_world(x: jax.Array) -> jax.Array:
        return jnp.einsum("nk,nki->ni", x, places.axes)

    return Contacts(
        point=places.point,
        normal=places.normal,
        gap=places.phi,
        velocity=in_world(relative),
        touching=places.phi <= touch_tolerance(places.point),
        force=None if force is None else in_world(force),
        power=None if force is None else jnp.sum(force * relative, axis=1),
        pairs=structure.pairs,
        bodies=tuple((_body(table[first]), _body(table[second])) for first, second in structure.pairs),
        pair=tuple(np.repeat(np.arange(len(counts)), counts).tolist()),
    )


def _body(shape: geometry.Shape) -> str | None:
    return getattr(shape, "body", None)


def _numbers(x: jax.Array) -> str:
    return f"({', '.join(f'{value:.4g}' for value in np.asarray(x) + 0.0)})"

"""What a step sees of many contacts, and its answer for all of them.

A step with `max_contacts` solves for the nearest contacts alone. Every number keeps its place in the list of
candidates: those that the step starts from are gathered, those that it finds are scattered.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record, static
from jaxcontact.compliant.problem import count_rows
from jaxcontact.compliant.solve import StepInfo
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.scaled_springs import ScaledSprings
from jaxcontact.status import Status, flag
from jaxcontact.terms import DRY, Kind, Nearest


class Selection(Record):
    """Where the contacts that a step sees are among the candidates.

    Attributes:
        nearest: their places, and the gaps of all candidates.
        equalities: number of rows of either sign, and of those of dry friction `dry` (static).
        limits: number of limits (static).
        axes: rows of a contact (static).
    """

    nearest: Nearest
    equalities: int = static()
    dry: int = static()
    limits: int = static()
    axes: int = static()

    def places_after(self, first: int, width: int = 1) -> jax.Array:
        """Compute places of contacts in a list of `first` other entries, then `width` of each candidate."""
        entries = first + width * self.nearest.index[:, None] + jnp.arange(width)[None]
        return jnp.concatenate([jnp.arange(first), entries.ravel()])

    @property
    def num_rows(self) -> int:
        """Number of rows with those of every candidate, nr."""
        return self.equalities + self.limits + self.axes * self.nearest.phi.shape[0]

    @property
    def rows(self) -> jax.Array:
        """Places in the list of all rows (nr,)."""
        return self.places_after(self.equalities + self.limits, self.axes)

    @property
    def constraints(self) -> jax.Array:
        """Places in the list of all constraints (nk,)."""
        return self.places_after(self.equalities - self.dry + self.limits)


def make_selection(kind: tuple[Kind, ...], nearest: Nearest) -> Selection:
    """Make the selection of the `nearest` contacts, which made rows of these kinds."""
    equalities, limits, _, axes = count_rows(kind)
    return Selection(nearest=nearest, equalities=equalities, dry=kind.count(DRY), limits=limits, axes=axes)


def select_material(material: Material, selection: Selection) -> Material:
    """Select the material of the contacts of a step; leaves (nu,) of a potential have one entry per row."""
    candidates = selection.nearest.phi.shape[0]

    def select(value: jax.Array, first: int) -> jax.Array:
        is_per_candidate = jnp.shape(value) == (first + candidates,)
        return jnp.asarray(value)[selection.places_after(first)] if is_per_candidate else value

    constraints = selection.equalities - selection.dry + selection.limits
    return material.replace(
        stiffness=(
            jax.tree.map(lambda leaf: select(leaf, selection.limits), material.stiffness)
            if isinstance(material.stiffness, ScaledSprings)
            else select(material.stiffness, constraints)
        ),
        damping=jax.tree.map(lambda leaf: select(leaf, constraints), material.damping),
        friction=None if material.friction is None else select(material.friction, 0),
        friction_damping=select(material.friction_damping, selection.dry),
        friction_spring=jax.tree.map(lambda leaf: select(leaf, 0), material.friction_spring),
        potential=jax.tree.map(lambda leaf: select(leaf, selection.limits), material.potential),
    )


def spread_info(info: StepInfo, selection: Selection, loose: jax.Array | None) -> StepInfo:
    """Spread a result over all candidates; `loose` (nc, nt) are friction springs without force."""
    index, phi = selection.nearest.index, selection.nearest.phi
    candidates = phi.shape[0]
    singles = selection.equalities + selection.limits
    before = jnp.concatenate([jnp.zeros(singles - selection.dry, phi.dtype), phi])
    near, held = selection.nearest.near, singles - selection.dry
    gap = jnp.concatenate([info.gap[:held], jnp.where(near, info.gap[held:], phi[index])])
    return info.replace(
        status=info.status | flag(selection.nearest.overflow, Status.OVERFLOW),
        lam=jnp.zeros(selection.num_rows, phi.dtype).at[selection.rows].set(info.lam),
        gap=before.at[selection.constraints].set(gap),
        slip=jnp.zeros((candidates, selection.axes - 1), phi.dtype)
        .at[index]
        .set(jnp.where(near[:, None], info.slip, 0.0)),
        seen=jnp.zeros(candidates, bool).at[index].set(near),
        stretch=None if loose is None else loose.at[index].set(info.stretch),
    )

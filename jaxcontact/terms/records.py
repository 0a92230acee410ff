"""Records of the contacts and constraints of a mechanism at one configuration, as matrices."""

from __future__ import annotations

import enum
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.algebra import small_dense
from jaxcontact.arguments import is_concrete
from jaxcontact.geometry import num_contacts

CONTACT_TOLERANCE = 1e-6  # m; a gap below it is a touching contact, below minus it a penetration
TOUCH_ROUNDING = 16.0  # eps times the largest length of a scene; a gap up to it counts as zero


def touch_tolerance(*lengths: jax.Array) -> jax.Array:
    """Compute the largest gap of bodies that touch, m: 1e-6, or the rounding of `lengths` if that is larger.

    Lengths are coordinates of points or the lever arms in a contact Jacobian. Derivative: none.
    """
    largest = jnp.stack([jnp.max(jnp.abs(jax.lax.stop_gradient(x)), initial=0.0) for x in lengths])
    rounding = TOUCH_ROUNDING * float(jnp.finfo(largest.dtype).eps) * jnp.max(largest)
    return jnp.maximum(CONTACT_TOLERANCE, jnp.where(jnp.isfinite(rounding), rounding, 0.0))


class ContactTerms(Record):
    """A configuration in contact, as matrices.

    Attributes:
        M: (nv, nv) mass matrix.
        J_n: (nc, nv) normal velocity Jacobian; J_n v > 0 separates.
        J_t: (nc, nt, nv) tangential velocity Jacobian, nt = 1 in the plane, 2 in space.
        phi: (nc,) gap, m.
        mu: (nc,) friction coefficient.
        active: (nc,) bool, True if a contact touches.
        surface: (nc, 1 + nt) what running surfaces and moving mocap bodies add to J v, in motion with events;
            None if none does. Laws of impacts take none.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "J_n": "nc nv",
        "M": "nv nv",
        "J_t": "nc nt nv",
        "phi": "nc",
        "mu": "nc",
        "active": "bool nc",
        "surface": "nc axes",
    }
    ARGUMENT_HINT: ClassVar[str] = "; make them with contact_terms(model, state)"

    M: jax.Array
    J_n: jax.Array
    J_t: jax.Array
    phi: jax.Array
    mu: jax.Array
    active: jax.Array
    surface: jax.Array | None = None

    def touching(self, contacts: PyTree, system: PyTree = None) -> ContactTerms:
        """Return the terms with only these contacts active, at any gap; name them as for `take`."""
        nc = self.phi.shape[0]
        index = contacts if not is_concrete(contacts) else _number_contacts(contacts, self, system)
        return self.replace(active=jnp.zeros(nc, bool).at[index].set(True))

    def take(self, contacts: PyTree, system: PyTree = None) -> ContactTerms:
        """Return the terms of selected contacts, in the order of `contacts`.

        Args:
            contacts: numbers, a mask (nc,), or names: "foot" stands for every contact of that shape,
                ("foot", "floor") for those of one pair. A traced array of numbers is not checked.
            system: whose contacts these are; needed for names.

        Raises:
            ValueError: numbers or names of no contact, names without a system.
        """
        index = contacts if not is_concrete(contacts) else _number_contacts(contacts, self, system)
        rows = {name: getattr(self, name) for name in ("J_n", "J_t", "phi", "mu", "active", "surface")}
        rows = {name: row for name, row in rows.items() if row is not None}
        if is_concrete((rows, index)):  # one by one, JAX would compile a program for each row
            return self.replace(
                **jax.device_put({name: np.asarray(row)[index] for name, row in rows.items()})
            )
        return self.replace(**{name: row[index] for name, row in rows.items()})


def normal_rates(terms: ContactTerms, v: jax.Array) -> jax.Array:
    """Compute the rates of the gaps (nc,), m/s, relative to surfaces that move."""
    rate = small_dense.apply_matrix(terms.J_n, v)
    return rate if terms.surface is None else rate + terms.surface[:, 0]


def slips(terms: ContactTerms, v: jax.Array) -> jax.Array:
    """Compute the sliding velocities (nc, nt), m/s, relative to surfaces that move."""
    slip = terms.J_t @ v
    return slip if terms.surface is None else slip + terms.surface[:, 1:]


def _number_contacts(contacts: PyTree, terms: ContactTerms, system: PyTree) -> np.ndarray:
    """Return the numbers of contacts from numbers, a mask or names."""
    if isinstance(contacts, str):
        contacts = [contacts]
    if isinstance(contacts, tuple | list) and any(isinstance(name, str | tuple) for name in contacts):
        return _named_contacts(list(contacts), terms, system)
    nc, index = terms.phi.shape[0], np.asarray(contacts)
    if index.dtype == bool and index.shape == (nc,):
        index = np.flatnonzero(index)
    index = np.atleast_1d(index)
    is_number = np.issubdtype(index.dtype, np.integer) and index.ndim == 1
    if not is_number or np.any((index < 0) | (index >= nc)):
        raise ValueError(f"contacts: expected numbers in 0..{nc - 1} or a mask ({nc},), got {contacts!r}")
    return index


def _named_contacts(names: list[str], terms: ContactTerms, system: PyTree) -> np.ndarray:
    """Return the numbers of the contacts of named shapes or pairs."""
    if system is None:
        raise ValueError("contacts: names need system=, whose contacts these are")
    structure = system.structure
    counts = [num_contacts(structure.dim, structure.shape_table, (pair,)) for pair in structure.pairs]
    count, nc = sum(counts), terms.phi.shape[0]
    # Limits may follow the contacts: rows without tangents.
    limits = not is_concrete(terms.J_t) or not np.any(np.asarray(terms.J_t[count:]))
    if count > nc or not limits:
        raise ValueError(f"system: expected the one with these {nc} contacts, got one with {count}")
    chosen: list[int] = []
    for name in names:
        has_name = [name in pair if isinstance(name, str) else name == pair for pair in structure.pairs]
        numbers = np.flatnonzero(np.repeat(has_name, counts))
        if not numbers.size:
            raise ValueError(
                f"contacts: no contact of {name!r}; shapes are {[s.name for s in structure.shapes]}"
            )
        chosen += [int(number) for number in numbers if number not in chosen]
    return np.array(chosen)


class Kind(enum.IntEnum):
    """The kind of a row of `ConstraintTerms`, which decides the bounds of its force."""

    BILATERAL = 0  # a joint: force of either sign
    LIMIT = 1  # phi >= 0, force >= 0, no friction
    NORMAL = 2  # phi >= 0, force >= 0, followed by the tangents of its contact
    TANGENT = 3  # friction, bounded by mu times the normal force before it
    DRY = 4  # dry friction of a joint: force of either sign, bounded by a constant


BILATERAL, LIMIT, NORMAL, TANGENT, DRY = Kind


class ConstraintTerms(Record):
    """Joints, limits and contacts at one configuration, as rows: G^T lam is the generalized force.

    Rows are ordered: every bilateral row, the dry friction of joints, every limit, then each contact as
    (n, t1) in the plane or (n, t1, t2) in space. The number of rows is fixed; a row far from contact has
    phi > 0.

    Attributes:
        G: (nr, nv) velocity Jacobian (dphi/dq) N(q). On limits and normals G v > 0 separates; on dry joints
            and tangents G v is the sliding velocity, at a contact that of a relative to b. For long chains of
            free bodies a step keeps G as `BodyRows`.
        phi: (nr,) deviation or gap, m or rad; 0 on dry joints and tangents.
        gdot_v: (nr,) the part of d(G v)/dt that does not come from vdot, m/s^2.
        mu: (nc,) friction coefficient of each contact.
        kind: (nr,) the `Kind` of each row (static).
        dry: (nd,) largest force of dry friction of each row `DRY`, N or N m; None without such rows.
        surface: (nr,) what running surfaces and moving mocap bodies add to the rates G v; None if none does.
        surface_before: (nr,) the same before the step; None if it is `surface`.
        apart: True if every limit moves one velocity alone, as those of hinges and slides do (static).
    """

    G: PyTree
    phi: jax.Array
    gdot_v: jax.Array
    mu: jax.Array
    kind: tuple[Kind, ...] = static()
    dry: jax.Array | None = None
    surface: jax.Array | None = None
    surface_before: jax.Array | None = None
    apart: bool = static(default=False)

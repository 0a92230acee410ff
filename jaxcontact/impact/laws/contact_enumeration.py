"""Enumeration of contact modes for impact laws: in the plane, or in space for a cone with k sides."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxcontact.impact.inputs import is_concrete
from jaxcontact.impact.laws.contact_space import ContactSpace, friction_directions
from jaxcontact.solvers import contact_modes, polyhedral_modes
from jaxcontact.terms import ContactTerms


def enumerable(num_contacts: int, num_tangents: int, num_directions: int) -> bool:
    """Tell whether the modes of `num_contacts` contacts can be enumerated."""
    if num_tangents == 1:
        return num_contacts <= contact_modes.MAX_ENUMERATED
    return num_contacts <= polyhedral_modes.most_contacts(num_directions)


def check_enumeration(terms: ContactTerms, num_directions: int, what: str) -> None:
    """Raise ValueError if exhaustive enumeration of contact modes is not offered."""
    nc, nt = jnp.shape(terms.J_t)[:2]
    friction_directions(nt, num_directions)
    if enumerable(nc, nt, num_directions):
        return
    if nt == 1:
        offer, case = f"planar systems of up to {contact_modes.MAX_ENUMERATED} contacts", f"{nc} contacts"
    else:
        max_contacts = polyhedral_modes.most_contacts(num_directions)
        offer = f"up to {max_contacts} spatial contacts with num_directions={num_directions}"
        case = f"{nc} spatial contacts (nt = 2)"
        if enumerable(nc, nt, 4):
            case += "; num_directions=4 allows them"
    raise ValueError(
        f"{what}: contact modes are enumerated for {offer}, got {case}; "
        'use selection="lemke" (one solution per step, by pivoting), or leave contacts out'
    )


def touching_contacts(terms: ContactTerms, num_directions: int) -> np.ndarray | None:
    """Find the active contacts if not all candidates can be enumerated; else return None.

    A robot has many more candidate contacts than touch. The others carry no impulse, and are left out; of a
    robot in the air the first one stays. Under tracing the result is None, as what is active is not a value.
    """
    nc, nt = jnp.shape(terms.J_t)[:2]
    if enumerable(nc, nt, num_directions) or not is_concrete(terms.active):
        return None
    touching = np.flatnonzero(np.asarray(terms.active))
    touching = touching if touching.size else np.array([0])
    return touching if touching.size < nc else None


def mode_table(space: ContactSpace, directions: np.ndarray, *, capped: bool) -> contact_modes.ModeMaps:
    """Tabulate all contact modes of a step, in the plane or in space."""
    if space.num_tangents == 1:
        return contact_modes.mode_table(space.delassus, space.mu, space.active, capped=capped)
    return polyhedral_modes.mode_table(space.delassus, space.mu, space.active, directions, capped=capped)

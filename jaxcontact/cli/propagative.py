"""`jaxcontact impact MODEL --law propagative`: the outcome of every order of single elastic impacts.

This module owns the summary of that command, as data and as text.
"""

from __future__ import annotations

import jax
import numpy as np

from jaxcontact import impact
from jaxcontact.cli.catalogue import Summary
from jaxcontact.impact.laws.orders import MAX_PERMUTED
from jaxcontact.impact.sampling.outcomes import contact_names
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

MAX_OUTCOMES, MAX_REFLECTIONS = 64, 64  # largest numbers of outcomes, and of single impacts in an order
SAME_OUTCOME = 1e-9  # relative to |v|_M; largest difference of two outcomes that count as equal


def summarise(name: str, terms: ContactTerms, v: jax.Array) -> Summary:
    """Compute outcomes and orders of `propagate_all`, xi, and the theorem of a unique outcome, for JSON."""
    velocities, sequences, valid = impact.propagate_all(
        terms, v, max_outcomes=MAX_OUTCOMES, max_reflections=MAX_REFLECTIONS
    )
    contacts = contact_names(terms.phi.shape[0])
    outcomes = []
    for i in np.flatnonzero(np.asarray(valid)):
        order = np.asarray(sequences.order)[i, : int(sequences.length[i])]
        normal = np.asarray(terms.J_n) @ np.asarray(velocities[i])
        outcomes.append(
            {
                "order": " ".join(contacts[c] for c in order),
                "minimal": bool(sequences.minimal[i]),
                "v_plus": np.asarray(velocities[i]).tolist(),
                "normal_velocity": {c: float(u) for c, u in zip(contacts, normal, strict=True)},
            }
        )
    few_contacts = len(contacts) <= MAX_PERMUTED
    plastic_velocity, plastic_info = impact.plastic(terms, v)
    return {
        "model": name,
        "law": "propagative",
        "outcomes": outcomes,
        "indeterminacy": float(impact.indeterminacy(terms, v)) if few_contacts else None,
        "theorem": impact.unique_order(terms, SAME_OUTCOME).theorem,
        "plastic_v_plus": np.asarray(plastic_velocity).tolist(),
        "plastic_energy_ratio": float(plastic_info.energy_ratio),
        "status": Status.describe(sequences.status | plastic_info.status),
    }


def as_text(summary: Summary) -> str:
    """Format the summary as text for a reader."""
    outcomes = summary["outcomes"]
    num_outcomes = "1 outcome" if len(outcomes) == 1 else f"{len(outcomes)} outcomes"
    lines = [f"{summary['model']}: {num_outcomes} of single elastic impacts in every order, without friction"]
    width = max([5, *(len(o["order"]) for o in outcomes)])
    for o in outcomes:
        speeds = "  ".join(f"{c} {u:8.4f}" for c, u in o["normal_velocity"].items())
        note = "" if o["minimal"] else "   (a shorter order would do)"
        lines.append(f"  {o['order'] or 'none':{width}}  normal velocities, m/s  {speeds}{note}")
    if summary["indeterminacy"] is not None:
        lines.append(f"  indeterminacy    {summary['indeterminacy']:.3g} of the momentum, in kinetic norm")
    lines.append(f"  one outcome by   {summary['theorem'] or 'no theorem'}")
    lines.append(f"  plastic          leaves {100 * summary['plastic_energy_ratio']:.2f} % of the energy")
    lines.append(f"  status           {summary['status']}")
    return "\n".join(lines)

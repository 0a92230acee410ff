"""The sensitivities that `jaxcontact impact` reports: which number of a robot decides who sticks.

Entries `measure`, by shifts, and `differentiate`, exact; docs/methods/set-valued.md explains the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import impact
from jaxcontact._pytree import PyTree
from jaxcontact.cli.catalogue import Summary
from jaxcontact.impact.sampling.outcomes import LABELS, contact_names, outcome_labels
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms, contact_terms

FRACTION = 0.1  # of a mass or a friction coefficient
AXES = "xyz"
SHIFTS = {  # of velocities and positions: size, unit
    "hinge": ((0.5, "rad/s"), (0.05, "rad")),
    "slide": ((0.1, "m/s"), (0.01, "m")),
}
MOST_OF_GROUP = 6  # numbers of a group that are sampled: those that change the contacts most
SHOWN_OF_GROUP = 3  # rows of the table
NUM_ORDERS, NUM_OF_MANY = 128, 4  # impulse orders at each value, and with more contacts than `MANY_CONTACTS`


class ImpactStart(NamedTuple):
    """The contacts that touch and the velocity before the impact."""

    terms: ContactTerms
    v: jax.Array


class Shift(NamedTuple):
    """A number of the robot, how far it is shifted, and the landings with it shifted down and up."""

    name: str
    size: str
    ends: tuple[ImpactStart, ImpactStart]


def measure(
    model: Model, terms: ContactTerms, drawn: np.ndarray, bodies: Sequence[str], law: impact.Routh, seed: int,
    num_orders: int,
) -> dict[str, object]:  # fmt: skip
    """Sample the impact with numbers of the robot shifted down and up, by the same impulse orders.

    Args:
        terms: of the contacts that touch, whose numbers among all contacts are `drawn`.
        bodies: names of the moving bodies of these contacts.

    Returns:
        Numbers ready for JSON: `orders`; the `numbers` of each group, largest change first; and how many
        are `left_out`, because they change the contacts less.
    """
    landing = ImpactStart(terms, model.initial_state().v)
    velocities, positions = _shift_motions(model, landing, drawn)
    groups = [velocities, positions, _shift_masses(model, landing, drawn), _shift_frictions(landing, bodies)]
    rows: list[list[Summary]] = []
    for shifts in groups:
        changes = [_change_of_contacts(landing, shift) for shift in shifts]
        strongest = np.argsort(-np.asarray(changes), kind="stable")[:MOST_OF_GROUP]
        rows.append([_compare_ends(shifts[k], law, num_orders, seed) for k in strongest])
        rows[-1].sort(key=lambda row: (-row["end_elsewhere"], -abs(np.diff(row["energy_ratio"])[0])))
    return {
        "orders": num_orders,
        "numbers": dict(zip(("velocity", "position", "mass", "friction"), rows, strict=True)),
        "left_out": sum(map(len, groups)) - sum(map(len, rows)),
    }


def differentiate(
    model: Model, terms: ContactTerms, drawn: np.ndarray, bodies: Sequence[str], law: impact.Routh, seed: int
) -> Summary:
    """Differentiate the kinetic energy that one impulse order keeps, by the numbers that `measure` shifts.

    Returns:
        Numbers ready for JSON: the `energy_ratio`, and its derivatives by name, each with its unit.
    """
    state, params, touched = model.initial_state(), model.params, list(dict.fromkeys(bodies))
    names, of_contact = _velocity_names(model), np.array([touched.index(body) for body in bodies])

    def kept(rate: PyTree, position: PyTree, mass: PyTree, friction: PyTree) -> jax.Array:
        inertia = params.inertia * mass.reshape(-1, *[1] * (params.inertia.ndim - 1))
        changed = model.replace(params=params.replace(mass=params.mass * mass, inertia=inertia))
        placed = contact_terms(changed, state.replace(q=retract(model.system, state.q, position))).take(drawn)
        mu = terms.mu * friction[of_contact]
        placed, v = placed.replace(mu=mu, active=terms.active, phi=terms.phi), state.v + rate
        v_plus, _ = law(placed, v, jax.random.key(seed))
        return (v_plus @ placed.M @ v_plus) / (v @ placed.M @ v)

    zeros = jnp.zeros(len(names))
    ones = jnp.ones(len(params.mass)), jnp.ones(len(touched))
    value, slopes = jax.jit(jax.value_and_grad(kept, argnums=(0, 1, 2, 3)))(zeros, zeros, *ones)
    rates, positions, masses, frictions = (np.asarray(slope).tolist() for slope in slopes)
    found = {name: [rate, SHIFTS[kind][0][1]] for (name, _, kind), rate in zip(names, rates, strict=True)}
    for (_, name, kind), slope in zip(names, positions, strict=True):
        if name is not None:
            found[name] = [slope, SHIFTS[kind][1][1]]
    for body, slope in zip(model.structure.bodies, masses, strict=True):
        found[f"mass of {body}"] = [slope * FRACTION, f"{100 * FRACTION:g} %"]
    for body, slope in zip(touched, frictions, strict=True):
        found[f"friction of {body}"] = [slope * FRACTION, f"{100 * FRACTION:g} %"]
    return {"energy_ratio": float(value), "slopes": found}


def _shift_frictions(landing: ImpactStart, bodies: Sequence[str]) -> list[Shift]:
    """Shift the friction of the contacts of each body."""
    shifts = []
    for body in dict.fromkeys(bodies):
        of_body = np.array([name == body for name in bodies])
        ends = [
            landing._replace(
                terms=landing.terms.replace(mu=landing.terms.mu * np.where(of_body, factor, 1.0))
            )
            for factor in (1.0 - FRACTION, 1.0 + FRACTION)
        ]
        shifts.append(_make_shift(f"friction of {body}", (100 * FRACTION, "%"), ends))
    return shifts


def _shift_masses(model: Model, landing: ImpactStart, drawn: np.ndarray) -> list[Shift]:
    """Shift the mass of each body, with its inertia."""
    params, state, shifts = model.params, model.initial_state(), []
    for body, name in enumerate(model.structure.bodies):
        if not params.mass[body] > 0.0:
            continue
        ends = []
        for factor in (1.0 - FRACTION, 1.0 + FRACTION):
            factors = jnp.ones_like(params.mass).at[body].set(factor)
            inertia = params.inertia * factors.reshape(-1, *[1] * (params.inertia.ndim - 1))
            heavy = model.replace(params=params.replace(mass=params.mass * factors, inertia=inertia))
            terms = contact_terms(heavy, state).take(drawn)
            ends.append(
                landing._replace(terms=terms.replace(mu=landing.terms.mu, active=landing.terms.active))
            )
        shifts.append(_make_shift(f"mass of {name}", (100 * FRACTION, "%"), ends))
    return shifts


def _shift_motions(model: Model, landing: ImpactStart, drawn: np.ndarray) -> tuple[list[Shift], list[Shift]]:
    """Shift velocities before the impact, and positions of joints at which the same contacts touch."""
    state, names = model.initial_state(), _velocity_names(model)
    sizes = np.array([[size for size, _ in SHIFTS[kind]] for _, _, kind in names])
    axes = np.eye(len(names))
    move = jax.jit(jax.vmap(lambda delta: retract(model.system, state.q, delta)))
    moved = [move(jnp.asarray(sign * sizes[:, 1:] * axes)) for sign in (-1, 1)]
    velocities, positions = [], []
    for number, (rate, position, kind) in enumerate(names):
        by = sizes[number, 0] * axes[number]
        ends = [landing._replace(v=landing.v + sign * by) for sign in (-1, 1)]
        velocities.append(_make_shift(rate, SHIFTS[kind][0], ends))
        if position is None:
            continue
        ends = []
        for q in moved:
            terms = contact_terms(model, state.replace(q=q[number])).take(drawn)
            terms = terms.replace(mu=landing.terms.mu, active=landing.terms.active, phi=landing.terms.phi)
            ends.append(landing._replace(terms=terms))
        positions.append(_make_shift(position, SHIFTS[kind][1], ends))
    return velocities, positions


def _make_shift(name: str, size: tuple[float, str], ends: list[ImpactStart]) -> Shift:
    """Make the record of a shift by a size, a number with its unit, from the impacts at its ends."""
    return Shift(name, f"{size[0]:g} {size[1]}", (ends[0], ends[1]))


def _velocity_names(model: Model) -> list[tuple[str, str | None, str]]:
    """Name each velocity and its position, None for positions that change no contact, and their kind."""
    tree = model.structure.tree
    assert tree is not None
    names: list[tuple[str, str | None, str]] = []
    for joint in tree.joints:
        if joint.kind == "free":
            names += [(f"velocity along {axis}", None, "slide") for axis in AXES]
            names += [(f"turning about {axis}", f"tilt about {axis}", "hinge") for axis in AXES]
        elif joint.kind == "ball":
            names += [
                (f"rate {axis} of {joint.name}", f"turn {axis} of {joint.name}", "hinge") for axis in AXES
            ]
        else:
            names.append((f"rate of {joint.name}", f"position of {joint.name}", joint.kind))
    return names


def _change_of_contacts(landing: ImpactStart, shift: Shift) -> float:
    """Compute how much a shift changes what the impact depends on: J M^-1 J^T, J v and friction; relative."""
    (low, high), middle = (_contact_numbers(end) for end in shift.ends), _contact_numbers(landing)
    sizes = [np.linalg.norm(part) for part in middle]
    return max(
        float(np.linalg.norm(b - a) / size) for a, b, size in zip(low, high, sizes, strict=True) if size > 0
    )


def _contact_numbers(landing: ImpactStart) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute J M^-1 J^T, J v and friction."""
    terms = landing.terms
    normals, tangents = np.asarray(terms.J_n), np.asarray(terms.J_t)
    rows = np.concatenate([normals, tangents.reshape(-1, normals.shape[1])])
    return rows @ np.linalg.solve(terms.M, rows.T), rows @ np.asarray(landing.v), np.asarray(terms.mu)


def _compare_ends(shift: Shift, law: impact.Routh, num_orders: int, seed: int) -> dict[str, object]:
    """Compare the outcomes of the same impulse orders at both ends of a shift."""
    labels, energies, good = [], [], np.ones(num_orders, bool)
    for terms, v in shift.ends:
        samples = impact.sample(terms, v, law, num_samples=num_orders, seed=seed)
        labels.append(outcome_labels(samples, terms))
        energies.append(np.asarray(samples.energy_ratio))
        good &= (np.asarray(samples.status) & np.uint32(int(Status.FAILURES))) == 0
    row: Summary = {"name": shift.name, "shift": shift.size, "end_elsewhere": 0.0}
    row |= {"energy_ratio": [0.0, 0.0], "decides": None}
    if not good.any():
        return row
    low, high = (
        np.stack([label[good] == kind for kind in range(len(LABELS))]).mean(axis=1) for label in labels
    )
    kind, contact = np.unravel_index(np.argmax(np.abs(high - low)), low.shape)
    if high[kind, contact] != low[kind, contact]:
        name = contact_names(low.shape[1])[contact]
        ends = [float(low[kind, contact]), float(high[kind, contact])]
        row["decides"] = {"outcome": f"{name} {LABELS[kind]}", "share": ends}
    row["end_elsewhere"] = float(np.mean(np.any(labels[0][good] != labels[1][good], axis=1)))
    row["energy_ratio"] = [float(np.mean(energy[good])) for energy in energies]
    return row


def format_sensitivity(found: Summary, derivative: Summary | None = None) -> list[str]:
    """Format the table of `measure` as lines of text, with a column of derivatives if there are any."""
    rows = [row for group in found["numbers"].values() for row in group[:SHOWN_OF_GROUP]]
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"  sensitivity      the same {found['orders']} impulse orders with one number shifted down and up",
        f"    {'':{width}}                 end elsewhere   kinetic energy     share that changes most",
    ]
    if derivative:
        lines[1:1] = [
            f"    derivative: exact, of the kinetic energy that one of the orders keeps, "
            f"{100 * derivative['energy_ratio']:.2f} %"
        ]
        lines[-1] = lines[-1].replace("kinetic energy", "kinetic energy     derivative     ")
    for row in rows:
        low, high = (100 * end for end in row["energy_ratio"])
        text = f"    {row['name']:{width}} +-{row['shift']:12} {100 * row['end_elsewhere']:10.0f} %"
        text += f"   {low:6.2f} .. {high:6.2f} %"
        if derivative:
            slope, unit = derivative["slopes"][row["name"]]
            text += f" {round(100 * slope, 2) + 0.0:+9.2f} % per {unit:5}"
        if row["decides"]:
            before, after = (100 * end for end in row["decides"]["share"])
            text += f"   {row['decides']['outcome']} {before:.0f} .. {after:.0f} %"
        lines.append(text.rstrip())
    rest = [row["end_elsewhere"] for group in found["numbers"].values() for row in group[SHOWN_OF_GROUP:]]
    if rest:
        left_out = f"; {found['left_out']} more that move the contacts less: not sampled" * (
            found["left_out"] > 0
        )
        lines.append(f"    {len(rest)} others: at most {100 * max(rest):.0f} % end elsewhere{left_out}")
    return lines

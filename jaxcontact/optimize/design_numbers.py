"""The task of a design, the numbers that may change, and the products to be given values: `DesignTask`.

Owns what `design_equations` solves: rows of contacts that count, sizes and bounds of numbers, and their
effect on params, state, products and gaps. Page: docs/methods/order-and-inertia.md.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model, Params, State
from jaxcontact.mechanics.tree import dofs
from jaxcontact.precision import jit
from jaxcontact.terms import ContactTerms, contact_terms

# rebuild(constants) -> Params, if masses and shapes follow from the constants
Rebuild = Callable[[Mapping[str, PyTree]], Params]
NO_ROW = 1e-12  # squared length of a row relative to the longest; a shorter row does not move the robot
MASS_FACTORS = (1.0 / 3.0, 3.0)  # bounds of the masses of bodies without bounds of their own
FREE = (-math.inf, math.inf)


Coefficients = tuple[tuple[tuple[float, ...], ...], ...]  # by contact, row and normal or tangent


class DesignTask(NamedTuple):
    """The conditions on a design, and the numbers that may change.

    Attributes:
        contacts: two contacts or more that touch in the landing; None: those that touch at `state`.
        stages: n >= 2, number of single impacts; more than 2 for two contacts without friction.
        design: names of `params.constants` that may change, each a scalar or an array; and names of bodies,
            whose mass and inertia are multiplied by one factor.
        rebuild: constants -> Params, if other numbers follow from them; None: they replace
            `params.constants`.
        hold: indices of v whose directions keep their coordinates; the others may change. Joints stay within
            their limits.
        bounds: of constants, and of the factors of bodies, by name; factors are in (1/3, 3) without them.
        clearance: smallest gap of the other contacts, m.
        friction: impulses that count: "all" of the friction cone of contacts with mu > 0; in the plane
            "sliding", those while every contact slides as at `state`; or "none", the normals.
    """

    contacts: tuple[int, ...] | None = None
    stages: int = 2
    design: tuple[str, ...] = ()
    rebuild: Rebuild | None = None
    hold: tuple[int, ...] = ()
    bounds: Mapping[str, tuple[float, float]] | None = None
    clearance: float = 1e-3
    friction: str = "all"


class DesignNumbers(NamedTuple):
    """What may change and what is measured; static.

    Attributes:
        contacts: the contacts that touch.
        impulses: impulses of each of them that count, as coefficients (1 + nt) of its normal and tangents.
        responses: components of its velocity that no impulse of another contact may change, likewise.
        constants: names of `params.constants`.
        bodies: indices of bodies with a factor of mass and inertia.
        rebuild: constants -> Params, or None.
        free: indices of v whose directions may change.
    """

    contacts: tuple[int, ...]
    impulses: Coefficients
    responses: Coefficients
    constants: tuple[str, ...]
    bodies: tuple[int, ...]
    rebuild: Rebuild | None
    free: tuple[int, ...]


def find_contacts(terms: ContactTerms, contacts: tuple[int, ...] | None) -> tuple[int, ...]:
    """Find the contacts of a design: those given, or those that touch."""
    touching = np.flatnonzero(np.asarray(terms.active))
    return tuple(int(c) for c in (touching if contacts is None else contacts))


def list_rows(
    terms: ContactTerms, state: State, contacts: tuple[int, ...], friction: bool
) -> tuple[Coefficients, Coefficients]:
    """List the rows of each contact that count: its normal, with friction tangents that move the robot."""
    rows = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)[list(contacts)]
    square = np.einsum("cri,ij,crj->cr", rows, np.linalg.inv(np.asarray(terms.M)), rows)
    counts = square > NO_ROW * np.max(square)
    counts[:, 1:] &= friction & (np.asarray(terms.mu)[list(contacts), None] > 0)
    counts[:, 0] = True
    unit = np.eye(rows.shape[1]).tolist()
    listed = tuple(tuple(tuple(unit[k]) for k in np.flatnonzero(row)) for row in counts)
    return listed, listed


def list_sliding(
    terms: ContactTerms, state: State, contacts: tuple[int, ...], friction: bool
) -> tuple[Coefficients, Coefficients]:
    """List the impulse of each contact while it slides as at the start, and its normal as the response."""
    slips = np.asarray(terms.J_t)[list(contacts), 0] @ np.asarray(state.v)
    pushes = -np.sign(slips) * np.asarray(terms.mu)[list(contacts)]
    return tuple(((1.0, float(x)),) for x in pushes), tuple(((1.0, 0.0),) for _ in contacts)


def list_products(numbers: DesignNumbers) -> list[tuple[int, int]]:
    """List the products that count, as places of a response and of an impulse of another contact."""
    sides = [
        [c for c, rows in zip(numbers.contacts, part, strict=True) for _ in rows]
        for part in (numbers.responses, numbers.impulses)
    ]
    pairs = itertools.product(*(enumerate(side) for side in sides))
    is_symmetric = numbers.impulses == numbers.responses
    return [(a, b) for (a, c), (b, d) in pairs if c < d or (c > d and not is_symmetric)]


def find_arm(model: Model, terms: ContactTerms, contacts: tuple[int, ...]) -> float:
    """Find the largest arm of a contact about a joint that turns, m; of a mechanism without a tree 1 m."""
    tree = model.structure.tree
    if tree is None:
        return 1.0
    rows = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)[list(contacts)]
    arm = float(np.max(np.abs(rows[..., dofs(tree).turns]), initial=0.0))
    return arm or 1.0


def size_coordinates(model: Model, state: State, length: float) -> np.ndarray:
    """Return the size of a change of each coordinate: 1 rad, or an arm; without a tree its own value."""
    tree = model.structure.tree
    if tree is not None:
        return np.where(dofs(tree).turns, 1.0, length)
    q = np.abs(np.asarray(state.q, float))
    if model.structure.quaternions:
        return np.ones(model.structure.num_velocities)
    return np.where(q <= 1e-9 * np.max(q, initial=0.0), 1.0, q)


def list_bounds(
    model: Model, state: State, task: DesignTask, numbers: DesignNumbers
) -> Iterator[tuple[float, float]]:
    """Yield bounds of constants, logarithms of factors of masses, and changes of coordinates.

    Joints stay within their limits, or do not go further beyond them.
    """
    bounds, params = task.bounds or {}, model.params
    for name in numbers.constants:
        for _ in range(np.size(params.constants[name])):
            yield bounds.get(name, FREE)
    for body in numbers.bodies:
        low, high = bounds.get(model.structure.bodies[body], MASS_FACTORS)
        yield math.log(low), math.log(high)
    limits = dict.fromkeys(range(model.structure.num_velocities), FREE)
    tree = model.structure.tree
    for j, joint in enumerate(() if tree is None else tree.joints):
        if joint.limited and joint.kind in ("hinge", "slide"):
            low, high = np.asarray(params.tree.limits)[j] - float(state.q[tree.position_starts[j]])
            limits[tree.velocity_starts[j]] = (min(float(low), 0.0), max(float(high), 0.0))
    for i in numbers.free:
        yield limits[i]


def apply_numbers(
    numbers: DesignNumbers, model: Model, state: State, flat: jax.Array
) -> tuple[Params, State]:  # fmt: skip
    """Apply numbers (n,) to params and state: constants, log factors of masses, changes of coordinates."""
    constants, at = dict(model.params.constants), 0
    for name in numbers.constants:
        old = jnp.asarray(constants[name])
        constants[name] = flat[at : at + old.size].reshape(old.shape).astype(old.dtype)
        at += old.size
    built = (
        model.params.replace(constants=constants) if numbers.rebuild is None else numbers.rebuild(constants)
    )
    if numbers.bodies:
        bodies = jnp.array(numbers.bodies)
        factor = jnp.ones_like(built.mass).at[bodies].set(jnp.exp(flat[at : at + len(bodies)]))
        ones = (1,) * (built.inertia.ndim - 1)
        built = built.replace(mass=built.mass * factor, inertia=built.inertia * factor.reshape(-1, *ones))
        at += len(bodies)
    free = jnp.array(numbers.free, int)
    delta = jnp.zeros(model.structure.num_velocities, state.q.dtype).at[free].set(flat[at:])
    return built, state.replace(q=retract(model.system, state.q, delta))


def _measure(
    numbers: DesignNumbers, model: Model, state: State, flat: jax.Array
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Measure cosines of rows, gaps of the contacts, gaps of the others; return them as value and as aux."""
    built, placed = apply_numbers(numbers, model, state, flat)
    terms = contact_terms(model.replace(params=built), placed)
    every = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    responses, impulses = (
        jnp.concatenate([jnp.array(c) @ every[k] for k, c in zip(numbers.contacts, part, strict=True)])
        for part in (numbers.responses, numbers.impulses)
    )
    rows, count = jnp.concatenate([responses, impulses]), len(responses)
    moved = implicit.solve_spd(terms.M, rows.T)
    sizes = jnp.sqrt(jnp.sum(rows.T * moved, axis=0))
    products = responses @ moved[:, count:]
    first, second = np.array(list_products(numbers)).T
    cosines = (products / sizes[:count, None] / sizes[None, count:])[first, second]
    rest = [c for c in range(terms.phi.shape[0]) if c not in numbers.contacts]
    values = jnp.concatenate([cosines, terms.phi[jnp.array([*numbers.contacts, *rest])]])
    return values, values


slopes_of = functools.partial(jit, static_argnames="numbers")(jax.jacfwd(_measure, argnums=3, has_aux=True))

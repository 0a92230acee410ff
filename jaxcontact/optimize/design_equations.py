"""The equations of a design in numbers measured in their sizes: `DesignEquations`.

Owns the task, the products of pairs of contacts that have to vanish, the numbers that may change with their
bounds, and the searches for them. Page: docs/methods/order-and-inertia.md.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model, Params, State
from jaxcontact.mechanics.tree import Tree
from jaxcontact.precision import jit
from jaxcontact.terms import ContactTerms, contact_terms

# rebuild(constants) -> Params, if masses and shapes follow from the constants
Rebuild = Callable[[Mapping[str, PyTree]], Params]
POLISH = 20  # largest number of Newton iterations onto the equations; they stop if the residual does not fall
NUM_STARTS = 12  # of the search for numbers that meet the equations; it stops at the first that does
START_SPREAD = 0.6  # largest standard deviation of the starts around the first one, in sizes of numbers
MAX_EVALUATIONS = 300  # of the search from one start; where products cannot vanish it ends slowly
GAP_WEIGHT = 100.0  # of gaps beside products of contacts, where not all can vanish
NEAR_WEIGHT = 1e-6  # of the change beside the products: numbers that do not matter stay
DEPENDENT = 1e-10  # singular value relative to the largest; below it equations say the same
MET = 1e-12  # largest product, and gap in m, that count as zero
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


class DesignEquations:
    """The equations and inequalities of one design in numbers measured in their sizes."""

    def __init__(self, model: Model, state: State, task: DesignTask) -> None:
        self.model, self.state, self.clearance = model, state, task.clearance
        structure, terms = model.structure, contact_terms(model, state)
        self.contacts = find_contacts(terms, task.contacts)
        self.others = [c for c in range(structure.num_contacts) if c not in self.contacts]
        constants = tuple(name for name in task.design if name in model.params.constants)
        bodies = tuple(structure.bodies.index(name) for name in task.design if name not in constants)
        free = tuple(i for i in range(structure.num_velocities) if i not in task.hold)
        rows = _list_sliding if task.friction == "sliding" else _list_rows
        impulses, responses = rows(terms, state, self.contacts, task.friction == "all")
        self.numbers = DesignNumbers(
            self.contacts, impulses, responses, constants, bodies, task.rebuild, free
        )
        self.num_products = len(_list_products(self.numbers))
        self.target = -math.cos(math.pi / task.stages) if task.stages > 2 else 0.0
        values = [np.ravel(np.asarray(model.params.constants[name], float)) for name in constants]
        self.length = _arm(model, terms, self.contacts)
        sizes = [np.where(value == 0, 1.0, np.abs(value)) for value in values]
        turns = _size_coordinates(model, state, self.length)[list(free)]
        self.size = np.concatenate([*sizes, np.ones(len(bodies)), turns])
        self.start = np.concatenate([*values, np.zeros(len(bodies) + len(free))]) / self.size
        self.limits = np.array(list(_list_bounds(model, state, task, self.numbers))).reshape(-1, 2)
        self.limits /= self.size[:, None]
        self.evaluations = 0
        self._at, self._linear = np.empty(0), (np.empty(0), np.empty((0, 0)))

    def _linearize(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute values and their derivative, once at each point."""
        if not np.array_equal(z, self._at):
            self.evaluations += 1
            slope, values = _slopes(self.numbers, self.model, self.state, jnp.asarray(z * self.size))
            self._at, self._linear = np.array(z), (np.asarray(values), np.asarray(slope) * self.size)
        return self._linear

    def values(self, z: np.ndarray) -> np.ndarray:
        """Compute products of pairs of contacts, gaps of the contacts, then gaps of the others, m."""
        return self._linearize(z)[0]

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Compute the derivative of `values` by automatic differentiation."""
        return self._linearize(z)[1]

    @property
    def num_equations(self) -> int:
        """Number of products and gaps that have to vanish."""
        return self.num_products + len(self.contacts)

    def residual(self, z: np.ndarray) -> np.ndarray:
        """Compute what has to be zero: products minus their target, gaps in m."""
        value = self.values(z)[: self.num_equations].copy()
        value[: self.num_products] -= self.target
        return value

    def is_met(self, z: np.ndarray) -> bool:
        """Tell whether equations and inequalities hold."""
        rest = self.values(z)[self.num_equations :]
        inside = np.all((z >= self.limits[:, 0] - 1e-9) & (z <= self.limits[:, 1] + 1e-9))
        return bool(
            np.max(np.abs(self.residual(z))) <= MET and np.all(rest >= self.clearance - 1e-9) and inside
        )

    def distance(self, z: np.ndarray) -> float:
        """Compute the length of the change, in sizes of numbers."""
        return float(np.linalg.norm(z - self.start))

    def meet(self, start: np.ndarray) -> np.ndarray:
        """Search for numbers of least squared products by a trust region (Levenberg), within the bounds.

        Gaps, and the overlap of other contacts, have a larger weight.
        """
        from scipy.optimize import least_squares  # inside the function, because the import takes long

        num, products = self.num_equations, self.num_products
        weight = np.ones(self.values(start).size)
        weight[products:] = GAP_WEIGHT / self.length

        def parts(z: np.ndarray) -> np.ndarray:
            near = np.minimum(self.values(z)[num:] - self.clearance, 0.0)
            equations = weight * np.concatenate([self.residual(z), near])
            return np.concatenate([equations, NEAR_WEIGHT * (z - self.start)])

        def slopes(z: np.ndarray) -> np.ndarray:
            slope = weight[:, None] * self.jacobian(z)
            slope[num:][self.values(z)[num:] >= self.clearance] = 0.0
            return np.concatenate([slope, NEAR_WEIGHT * np.eye(z.size)])

        lower, upper = self.limits.T
        inside = np.clip(start, lower + 1e-9, upper - 1e-9)
        options = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14, "max_nfev": MAX_EVALUATIONS}
        return np.asarray(least_squares(parts, inside, slopes, bounds=(lower, upper), **options).x)

    def nearest(
        self, start: np.ndarray | None = None, *, differences: bool = False
    ) -> Any:  # SciPy's result has no types
        """Search by SciPy's SLSQP and return its result; `differences` asks for finite differences."""
        from scipy.optimize import minimize  # inside the function, because the import takes long

        num, start = self.num_equations, self.start if start is None else start
        scale = np.ones(num)
        scale[self.num_products :] /= self.length
        left, singular, _ = np.linalg.svd(scale[:, None] * self.jacobian(start)[:num])
        rank = int(np.sum(singular > DEPENDENT * singular[0]))
        combined = left[:, :rank].T * scale  # SLSQP stops at equations that depend on one another
        rows = [
            {
                "type": "eq",
                "fun": lambda z: combined @ self.residual(z),
                "jac": lambda z: combined @ self.jacobian(z)[:num],
            },
            {
                "type": "ineq",
                "fun": lambda z: (self.values(z)[num:] - self.clearance) / self.length,
                "jac": lambda z: self.jacobian(z)[num:] / self.length,
            },
        ]
        rows = rows if self.others else rows[:1]
        if differences:
            rows = [{key: row[key] for key in ("type", "fun")} for row in rows]
        return minimize(
            lambda z: (float(np.sum((z - self.start) ** 2)), 2.0 * (z - self.start)),
            start, jac=True, method="SLSQP", constraints=rows,
            bounds=self.limits, options={"maxiter": 200, "ftol": 1e-12},
        )  # fmt: skip

    def polish(self, z: np.ndarray, *, gaps_only: bool = False) -> np.ndarray:
        """Apply Newton's method with the smallest change within bounds, as long as it reduces the residual.

        With `gaps_only` the residual has gaps alone, for designs whose products cannot vanish. Other contacts
        that are too near are moved to `clearance`.
        """
        lower, upper = self.limits.T
        z = np.clip(z, lower, upper)
        moves = (z > lower + 1e-9) & (z < upper - 1e-9)
        near = np.flatnonzero(self.values(z)[self.num_equations :] < self.clearance) + self.num_equations
        first = self.num_products if gaps_only else 0
        chosen = np.concatenate([np.arange(first, self.num_equations), near])
        wanted = np.zeros(self.values(z).size)
        wanted[: self.num_products] = self.target
        wanted[self.num_equations :] = self.clearance
        for _ in range(POLISH):
            r, slope = (self.values(z) - wanted)[chosen], self.jacobian(z)[chosen]
            if np.max(np.abs(r)) <= 1e-15 or not np.all(np.isfinite(slope)):
                break
            nearer = z.copy()
            nearer[moves] += np.linalg.lstsq(slope[:, moves], -r, rcond=1e-10)[0]
            nearer = np.clip(nearer, lower, upper)
            if not np.max(np.abs((self.values(nearer) - wanted)[chosen])) < np.max(np.abs(r)):
                break
            z = nearer
        return z

    def solve(self) -> tuple[np.ndarray, int]:
        """Find the nearest numbers that meet the equations, else those of least products; and iterations."""
        minimum = self.nearest()
        iterations = int(minimum.nit)
        if np.all(np.isfinite(minimum.x)) and self.is_met(z := self.polish(minimum.x)):
            return z, iterations
        best, lowest_cost, rng = self.start, math.inf, np.random.default_rng(0)
        for k in range(NUM_STARTS):
            start = self.start + k * START_SPREAD / NUM_STARTS * rng.normal(size=self.start.size)
            met = self.meet(start)
            z = self.polish(met)
            if self.is_met(z):
                minimum = self.nearest(z)
                closer = self.polish(minimum.x) if np.all(np.isfinite(minimum.x)) else z
                is_closer = self.is_met(closer) and self.distance(closer) < self.distance(z)
                return closer if is_closer else z, iterations + int(minimum.nit)
            z = self.polish(met, gaps_only=True)
            rest = self.values(z)[self.num_equations :]
            overlap = -min(0.0, float(np.min(rest - self.clearance, initial=0.0)))
            left = self.residual(z)
            off = overlap + float(np.max(np.abs(left[self.num_products :])))
            cost = float(np.linalg.norm(left[: self.num_products])) + GAP_WEIGHT / self.length * off
            if cost < lowest_cost:
                best, lowest_cost = z, cost
        return best, iterations

    def apply(self, z: np.ndarray) -> tuple[Params, State]:
        """Apply numbers to params and state."""
        return apply_numbers(self.numbers, self.model, self.state, jnp.asarray(z * self.size))


def find_contacts(terms: ContactTerms, contacts: tuple[int, ...] | None) -> tuple[int, ...]:
    """Find the contacts of a design: those given, or those that touch."""
    touching = np.flatnonzero(np.asarray(terms.active))
    return tuple(int(c) for c in (touching if contacts is None else contacts))


def _list_rows(
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


def _list_sliding(
    terms: ContactTerms, state: State, contacts: tuple[int, ...], friction: bool
) -> tuple[Coefficients, Coefficients]:
    """List the impulse of each contact while it slides as at the start, and its normal as the response."""
    slips = np.asarray(terms.J_t)[list(contacts), 0] @ np.asarray(state.v)
    pushes = -np.sign(slips) * np.asarray(terms.mu)[list(contacts)]
    return tuple(((1.0, float(x)),) for x in pushes), tuple(((1.0, 0.0),) for _ in contacts)


def _list_products(numbers: DesignNumbers) -> list[tuple[int, int]]:
    """List the products that count, as places of a response and of an impulse of another contact."""
    sides = [
        [c for c, rows in zip(numbers.contacts, part, strict=True) for _ in rows]
        for part in (numbers.responses, numbers.impulses)
    ]
    pairs = itertools.product(*(enumerate(side) for side in sides))
    is_symmetric = numbers.impulses == numbers.responses
    return [(a, b) for (a, c), (b, d) in pairs if c < d or (c > d and not is_symmetric)]


def _arm(model: Model, terms: ContactTerms, contacts: tuple[int, ...]) -> float:
    """Find the largest arm of a contact about a joint that turns, m; of a mechanism without a tree 1 m."""
    tree = model.structure.tree
    if tree is None:
        return 1.0
    turning = _turning(tree)
    rows = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)[list(contacts)]
    arm = float(np.max(np.abs(rows[..., turning]), initial=0.0))
    return arm or 1.0


def _turning(tree: Tree) -> np.ndarray:
    """Tell which velocities of a tree are angular."""
    by_kind = {"hinge": [True], "slide": [False], "ball": [True] * 3, "free": [False] * 3 + [True] * 3}
    return np.array([turns for joint in tree.joints for turns in by_kind[joint.kind]])


def _size_coordinates(model: Model, state: State, length: float) -> np.ndarray:
    """Return the size of a change of each coordinate: 1 rad, or an arm; without a tree its own value."""
    tree = model.structure.tree
    if tree is not None:
        return np.where(_turning(tree), 1.0, length)
    q = np.abs(np.asarray(state.q, float))
    if model.structure.quaternions:
        return np.ones(model.structure.num_velocities)
    return np.where(q <= 1e-9 * np.max(q, initial=0.0), 1.0, q)


def _list_bounds(
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
    """Measure products of unit rows of different contacts, their gaps, and the gaps of the others; twice."""
    built, placed = apply_numbers(numbers, model, state, flat)
    terms = contact_terms(model.replace(params=built), placed)
    every = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    responses, impulses = (
        jnp.concatenate([jnp.array(c) @ every[k] for k, c in zip(numbers.contacts, part, strict=True)])
        for part in (numbers.responses, numbers.impulses)
    )
    products = responses @ (moved := implicit.solve_spd(terms.M, impulses.T))
    sizes = [jnp.sqrt(jnp.sum(responses.T * implicit.solve_spd(terms.M, responses.T), axis=0))]
    sizes += [jnp.sqrt(jnp.sum(impulses.T * moved, axis=0))]
    first, second = np.array(_list_products(numbers)).T
    cosines = (products / sizes[0][:, None] / sizes[1][None])[first, second]
    rest = [c for c in range(terms.phi.shape[0]) if c not in numbers.contacts]
    values = jnp.concatenate([cosines, terms.phi[jnp.array([*numbers.contacts, *rest])]])
    return values, values


_slopes = functools.partial(jit, static_argnums=0)(jax.jacfwd(_measure, argnums=3, has_aux=True))

"""The equations of a design in numbers measured in their sizes, and the searches for them: `DesignEquations`.

Page: docs/methods/order-and-inertia.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxcontact.batching.progress import Progress, Report
from jaxcontact.io.state_file import StateFile
from jaxcontact.mechanics.system import Model, Params, State
from jaxcontact.optimize.design_numbers import (
    DesignNumbers,
    DesignTask,
    apply_numbers,
    find_arm,
    find_contacts,
    list_bounds,
    list_products,
    list_rows,
    list_sliding,
    size_coordinates,
    slopes_of,
)
from jaxcontact.terms import contact_terms

POLISH = 20  # largest number of Newton iterations onto the equations; they stop if the residual does not fall
NUM_STARTS = 12  # of the search for numbers that meet the equations; it stops at the first that does
START_SPREAD = 0.6  # largest standard deviation of the starts around the first one, in sizes of numbers
MAX_EVALUATIONS = 300  # of the search from one start; where products cannot vanish it ends slowly
GAP_WEIGHT = 100.0  # of gaps beside products of contacts, where not all can vanish
NEAR_WEIGHT = 1e-6  # of the change beside the products: numbers that do not matter stay
DEPENDENT = 1e-10  # singular value relative to the largest; below it equations say the same
NARROW = 4e-9  # of sizes of numbers; least distance of two bounds, of which equal ones hold a number
MET = 1e-12  # largest product, and gap in m, that count as zero


class DesignSearches(NamedTuple):
    """The searches for a design so far: their number, the best numbers, iterations of the nearest ones.

    `cost` is the length of the products left, with gaps and overlaps; 0 if the equations are met.
    """

    num_searches: int
    z: np.ndarray
    cost: float
    is_met: bool
    iterations: int


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
        rows = list_sliding if task.friction == "sliding" else list_rows
        impulses, responses = rows(terms, state, self.contacts, task.friction == "all")
        self.numbers = DesignNumbers(
            self.contacts, impulses, responses, constants, bodies, task.rebuild, free
        )
        self.num_products = len(list_products(self.numbers))
        self.target = -math.cos(math.pi / task.stages) if task.stages > 2 else 0.0
        values = [np.ravel(np.asarray(model.params.constants[name], float)) for name in constants]
        self.length = find_arm(model, terms, self.contacts)
        sizes = [np.where(value == 0, 1.0, np.abs(value)) for value in values]
        turns = size_coordinates(model, state, self.length)[list(free)]
        self.size = np.concatenate([*sizes, np.ones(len(bodies)), turns])
        self.start = np.concatenate([*values, np.zeros(len(bodies) + len(free))]) / self.size
        self.limits = np.array(list(list_bounds(model, state, task, self.numbers))).reshape(-1, 2)
        self.limits /= self.size[:, None]
        self.limits[:, 1] = np.maximum(self.limits[:, 1], self.limits[:, 0] + NARROW)
        self.evaluations = 0
        self._at, self._linear = np.empty(0), (np.empty(0), np.empty((0, 0)))

    def _linearize(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute values and their derivative, once as long as the point stays."""
        if not np.array_equal(z, self._at):
            self.evaluations += 1
            slope, values = slopes_of(self.numbers, self.model, self.state, jnp.asarray(z * self.size))
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
        """Count the products and gaps that are given a value."""
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

    def slope(self, z: np.ndarray) -> float:
        """Compute the length of the gradient of the squared distance along the equations, off the bounds."""
        free = (z > self.limits[:, 0] + 1e-9) & (z < self.limits[:, 1] - 1e-9)
        rise, slopes = 2.0 * (z - self.start)[free], self.jacobian(z)[: self.num_equations, free]
        return float(np.linalg.norm(rise - slopes.T @ np.linalg.lstsq(slopes.T, rise, rcond=DEPENDENT)[0]))

    def meet(self, start: np.ndarray) -> np.ndarray:
        """Search for numbers of least squared products by a trust region, from inside the bounds.

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

        options = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14, "max_nfev": MAX_EVALUATIONS}
        return np.asarray(least_squares(parts, start, slopes, bounds=self.limits.T, **options).x)

    def nearest(
        self, start: np.ndarray | None = None, *, differences: bool = False
    ) -> Any:  # SciPy's result has no types
        """Search for the numbers nearest to the given ones that meet the equations; return SLSQP's result.

        `start` is where the search starts; `differences` asks for finite differences.
        """
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

    def search(self, number: int, best: DesignSearches) -> DesignSearches:
        """Search once more: at first for the nearest numbers, then from the start of this number.

        The best numbers meet the equations, or have the least products and overlaps of all starts so far.
        """
        if number == 0:
            minimum = self.nearest()
            z = self.start
            if np.all(np.isfinite(minimum.x)):
                z = self.polish(minimum.x)
            done = best._replace(num_searches=1, iterations=int(minimum.nit))
            return done._replace(z=z, cost=0.0, is_met=True) if self.is_met(z) else done
        draws = np.random.default_rng(0).normal(size=(NUM_STARTS, self.start.size))[number - 1]
        start = self.start + (number - 1) * START_SPREAD / NUM_STARTS * draws
        start = np.clip(start, self.limits[:, 0] + 1e-9, self.limits[:, 1] - 1e-9)
        if not np.all(np.isfinite(self.values(start))):  # no mechanism has these numbers
            return best._replace(num_searches=number + 1)
        met = self.meet(start)
        z = self.polish(met)
        if self.is_met(z):
            minimum = self.nearest(z)
            closer = self.polish(minimum.x) if np.all(np.isfinite(minimum.x)) else z
            is_closer = self.is_met(closer) and self.distance(closer) < self.distance(z)
            iterations = best.iterations + int(minimum.nit)
            return DesignSearches(number + 1, closer if is_closer else z, 0.0, True, iterations)
        z = self.polish(met, gaps_only=True)
        rest = self.values(z)[self.num_equations :]
        overlap = -min(0.0, float(np.min(rest - self.clearance, initial=0.0)))
        left = self.residual(z)
        off = overlap + float(np.max(np.abs(left[self.num_products :])))
        cost = float(np.linalg.norm(left[: self.num_products])) + GAP_WEIGHT / self.length * off
        better = best._replace(z=z, cost=cost) if cost < best.cost else best
        return better._replace(num_searches=number + 1)

    def solve(self, file: StateFile, report: Report | None) -> DesignSearches:
        """Search until numbers meet the equations or no start is left; store each search, and resume."""
        stored, found = file.load(), DesignSearches(0, self.start, math.inf, False, 0)
        if stored is not None:
            self.evaluations = int(stored["evaluations"])
            found = DesignSearches(
                int(stored["num_searches"]), stored["z"], float(stored["cost"]), bool(stored["is_met"]),
                int(stored["iterations"]),
            )  # fmt: skip
        while not found.is_met and found.num_searches <= NUM_STARTS:
            found = self.search(found.num_searches, found)
            rows = {**found._asdict(), "evaluations": self.evaluations}
            file.save({name: np.asarray(value) for name, value in rows.items()})
            if report is not None:
                at = Progress(self.distance(found.z) ** 2, self.slope(found.z), found.cost)
                report(found.num_searches, 1 + NUM_STARTS, at)
        return found

    def apply(self, z: np.ndarray) -> tuple[Params, State]:
        """Apply numbers to params and state."""
        return apply_numbers(self.numbers, self.model, self.state, jnp.asarray(z * self.size))

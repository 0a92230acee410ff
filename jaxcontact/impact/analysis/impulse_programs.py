"""Linear and mixed-integer programs whose values no outcome of an impact passes; entry `ImpulsePrograms`.

The unknowns are the total impulses of the corners of the friction cones; docs/methods/set-valued.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.impact.analysis.integer_program import IntegerProgram, solve_apart
from jaxcontact.impact.laws.contact_space import (
    collision_tolerance,
    friction_directions,
    residual_limit,
)
from jaxcontact.impact.laws.routh_law import FittedRouth
from jaxcontact.terms import ContactTerms

CUTS = 60  # tangent planes of the energy ellipsoid for each program at most
ENERGY_SLACK = 1e-4  # relative excess of energy at which cutting ends; the bound holds at any excess
LINEAR_TOLERANCE = 1e-7  # of a linear program, relative to the speed; added to its bound
RESIDUALS = 10.0  # largest residuals of a step, of which an outcome may be off; added to a bound, if more
INTEGER_TOLERANCE = 1e-5  # of a mixed-integer program, relative to the speed; added to its bound
REACHED_TOLERANCE = 1e-6  # of the conditions of a step, relative to the speed; above it no order is shown
RELATIVE_GAP = 1e-3  # of a mixed-integer program at which its search ends
RANK = 1e-9  # singular values of the contact rows below this part of the largest are zero


class StepsBound(NamedTuple):
    """Bound over impacts of a few steps, and the velocity (nv,) after the best one found, or None."""

    value: float
    v_plus: np.ndarray | None


class ImpulsePrograms:
    """Conditions on the impulses p (nc * k) along k friction directions, in the span of the contact rows.

    Velocities are y = start + pushes @ p, in the kinetic metric and in units of the speed before.
    """

    def __init__(self, terms: ContactTerms, v: np.ndarray, law: FittedRouth) -> None:
        M, J_n, J_t, mu = (np.asarray(getattr(terms, n), float) for n in ("M", "J_n", "J_t", "mu"))
        count, nt = J_t.shape[:2]
        self.root, self.v = np.linalg.cholesky(M), v
        self.fan = friction_directions(nt, law.num_directions)
        rows = np.linalg.solve(self.root, np.concatenate([J_n[:, None], J_t], axis=1).reshape(-1, len(v)).T).T
        _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
        self.basis = basis[sizes > RANK * sizes[0]]
        rows = (rows @ self.basis.T).reshape(count, 1 + nt, len(self.basis))
        self.normals, self.tangents = rows[:, 0], rows[:, 1:]
        start = self.basis @ (self.root.T @ v)
        self.speed = float(np.linalg.norm(start))
        self.start = start / (self.speed or 1.0)
        slips = np.einsum("i,kt,itr->ikr", mu, self.fan, self.tangents)
        self.pushes = (self.normals[:, None] + slips).reshape(count * len(self.fan), len(self.basis)).T
        self.keeps_contact = law.restitution is None or not np.any(np.asarray(law.restitution))
        always, limits = self._energy_box()
        if self.keeps_contact:
            more = [*self._normal_conditions(), *self._slip_conditions()]
            always = np.vstack([always, *(row for row, _ in more)])
            limits = np.append(limits, [limit for _, limit in more])
        self.rows, self.limits = always, limits  # hold at all times
        self.cuts, self.cut_limits = (
            np.zeros((0, len(self.rows[0]))),
            np.zeros(0),
        )  # tangents of energy's ball
        # Hold at the end, but for the approach with which an impact counts as ended.
        dtype, approach = terms.M.dtype, -self.normals @ self.start
        slowest = collision_tolerance(dtype) * np.max(approach, initial=0.0)
        self.ends = -self.normals @ self.pushes, slowest - approach
        self.tolerance = max(LINEAR_TOLERANCE, RESIDUALS * residual_limit(dtype))

    def maximise(self, covector: np.ndarray) -> float:
        """Bound covector . v_plus from above over all impacts, by linear programs."""
        constant, size, along = self._split(covector)
        if size == 0.0:
            return constant
        by_energy = 1.0 - float(along @ self.start)
        bound = min(by_energy, self._maximise_impulse(along @ self.pushes, at_end=True))
        return constant + size * float(along @ self.start + bound + self.tolerance)

    def maximise_in_steps(self, covector: np.ndarray, num_steps: int, num_nodes: int) -> StepsBound:
        """Bound covector . v_plus over impacts of `num_steps` steps of any size, by a mixed-integer program.

        Raises:
            ValueError: a law with restitution; impulses without bound, as the friction cone is not pointed.
        """
        if not self.keeps_contact:
            raise ValueError("num_steps: expected None for a law with restitution")
        constant, size, along = self._split(covector)
        if size == 0.0:
            return StepsBound(constant, None)
        conditions, highest = self._steps(num_steps)
        cost = np.zeros(len(highest))
        cost[len(cost) - self._width : len(cost) - self._width + self.pushes.shape[1]] = -(
            along @ self.pushes
        )
        is_integer = np.tile(self._is_integer, num_steps)
        options = {"mip_rel_gap": RELATIVE_GAP, "node_limit": num_nodes}
        best, dual_bound = solve_apart(IntegerProgram(cost, *conditions, highest, is_integer, options))
        bound = math.inf if dual_bound is None else float(along @ self.start - dual_bound)
        v_plus = None if best is None else self._reached(best.reshape(num_steps, -1))
        return StepsBound(constant + size * (bound + max(INTEGER_TOLERANCE, self.tolerance)), v_plus)

    def _split(self, covector: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Split covector . v into what no contact changes, and size * (unit vector . y)."""
        along = self.basis @ np.linalg.solve(self.root, covector)
        norm = float(np.linalg.norm(along))
        constant = float(covector @ self.v - self.speed * (along @ self.start))
        return constant, norm * self.speed, along / (norm or 1.0)

    def _maximise_impulse(self, cost: np.ndarray, at_end: bool = False) -> float:
        """Maximise cost . p; infinite if the program is not solved."""
        from scipy.optimize import linprog

        best = math.inf
        for _ in range(CUTS):
            rows, limits = [self.rows, self.cuts], [self.limits, self.cut_limits]
            if at_end:
                rows, limits = [*rows, self.ends[0]], [*limits, self.ends[1]]
            answer = linprog(-cost, A_ub=np.vstack(rows), b_ub=np.concatenate(limits), bounds=(0, None))
            if answer.status != 0:  # not solved to its tolerance: the bound so far holds
                break
            best = min(best, -float(answer.fun))
            y = self.start + self.pushes @ answer.x
            length = float(np.linalg.norm(y))
            if length <= 1.0 + ENERGY_SLACK:
                break
            self.cuts = np.vstack([self.cuts, (y / length) @ self.pushes])
            self.cut_limits = np.append(self.cut_limits, 1.0 - (y / length) @ self.start)
        return best

    def _energy_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the conditions that no coordinate exceeds the speed before, as rows and limits."""
        rows = np.concatenate([self.pushes, -self.pushes])
        return rows, 1.0 - np.concatenate([self.start, -self.start])

    def _normal_conditions(self) -> list[tuple[np.ndarray, float]]:
        """List the conditions that a contact does not push itself apart."""
        conditions, sides = [], len(self.fan)
        for i, normal in enumerate(self.normals):
            growth = normal @ self.pushes
            opened = np.maximum(growth, 0.0)
            opened[i * sides : (i + 1) * sides] = 0.0
            before = float(normal @ self.start)
            conditions.append((growth - opened, max(0.0, before) - before))
        return conditions

    def _slip_conditions(self) -> list[tuple[np.ndarray, float]]:
        """List the conditions that friction at a corner does not increase the slip across a border."""
        conditions, sides = [], len(self.fan)
        for i, tangent in enumerate(self.tangents):
            for border in self._borders():
                growth, before = border @ tangent @ self.pushes, float(border @ tangent @ self.start)
                grown = np.abs(growth)
                corners = slice(i * sides, (i + 1) * sides)  # a corner pulls on the side that it opposes
                grown[corners] = np.maximum(0.0, -np.sign(self.fan @ border) * growth[corners])
                conditions += [(s * growth - grown, abs(before) - s * before) for s in (1.0, -1.0)]
        return conditions

    def _borders(self) -> np.ndarray:
        """List normals (k / 2, nt) of the lines between slips that different corners oppose."""
        if self.fan.shape[1] == 1:
            return np.ones((1, 1))
        middle = (self.fan + np.roll(self.fan, -1, axis=0))[: len(self.fan) // 2]
        return np.stack([-middle[:, 1], middle[:, 0]], axis=1)

    def _opposed(self, corner: int) -> np.ndarray:
        """List directions (b, nt) along which a slip that the corner opposes has no positive part."""
        sides = len(self.fan)
        beside = [1 - corner] if sides == 2 else [(corner + 1) % sides, (corner - 1) % sides]
        return np.array([self.fan[corner] - self.fan[other] for other in beside])

    @property
    def _width(self) -> int:
        """Number of unknowns of a step: impulses so far, whether a contact pushes, along which corners."""
        return 2 * self.pushes.shape[1] + len(self.normals)

    @property
    def _is_integer(self) -> np.ndarray:
        return np.arange(self._width) >= self.pushes.shape[1]

    def _largest(self, row: np.ndarray) -> float:
        """Bound row . y at any time."""
        return max(0.0, float(row @ self.start) + self._maximise_impulse(row @ self.pushes))

    def _steps(self, num_steps: int) -> tuple[tuple[PyTree, np.ndarray], np.ndarray]:
        """Make the constraints (matrix, high) of impacts of these steps, and bounds of the unknowns."""
        from scipy.sparse import csr_matrix, eye, kron, vstack

        count, n = len(self.normals), self.pushes.shape[1]
        of_contact = np.kron(np.eye(count), np.ones((1, len(self.fan))))
        largest = [
            np.array([self._maximise_impulse(row) for row in rows]) for rows in (of_contact, np.eye(n))
        ]
        if not all(np.all(np.isfinite(limits)) for limits in largest):
            raise ValueError(
                "num_steps: expected None where the friction cone is not pointed, as impulses have no bound"
            )
        switched, limits = self._switched_conditions(of_contact)
        none, switches = np.zeros((len(self.rows), count + n)), np.diag(np.concatenate(largest))
        after = [switched, np.hstack([self.rows, none])]
        change = np.vstack(
            [of_contact, np.eye(n), -np.eye(n)]
        )  # of p over the step: up to a limit, and growing
        turned_on = np.vstack([-switches, np.zeros((n, count + n))])
        earlier, same = eye(num_steps, k=-1, format="csr"), eye(num_steps, format="csr")
        at_end = np.zeros(num_steps)[None]
        at_end[0, -1] = 1.0
        matrix = vstack([
            kron(same, csr_matrix(np.vstack(after))),
            kron(same, csr_matrix(np.hstack([change, turned_on])))
            - kron(earlier, csr_matrix(np.hstack([change, np.zeros_like(turned_on)]))),
            kron(csr_matrix(at_end), csr_matrix(np.hstack([self.ends[0], np.zeros((count, count + n))]))),
        ]).tocsr()  # fmt: skip
        high = np.concatenate([
            np.tile(np.concatenate([limits, self.limits]), num_steps), np.zeros(num_steps * len(change)),
            self.ends[1],
        ])  # fmt: skip
        highest = np.tile(np.concatenate([largest[1], np.ones(count + n)]), num_steps)
        return (matrix, high), highest

    def _switched_conditions(self, of_contact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Make rows and limits of a step's unknowns: what pushes does not separate, and opposes its slip."""
        count, n = of_contact.shape
        rows, switches, limits = [np.zeros((n, n))], [np.hstack([-of_contact.T, np.eye(n)])], [np.zeros(n)]
        for i, (normal, tangent) in enumerate(zip(self.normals, self.tangents, strict=True)):
            held = [(normal[None], np.arange(count + n) == i)]
            for corner in range(len(self.fan)):
                switch = np.arange(count + n) == count + i * len(self.fan) + corner
                held.append((self._opposed(corner) @ tangent, switch))
            for directions, switch in held:
                largest = np.array([self._largest(direction) for direction in directions])
                rows.append(directions @ self.pushes)
                switches.append(largest[:, None] * switch)
                limits.append(largest - directions @ self.start)
        return np.hstack([np.vstack(rows), np.vstack(switches)]), np.concatenate(limits)

    def _reached(self, steps: np.ndarray) -> np.ndarray | None:
        """Return the velocity after an impact of these impulses, None unless its steps obey the law."""
        n, sides = self.pushes.shape[1], len(self.fan)
        so_far = np.maximum.accumulate(np.maximum(steps[:, :n], 0.0))
        for before, impulses in zip(np.vstack([np.zeros(n), so_far[:-1]]), so_far, strict=True):
            y, change = self.start + self.pushes @ impulses, impulses - before
            for i, corner in zip(*np.divmod(np.flatnonzero(change > REACHED_TOLERANCE), sides), strict=True):
                slip = self._opposed(corner) @ self.tangents[i] @ y
                if max(float(self.normals[i] @ y), float(np.max(slip))) > REACHED_TOLERANCE:
                    return None
        if float(np.min(self.normals @ y)) < -REACHED_TOLERANCE:
            return None
        pushed = self.basis.T @ (self.pushes @ so_far[-1]) * self.speed
        return np.asarray(self.v + np.linalg.solve(self.root.T, pushed))

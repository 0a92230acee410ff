"""Mechanisms and stances whose simultaneous impact has one outcome: entry function `impact_design`.

Owns the design problem: the nearest constants and configuration at which two contacts touch and their normals
meet at an angle that makes the order of single impacts irrelevant. `impact/` explains the angle. Page:
docs/methods/propagative.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_number
from jaxcontact.front_door import checked
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model, Params, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.status import Status
from jaxcontact.terms import contact_terms

# rebuild(constants) -> Params, if masses and shapes follow from the constants
Rebuild = Callable[[Mapping[str, PyTree]], Params]
POLISH = 20  # largest number of Newton iterations onto the equations; they stop if the residual does not fall


class DesignTask(NamedTuple):
    """The conditions on a design, and the numbers that may change.

    Attributes:
        contacts: the two contacts i, j.
        stages: n >= 2, number of single impacts.
        design: names of `params.constants` that may change; each is a scalar or an array.
        rebuild: constants -> Params, if other numbers follow from them; None: they replace
            `params.constants`.
        hold: indices of v whose directions keep their coordinates; the others may change.
        bounds: of constants, by name.
        clearance: smallest gap of the other contacts, m.
    """

    contacts: tuple[int, int] = (0, 1)
    stages: int = 2
    design: tuple[str, ...] = ()
    rebuild: Rebuild | None = None
    hold: tuple[int, ...] = ()
    bounds: Mapping[str, tuple[float, float]] | None = None
    clearance: float = 0.0


DEFAULT_TASK = DesignTask()


class DesignReport(Record):
    """Numbers and status of the search for a design.

    Attributes:
        cosine_before, cosine: <u, v>_g / (|u|_g |v|_g) of the two normals at the start and of the result.
        target: value of `cosine` to reach, -cos(pi / stages).
        gaps: (nc,) of the result, m.
        distance: length of the change, relative to the size of each number.
        iterations: of the search for the nearest design.
        evaluations: of the equations or their Jacobian.
        status: UNTERMINATED if the equations are not met within 1e-12; PENETRATION if another contact comes
            closer than `clearance`.
    """

    cosine_before: float
    cosine: float
    target: float
    gaps: np.ndarray
    distance: float
    iterations: int
    evaluations: int
    status: np.uint32


@checked()
def impact_design(
    model: Model, state: State, task: DesignTask = DEFAULT_TASK
) -> tuple[Params, State, DesignReport]:
    """Find the nearest mechanism and stance whose impact at two contacts has one outcome.

    Seghete & Murphey, VII. Seeks numbers z near z_0 with phi_i = phi_j = 0 and <u_i, u_j>_g = -cos(pi / n)
    |u_i|_g |u_j|_g: for n = 2 orthogonal normals, Theorem 2, for n = 3 Theorem 3. Minimises |(z - z_0) /
    s|^2, s = |z_0| (1 if zero), by sequential quadratic programming with derivatives by automatic
    differentiation, then Newton's method with the smallest change onto the equations. A host driver.

    Args:
        model: the mechanism and its numbers.
        state: stance to start from; the contacts need not touch yet.
        task: contacts, conditions, and the numbers that may change.

    Returns:
        params, state (v and t as given), DesignReport.

    Raises:
        TypeError, ValueError: arguments in another order; contacts, stages or `hold` out of range, a name
            that is not in `params.constants`, empty bounds, a clearance that is not finite.

    Status: see DesignReport.
    """
    check_mechanism(model, state)
    _check(model, task)
    return DesignEquations(model, state, task).solve()


def _check(model: Model, task: DesignTask) -> None:
    """Raise ValueError if an argument is out of range."""
    contacts, stages, design, _, hold, bounds, clearance = task
    nc = model.structure.num_contacts
    if len(contacts) != 2 or contacts[0] == contacts[1] or not all(0 <= c < nc for c in contacts):
        raise ValueError(f"contacts: expected two of 0..{nc - 1}, got {contacts}")
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < 2:
        raise ValueError(f"stages: expected an integer >= 2, got {stages!r}")
    for name in design:
        if name not in model.params.constants:
            raise ValueError(f"design: no constant {name!r}; there are {sorted(model.params.constants)}")
    check_number("clearance", clearance)
    nv = model.structure.num_velocities
    if not all(isinstance(i, int | np.integer) and 0 <= i < nv for i in hold):
        raise ValueError(f"hold: expected indices in 0..{nv - 1}, got {hold}")
    for name, (lower, upper) in (bounds or {}).items():
        if name not in design:
            raise ValueError(f"bounds: {name!r} is not in design {design}")
        if not lower <= upper:
            raise ValueError(f"bounds: expected lower <= upper for {name!r}, got {(lower, upper)}")


class DesignEquations:
    """The equations and inequalities of one design in numbers measured in their sizes."""

    def __init__(self, model: Model, state: State, task: DesignTask) -> None:
        contacts, stages, design, rebuild, hold, bounds, clearance = task
        self.model, self.state, self.clearance = model, state, clearance
        free = tuple(i for i in range(model.structure.num_velocities) if i not in hold)
        self._static = (contacts, design, rebuild, free)
        self.others = [c for c in range(model.structure.num_contacts) if c not in contacts]
        self.target = -math.cos(math.pi / stages) if stages > 2 else 0.0
        numbers = [np.ravel(np.asarray(model.params.constants[name], float)) for name in design]
        flat = np.concatenate([*numbers, np.zeros(len(free))])
        plain = not model.structure.quaternions
        around = np.asarray(state.q, float)[list(free)] if plain else np.zeros(len(free))
        size = np.concatenate([*numbers, around])
        self.size = np.where(size == 0, 1.0, np.abs(size))
        self.start = flat / self.size
        limits = []
        for name, value in zip(design, numbers, strict=True):
            low, high = (bounds or {}).get(name, (-math.inf, math.inf))
            limits += [(low / abs(x) if x else low, high / abs(x) if x else high) for x in value]
        self.limits = limits + [(-math.inf, math.inf)] * len(free)
        self.evaluations = 0

    def values(self, z: np.ndarray) -> np.ndarray:
        """Compute (1 + nc,): the cosine, the gaps of the two contacts, then the gaps of the others."""
        self.evaluations += 1
        return np.asarray(_measure(*self._static, self.model, self.state, jnp.asarray(z * self.size)))

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Compute the derivative of `values` by automatic differentiation."""
        self.evaluations += 1
        slope = _slopes(*self._static, self.model, self.state, jnp.asarray(z * self.size))
        return np.asarray(slope) * self.size

    def residual(self, z: np.ndarray) -> np.ndarray:
        """Compute (3,) to be zero: cosine minus its target, two gaps in m."""
        return self.values(z)[:3] - np.array([self.target, 0.0, 0.0])

    def nearest(self, *, differences: bool = False) -> Any:  # OptimizeResult of SciPy, which has no types
        """Search by SciPy and return its result; `differences` asks for finite differences as Jacobian."""
        from scipy.optimize import minimize  # inside the function, because the import takes long

        rows = [
            {"type": "eq", "fun": self.residual, "jac": lambda z: self.jacobian(z)[:3]},
            {
                "type": "ineq",
                "fun": lambda z: self.values(z)[3:] - self.clearance,
                "jac": lambda z: self.jacobian(z)[3:],
            },
        ]
        rows = rows if self.others else rows[:1]
        if differences:
            rows = [{key: row[key] for key in ("type", "fun")} for row in rows]
        return minimize(
            lambda z: (float(np.sum((z - self.start) ** 2)), 2.0 * (z - self.start)),
            self.start, jac=True, method="SLSQP", constraints=rows, bounds=self.limits,
            options={"maxiter": 200, "ftol": 1e-12},
        )  # fmt: skip

    def _polish(self, z: np.ndarray) -> np.ndarray:
        """Apply Newton's method with the smallest change, as long as it reduces the residual."""
        for _ in range(POLISH):
            r, slope = self.residual(z), self.jacobian(z)[:3]
            if np.max(np.abs(r)) <= 1e-15 or not np.all(np.isfinite(slope)):
                break
            nearer = z + np.linalg.lstsq(slope, -r, rcond=None)[0]
            if not np.max(np.abs(self.residual(nearer))) < np.max(np.abs(r)):
                break
            z = nearer
        return z

    def solve(self) -> tuple[Params, State, DesignReport]:
        """Find the nearest design, with the equations met to round-off."""
        before = self.values(self.start)
        minimum = self.nearest()
        z = self._polish(minimum.x if np.all(np.isfinite(minimum.x)) else self.start)
        after = self.values(z)
        params, state = _apply_numbers(*self._static[1:], self.model, self.state, jnp.asarray(z * self.size))
        gaps = np.empty(len(self.others) + 2)
        gaps[[*self._static[0], *self.others]] = after[1:]
        worst = float(np.max(np.abs(self.residual(z))))
        status = 0 if worst <= 1e-12 else int(Status.UNTERMINATED)  # NaN is UNTERMINATED
        if self.others and np.min(after[3:]) < self.clearance - 1e-9:
            status |= int(Status.PENETRATION)
        report = DesignReport(
            cosine_before=float(before[0]), cosine=float(after[0]), target=self.target, gaps=gaps,
            distance=float(np.linalg.norm(z - self.start)), iterations=int(minimum.nit),
            evaluations=self.evaluations, status=np.uint32(status),
        )  # fmt: skip
        return params, state, report


def _apply_numbers(
    design: tuple[str, ...], rebuild: Rebuild | None, free: tuple[int, ...], model: Model,
    state: State, flat: jax.Array,
) -> tuple[Params, State]:  # fmt: skip
    """Apply numbers (n,) to params and state: constants by name, then changes of the free coordinates."""
    constants, at = dict(model.params.constants), 0
    for name in design:
        old = jnp.asarray(constants[name])
        constants[name] = flat[at : at + old.size].reshape(old.shape).astype(old.dtype)
        at += old.size
    delta = jnp.zeros(model.structure.num_velocities, state.q.dtype).at[jnp.array(free, int)].set(flat[at:])
    built = model.params.replace(constants=constants) if rebuild is None else rebuild(constants)
    return built, state.replace(q=retract(model.system, state.q, delta))


@functools.partial(jit, static_argnums=(0, 1, 2, 3))
def _measure(
    contacts: tuple[int, int], design: tuple[str, ...], rebuild: Rebuild | None,
    free: tuple[int, ...], model: Model, state: State, flat: jax.Array,
) -> jax.Array:  # fmt: skip
    built, placed = _apply_numbers(design, rebuild, free, model, state, flat)
    terms = contact_terms(model.replace(params=built), placed)
    i, j = contacts
    pair = terms.J_n[jnp.array(contacts)]
    gram = pair @ implicit.solve_spd(terms.M, pair.T)
    cosine = gram[0, 1] / jnp.sqrt(gram[0, 0] * gram[1, 1])
    rest = [c for c in range(terms.phi.shape[0]) if c not in contacts]
    return jnp.concatenate([cosine[None], terms.phi[jnp.array([i, j, *rest])]])


_slopes = jit(jax.jacfwd(_measure, argnums=6), static_argnums=(0, 1, 2, 3))

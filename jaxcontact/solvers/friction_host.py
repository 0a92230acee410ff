"""Friction problems outside of traced code: the search of `friction_search` on NumPy arrays, not compiled.

W is dense or sparse by contacts. Entry: `solve_on_host`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from jaxcontact import tolerances
from jaxcontact.solvers.friction_arguments import Matrix
from jaxcontact.solvers.friction_host_law import (
    ASSOCIATED,
    CENTRING_POWER,
    COULOMB,
    ConePoint,
    HostLaw,
    project_on_cones,
    scale_lines,
)
from jaxcontact.solvers.friction_matrix import (
    DENSE_ROWS,
    DenseResponse,
    SparseResponse,
    sparse_if_thin,
)
from jaxcontact.solvers.friction_tolerances import (
    EXTRAPOLATION,
    HALF,
    LARGEST_SHIFT,
    PROXIMAL_LIMIT,
    PROXIMAL_SHARE,
    PROXIMAL_STEPS,
    SHIFT_FACTOR,
    SMALLEST_FRICTION,
    WEIGHT_FALL,
    WEIGHT_RISE,
)

EPS = float(np.finfo(float).eps)
MAX_ITERS = 1000  # factorisations, if no number is asked for
PATIENCE = 4  # steps in a row that leave more than HALF of the merit or the complementarity
LENGTHS = 8  # of steps that a line search tries, each half of the last
GOAL = 256.0 * EPS  # a residual of round-off, at which the search ends at once
FIRST_LEVEL = EPS**tolerances.FIRST_LEVEL  # complementarity
LOWER_LEVEL = EPS**tolerances.LOWER_LEVEL  # of the complementarity
LEAST_SHIFT = EPS**tolerances.SHIFT  # of the diagonal of W
RESTART_FACTOR = 30.0  # size of the next start inside the cones, relative to the last
SHORT_STEP = 1e-5  # shorter interior steps lead nowhere; the search starts again farther inside
SMALL_MERIT = 1e-6  # of Newton's method, from which the residual is computed
GOOD_STEP = 0.5  # an interior step that is shorter is tried again, more centred
CENTRINGS = (0.3, 0.9)  # fractions of complementarity of these tries
RESTARTS = 6  # starts of interior points, each farther inside than the last
FINISHING_RESIDUAL = 1e-7  # residual from which Newton's method finishes a proximal search
HOST_LAWS = {"coulomb": COULOMB, "associated": ASSOCIATED}


class HostProblem(NamedTuple):
    """The problem u = W r + q in units of its contacts; rows (nc, dim), contact-major.

    Attributes:
        response: W with a diagonal near one.
        q: (nc, dim) whose largest entry is near one.
        mu: (nc,) friction in scaled impulses.
        impulse: (nc, dim) unit of every impulse.
        push: (nc, dim) of scaled impulses as velocities, by the largest own mobility of each contact.
        velocity: (nc, dim) unit of every velocity.
        friction: (nc,) mu.
        size: the largest |q|.
        lifts: the law lifts a sliding contact.
    """

    response: DenseResponse | SparseResponse
    q: np.ndarray
    mu: np.ndarray
    impulse: np.ndarray
    push: np.ndarray
    velocity: np.ndarray
    friction: np.ndarray
    size: float
    lifts: bool


class HostAnswer(NamedTuple):
    """Impulses and velocities (n,), the residual, and the number of factorisations."""

    r: np.ndarray
    u: np.ndarray
    residual: float
    steps: int


def _power_of_two(x: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(1.0, exponent - (mantissa < 0.75))


def _scale(W: Matrix, q: np.ndarray, mu: np.ndarray, dim: int, lifts: bool) -> HostProblem:
    """Scale a problem as `friction_law.scale_friction` does, and choose how W is stored."""
    nc = len(mu)
    diagonal = np.abs(W.diagonal()).reshape(nc, dim)
    mobility = diagonal.max(axis=1)
    largest = mobility.max()
    mobility = np.where(mobility > 0, mobility, largest if largest > 0 else 1.0)
    parts = np.stack([diagonal[:, 0], diagonal[:, 1:].max(axis=1)])
    normal, tangential = _power_of_two(np.sqrt(np.where(parts > 0, parts, mobility)))
    velocity = np.empty((nc, dim))
    velocity[:, 0], velocity[:, 1:] = normal, tangential[:, None]
    rates = q.reshape(nc, dim)
    highest = float(np.max(np.abs(rates / velocity)))
    unit = float(_power_of_two(np.array(highest))) if highest > 0 else 1.0
    inverse = 1.0 / velocity.ravel()
    if sparse.issparse(W):
        scaled = sparse.csr_array(sparse.diags_array(inverse) @ W @ sparse.diags_array(inverse))
        response: SparseResponse | DenseResponse = SparseResponse(scaled, dim)
    else:
        response = DenseResponse(W * inverse[:, None] * inverse, dim)
    return HostProblem(
        response=response,
        q=rates / (velocity * unit),
        mu=np.where(mu > SMALLEST_FRICTION * EPS, mu * (tangential / normal), 0.0),
        impulse=unit / velocity,
        push=mobility[:, None] * unit / velocity,
        velocity=unit * velocity,
        friction=mu,
        size=float(np.max(np.abs(rates))) or 1.0,
        lifts=lifts,
    )


def _natural_residual(problem: HostProblem, r: np.ndarray, u: np.ndarray) -> float:
    """Compute the natural map of De Saxce's form in the user's units; see `friction_law.natural_residual`."""
    push, rate = problem.push * r, problem.velocity * u
    asked = push - rate
    if not problem.lifts:
        asked[:, 0] -= problem.friction * np.sqrt(np.einsum("ij,ij->i", rate[:, 1:], rate[:, 1:]))
    worst = float(np.max(np.abs(project_on_cones(problem.friction, asked) - push))) / problem.size
    return worst if np.isfinite(worst) else np.inf


def _multiply(blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.matmul(blocks, rows[:, :, None])[:, :, 0]


class _HostSearch:
    """One search: the best impulses so far, and the factorisations that it took."""

    def __init__(self, problem: HostProblem, law: HostLaw, max_iters: int, tolerance: float) -> None:
        self.problem, self.law = problem, law
        self.max_iters, self.tolerance = max_iters, tolerance
        self.steps, self.residual = 0, np.inf
        self.best = np.zeros_like(problem.q)

    def record(self, r: np.ndarray) -> None:
        """Keep the impulses if they are the best; velocities of a search have the round-off of its steps."""
        residual = _natural_residual(self.problem, r, self.problem.response.apply(r) + self.problem.q)
        if residual < self.residual:
            self.best, self.residual = r, residual

    @property
    def ended(self) -> bool:
        return self.steps >= self.max_iters or self.residual <= GOAL

    def newton(self, r: np.ndarray, patience: int) -> None:
        """Do Newton's method from impulses r until its merit no longer falls."""
        W, mu, law = self.problem.response, self.problem.mu, self.law
        u = W.apply(r) + self.problem.q
        value = law.misfit(mu, r, u)
        merit = smallest = float(np.sqrt(np.vdot(value, value)))
        shift, misses = LEAST_SHIFT, 0
        if merit <= SMALL_MERIT:
            self.record(r)
        while not self.ended and misses < patience:
            self.steps += 1
            by_impulse, by_velocity = law.linearise(mu, r, u)
            solve = W.factorise(by_impulse, by_velocity, shift)
            dr = -solve(value)
            # A second solve removes the effect of the shift of the diagonal.
            dr = dr - solve(value + _multiply(by_impulse, dr) + _multiply(by_velocity, W.apply(dr)))
            du = W.apply(dr)
            r, u, value, after = self._shorten(r, u, dr, du, merit)
            if not np.isfinite(after):
                return
            merit, good = after, after <= HALF * smallest
            smallest, misses = min(smallest, after), 0 if good else misses + 1
            shift = min(
                max(shift / SHIFT_FACTOR if good else shift * SHIFT_FACTOR, LEAST_SHIFT), LARGEST_SHIFT
            )
            if merit <= SMALL_MERIT or misses >= patience or self.steps >= self.max_iters:
                self.record(r)
            if misses and self.residual <= 1e-2 * self.tolerance:
                return

    def _shorten(
        self, r: np.ndarray, u: np.ndarray, dr: np.ndarray, du: np.ndarray, merit: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Step by the full length if that halves the merit, else to the minimum of some lengths."""
        mu, law = self.problem.mu, self.law
        full = r + dr, u + du
        value = law.misfit(mu, *full)
        size = float(np.sqrt(np.vdot(value, value)))
        if size <= HALF * merit:
            return *full, value, size
        lengths = 0.5 ** np.arange(1, LENGTHS)[:, None, None]
        values = law.misfit(mu, r + lengths * dr, u + lengths * du)
        sizes = np.sqrt(np.einsum("kij,kij->k", values, values))
        sizes = np.where(np.isfinite(sizes), sizes, np.inf)
        k = int(np.argmin(sizes))
        if np.isfinite(size) and size <= sizes[k]:
            return *full, value, size
        return r + lengths[k] * dr, u + lengths[k] * du, values[k], float(sizes[k])

    def interior_step(self, now: ConePoint, gap: np.ndarray, before: float) -> tuple[ConePoint, float]:
        """Do a predictor and a corrector, or centre if that is cut short; return the point and the length."""
        W, mu, law = self.problem.response, self.problem.mu, self.law
        by_impulse, by_velocity, weights = scale_lines(*law.blocks(mu, now))
        solve = W.factorise(by_impulse, by_velocity, LEAST_SHIFT)
        self.steps += 1
        pulled = _multiply(by_velocity, gap)
        rhs, cone = law.right_hand_sides(mu, now, 0.0, None)
        dr = solve(weights * rhs - pulled)
        ahead = law.direct(mu, now, dr, W.apply(dr) + gap, cone)
        predicted = _advance(now, ahead, law.longest_step(mu, now, ahead))
        after = law.measure(mu, predicted)
        share = min(max(after / before, 0.0), 1.0) ** CENTRING_POWER
        best, length = now, 0.0
        for fraction, correction in ((share, ahead), *((c, None) for c in CENTRINGS)):
            rhs, cone = law.right_hand_sides(mu, now, fraction * before, correction)
            dr = solve(weights * rhs - pulled)
            move = law.direct(mu, now, dr, W.apply(dr) + gap, cone)
            step = law.longest_step(mu, now, move)
            if step > 2.0 * length:
                best, length = _advance(now, move, step), step
            if length > GOOD_STEP:
                break
        return best, length

    def proximal(self, r: np.ndarray) -> None:
        """Do proximal steps from impulses r: few Newton steps each, with `weight` (r - centre) added to u."""
        problem, law, weight, move = self.problem, self.law, 1.0, np.zeros_like(r)
        while not self.ended:
            u = problem.response.apply(r) + problem.q
            self.record(r)
            if self.residual <= FINISHING_RESIDUAL:
                break
            value = law.misfit(problem.mu, r, u)
            aim = PROXIMAL_SHARE * min(weight, 1.0) * float(np.sqrt(np.vdot(value, value)))
            after, count, good = self._proximal_newton(r, r + EXTRAPOLATION * move, weight, aim)
            r, move = after, after - r
            if not good:
                weight = min(weight * WEIGHT_RISE, 1.0)
            elif count < PROXIMAL_STEPS:
                weight = max(weight * WEIGHT_FALL, LEAST_SHIFT)
        self.newton(self.best, PATIENCE)

    def _proximal_newton(
        self, r: np.ndarray, centre: np.ndarray, weight: float, aim: float
    ) -> tuple[np.ndarray, int, bool]:
        """Lower the merit of a proximal step to `aim`; return the number of steps, and if they did."""
        W, mu, law = self.problem.response, self.problem.mu, self.law
        u = W.apply(r) + self.problem.q + weight * (r - centre)
        value = law.misfit(mu, r, u)
        merit = float(np.sqrt(np.vdot(value, value)))
        for count in range(PROXIMAL_STEPS + 1):
            if merit <= aim:
                return r, count, True
            if count == PROXIMAL_STEPS or self.ended:
                break
            self.steps += 1
            dr = -W.factorise(*law.linearise(mu, r, u), weight)(value)
            following = self._shorten(r, u, dr, W.apply(dr) + weight * dr, merit)
            if not following[3] <= 10.0 * merit:
                break
            r, u, value, merit = following
        return r, PROXIMAL_STEPS, False

    def interior(self, now: ConePoint, level: float, patience: int) -> tuple[ConePoint, float, bool]:
        """Do interior-point steps until the complementarity is below `level`; also return if that came."""
        W, mu, law = self.problem.response, self.problem.mu, self.law
        left, smallest, misses = law.measure(mu, now), np.inf, 0
        gap = W.apply(now.r) + self.problem.q - now.u
        while not self.ended:
            following, step = self.interior_step(now, gap, left)
            measure = law.measure(mu, following)
            if not np.isfinite(measure):
                return now, left, False
            now, left = following, measure
            rate = W.apply(now.r) + self.problem.q
            gap = rate - now.u
            misses = 0 if left <= HALF * smallest else misses + 1
            smallest = min(smallest, left)
            if left <= level and np.max(np.abs(gap)) <= np.sqrt(level):
                return now, left, True
            if misses >= patience or step < SHORT_STEP or left < EPS * EPS:
                return now, left, False
        return now, left, False


def _advance(now: ConePoint, move: ConePoint, step: float) -> ConePoint:
    return ConePoint(*(x + step * dx for x, dx in zip(now, move, strict=True)))


def _begin(problem: HostProblem, size: float) -> ConePoint:
    rows = np.zeros_like(problem.q)
    rows[:, 0] = size
    return ConePoint(rows, rows.copy(), np.full(len(problem.mu), size))


def _search_in_stages(search: _HostSearch, start: np.ndarray) -> None:
    """Do Newton's method, interior points, proximal steps, and interior points from farther inside."""
    limit = search.max_iters
    search.newton(start, PATIENCE)
    level, now = FIRST_LEVEL, _begin(search.problem, 1.0)
    for restarts in range(RESTARTS):
        patience, shows = PATIENCE * (1 + restarts), True
        while shows and not search.ended and search.residual > search.tolerance:
            now, left, shows = search.interior(now, level, patience)
            search.newton(now.r, patience)
            level = min(left, level) * LOWER_LEVEL
        if search.ended or search.residual <= search.tolerance:
            return
        if restarts:
            search.max_iters = min(search.steps + PROXIMAL_LIMIT, limit)
            search.proximal(search.best)
            search.max_iters = limit
            if search.ended or search.residual <= search.tolerance:
                return
        level, now = FIRST_LEVEL, _begin(search.problem, RESTART_FACTOR ** (1 + restarts))


def solve_on_host(
    W: Matrix,
    q: np.ndarray,
    mu: np.ndarray,
    dim: int,
    start: np.ndarray | None,
    law: HostLaw,
    max_iters: int,
    tolerance: float,
) -> HostAnswer:
    """Solve for the impulses of contacts, as `solve_coulomb` does; W is an array, or sparse.

    Numbers are finite, in double precision, and shapes fit.
    """
    nc = len(mu)
    if not sparse.issparse(W) and W.shape[0] > DENSE_ROWS:
        W = sparse_if_thin(W, dim)
    with np.errstate(all="ignore"):
        problem = _scale(W, q, mu, dim, law.lifts)
        search = _HostSearch(problem, law, max_iters, tolerance)
        guess = np.zeros_like(problem.q) if start is None else start.reshape(nc, dim) / problem.impulse
        _search_in_stages(search, guess)
        r = (search.best * problem.impulse).ravel()
        # Huge impulses can hide a q that they do not balance: the residual is not below their round-off.
        round_off = EPS * float(np.max(np.abs(problem.push * search.best))) / problem.size
    return HostAnswer(r, W @ r + q, max(search.residual, round_off), search.steps)


def judge(W: Matrix, q: np.ndarray, mu: np.ndarray, dim: int, law: HostLaw, r: np.ndarray) -> float:
    """Compute the residual of impulses (n,) that are rounded."""
    problem = _scale(W, q, mu, dim, law.lifts)
    u = (W @ r + q).reshape(problem.q.shape)
    return _natural_residual(problem, r.reshape(u.shape) / problem.impulse, u / problem.velocity)

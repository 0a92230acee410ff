"""The conic program behind a certificate: find V with the largest margin, then make it rational.

Owns the program, the call of the solver and the rounding; `family.py` has the conditions. Lines in the
cones of velocities force equalities, so the feasible set has no interior: the equalities are solved exactly
first, in rational numbers, and the solver sees what is left.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse

from jaxcontact.stability.exact import Exact
from jaxcontact.stability.family import Family, reduced
from jaxcontact.stability.rational import ZERO, Matrix, Row, combine, floats

SETTLED = 1e-7  # margin of the scaled program above which a solution is rounded and checked
BITS = 40  # of the free coefficients of a certificate


class ConeProgram:
    """Rows of the conic program A x + s = b, block by block."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rhs: list[float] = []
        self.kinds: list[tuple[str, int]] = []
        self._entries: list[tuple[int, int, float]] = []

    def add(self, row: dict[int, float] | np.ndarray, rhs: float) -> None:
        """One row: s = rhs + row x."""
        entries = row.items() if isinstance(row, dict) else ((int(k), row[k]) for k in np.flatnonzero(row))
        self._entries += [(len(self.rhs), k, -value) for k, value in entries]
        self.rhs.append(rhs)

    def nonnegative(self, rows: Sequence[np.ndarray], rhs: Sequence[float]) -> None:
        """Rows x + rhs >= 0."""
        for row, value in zip(rows, rhs, strict=True):
            self.add(row, value)
        if len(rows):
            self.kinds.append(("nonnegative", len(rows)))

    def semidefinite(self, table: Sequence[Sequence[np.ndarray]], rhs: np.ndarray | None = None) -> None:
        """A symmetric table of rows, plus `rhs`, is a positive semidefinite matrix."""
        for k in range(len(table)):
            for i in range(k + 1):
                weight = 1.0 if i == k else np.sqrt(2.0)
                self.add(weight * table[i][k], 0.0 if rhs is None else weight * float(rhs[i, k]))
        self.kinds.append(("semidefinite", len(table)))

    def matrix(self) -> sparse.csc_matrix:
        """A, sparse."""
        rows, columns, values = zip(*self._entries, strict=True)
        return sparse.csc_matrix((values, (rows, columns)), shape=(len(self.rhs), self.size))


def _clarabel() -> Any:
    try:
        import clarabel
    except ImportError as error:
        raise ImportError(
            "certificates need the conic solver Clarabel: pip install 'jaxcontact[stability]'"
        ) from error
    return clarabel


def solve_cone(
    cost: np.ndarray, cone: ConeProgram, *, tolerance: float = 1e-10
) -> tuple[np.ndarray, float, str]:
    """Minimise cost x over the cone: x, the time spent and the solver's word, which proves nothing.

    Raises:
        ImportError: Clarabel is not installed.
    """
    clarabel = _clarabel()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.max_iter = 100
    makers = {
        "nonnegative": clarabel.NonnegativeConeT,
        "semidefinite": clarabel.PSDTriangleConeT,
        "zero": clarabel.ZeroConeT,
    }
    blocks = [makers[kind](size) for kind, size in cone.kinds]
    quadratic = sparse.csc_matrix((cone.size, cone.size))
    problem = (quadratic, cost, cone.matrix(), np.array(cone.rhs), blocks, settings)
    answer = clarabel.DefaultSolver(*problem).solve()
    return np.array(answer.x), float(answer.solve_time), str(answer.status)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A V from the solver: rational coefficients that satisfy all equalities, and how far inside it is."""

    linear: Row
    quadratic: Matrix
    turns: Matrix
    weights: Row
    margin: float
    seconds: float
    word: str


def best_function(body: Exact, found: Family, *, positive_quadratic: bool) -> Candidate | None:
    """The V of largest margin; None where the equalities leave nothing, or no margin is positive.

    The margin t of the coefficients w, |w_i| <= 1 in units of the body: every linear condition holds by t
    times the norm of its row, forms over rays are t I plus a semidefinite plus a non-negative matrix, and
    where `positive_quadratic`, Q + s M >= t M.
    """
    space, at_most, forms = reduced(found)
    if not space:
        return None
    unit, whiten = _units(body, found)
    scaled = floats(space).T / unit[:, None]  # coefficients in natural units from w
    base, _ = np.linalg.qr(scaled)
    to_w, *_ = np.linalg.lstsq(scaled, base, rcond=None)  # w from orthonormal coordinates
    free = base.shape[1]
    extra = sum(len(table) * (len(table) - 1) // 2 for table in forms)
    nx = free + extra + 1
    cone = ConeProgram(nx)
    linear = np.concatenate([-at_most @ to_w, base[: found.positive]])
    linear /= np.linalg.norm(linear, axis=1)[:, None]
    linear[len(at_most) :] = base[: found.positive]
    box = np.concatenate([np.eye(free), -np.eye(free)])
    rows = np.zeros((len(linear) + len(box), nx))
    rows[:, :free] = np.concatenate([linear, box])
    rows[: len(linear), -1] = -1.0
    cone.nonnegative(list(rows), [0.0] * len(linear) + [1.0] * len(box))
    cone.nonnegative(list(np.eye(nx)[free : free + extra]), [0.0] * extra)
    at = free
    for table in forms:
        at = _form_block(cone, table @ to_w, at)
    if positive_quadratic:
        _positive_blocks(cone, body, found, base, unit, whiten)
    cost = np.zeros(nx)
    cost[-1] = -1.0
    x, seconds, word = solve_cone(cost, cone)
    margin = float(x[-1])
    if not np.isfinite(margin) or margin < SETTLED:
        return None
    w = to_w @ x[:free]
    return rounded_candidate(body, found, space, w, margin=margin, seconds=seconds, word=word)


def rounded_candidate(
    body: Exact, found: Family, space: Matrix, w: np.ndarray, *, margin: float, seconds: float, word: str
) -> Candidate:
    """The function of rounded free coefficients; the others follow from the equalities."""
    size = float(np.max(np.abs(w)))
    rounded = [Fraction(round(float(value) / size * 2**BITS), 2**BITS) for value in w]
    coefficients = combine(rounded, space, len(found.basis))
    return _candidate(body, found, coefficients, margin, seconds, word)


def _candidate(
    body: Exact, found: Family, coefficients: Row, margin: float, seconds: float, word: str
) -> Candidate:
    nv, at = body.nv, 1 + body.nc
    linear = combine(coefficients, [function.linear for function in found.basis], nv)
    quadratic = [[ZERO] * nv for _ in range(nv)]
    for i, k in itertools.combinations_with_replacement(range(nv), 2):
        quadratic[i][k] = quadratic[k][i] = coefficients[at]
        at += 1
    turns = [[ZERO] * nv for _ in range(body.nc)]
    for contact, i in itertools.product(range(body.nc), range(nv)):
        if body.e[contact] and at < len(coefficients):
            turns[contact][i] = coefficients[at]
            at += 1
    return Candidate(linear, quadratic, turns, coefficients[: 1 + body.nc], margin, seconds, word)


def _units(body: Exact, found: Family) -> tuple[np.ndarray, np.ndarray]:
    """The natural size of each coefficient, and the factor that whitens Q."""
    mass = np.array([[float(x) for x in row] for row in body.M])
    back = np.linalg.inv(np.linalg.cholesky(mass))
    pull = float(np.linalg.norm(back @ floats([body.force])[0]))
    unit = []
    for function in found.basis:
        parts = [back @ floats(q) @ back.T for q in function.quadratics]
        size = max(float(np.linalg.norm(part)) for part in parts)
        unit.append(
            1.0 / size if size > 0 else pull / float(np.linalg.norm(back @ floats([function.linear])[0]))
        )
    return np.array(unit), back


def _form_block(cone: ConeProgram, table: np.ndarray, at: int) -> int:
    """D (form - N) D - t I is positive semidefinite, N >= 0 off the diagonal from column `at` on."""
    size, free = len(table), table.shape[2]
    weight = 1.0 / np.sqrt(np.linalg.norm(np.einsum("iik->ik", table), axis=1))
    blocks = [[np.zeros(cone.size) for _ in range(size)] for _ in range(size)]
    for i in range(size):
        for k in range(i, size):
            blocks[i][k][:free] = table[i, k] * weight[i] * weight[k]
            if i == k:
                blocks[i][k][-1] = -1.0
            else:
                blocks[i][k][at] = -1.0
                at += 1
    cone.semidefinite(blocks)
    return at


def _positive_blocks(
    cone: ConeProgram, body: Exact, found: Family, base: np.ndarray, unit: np.ndarray, whiten: np.ndarray
) -> None:
    """Q + s M - t M is positive semidefinite, whitened, for every Q of the function."""
    nv = body.nv
    for number in range(1 + body.nc):
        blocks = [[np.zeros(cone.size) for _ in range(nv)] for _ in range(nv)]
        for weight, scale, function in zip(base, unit, found.basis, strict=True):
            part = whiten @ floats(function.quadratics[number]) @ whiten.T * scale
            for i, k in itertools.product(range(nv), repeat=2):
                blocks[i][k][: base.shape[1]] += weight * part[i, k]
        for i in range(nv):
            blocks[i][i][: base.shape[1]] += base[0] * unit[0]
            blocks[i][i][-1] = -1.0
        if number == 0 or body.e[number - 1]:
            cone.semidefinite(blocks)


def form_multipliers(form: Matrix) -> np.ndarray | None:
    """A matrix N >= 0 with zero diagonal such that form - N is positive definite, or None; in floats."""
    size = len(form)
    values = np.array([[float(x) for x in row] for row in form])
    if np.any(np.diag(values) <= 0):
        return None
    weight = 1.0 / np.sqrt(np.diag(values))
    values = values * weight[:, None] * weight[None]
    pairs = list(itertools.combinations(range(size), 2))
    nx = len(pairs) + 1
    cone = ConeProgram(nx)
    cone.nonnegative([np.eye(1, nx, i)[0] for i in range(len(pairs))], [0.0] * len(pairs))
    cone.nonnegative([-np.eye(1, nx, nx - 1)[0]], [1.0])
    blocks = [[np.zeros(nx) for _ in range(size)] for _ in range(size)]
    for i in range(size):
        blocks[i][i][-1] = -1.0
    for number, (i, k) in enumerate(pairs):
        blocks[i][k][number] = -1.0
    cone.semidefinite(blocks, values)
    cost = np.zeros(nx)
    cost[-1] = -1.0
    x, _, _ = solve_cone(cost, cone)
    if not np.all(np.isfinite(x)) or x[-1] <= 0:
        return None
    result = np.zeros((size, size))
    for (i, k), value in zip(pairs, np.maximum(x[:-1], 0.0), strict=True):
        result[i, k] = result[k, i] = value / (weight[i] * weight[k])
    return result

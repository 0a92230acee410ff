"""The conic program behind a certificate: find V with the largest margin, then make it rational.

Unknown is V = a q + v' Q v / 2 with a = s c + J_n^T y, the c being the force (or a direction of drift). Every
condition is linear in (s, y, Q). Lines in the cones of velocities force equalities, so the feasible set has no
interior: the equalities are solved exactly first, in rational numbers, and the solver sees what is left.
"""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import numpy as np

from jaxcontact.stability.exact import (
    Conditions,
    Exact,
    Function,
    jump_form,
    make_function,
    negated,
    rate_value,
)
from jaxcontact.stability.rational import ONE, ZERO, Matrix, Row, combine, dot, null_space, tidy

SETTLED = 1e-7  # margin of the scaled program above which a solution is rounded and checked
BITS = 40  # of the free coefficients of a certificate


@dataclasses.dataclass(frozen=True)
class Family:
    """Functions V as combinations of basis functions, with the conditions as rows over the basis.

    Attributes:
        basis: the function of each coefficient: s, the y, the entries of Q, then those of the b_k.
        equal: rows that must vanish.
        at_most: rows that must be <= 0.
        forms: for each jump a square table of rows, minus the change of V, over its rays.
        positive: number of leading coefficients that must be positive.
    """

    basis: list[Function]
    equal: Matrix
    at_most: Matrix
    forms: list[list[list[Row]]]
    positive: int


def function_basis(body: Exact, lead: Row, *, one_function: bool) -> list[Function]:
    """Basis functions: those of a alone first, then of Q, then of the b_k unless V is one function everywhere."""
    nv = body.nv
    zero, still = [ZERO] * nv, [[ZERO] * nv for _ in range(nv)]
    turns = [[ZERO] * nv for _ in range(body.nc)]
    basis = [make_function(body, row, still, turns) for row in [lead, *body.normal]]
    for i, k in itertools.combinations_with_replacement(range(nv), 2):
        quadratic = [list(row) for row in still]
        quadratic[i][k] = quadratic[k][i] = ONE
        basis.append(make_function(body, zero, quadratic, turns))
    for contact, i in itertools.product(range(body.nc), range(nv)):
        if body.e[contact] and not one_function:
            turn = [list(row) for row in turns]
            turn[contact][i] = ONE
            basis.append(make_function(body, zero, still, turn))
    return basis


def family(
    body: Exact, conditions: Conditions, lead: Row, *, drift: bool = False, one_function: bool = False
) -> Family:
    """All conditions as rows over the basis. With `drift`, only the coefficient of `lead` must be positive."""
    basis = function_basis(body, lead, one_function=one_function)
    equal: Matrix = []
    at_most: Matrix = []
    rates, jumps = conditions
    for rate in rates:
        for group, found in ((rate.lines, equal), (rate.rays, at_most)):
            for generator in group:
                found.append([rate_value(rate, function, generator) for function in basis])
    forms = []
    for jump in jumps:
        tables = [jump_form(jump, function) for function in basis]
        size = range(len(jump.start))
        form = [[[table[i][k] for table in tables] for k in size] for i in size]
        equal += [form[line][k] for line in size[jump.num_rays :] for k in size]
        forms.append([row[: jump.num_rays] for row in form[: jump.num_rays]])
    return Family(basis, _distinct(equal), _distinct(at_most), forms, 1 if drift else 1 + body.nc)


def _distinct(rows: Matrix) -> Matrix:
    return [list(row) for row in {tuple(row): None for row in rows if any(row)}]


def reduced(found: Family) -> tuple[Matrix, Matrix, list[list[list[Row]]]]:
    """A basis of the coefficients that satisfy all equalities, and the other conditions over it.

    A ray without a square (its form vanishes on it for every V) must have its products >= 0: those join the linear
    conditions, and the ray leaves the form. Two opposite inequalities are an equality more.
    """
    equal = list(found.equal)
    while True:
        space = null_space(equal, len(found.basis))
        at_most, forms = _over(space, found)
        opposite = {tuple(row) for row in at_most} & {tuple(negated(row)) for row in at_most}
        if not opposite:
            return space, at_most, forms
        free = [next(i for i, x in enumerate(vector) if x == 1 and _alone(space, k, i)) for k, vector in enumerate(space)]
        for row in opposite:
            lifted = [ZERO] * len(found.basis)
            for at, value in zip(free, row, strict=True):
                lifted[at] = value
            equal.append(lifted)


def _alone(space: Matrix, k: int, i: int) -> bool:
    return all(not vector[i] for j, vector in enumerate(space) if j != k)


def _over(space: Matrix, found: Family) -> tuple[Matrix, list[list[list[Row]]]]:
    """The inequalities and forms over a basis of coefficients."""

    def on(row: Row) -> Row:
        return [dot(row, vector) for vector in space]

    at_most = [on(row) for row in found.at_most]
    forms = []
    for form in found.forms:
        table = [[on(entry) for entry in row] for row in form]
        while flat := [i for i in range(len(table)) if not any(table[i][i])]:
            i = flat[0]
            at_most += [negated(table[i][k]) for k in range(len(table)) if k != i]
            table = [[row[k] for k in range(len(row)) if k != i] for j, row in enumerate(table) if j != i]
        if len(table) == 1:
            at_most.append(negated(table[0][0]))
        elif table:
            forms.append(table)
    return _distinct([tidy(row) for row in at_most if any(row)]), forms


@dataclasses.dataclass
class _Cone:
    """Rows of the conic program A x + s = b, block by block, with x = (w, multipliers, t)."""

    size: int
    rows: list[np.ndarray]
    rhs: list[float]
    kinds: list[tuple[str, int]]

    def nonnegative(self, rows: list[np.ndarray], rhs: list[float]) -> None:
        """Rows x + rhs >= 0."""
        if rows:
            self.rows += [-row for row in rows]
            self.rhs += rhs
            self.kinds.append(("nonnegative", len(rows)))

    def semidefinite(self, table: list[list[np.ndarray]]) -> None:
        """A symmetric table of rows is a positive semidefinite matrix."""
        size = len(table)
        for k in range(size):
            for i in range(k + 1):
                weight = 1.0 if i == k else np.sqrt(2.0)
                self.rows.append(-weight * table[i][k])
                self.rhs.append(0.0)
        self.kinds.append(("semidefinite", size))


def _clarabel() -> Any:
    try:
        import clarabel
    except ImportError as error:
        raise ImportError(
            "certificates need the conic solver Clarabel: pip install 'jaxcontact[stability]'"
        ) from error
    return clarabel


def solve_cone(cost: np.ndarray, cone: _Cone, *, tolerance: float = 1e-10) -> tuple[np.ndarray, float, str]:
    """Minimise cost x over the cone: x, the time spent and the solver's word, which proves nothing.

    Raises:
        ImportError: Clarabel is not installed.
    """
    from scipy import sparse

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
    matrix = sparse.csc_matrix(np.array(cone.rows))
    answer = clarabel.DefaultSolver(quadratic, cost, matrix, np.array(cone.rhs), blocks, settings).solve()
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

    The margin t of the coefficients w, |w_i| <= 1 in units of the body: every linear condition holds by t times the
    norm of its row, forms over rays are t I plus a semidefinite plus a non-negative matrix, and where
    `positive_quadratic`, Q + s M >= t M.
    """
    space, at_most, forms = reduced(found)
    if not space:
        return None
    unit, whiten = _units(body, found)
    span = np.array([[float(x) for x in vector] for vector in space]).T  # coefficients from w
    scaled = span / unit[:, None]
    base, _ = np.linalg.qr(scaled)
    to_w, *_ = np.linalg.lstsq(scaled, base, rcond=None)  # w from orthonormal coordinates
    sizes = [len(table) for table in forms]
    extra = sum(size * (size - 1) // 2 for size in sizes)
    nx = base.shape[1] + extra + 1
    cone = _Cone(nx, [], [], [])

    def row(over_w: Any, t: float) -> np.ndarray:
        full = np.zeros(nx)
        full[: base.shape[1]] = np.asarray([float(x) for x in over_w]) @ to_w
        full[-1] = t
        return full

    def normalised(over_w: Any) -> np.ndarray:
        full = row(over_w, 0.0)
        full /= np.linalg.norm(full) + 1e-300
        full[-1] = -1.0
        return full

    linear = [normalised(negated(entry)) for entry in at_most]
    for i in range(found.positive):
        full = np.zeros(nx)
        full[: base.shape[1]] = base[i]
        full[-1] = -1.0
        linear.append(full)
    box = [sign * np.eye(1, nx, i)[0] for i in range(base.shape[1]) for sign in (1.0, -1.0)]
    cone.nonnegative(linear + box, [0.0] * len(linear) + [1.0] * len(box))
    cone.nonnegative([np.eye(1, nx, nx - 1 - k)[0] for k in range(1, extra + 1)], [0.0] * extra)
    at = base.shape[1]
    for table in forms:
        at = _form_block(cone, table, row, at)
    if positive_quadratic:
        _positive_blocks(cone, body, found, base, unit, whiten)
    cost = np.zeros(nx)
    cost[-1] = -1.0
    x, seconds, word = solve_cone(cost, cone)
    margin = float(x[-1])
    if not np.isfinite(margin) or margin < SETTLED:
        return None
    w = to_w @ x[: base.shape[1]]
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
    norm = lambda row: float(np.linalg.norm(back @ np.array([float(x) for x in row])))
    pull = max(norm(body.force), 1e-300)
    unit = []
    for function in found.basis:
        parts = [back @ _floats(q) @ back.T for q in function.quadratics]
        size = max(float(np.linalg.norm(part)) for part in parts)
        unit.append(1.0 / size if size > 0 else pull / max(norm(function.linear), 1e-300))
    return np.array(unit), back


def _form_block(cone: _Cone, table: list[list[Row]], row: Any, at: int) -> int:
    """D (form - N) D - t I is positive semidefinite, N >= 0 off the diagonal from column `at` on."""
    size = len(table)
    diagonal = [np.linalg.norm(row(table[i][i], 0.0)) for i in range(size)]
    weight = 1.0 / np.sqrt(np.array(diagonal))
    blocks: list[list[np.ndarray]] = [[np.zeros(cone.size)] * size for _ in range(size)]
    for i in range(size):
        for k in range(i, size):
            entry = row(table[i][k], 0.0) * weight[i] * weight[k]
            if i == k:
                entry[-1] = -1.0
            else:
                entry[at] = -1.0
                at += 1
            blocks[i][k] = entry
    cone.semidefinite(blocks)
    return at


def _positive_blocks(
    cone: _Cone, body: Exact, found: Family, base: np.ndarray, unit: np.ndarray, whiten: np.ndarray
) -> None:
    """Q + s M - t M is positive semidefinite, whitened, for every Q of the function."""
    nv = body.nv
    for number in range(1 + body.nc):
        blocks = [[np.zeros(cone.size) for _ in range(nv)] for _ in range(nv)]
        for weight, scale, function in zip(base, unit, found.basis, strict=True):
            part = whiten @ _floats(function.quadratics[number]) @ whiten.T * scale
            for i, k in itertools.product(range(nv), repeat=2):
                blocks[i][k][: base.shape[1]] += weight * part[i, k]
        for i in range(nv):
            blocks[i][i][: base.shape[1]] += base[0] * unit[0]
            blocks[i][i][-1] = -1.0
        if number == 0 or body.e[number - 1]:
            cone.semidefinite(blocks)


def _floats(matrix: Matrix) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in matrix])


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
    cone = _Cone(nx, [], [], [])
    cone.nonnegative([np.eye(1, nx, i)[0] for i in range(len(pairs))], [0.0] * len(pairs))
    cone.nonnegative([-np.eye(1, nx, nx - 1)[0]], [1.0])
    for k in range(size):
        for i in range(k + 1):
            entry = np.zeros(nx)
            entry[-1 if i == k else pairs.index((i, k))] = -1.0
            factor = 1.0 if i == k else np.sqrt(2.0)
            cone.rows.append(-factor * entry)
            cone.rhs.append(factor * float(values[i, k]))
    cone.kinds.append(("semidefinite", size))
    cost = np.zeros(nx)
    cost[-1] = -1.0
    x, _, _ = solve_cone(cost, cone)
    if not np.all(np.isfinite(x)) or x[-1] <= 0:
        return None
    result = np.zeros((size, size))
    for (i, k), value in zip(pairs, np.maximum(x[:-1], 0.0), strict=True):
        result[i, k] = result[k, i] = value / (weight[i] * weight[k])
    return result

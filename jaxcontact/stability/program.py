"""The conic program of a certificate: V with the largest margin, made rational; entry `best_function`.

Owns the program, the call of the solver and the rounding; `lyapunov_basis.py` has the conditions. Lines in
the cones of velocities force equalities, so the feasible set has no interior: the equalities are solved
exactly first, in rational numbers, and the solver sees the remaining conditions. Page:
docs/methods/stability.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.stability.lyapunov_basis import ConditionFamily, Numbers, Reduced, reduced
from jaxcontact.stability.rational import Ints, Rational, directions, sizes, whole
from jaxcontact.stability.rational_modes import Exact

if TYPE_CHECKING:  # SciPy is imported when it is used, because the import takes long
    from scipy import sparse

SETTLED = 1e-7  # margin of the scaled program above which a solution is rounded and checked
PRECISION = 1e-10  # tolerance of the solver, absolute and relative
SIMPLE_EIGENVALUE = 1e-6  # of a scaled form minus simple multipliers, which are enough above it
BITS = 40  # of the free coefficients of a certificate after rounding


class ConicProgram:
    """Rows of the conic program A x + s = b, block by block: s = rhs + row x is in a cone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.kinds: list[tuple[str, int]] = []
        self._rhs: list[np.ndarray] = [np.zeros(0)]
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._height = 0

    def zero(self, rows: Sequence[dict[int, float]], rhs: Sequence[float]) -> None:
        """Add rows x + rhs = 0; a row is a mapping from column to value."""
        entries = [(i, k, value) for i, row in enumerate(rows) for k, value in row.items()]
        row, column, value = zip(*entries, strict=True)
        self._add(np.array(row), np.array(column), np.array(value), np.array(rhs), ("zero", len(rows)))

    def nonnegative(self, rows: np.ndarray, rhs: np.ndarray | float = 0.0) -> None:
        """Add rows x + rhs >= 0."""
        if len(rows):
            row, column = np.nonzero(rows)
            constants = np.broadcast_to(rhs, len(rows))
            self._add(row, column, rows[row, column], constants, ("nonnegative", len(rows)))

    def semidefinite(self, table: np.ndarray, rhs: np.ndarray | None = None) -> None:
        """Require a symmetric table of rows, plus `rhs`, to be a positive semidefinite matrix."""
        k, i = np.tril_indices(len(table))  # the upper triangle column by column
        weight = np.where(i == k, 1.0, np.sqrt(2.0))
        rows = weight[:, None] * table[i, k]
        row, column = np.nonzero(rows)
        constants = np.zeros(len(i)) if rhs is None else weight * rhs[i, k]
        self._add(row, column, rows[row, column], constants, ("semidefinite", len(table)))

    def matrix(self, start: int, size: int) -> None:
        """Require the entries of x from `start` to be such a matrix, in the same order and weights."""
        count = size * (size + 1) // 2
        some = np.arange(count)
        self._add(some, start + some, np.ones(count), np.zeros(count), ("semidefinite", size))

    def _add(
        self, row: np.ndarray, column: np.ndarray, value: np.ndarray, rhs: np.ndarray, kind: tuple[str, int]
    ) -> None:
        self._entries.append((row + self._height, column, -value))
        self._rhs.append(rhs)
        self._height += len(rhs)
        self.kinds.append(kind)

    def arrays(self) -> tuple[sparse.csc_matrix, np.ndarray, list[tuple[str, int]]]:
        """Return (A, b, kinds), A sparse."""
        from scipy import sparse

        row, column, value = (np.concatenate(columns) for columns in zip(*self._entries, strict=True))
        matrix = sparse.csc_matrix((value, (row, column)), shape=(self._height, self.size))
        return matrix, np.concatenate(self._rhs), self.kinds


@dataclasses.dataclass(frozen=True)
class ConicSolution:
    """The answer of a solver, which proves nothing: x, the dual z in the dual cone, seconds and a word."""

    x: np.ndarray
    z: np.ndarray
    seconds: float
    word: str


# (cost c, A, b, cones, tolerance) -> ConicSolution of: minimise c x, b - A x in a product of cones, which
# are named "zero", "nonnegative" or "semidefinite" (upper triangle by columns, off-diagonals times sqrt 2).
Kinds = list[tuple[str, int]]
Solver = Callable[[np.ndarray, PyTree, np.ndarray, Kinds, float], ConicSolution]


def clarabel(
    cost: np.ndarray,
    matrix: sparse.csc_matrix,
    rhs: np.ndarray,
    kinds: list[tuple[str, int]],
    tolerance: float,
) -> ConicSolution:
    """Solve a conic program by Clarabel.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import clarabel
    except ImportError as error:
        raise ImportError(
            "certificates need the conic solver Clarabel: pip install 'jaxcontact[stability]'"
        ) from error
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.max_iter = 100
    makers = {
        "nonnegative": clarabel.NonnegativeConeT,
        "semidefinite": clarabel.PSDTriangleConeT,
        "zero": clarabel.ZeroConeT,
    }
    blocks = [makers[kind](size) for kind, size in kinds]
    none = type(matrix)((len(cost), len(cost)))
    answer = clarabel.DefaultSolver(none, cost, matrix, rhs, blocks, settings).solve()
    return ConicSolution(np.array(answer.x), np.array(answer.z), float(answer.solve_time), str(answer.status))


SOLVERS: dict[str, Solver] = {"clarabel": clarabel}


def named_solver(solver: str | Solver) -> Solver:
    """Look up a solver by its name; return a callable unchanged.

    Raises:
        ValueError: unknown name.
    """
    if callable(solver):
        return solver
    if solver not in SOLVERS:
        raise ValueError(f"solver: expected one of {', '.join(SOLVERS)} or a callable, got {solver!r}")
    return SOLVERS[solver]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A V from the solver: rational coefficients that satisfy all equalities, and the margin."""

    linear: Rational
    quadratic: Rational
    turns: Rational
    weights: Rational
    margin: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class MarginProgram:
    """The conic program of the largest margin, and the map from x to coefficients.

    x starts with orthonormal coordinates of the coefficients in natural units and ends with the margin; the
    cost is minus the margin.
    """

    cone: ConicProgram
    conditions: Reduced
    to_w: np.ndarray

    @property
    def cost(self) -> np.ndarray:
        """Cost vector: minus the last entry of x."""
        return -np.eye(1, self.cone.size, self.cone.size - 1)[0]


def margin_program(condition_family: ConditionFamily, *, positive_quadratic: bool) -> MarginProgram | None:
    """Set up the program of the V of largest margin; return None if the equalities leave nothing.

    The margin t of the coefficients, each within 1 in units of the body: every linear condition holds by t
    times the norm of its row, forms over rays are t I plus a semidefinite plus a non-negative matrix, and
    with `positive_quadratic`, Q + s M >= t M.
    """
    conditions = reduced(condition_family)
    if not len(conditions.space):
        return None
    numbers = dataclasses.replace(condition_family.numbers, space=directions(conditions.space))
    cone, to_w = cone_program(condition_family, conditions, numbers, positive_quadratic=positive_quadratic)
    return MarginProgram(cone, conditions, to_w)


def cone_program(
    condition_family: ConditionFamily, conditions: Reduced, numbers: Numbers, *, positive_quadratic: bool
) -> tuple[ConicProgram, np.ndarray]:
    """Compute the cone program from the numbers, and the matrix from x to w.

    Both are analytic, so that imaginary parts of numbers are tangents.
    """
    unit, whitened = _natural_sizes(condition_family, numbers)
    base, to_w = _orthonormal(numbers.space.T / unit[:, None])  # of coefficients in natural units
    free = base.shape[1]
    over = condition_family.rows(numbers) @ numbers.space.T @ to_w
    extra = sum(len(form) * (len(form) - 1) // 2 for form in conditions.forms)
    nx = free + extra + 1
    cone = ConicProgram(nx)
    linear = -over[conditions.linear]
    linear = np.concatenate([linear / _length(linear)[:, None], base[: condition_family.positive]])
    box = np.concatenate([base, -base])
    rows = np.zeros((len(linear) + len(box), nx), base.dtype)
    rows[:, :free] = np.concatenate([linear, box])
    rows[: len(linear), -1] = -1.0
    cone.nonnegative(rows, np.repeat([0.0, 1.0], [len(linear), len(box)]))
    cone.nonnegative(np.eye(nx)[free : free + extra])
    at = free
    for form in conditions.forms:
        at = _form_block(cone, -over[form], at)
    if positive_quadratic:
        _positive_blocks(cone, condition_family.basis.body, base, unit, whitened)
    return cone, to_w


def _length(rows: np.ndarray) -> np.ndarray:
    """Compute the length of each row, as an analytic function."""
    return np.sqrt(np.sum(rows * rows, axis=-1))


def _orthonormal(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormalise columns; return them and the matrix that maps the old columns to them."""
    q, r = np.linalg.qr(columns.real)
    back = np.linalg.inv(r)
    if not np.iscomplexobj(columns):
        return q, back
    change = columns.imag @ back  # the tangents of a QR decomposition
    inner = q.T @ change
    turn = np.tril(inner, -1)
    turn = turn - turn.T
    return q + 1j * (q @ turn + change - q @ inner), back - 1j * back @ (inner - turn)


def best_function(
    condition_family: ConditionFamily, solver: Solver, *, positive_quadratic: bool
) -> Candidate | None:
    """Find the V of largest margin; return None if the equalities leave nothing or no margin is positive."""
    program = margin_program(condition_family, positive_quadratic=positive_quadratic)
    if program is None:
        return None
    solution = solver(program.cost, *program.cone.arrays(), PRECISION)
    margin = float(solution.x[-1])
    if not np.isfinite(margin) or margin < SETTLED:
        return None
    w = program.to_w @ solution.x[: program.to_w.shape[1]]
    return rounded_candidate(condition_family, program.conditions.space, w, margin=margin, solution=solution)


def rounded_candidate(
    condition_family: ConditionFamily, space: Ints, w: np.ndarray, *, margin: float, solution: ConicSolution
) -> Candidate:
    """Round the coefficients of `directions(space)`; the function satisfies every equality exactly."""
    size, bits = float(np.max(np.abs(w))), sizes(space)
    largest_size = max(bits)
    rounded = [round(float(x) / size * 2**BITS) << (largest_size - b) for x, b in zip(w, bits, strict=True)]
    coefficients = Rational(whole(rounded) @ space, 1 << (largest_size + BITS)).simplified()
    return Candidate(
        *condition_family.basis.function(coefficients),
        coefficients[: len(condition_family.basis.lead)],
        margin,
        solution.seconds,
    )


def _natural_sizes(condition_family: ConditionFamily, numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Compute the natural size of each coefficient, and the whitened Q of each, (1 + nc, n, nv, nv)."""
    back = np.linalg.inv(np.linalg.cholesky(condition_family.basis.body.M.floats()))
    linear, quadratic = condition_family.basis.functions(numbers.lead)
    whitened = back @ quadratic @ back.T
    sizes = _length(whitened.reshape(*whitened.shape[:2], -1))
    size = np.take_along_axis(sizes, np.argmax(sizes.real, axis=0)[None], axis=0)[0]
    unit = np.zeros(len(size), size.dtype)
    turning = size.real > 0
    unit[turning] = 1.0 / size[turning]
    unit[~turning] = _length(back @ numbers.force) / _length(linear[~turning] @ back.T)
    return unit, whitened


def _form_block(cone: ConicProgram, table: np.ndarray, at: int) -> int:
    """Require D (form - N) D - t I to be positive semidefinite, N >= 0 off-diagonal; return the next column.

    The entries of N start at column `at`.
    """
    size, free = len(table), table.shape[2]
    weight = 1.0 / np.sqrt(_length(np.einsum("iik->ik", table)))
    block = np.zeros((size, size, cone.size), table.dtype)
    block[:, :, :free] = table * (weight[:, None] * weight)[:, :, None]
    block[range(size), range(size), -1] = -1.0
    i, k = np.triu_indices(size, 1)
    last = at + len(i)
    block[i, k, range(at, last)] = block[k, i, range(at, last)] = -1.0
    cone.semidefinite(block)
    return last


def _positive_blocks(
    cone: ConicProgram, body: Exact, base: np.ndarray, unit: np.ndarray, whitened: np.ndarray
) -> None:
    """Require Q + s M - t M, whitened, to be positive semidefinite for every Q of the function."""
    nv = body.nv
    kinds = (len(whitened) - 1) // body.nc
    for number in range(len(whitened)):
        if number and not body.bounces((number - 1) // kinds):
            continue
        table = np.zeros((nv, nv, cone.size), base.dtype)
        table[:, :, : base.shape[1]] = np.einsum("nij,nk->ijk", whitened[number], base * unit[:, None])
        table[range(nv), range(nv), : base.shape[1]] += base[0] * unit[0]
        table[range(nv), range(nv), -1] = -1.0
        cone.semidefinite(table)


def form_multipliers(solver: Solver, form: Rational) -> np.ndarray | None:
    """Find N >= 0 with zero diagonal such that form - N is positive definite; return floats, or None."""
    size, values = len(form), form.floats()
    if np.any(np.diag(values) <= 0):
        return None
    weight = 1.0 / np.sqrt(np.diag(values))
    values = values * weight[:, None] * weight[None]
    for simple in (np.zeros((size, size)), np.maximum(np.triu(values, 1), 0.0)):
        if np.linalg.eigvalsh(values - simple - simple.T)[0] > SIMPLE_EIGENVALUE:
            simple /= np.outer(weight, weight)
            return simple + simple.T
    i, k = np.triu_indices(size, 1)
    num = len(i)
    cone = ConicProgram(num + 1)
    cone.nonnegative(np.eye(num, num + 1))
    cone.nonnegative(-np.eye(1, num + 1, num), 1.0)
    block = np.zeros((size, size, num + 1))
    block[range(size), range(size), -1] = -1.0
    block[i, k, range(num)] = block[k, i, range(num)] = -1.0
    cone.semidefinite(block, values)
    x = solver(-np.eye(1, num + 1, num)[0], *cone.arrays(), PRECISION).x
    if not np.all(np.isfinite(x)) or x[-1] <= 0:
        return None
    result = np.zeros((size, size))
    result[i, k] = result[k, i] = np.maximum(x[:-1], 0.0)
    return result / np.outer(weight, weight)

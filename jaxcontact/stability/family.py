"""Functions V as combinations of basis functions, and the conditions on their coefficients.

V = a q + v' Q v / 2 with a = s c + J_n^T y, the c being the force (or a direction of drift), and the turned
Q of bounces. Every condition is linear in (s, y, Q, b). Equalities are kept in rational numbers;
inequalities and forms, which only steer the solver, in floats.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from jaxcontact.stability.exact import (
    Conditions,
    Exact,
    Function,
    Jump,
    make_function,
    negated,
    rate_value,
)
from jaxcontact.stability.rational import ONE, ZERO, Matrix, Row, dot, floats, null_space

SAME = 1e-11  # relative size of a row, or of the sum of two unit rows, that counts as zero


@dataclasses.dataclass(frozen=True)
class Form:
    """Minus the change of V over a jump, over its rays: float rows (k, k, coefficients), and exact ones."""

    rows: np.ndarray
    entry: Callable[[int, int], Row]


@dataclasses.dataclass(frozen=True)
class Family:
    """Conditions over the coefficients of a basis.

    Attributes:
        basis: the function of each coefficient: s, the y, the entries of Q, then those of the b_k.
        equal: rows that must vanish.
        at_most: rows that must be <= 0.
        forms: one for each jump, to be copositive.
        positive: number of leading coefficients that must be positive.
    """

    basis: list[Function]
    equal: Matrix
    at_most: Matrix
    forms: list[Form]
    positive: int


def function_basis(body: Exact, lead: Row, *, one_function: bool) -> list[Function]:
    """Basis functions: those of a alone first, then of Q, then of the b_k unless V is one function."""
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
    """All conditions as rows over the basis. With `drift`, only the coefficient of `lead` is positive."""
    basis = function_basis(body, lead, one_function=one_function)
    equal: Matrix = []
    at_most: Matrix = []
    rates, jumps = conditions
    for rate in rates:
        for group, found in ((rate.lines, equal), (rate.rays, at_most)):
            for generator in group:
                found.append([rate_value(rate, function, generator) for function in basis])
    forms = []
    bounces = [k for k in range(body.nc) if body.e[k] and not one_function]
    for jump in jumps:
        entry = exact_entries(body, jump, lead, bounces)
        size = range(len(jump.start))
        equal += [entry(line, k) for line in size[jump.num_rays :] for k in size]
        forms.append(Form(_float_rows(body, jump, lead, bounces)[: jump.num_rays, : jump.num_rays], entry))
    return Family(basis, _distinct(equal), _distinct(at_most), forms, 1 if drift else 1 + body.nc)


def exact_entries(body: Exact, jump: Jump, lead: Row, bounces: list[int]) -> Callable[[int, int], Row]:
    """Entry (i, k) of `jump_form` of every basis function at once, written out."""
    half = Fraction(1, 2)
    pairs = list(itertools.combinations_with_replacement(range(body.nv), 2))
    linear = [[dot(c, u) for u in jump.mean] for c in (lead, *body.normal)]
    s, e = jump.start, jump.end
    sides = ((half, s, jump.before - 1), (-half, e, jump.after - 1))

    def entry(i: int, k: int) -> Row:
        row = [-half * (jump.duration[i] * u[k] + jump.duration[k] * u[i]) for u in linear]
        for a, b in pairs:
            value = s[i][a] * s[k][b] - e[i][a] * e[k][b]
            row.append(half * (value if a == b else value + s[i][b] * s[k][a] - e[i][b] * e[k][a]))
        for contact in bounces:
            turn = [ZERO] * body.nv
            for sign, x, which in sides:
                if which == contact:
                    first, second = dot(body.normal[which], x[i]), dot(body.normal[which], x[k])
                    turn = [
                        t + sign * (first * p + second * q) for t, p, q in zip(turn, x[k], x[i], strict=True)
                    ]
            row += turn
        return row

    return entry


def _float_rows(body: Exact, jump: Jump, lead: Row, bounces: list[int]) -> np.ndarray:
    """The same as an array (k, k, coefficients) of floats."""
    start, end, mean = floats(jump.start), floats(jump.end), floats(jump.mean)
    duration = np.array([float(x) for x in jump.duration])
    along = duration[:, None, None] * (mean @ floats([lead, *body.normal]).T)[None]
    outer = start[:, None, :, None] * start[None, :, None, :] - end[:, None, :, None] * end[None, :, None, :]
    outer = 0.5 * (outer + np.swapaxes(outer, 2, 3))
    a, b = np.array(list(itertools.combinations_with_replacement(range(body.nv), 2))).T
    parts = [-0.5 * (along + np.swapaxes(along, 0, 1)), outer[:, :, a, b] * np.where(a == b, 0.5, 1.0)]
    for contact in bounces:
        turn = np.zeros((len(start), len(start), body.nv))
        for sign, x, which in ((0.5, start, jump.before - 1), (-0.5, end, jump.after - 1)):
            if which == contact:
                gap = x @ floats([body.normal[contact]])[0]
                turn += sign * (gap[:, None, None] * x[None] + gap[None, :, None] * x[:, None])
        parts.append(turn)
    return np.concatenate(parts, axis=2)


def _distinct(rows: Matrix) -> Matrix:
    return [list(row) for row in {tuple(row): None for row in rows if any(row)}]


def reduced(found: Family) -> tuple[Matrix, np.ndarray, list[np.ndarray]]:
    """A basis of the coefficients that satisfy all equalities, and the other conditions over it, in floats.

    A ray without a square (its form vanishes on it for every V) must have its products >= 0: those join the
    linear conditions, and the ray leaves the form. Two opposite inequalities are an equality more, taken
    exactly.
    """
    equal = list(found.equal)
    while True:
        space = null_space(equal, len(found.basis))
        if not space:
            return [], np.zeros((0, 0)), []
        rows, sources, forms = _over(floats(space).T, found)
        opposite: Any = (
            np.argwhere(np.linalg.norm(rows[:, None] + rows[None], axis=2) < 1e-9) if len(rows) else []
        )
        more = [sources[i]() for i, k in opposite if i < k]
        if not more:
            return space, _unrepeated(rows), forms
        equal = _distinct(equal + more)


def _unrepeated(rows: np.ndarray) -> np.ndarray:
    _, first = np.unique(rows.round(12), axis=0, return_index=True)
    return rows[np.sort(first)]


def _over(space: np.ndarray, found: Family) -> tuple[np.ndarray, list[Callable[[], Row]], list[np.ndarray]]:
    """Unit rows of the inequalities with their exact sources, and the forms, over a basis of coefficients."""
    size = np.linalg.norm(space)
    rows: list[np.ndarray] = []
    sources: list[Callable[[], Row]] = []

    def add(row: np.ndarray, scale: float, source: Callable[[], Row]) -> None:
        if np.linalg.norm(row) > SAME * scale * size:
            rows.append(row / np.linalg.norm(row))
            sources.append(source)

    for exact in found.at_most:
        row = floats([exact])[0]
        add(row @ space, float(np.linalg.norm(row)), lambda exact=exact: exact)  # type: ignore[misc]
    forms = []
    for form in found.forms:
        table = form.rows @ space
        kept = list(range(len(table)))
        scale = float(np.max(np.linalg.norm(form.rows, axis=2), initial=0.0))

        def move(i: int, k: int, form: Form = form, table: np.ndarray = table, scale: float = scale) -> None:
            add(-table[i, k], scale, lambda: negated(form.entry(i, k)))

        while flat := [i for i in kept if np.linalg.norm(table[i, i]) <= SAME * scale * size]:
            kept.remove(flat[0])
            for k in kept:
                move(flat[0], k)
        if len(kept) == 1:
            move(kept[0], kept[0])
        elif kept:
            forms.append(table[np.ix_(kept, kept)])
    return np.array(rows).reshape(len(rows), space.shape[1]), sources, forms

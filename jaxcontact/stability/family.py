"""Functions V as combinations of basis functions, and the conditions on their coefficients.

V = a q + v' Q v / 2 with a = s c + J_n^T y, the c being the force (or a direction of drift), and the turned
Q of bounces. Every condition is linear in (s, y, Q, b). Equalities are kept in rational numbers;
inequalities and forms, which only steer the solver, in floats.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxcontact.stability.exact import Exact, Rate
from jaxcontact.stability.jumps import Conditions, Jump, parts
from jaxcontact.stability.rational import (
    Ints,
    Rational,
    directions,
    joined,
    null_space,
    primitive,
    reduce_rows,
    stack,
    whole,
    zeros,
)

Pairs = tuple[np.ndarray, ...]  # of generators: one, two; which Q counts before the impact and after it
SAME = 1e-11  # relative size of a row, or of the sum of two unit rows, that counts as zero


@dataclasses.dataclass(frozen=True)
class Basis:
    """Functions of one coefficient each: s and the y, the entries of Q, then those of the b_k.

    Attributes:
        lead: rows c, J_n of the linear parts, (1 + nc, nv).
        pairs: (2, n) the rows and columns of the entries of Q.
        bounces: contacts with a b_k; none where V is one function.
    """

    body: Exact
    lead: Rational
    pairs: np.ndarray
    bounces: list[int]

    def __len__(self) -> int:
        return len(self.lead) + self.pairs.shape[1] + len(self.bounces) * self.body.nv

    def function(self, coefficients: Rational) -> tuple[Rational, Rational, Rational]:
        """(a, Q, b) of coefficients."""
        nv, at = self.body.nv, len(self.lead)
        quadratic, turns = zeros(nv, nv), zeros(self.body.nc, nv)
        for i, k, value in zip(*self.pairs, coefficients.num[at:], strict=False):
            quadratic[i, k] = quadratic[k, i] = value
        for number, contact in enumerate(self.bounces):
            start = at + self.pairs.shape[1] + number * nv
            turns[contact] = coefficients.num[start : start + nv]
        den = coefficients.den
        return coefficients[:at] @ self.lead, Rational(quadratic, den), Rational(turns, den)

    def floats(self) -> tuple[np.ndarray, np.ndarray]:
        """Every a (n, nv), and every Q in contact and after an impact at each contact (1 + nc, n, nv, nv)."""
        nv, at = self.body.nv, len(self.lead)
        linear, quadratic = np.zeros((len(self), nv)), np.zeros((1 + self.body.nc, len(self), nv, nv))
        linear[:at] = self.lead.floats()
        for number, (i, k) in enumerate(self.pairs.T, start=at):
            quadratic[:, number, i, k] = quadratic[:, number, k, i] = 1.0
        at += self.pairs.shape[1]
        for contact in self.bounces:
            turn = np.eye(nv)[:, :, None] * linear[1 + contact]
            quadratic[1 + contact, at : at + nv] = turn + np.swapaxes(turn, 1, 2)
            at += nv
        return linear, quadratic

    def rate_rows(self, rate: Rate, generators: Ints) -> Ints:
        """DV/dt of every function for velocities, each row up to a positive factor."""
        a, (i, k) = rate.acceleration, self.pairs
        same = np.where(i == k, 0, 1)
        quadratic = generators[:, i] * a.num[k] + same * generators[:, k] * a.num[i]
        linear = generators @ self.lead.num.T
        none = zeros(len(generators), len(self.bounces) * self.body.nv)
        return primitive(np.concatenate([linear * a.den, quadratic * self.lead.den, none], axis=1))

    def jump_rows(self, table: Any, lead: Any, den: int, pairs: Pairs) -> Any:
        """`jump_forms` of every function at pairs of generators, times den; of whole numbers or of floats.

        Args:
            table: generators, as `Jump.table`, or their floats.
            lead: numerators of the linear parts, or their floats.
            den: their denominator.
            pairs: of generators.
        """
        start, end, total, time = parts(table)
        one, two, before, after = pairs
        along = total @ lead.T
        rows = [-(time[one, None] * along[two] + time[two, None] * along[one])]
        i, k = self.pairs
        cross, quadratic = np.where(i == k, 0, 1), 0
        for sign, x in ((2 * den, start), (-2 * den, end)):
            x1, x2 = x[one], x[two]
            quadratic = quadratic + sign * (x1[:, i] * x2[:, k] + cross * x1[:, k] * x2[:, i])
        rows.append(quadratic)
        for contact in self.bounces:
            turn = 0
            for sign, x, which in ((2, start, before), (-2, end, after)):
                gap, here = x @ lead[1 + contact], sign * (which == 1 + contact)
                turn = turn + here[:, None] * (gap[one, None] * x[two] + gap[two, None] * x[one])
            rows.append(turn)
        return np.concatenate(rows, axis=1)

    def exact_rows(self, table: Ints, pairs: Pairs) -> Ints:
        """Those rows exactly, each up to a positive factor."""
        return primitive(self.jump_rows(table, self.lead.num, self.lead.den, pairs))


@dataclasses.dataclass(frozen=True)
class Form:
    """Minus the change of V over a jump, over its rays: k^2 of `Family.values`, and exact rows."""

    size: int
    scale: float  # the norm of its largest row
    entry: Callable[[int, int], Ints]


@dataclasses.dataclass(frozen=True)
class Family:
    """Conditions over the coefficients of a basis.

    Attributes:
        basis: the function of each coefficient.
        equal: rows that must vanish.
        at_most: rows that must be <= 0.
        forms: one for each jump, to be copositive.
        values: rows of their entries in floats, form by form.
        positive: number of leading coefficients that must be positive.
    """

    basis: Basis
    equal: Ints
    at_most: Ints
    forms: list[Form]
    values: np.ndarray
    positive: int


def function_basis(body: Exact, lead: Rational, *, one_function: bool) -> Basis:
    """The basis with the b_k of the contacts that bounce, unless V is one function."""
    pairs = np.array(list(itertools.combinations_with_replacement(range(body.nv), 2))).T
    bounces = [k for k in range(body.nc) if body.bounces(k) and not one_function]
    return Basis(body, joined([lead[None], body.normal]), pairs, bounces)


def family(
    body: Exact, conditions: Conditions, lead: Rational, *, drift: bool = False, one_function: bool = False
) -> Family:
    """All conditions as rows over the basis. With `drift`, only the coefficient of `lead` is positive."""
    basis = function_basis(body, lead, one_function=one_function)
    rates, jumps = conditions
    equal = [basis.rate_rows(rate, rate.lines) for rate in rates]
    at_most = [basis.rate_rows(rate, rate.rays) for rate in rates]
    squares, flat, first = [], [], 0
    for jump in jumps:
        count, num = len(jump.table), jump.num_rays
        of = jump.before, jump.after
        squares += [(first + i, first + k, *of) for i in range(num) for k in range(num)]
        flat += [(first + i, first + k, *of) for i in range(num, count) for k in range(i + 1)]
        first += count
    table = stack([jump.table for jump in jumps], 3 * body.nv + 1)
    if flat:
        equal.append(basis.exact_rows(table, tuple(np.array(flat).T)))
    values = np.zeros((0, len(basis)))
    if squares:
        values = basis.jump_rows(directions(table), basis.lead.floats(), 1, tuple(np.array(squares).T))
    lengths = np.sqrt(np.sum(values**2, axis=1))
    forms, at = [], 0
    for jump in jumps:
        num = jump.num_rays

        def entry(i: int, k: int, jump: Jump = jump) -> Ints:
            pair = tuple(np.array([[i], [k], [jump.before], [jump.after]]))
            return basis.exact_rows(jump.table, pair)[0]

        forms.append(Form(num, float(np.max(lengths[at : at + num**2], initial=0.0)), entry))
        at += num**2
    equals, most = (_distinct(stack(found, len(basis))) for found in (equal, at_most))
    return Family(basis, equals, most, forms, values, 1 if drift else 1 + body.nc)


def _distinct(rows: Ints) -> Ints:
    return stack([whole(row) for row in dict.fromkeys(map(tuple, rows)) if any(row)], rows.shape[1])


def reduced(found: Family) -> tuple[Ints, np.ndarray, list[np.ndarray]]:
    """A basis of the coefficients that satisfy all equalities, and the other conditions over it, in floats.

    A ray without a square (its form vanishes on it for every V) must have its products >= 0: those join the
    linear conditions, and the ray leaves the form. Two opposite inequalities are an equality more, taken
    exactly.
    """
    equal = found.equal
    while True:
        equal, _ = reduce_rows(equal)
        space = null_space(equal)
        if not len(space):
            return space, np.zeros((0, 0)), []
        rows, sources, forms = _over(directions(space).T, found)
        opposite: Any = (
            np.argwhere(np.linalg.norm(rows[:, None] + rows[None], axis=2) < 1e-9) if len(rows) else []
        )
        more = [sources[i]() for i, k in opposite if i < k]
        if not more:
            return space, _unrepeated(rows), forms
        equal = stack([equal, *more], len(found.basis))


def _unrepeated(rows: np.ndarray) -> np.ndarray:
    _, first = np.unique(rows.round(12), axis=0, return_index=True)
    return rows[np.sort(first)]


def _over(space: np.ndarray, found: Family) -> tuple[np.ndarray, list[Callable[[], Ints]], list[np.ndarray]]:
    """Unit rows of the inequalities with their exact sources, and the forms, over a basis of coefficients."""
    size = np.linalg.norm(space)
    rows: list[np.ndarray] = []
    sources: list[Callable[[], Ints]] = []

    def add(row: np.ndarray, scale: float, source: Callable[[], Ints]) -> None:
        length = math.sqrt(row @ row)
        if length > SAME * scale * size:
            rows.append(row / length)
            sources.append(source)

    for exact, row in zip(found.at_most, directions(found.at_most), strict=True):
        add(row @ space, math.sqrt(row @ row), lambda exact=exact: exact)  # type: ignore[misc]
    values = found.values @ space
    lengths = np.sqrt(np.sum(values**2, axis=1)).tolist()
    forms, at = [], 0
    for form in found.forms:
        end = at + form.size**2
        table = values[at:end].reshape(form.size, form.size, -1)
        squares, at = lengths[at : end : form.size + 1], end
        kept = list(range(form.size))

        def move(i: int, k: int, form: Form = form, table: np.ndarray = table) -> None:
            add(-table[i, k], form.scale, lambda: -form.entry(i, k))

        for flat in [i for i in kept if squares[i] <= SAME * form.scale * size]:
            kept.remove(flat)
            for k in kept:
                move(flat, k)
        if len(kept) == 1:
            move(kept[0], kept[0])
        elif kept:
            forms.append(table if len(kept) == form.size else table[np.ix_(kept, kept)])
    return np.array(rows).reshape(len(rows), space.shape[1]), sources, forms

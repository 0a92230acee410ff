"""Functions V as combinations of basis functions, and the conditions on their coefficients: entry `family`.

V = a q + v' Q v / 2 with a = s c + J_n^T y, where c is the force (or a direction of drift), and the turned
Q of bounces. Every condition is linear in (s, y, Q, b). Equalities are kept in rational numbers;
inequalities and forms, which only steer the solver, in floats. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.stability.impact_conditions import Conditions, split_table
from jaxcontact.stability.rational import (
    Ints,
    Rational,
    directions,
    joined,
    null_space,
    primitive,
    stack,
    whole,
    zeros,
)
from jaxcontact.stability.rational_modes import Exact, Rate

Pairs = tuple[np.ndarray, ...]  # indices: two generators, Q before the impact, Q after it
ZERO_ROW = 1e-11  # relative size of a row, or of the sum of two unit rows, that counts as zero


@dataclasses.dataclass(frozen=True)
class Basis:
    """Functions of one coefficient each: s and the y, the entries of Q, then those of the b_k.

    Attributes:
        lead: rows c, J_n of the linear parts, (1 + nc, nv).
        pairs: (2, n) the rows and columns of the entries of Q.
        bounces: contacts with a b_k; none if V is one function.
        kinds: number of b_k of a contact, one for every kind of impact or one for all.
    """

    body: Exact
    lead: Rational
    pairs: np.ndarray
    bounces: list[int]
    kinds: int = 1

    @property
    def turns(self) -> list[int]:
        """Numbers of the b_k, by contact and kind."""
        return [self.kinds * k + kind for k in self.bounces for kind in range(self.kinds)]

    def __len__(self) -> int:
        return len(self.lead) + self.pairs.shape[1] + len(self.turns) * self.body.nv

    def function(self, coefficients: Rational) -> tuple[Rational, Rational, Rational]:
        """Combine coefficients into (a, Q, b)."""
        nv, at = self.body.nv, len(self.lead)
        quadratic, turns = zeros(nv, nv), zeros(self.kinds * self.body.nc, nv)
        for i, k, value in zip(*self.pairs, coefficients.num[at:], strict=False):
            quadratic[i, k] = quadratic[k, i] = value
        for number, turn in enumerate(self.turns):
            start = at + self.pairs.shape[1] + number * nv
            turns[turn] = coefficients.num[start : start + nv]
        den = coefficients.den
        return coefficients[:at] @ self.lead, Rational(quadratic, den), Rational(turns, den)

    def functions(self, lead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute every a (n, nv), and every Q in contact and after impacts (1 + nc kinds, n, nv, nv)."""
        nv, at = self.body.nv, len(lead)
        linear = np.zeros((len(self), nv), lead.dtype)
        quadratic = np.zeros((1 + self.kinds * self.body.nc, len(self), nv, nv), lead.dtype)
        linear[:at] = lead
        for number, (i, k) in enumerate(self.pairs.T, start=at):
            quadratic[:, number, i, k] = quadratic[:, number, k, i] = 1.0
        at += self.pairs.shape[1]
        for number in self.turns:
            turn = np.eye(nv)[:, :, None] * linear[1 + number // self.kinds]
            quadratic[1 + number, at : at + nv] = turn + np.swapaxes(turn, 1, 2)
            at += nv
        return linear, quadratic

    def rate_rows(self, rate: Rate, generators: Ints) -> Ints:
        """Compute dV/dt of every function for velocities, each row up to a positive factor."""
        a, (i, k) = rate.acceleration, self.pairs
        same = np.where(i == k, 0, 1)
        quadratic = generators[:, i] * a.num[k] + same * generators[:, k] * a.num[i]
        linear = generators @ self.lead.num.T
        none = zeros(len(generators), len(self.turns) * self.body.nv)
        return primitive(np.concatenate([linear * a.den, quadratic * self.lead.den, none], axis=1))

    def jump_rows(self, table: PyTree, lead: PyTree, den: int, pairs: Pairs) -> PyTree:
        """Compute `jump_forms` of every function at pairs of generators, times den, in integers or floats.

        Args:
            table: generators, as `Jump.table`, or their floats.
            lead: numerators of the linear parts, or their floats.
            den: their denominator.
            pairs: of generators, with the indices of Q before and after the impact.
        """
        start, end, total, time = split_table(table)
        first, second, before, after = pairs
        along = total @ lead.T
        rows = [-(time[first, None] * along[second] + time[second, None] * along[first])]
        i, k = self.pairs
        cross, quadratic = np.where(i == k, 0, 1), 0
        for sign, x in ((2 * den, start), (-2 * den, end)):
            x1, x2 = x[first], x[second]
            quadratic = quadratic + sign * (x1[:, i] * x2[:, k] + cross * x1[:, k] * x2[:, i])
        rows.append(quadratic)
        for number in self.turns:
            turn, normal = 0, lead[1 + number // self.kinds]
            for sign, x, which in ((2, start, before), (-2, end, after)):
                gap, signed_share = x @ normal, sign * (which == 1 + number)
                bounced = gap[first, None] * x[second] + gap[second, None] * x[first]
                turn = turn + signed_share[:, None] * bounced
            rows.append(turn)
        return np.concatenate(rows, axis=1)

    def exact_rows(self, table: Ints, pairs: Pairs) -> Ints:
        """Compute `jump_rows` exactly, each row up to a positive factor."""
        return primitive(self.jump_rows(table, self.lead.num, self.lead.den, pairs))


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The data of a program in floats; or complex, with small tangents as imaginary parts.

    Attributes:
        force: (nv,).
        lead: `Basis.lead`.
        table: `ConditionFamily.table`, each row up to a positive factor.
        at_most: `ConditionFamily.at_most`, likewise.
        space: basis of the coefficients that satisfy the equalities, likewise; empty before they are solved.
    """

    force: np.ndarray
    lead: np.ndarray
    table: np.ndarray
    at_most: np.ndarray
    space: np.ndarray


@dataclasses.dataclass(frozen=True)
class ConditionFamily:
    """Conditions over the coefficients of a basis.

    Attributes:
        basis: the function of each coefficient.
        equal: rows that must vanish.
        at_most: rows that must be <= 0.
        table: generators of all jumps.
        pairs: of generators; their products are the entries of the forms, which must be copositive.
        rays: number of rays of each form.
        numbers: the conditions in floats.
        positive: number of leading coefficients that must be positive.
    """

    basis: Basis
    equal: Ints
    at_most: Ints
    table: Ints
    pairs: Pairs
    rays: list[int]
    numbers: Numbers
    positive: int

    def rows(self, numbers: Numbers) -> np.ndarray:
        """Compute the rows of `at_most`, then minus those of `pairs`."""
        values = self.basis.jump_rows(numbers.table, numbers.lead, 1, self.pairs)
        return np.concatenate([numbers.at_most, -values])

    def exact_row(self, index: int) -> Ints:
        """Compute one row of `rows` exactly, up to a positive factor."""
        pair = index - len(self.at_most)
        if pair < 0:
            return self.at_most[index]
        pairs = tuple(indices[pair : pair + 1] for indices in self.pairs)
        return -self.basis.exact_rows(self.table, pairs)[0]


def function_basis(body: Exact, lead: Rational, *, one_function: bool, kinds: int = 1) -> Basis:
    """Make the basis, with the b_k of the contacts that bounce unless V is one function."""
    pairs = np.array(list(itertools.combinations_with_replacement(range(body.nv), 2))).T
    bounces = [k for k in range(body.nc) if body.bounces(k) and not one_function]
    return Basis(body, joined([lead[None], body.normal]), pairs, bounces, kinds)


def family(
    body: Exact,
    conditions: Conditions,
    lead: Rational,
    *,
    drift: bool = False,
    one_function: bool = False,
    kinds: int = 1,
) -> ConditionFamily:
    """Write all conditions as rows over a basis; with `drift`, only the coefficient of `lead` is positive."""
    basis = function_basis(body, lead, one_function=one_function, kinds=kinds)
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
    pairs = tuple(np.array(squares, int).reshape(-1, 4).T)
    equals, at_mosts = (_drop_repeated(stack(found, len(basis))) for found in (equal, at_most))
    rays = [jump.num_rays for jump in jumps]
    numbers = Numbers(
        body.force.floats(),
        basis.lead.floats(),
        directions(table),
        directions(at_mosts),
        np.zeros((0, len(basis))),
    )
    return ConditionFamily(basis, equals, at_mosts, table, pairs, rays, numbers, 1 if drift else 1 + body.nc)


def _drop_repeated(rows: Ints) -> Ints:
    """Remove zero rows and repetitions of rows."""
    return stack([whole(row) for row in dict.fromkeys(map(tuple, rows)) if any(row)], rows.shape[1])


def order_columns(rows: Ints) -> list[int]:
    """Order the columns so that pivots are well away from zero.

    Geometry makes some entries zero up to the rounding of sines; in another order they are pivots of 1e-17.
    """
    from scipy.linalg import qr  # inside the function, because the import takes long

    if not len(rows):
        return list(range(rows.shape[1]))
    return qr(directions(rows), mode="r", pivoting=True)[-1].tolist()


def solutions(rows: Ints, order: list[int]) -> Ints:
    """Compute a basis of {x: rows x = 0} by pivots in the first possible columns of an order."""
    return null_space(rows[:, order])[:, np.argsort(order)]


@dataclasses.dataclass(frozen=True)
class Reduced:
    """The coefficients that satisfy all equalities, and the conditions that remain over them.

    Attributes:
        space: basis of the coefficients.
        order: of the columns in its elimination.
        equalities: `ConditionFamily.rows` that are equalities because their opposites are also conditions.
        linear: rows that must be <= 0.
        forms: rows that are the entries of forms (k, k); minus each form must be copositive.
    """

    space: Ints
    order: list[int]
    equalities: list[int]
    linear: list[int]
    forms: list[np.ndarray]


def reduced(condition_family: ConditionFamily) -> Reduced:
    """Solve all equalities; return the space of coefficients and the conditions that remain.

    A ray without a square (its form vanishes on it for every V) must have its products >= 0: these become
    linear conditions, and the ray leaves the form. Two opposite inequalities are another equality, solved
    exactly.
    """
    rows = condition_family.rows(condition_family.numbers)
    lengths = np.sqrt(np.sum(rows**2, axis=1)).tolist()
    equal = condition_family.equal
    equalities: list[int] = []
    while True:
        order = order_columns(equal)
        space = solutions(equal, order)
        if not len(space):
            return Reduced(space, order, equalities, [], [])
        columns = directions(space).T
        over = rows @ columns
        over_lengths = np.sqrt(np.sum(over**2, axis=1))
        linear, forms = _sort_rows(
            condition_family, lengths, (over_lengths / np.linalg.norm(columns)).tolist()
        )
        unit = over[linear] / over_lengths[linear, None]
        both = np.linalg.norm(unit[:, None] + unit[None], axis=2) < 1e-9
        more = [linear[i] for i, k in np.argwhere(both) if i < k]
        if not more:
            _, first = np.unique(unit.round(12), axis=0, return_index=True)
            return Reduced(space, order, equalities, [linear[i] for i in np.sort(first)], forms)
        equalities += more
        equal = stack([equal, *(condition_family.exact_row(i) for i in more)], len(condition_family.basis))


def _sort_rows(
    condition_family: ConditionFamily, lengths: np.ndarray, over: np.ndarray
) -> tuple[list[int], list[np.ndarray]]:
    """Sort rows into linear conditions and forms, by the lengths of rows before and over the space."""
    at = len(condition_family.at_most)
    linear = [i for i in range(at) if over[i] > ZERO_ROW * lengths[i]]
    forms = []
    for size in condition_family.rays:
        end = at + size**2
        smallest_length = ZERO_ROW * max(lengths[at:end], default=0.0)
        square_rays = list(range(size))
        moved: list[int] = []
        for flat in [i for i in square_rays if over[at + i * (size + 1)] <= smallest_length]:
            square_rays.remove(flat)
            moved += [at + flat * size + k for k in square_rays]
        if len(square_rays) == 1:
            moved.append(at + square_rays[0] * (size + 1))
        elif square_rays:
            forms.append(at + size * np.array(square_rays)[:, None] + square_rays)
        linear += [i for i in moved if over[i] > smallest_length]
        at = end
    return linear, forms

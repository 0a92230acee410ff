"""Impacts with the flights before them, in rational numbers, as conditions on V: entry function `conditions`.

Owns `Jump`, the condition that V does not rise over an impact of one kind, with the flight before it and the
contact after it. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from jaxcontact.stability.body import AT_ONCE_LAW, IMPACT_LAW
from jaxcontact.stability.generators import cone_generators
from jaxcontact.stability.rational import Ints, Rational, identity, joined, primitive, stack, zeros
from jaxcontact.stability.rational_modes import Exact, Rate, RationalFunction, Unprovable, rates

Conditions = tuple[list[Rate], list["Jump"]]
_After = tuple[str, list[int], int]  # name, gaps closed after the impact, index of Q
RECURRING = "homogeneous", "by_kind"  # methods that keep to the impacts that recur
KINDS = "stick", "P", "N"  # of impacts: with "by_kind", Q after each has a number of its own


@dataclasses.dataclass(frozen=True)
class Jump:
    """V after <= V before; each generator gives the velocities at both ends and the flight before the impact.

    A row of `table`, up to a positive factor, is a generator x: (start, end, sum, time), where the
    displacement of the flight is time sum / 2. V changes by the quadratic form with the entries
    (end' Q_e end - start' Q_s start) / 2 + (time_1 a sum_2 + time_2 a sum_1) / 4.
    """

    name: str
    table: Ints
    num_rays: int  # the generators after them are lines
    before: int  # index of the quadratic part at the start, as `quadratic_after`; 0 in contact
    after: int


@dataclasses.dataclass(frozen=True)
class Impact:
    """One kind of impact: impulse rows (normal, tangential) of the velocity, and rows that must be >= 0."""

    kind: str
    impulse: Rational  # (2, nv)
    valid: Ints


def list_impacts(body: Exact, i: int) -> list[Impact]:
    """List stick and both slips at contact i, as linear maps of the velocity before.

    Raises:
        Unprovable: an impulse that is not determined.
    """
    n, t, mu = body.normal[i], body.tangent[i], body.mu[i]
    pair = joined([n[None], t[None]])
    delassus = pair @ body.M_inv @ pair.T
    unit, ((gnn, gnt), (_, gtt)) = delassus.den, delassus.num
    det = gnn * gtt - gnt * gnt
    if not det:
        raise Unprovable(f"the impulse at contact {i} is not determined")
    need = -(n + body.e[i] * n)
    outcomes = []
    if mu.num:
        along = Rational(gtt * unit, det) * need + Rational(gnt * unit, det) * t
        across = Rational(-gnt * unit, det) * need - Rational(gnn * unit, det) * t
        cone = stack([(mu * along - across).num, (mu * along + across).num], body.nv)
        outcomes.append(Impact("stick", joined([along[None], across[None]]).simplified(), primitive(cone)))
    for kind, sign in (("P", 1), ("N", -1)):
        pivot = gnn * mu.den - sign * mu.num * gnt
        if pivot == 0:
            raise Unprovable(f"the impulse of a slip {kind} at contact {i} is not determined")
        if pivot < 0:
            continue  # possible only without approach; the stick above covers that
        size = Rational(unit * mu.den, pivot) * need
        drag = Rational(-sign * mu.num, mu.den) * size
        after = t + Rational(gnt, unit) * size + Rational(gtt, unit) * drag
        impulse = joined([size[None], drag[None]]).simplified()
        outcomes.append(Impact(kind, impulse, primitive(sign * after.num[None])))
    return outcomes


@dataclasses.dataclass(frozen=True)
class _Before:
    """A situation before an impact, over z = v before, or (v, time) for flights of any time."""

    name: str
    equal: list[Ints]
    at_least: list[Ints]
    start: Rational  # from z to (start, sum, time) as in `Jump`
    function: int = 0


def count_kinds_of_impact(method: str) -> int:
    """Count the quadratic parts that a method has after impacts at one contact."""
    return len(KINDS) if method == "by_kind" else 1


def quadratic_after(method: str, contact: int, kind: str) -> int:
    """Number the quadratic part after an impact: 1 + k, or by contact and kind."""
    return 1 + contact if count_kinds_of_impact(method) == 1 else 1 + len(KINDS) * contact + KINDS.index(kind)


def _split_by_slip(body: Exact, before: _Before) -> list[_Before]:
    """Split a situation after an impact by the kind of that impact, which the slip at its start shows."""
    contact = before.function - 1
    slip = before.start.num[:, : body.nv] @ body.tangent.num[contact]
    rows = {"stick": ([slip], []), "P": ([], [slip]), "N": ([], [-slip])}
    return [
        dataclasses.replace(
            before,
            name=f"{before.name} {kind}",
            equal=[*before.equal, *equal],
            at_least=[*before.at_least, *at_least],
            function=quadratic_after("by_kind", contact, kind),
        )
        for kind, (equal, at_least) in rows.items()
    ]


def _start_matrix(body: Exact, duration: Rational) -> Rational:
    """Compute the matrix `_Before.start` from a row that gives the time of the flight."""
    v = identity(len(duration))[:, : body.nv]
    drop = duration[:, None] * body.pull[None]
    return joined([Rational(v) - drop, Rational(2 * v) - drop, duration[:, None]], axis=1)


def _row_with_time(v: Rational, time: Rational) -> Ints:
    """Append the coefficient of the time of a flight to a row over v; return it up to a positive factor."""
    return joined([v, Rational(np.array([time.num], dtype=object), time.den)]).num


def _list_befores(body: Exact, i: int, method: str) -> list[_Before]:
    """List the situations before an impact at contact i that a method distinguishes."""
    nv, n, fall, none = body.nv, body.normal[i], body.fall[i], Rational(0)
    approach, nothing = -n.num, _start_matrix(body, Rational(zeros(nv)))
    time = identity(nv + 1)[nv]
    within = _row_with_time(-(n + n), -fall)  # 2 |gap'| - g s >= 0
    flying = [_row_with_time(-n, none), time, within]
    if method == "single" or (method == "full" and not any(body.e.num)):
        return [_Before("any", [], [approach], nothing)]
    if method == "full":
        return [_Before("any", [], flying, _start_matrix(body, Rational(time)))]
    situations = []
    for k in range(body.nc):
        if k == i and body.bounces(i):
            bounce = Rational(-2 * fall.den, fall.num) * n
            situations.append(_Before(f"bounce {i}", [], [approach], _start_matrix(body, bounce), 1 + i))
        elif k != i:
            situations.append(_Before(f"on {k}", [body.normal.num[k]], [approach], nothing))
            if body.bounces(k):
                since = _row_with_time(body.normal[k], body.fall[k] * Rational(1, 2))
                situations.append(
                    _Before(f"from {k}", [], [*flying, since], _start_matrix(body, Rational(time)), 1 + k)
                )
    if count_kinds_of_impact(method) == 1:
        return situations
    return [part for x in situations for part in (_split_by_slip(body, x) if x.function else [x])]


def _list_afters(body: Exact, i: int, kind: str, method: str) -> list[_After]:
    """List the forms that V can have after an impact of a kind at i."""
    if method not in RECURRING or not body.bounces(i):
        return [("", [], 0)]
    closed = [(f", to {k}", [k], 0) for k in range(body.nc) if k != i]
    return [("", [], quadratic_after(method, i, kind)), *closed]


def list_jumps(body: Exact, method: str) -> list[Jump]:
    """List the conditions over every impact with the situations before and after it."""
    conditions = []
    for i in range(body.nc):
        kinds = list_impacts(body, i)
        ends = [impact_end(body, i, kind) for kind in kinds]
        for before, (kind, end) in itertools.product(
            _list_befores(body, i, method), zip(kinds, ends, strict=True)
        ):
            name, afters = f"impact {i} {kind.kind}, {before.name}", _list_afters(body, i, kind.kind, method)
            conditions += _make_jumps(body, name, before, kind.valid, end, afters)
        n = body.normal.num[i]
        along, across = n @ body.M_inv.num @ n, n @ body.M_inv.num @ body.tangent.num[i]
        ratio = body.mu[i] * Rational(abs(across) * body.normal.den, along * body.tangent.den)
        if ratio.num >= ratio.den and method in RECURRING:  # jamming without approach
            sliding = _Before("sliding", [n], [], _start_matrix(body, Rational(zeros(body.nv))))
            for kind, end in zip(kinds, ends, strict=True):
                if kind.kind == "stick":
                    name = f"impact {i} stick, sliding"
                    conditions += _make_jumps(body, name, sliding, kind.valid, end, [("", [], 0)])
    return conditions


def impact_end(body: Exact, i: int, kind: Impact) -> Rational:
    """Compute the matrix that maps a row of the velocity before an impact to the one after it."""
    pair = joined([body.normal[i][None], body.tangent[i][None]])
    return (Rational(identity(body.nv)) + kind.impulse.T @ (pair @ body.M_inv)).simplified()


def _make_jumps(
    body: Exact, name: str, before: _Before, valid: Ints, end: Rational, afters: list[_After]
) -> list[Jump]:
    """Make a jump for each of `afters` that has generators."""
    size, nv = len(before.start), body.nv
    still = zeros(size - nv, nv)  # rows of the time of a flight, on which `valid` and `end` do not depend
    common = math.lcm(before.start.den, end.den)
    flight = before.start.num * (common // before.start.den)
    hit = np.concatenate([end.num * (common // end.den), still])
    table = np.concatenate([flight[:, :nv], hit, flight[:, nv:]], axis=1)
    at_least = stack([*before.at_least, np.concatenate([valid, zeros(len(valid), size - nv)], axis=1)], size)
    conditions = []
    for ending, closing, after in afters:
        closed = [np.concatenate([end.num @ body.normal.num[k], still[:, 0]]) for k in closing]
        rays, lines = cone_generators(stack([*before.equal, *closed], size), at_least)
        z = np.concatenate([rays, lines]) if len(lines) else rays
        if len(z):
            conditions.append(Jump(name + ending, primitive(z @ table), len(rays), before.function, after))
    return conditions


def list_joint_jumps(body: Exact) -> list[Jump]:
    """List the conditions over impacts of several contacts at once, inelastic, by Coulomb's law.

    Struck are any contacts that touch; one of them is closed, gap' = 0, and no other separates. Each word has
    a letter per struck contact: without impulse, stick, or slip either way. The cone of (velocity before,
    impulses) is taken as it is, so that every solution counts where there are several.
    """
    jumps = []
    for size in range(1, body.nc + 1):
        for struck in itertools.combinations(range(body.nc), size):
            for word in itertools.product("FSPN", repeat=size):
                if set(word) != {"F"}:
                    jumps += [_make_joint_jump(body, struck, word, k) for k in struck]
    return [jump for jump in jumps if jump is not None]


def _make_joint_jump(body: Exact, struck: tuple[int, ...], word: tuple[str, ...], closed: int) -> Jump | None:
    """Make the condition over one word of an impact, with contact `closed` closed; None without a change."""
    pushes = stack([body.cones[i][letter] for i, letter in zip(struck, word, strict=True)], body.nv)
    size = body.nv + len(pushes)
    before = np.concatenate([identity(body.nv), zeros(len(pushes), body.nv)]) * body.M_inv.den
    after = before + np.concatenate([zeros(body.nv, body.nv), pushes @ body.M_inv.num])
    equal, at_least = [before @ body.normal.num[closed]], [identity(size)[body.nv :]]
    for i, letter in zip(struck, word, strict=True):
        gap, slip = after @ body.normal.num[i], after @ body.tangent.num[i]
        if i != closed:
            at_least.append(-(before @ body.normal.num[i]))
        (at_least if letter == "F" else equal).append(gap)
        if letter == "S":
            equal.append(slip)
        elif letter != "F":
            at_least.append(slip if letter == "P" else -slip)
    rays, lines = cone_generators(stack(equal, size), stack(at_least, size))
    table = np.concatenate([before, after, 2 * before, zeros(size, 1)], axis=1)
    rays, lines = (part @ table for part in (rays, lines))
    rays, lines = (part[[any(row) for row in part]] for part in (rays, lines))
    rows = np.concatenate([rays, lines])
    if np.array_equal(rows[:, : body.nv], rows[:, body.nv : 2 * body.nv]):
        return None
    name = ", ".join(f"{i} {letter}" for i, letter in zip(struck, word, strict=True))
    return Jump(f"impact {name}, on {closed}", primitive(rows), len(rays), 0, 0)


def conditions(body: Exact, method: str, law: str = IMPACT_LAW) -> Conditions:
    """List all conditions on V of a method, under an impact law.

    Method "homogeneous" keeps to the impacts that recur. Before an impact at contact i there was either a
    flight, for a time s >= 0, that an impact at some k with e_k > 0 began: at k = i for s = 2 |gap_i'| / g_i;
    at another k with gap_k = 0 and gap_i >= 0 at its start and gap_k >= 0 at its end. Or another contact k is
    closed, gap_k' = 0: the body moved on it, or it was hit just before with e_k = 0. First impacts of a
    perturbation do not recur and only multiply it by a bounded factor. After an impact at k, V counts with
    Q_k = Q + J_k b_k^T + b_k J_k^T instead of Q (J_k the row of the gap); it is V again after k has closed,
    gap_k' = 0. With b_k = 0, a rotation about a foot that bounces must cancel from impact to impact, which
    leaves V only three coefficients; with b_k it cancels from apex to apex, as in truth. "by_kind" has a b_k
    for each kind of impact, stick or slip either way, which the slip after it shows. Methods "single" and
    "full" keep to all velocities before an impact and to b_k = 0, as their papers do.

    With `AT_ONCE_LAW`, for "homogeneous" without restitution, the impacts are those of `list_joint_jumps`.

    Raises:
        ValueError: no such law with that method and body.
        Unprovable: a contact does not close by itself, or forces or impulses are not determined.
    """
    if any(fall <= 0 for fall in body.fall.num):
        raise Unprovable("a contact does not close by itself in free flight")
    if law == AT_ONCE_LAW and method == "homogeneous" and not any(body.e.num):
        return rates(body, flight=False), list_joint_jumps(body)
    if law != IMPACT_LAW:
        raise ValueError(f"law: no conditions of method {method!r} under {law!r}")
    return rates(body, flight=method == "single"), list_jumps(body, method)


def split_table(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split the table of a jump, or its floats, into columns (start, end, sum, time)."""
    nv = (table.shape[1] - 1) // 3
    return table[:, :nv], table[:, nv : 2 * nv], table[:, 2 * nv : -1], table[:, -1]


def jump_forms(jumps: Sequence[Jump], function: RationalFunction) -> list[Rational]:
    """Compute minus four times the change of V as symmetric matrices, for each jump over its generators."""
    if not jumps:
        return []
    den = math.lcm(function.linear.den, *(q.den for q in function.quadratics))
    quadratics = [q.num * (2 * den // q.den) for q in function.quadratics]
    start, end, total, time = split_table(np.concatenate([jump.table for jump in jumps]))
    along = total @ (function.linear.num * (den // function.linear.den))
    forms, at = [], 0
    for jump in jumps:
        jump_rows = slice(at, at + len(jump.table))
        at += len(jump.table)
        product = np.outer(time[jump_rows], along[jump_rows])
        first = start[jump_rows] @ quadratics[jump.before] @ start[jump_rows].T
        last = end[jump_rows] @ quadratics[jump.after] @ end[jump_rows].T
        forms.append(Rational(first - last - product - product.T, den))
    return forms

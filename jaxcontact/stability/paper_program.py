"""The paper's program for two feet on a slope: entry function `paper_function`.

Owns polynomials as dictionaries and the semidefinite program of Varkonyi, section IV-A: V_2 of degree 2 or 3
with sums-of-squares multipliers. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import itertools

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.stability.impact_conditions import list_impacts
from jaxcontact.stability.modes import mode_words
from jaxcontact.stability.program import ConicProgram, ConicSolution, Solver
from jaxcontact.stability.rational import Ints, directions, null_space, stack
from jaxcontact.stability.rational_modes import Exact, Unprovable, mode_accelerations, mode_cone

Poly = dict[tuple[int, ...], float]
Base = list[tuple[int, ...]]


def _multiply(p: Poly, q: Poly) -> Poly:
    product: Poly = {}
    for (a, x), (b, y) in itertools.product(p.items(), q.items()):
        key = tuple(i + k for i, k in zip(a, b, strict=True))
        product[key] = product.get(key, 0.0) + x * y
    return product


def _plus(p: Poly, q: Poly, scale: float = 1.0) -> Poly:
    total = dict(p)
    for key, y in q.items():
        total[key] = total.get(key, 0.0) + scale * y
    return total


def _linear(row: PyTree) -> Poly:
    size = len(row)
    return {tuple(int(i == k) for k in range(size)): float(x) for i, x in enumerate(row) if x}


def _power(p: Poly, n: int, size: int) -> Poly:
    power: Poly = {(0,) * size: 1.0}
    for _ in range(n):
        power = _multiply(power, p)
    return power


def _monomials(size: int, degree: int) -> list[tuple[int, ...]]:
    return [m for m in itertools.product(range(degree + 1), repeat=size) if sum(m) <= degree]


def _bases(size: int) -> tuple[Base, Base]:
    """List monomials of degree 2 for sigma_0, and of degree 1 for the other multipliers."""
    return _monomials(size, 2), _monomials(size, 1)


def _compose(monomial: tuple[int, ...], forms: list[Poly], size: int) -> Poly:
    """Substitute linear forms in `size` variables into a monomial in (z, theta, u, v, omega)."""
    product: Poly = {(0,) * size: 1.0}
    for form, n in zip(forms, monomial, strict=True):
        product = _multiply(product, _power(form, n, size)) if n else product
    return product


class _PaperProgram:
    """Coefficients of V first, then the Gram matrices; each condition is an identity of polynomials."""

    def __init__(self, num_coefficients: int, table: np.ndarray, num_light: int, printed: bool) -> None:
        self.size = num_coefficients
        self.printed = printed
        self.table, self.num_light = table, num_light
        self.identities: list[tuple[dict[int, float], float]] = []
        self.grams: list[tuple[int, int]] = []

    def fix(self, row: dict[int, float], value: float) -> None:
        """Require row c + value = 0."""
        self.identities.append((row, value))

    def require(
        self, x: Poly, parts: list[Poly], constant: Poly, nonnegative: list[Poly], bases: tuple[Base, Base]
    ) -> None:
        """Require x and the monomials plus a constant to equal sigma_0 + sum sigma_i nonnegative_i.

        The sigmas are sums of squares over the two bases, the first for sigma_0, and constants if the factor
        is a product of two inequalities (without the ball, which is the last; no products as printed).
        """
        size = len(bases[0][0])
        light = [x, *parts[: self.num_light]]
        combined = []
        for weights in self.table:
            total: Poly = {}
            for weight, part in zip(weights, light, strict=True):
                total = _plus(total, part, float(weight))
            combined.append(total)
        parts = combined + parts[self.num_light :]
        rows: dict[tuple[int, ...], dict[int, float]] = {}
        rhs: dict[tuple[int, ...], float] = {}
        for k, part in enumerate(parts):
            for key, value in part.items():
                rows.setdefault(key, {})[k] = value
        for key, value in constant.items():
            rows.setdefault(key, {})
            rhs[key] = value
        unit: Poly = {(0,) * size: 1.0}
        several = [] if self.printed else nonnegative[:-1]
        products = [_multiply(g, h) for g, h in itertools.combinations(several, 2)]
        factors = [unit, *nonnegative, *products]
        for number, factor in enumerate(factors):
            base = bases[0] if number == 0 else bases[1] if number <= len(nonnegative) else list(unit)
            self.grams.append((self.size, len(base)))
            for k in range(len(base)):  # the upper triangle column by column, off-diagonals times sqrt 2
                for i in range(k + 1):
                    weight = 1.0 if i == k else np.sqrt(2.0)
                    both = tuple(a + b for a, b in zip(base[i], base[k], strict=True))
                    for key, value in factor.items():
                        at = tuple(a + b for a, b in zip(both, key, strict=True))
                        row = rows.setdefault(at, {})
                        row[self.size] = row.get(self.size, 0.0) - weight * value
                    self.size += 1
        self.identities += [(row, rhs.get(key, 0.0)) for key, row in rows.items()]

    def solve(self, solver: Solver) -> ConicSolution:
        """Find a solution without a cost; interior-point methods end near the centre of the feasible set."""
        cone = ConicProgram(self.size)
        cone.zero(*zip(*self.identities, strict=True))
        for start, size in self.grams:
            cone.matrix(start, size)
        return solver(np.zeros(self.size), *cone.arrays(), 1e-8)


def paper_function(body: Exact, space: Ints, degree: int, solver: Solver, *, printed: bool) -> ConicSolution:
    """Solve the paper's program; x starts with the coefficients of V_2's parts of weight 2 over `space`.

    V_2 = x + P(z, theta, u, v, omega), x along the drift; (54), V_2 >= x + u^4 + v^4 + omega^4; dV_2/dt <= 0
    in every mode and V_2 not rising over any impact, with restitution from any time of the flight before it;
    each within the unit ball and by multipliers for the inequalities of the state. Method "printed" is that,
    with its equations corrected. Method "full" weakens two conditions; otherwise the program fails at half of
    the points at which it need not. With multipliers of products of two inequalities a form is copositive on
    a cone of velocities by a sum of squares and products, as in `check.py`; the paper's single ones allow it
    only in the limit of a high degree. And (54) is asked of s V_0 + V_2, with the s at which x cancels: that
    also makes the larger of V_0 and V_2 positive.

    The solution is not exact. Near the equilibrium only the terms of weight 2 matter (q ~ s^2, v ~ s), and
    those of any true solution satisfy the conditions of `impact_conditions.py` for all velocities before an
    impact: so they are rounded and proved there. Terms linear in velocity must vanish, and the parts of
    weight 2 must satisfy the equalities that `space` solves. Both follow from the program and are
    substituted, because the program has no interior otherwise.

    Raises:
        Unprovable: not two feet of one body with a common drift.
    """
    drift = null_space(body.normal.num)
    if body.nv != 3 or body.nc != 2 or len(drift) != 1 or any(drift[0][1:]):
        raise Unprovable("the full program is for a body on two feet of one inclination, on a slope")
    heavy = [m for m in _monomials(5, degree) if 2 * sum(m[:2]) + sum(m[2:]) > 2]
    light: list[tuple[int, ...]] = [(1, 0, 0, 0, 0), (0, 1, 0, 0, 0)]
    light = [
        *light,
        *(tuple(int(i == k) + int(j == k) for k in range(5)) for i in (2, 3, 4) for j in range(i, 5)),
    ]
    slope = 1.0 if body.force.num[0] > 0 else -1.0
    table = np.zeros((len(space), 1 + len(light)))  # of x, then the light monomials, for each basis vector
    for k, vector in enumerate(directions(space)):
        table[k, :3] = vector[0] * body.force.floats() + vector[1:3] @ body.normal.floats()
        table[k, 3:] = vector[3:] * np.array([0.5 if max(m) == 2 else 1.0 for m in light[2:]])
    program = _PaperProgram(len(space) + len(heavy), table, len(light), printed)
    program.fix({k: slope * value for k, value in enumerate(table[:, 0])}, -1.0)
    monomials = light + heavy
    _positivity(program, body, monomials)
    for word in mode_words(2):
        if ("F" in word and word != "FF") or word in ("PP", "NN"):
            _mode(program, body, word, monomials)
    for contact in range(2):
        (_flight if any(body.e.num) else _require_decrease)(program, body, contact, monomials)
    return program.solve(solver)


def _ball(size: int) -> Poly:
    return {(0,) * size: 1.0, **{tuple(2 * int(i == k) for k in range(size)): -1.0 for i in range(size)}}


def _positivity(program: _PaperProgram, body: Exact, monomials: list[tuple[int, ...]]) -> None:
    """Require (54) for gaps >= 0: V_2 - x, or s V_0 + V_2 without x, >= u^4 + v^4 + omega^4."""
    parts: list[Poly] = [{m: 1.0} for m in monomials]
    f, mass = body.force.floats(), body.M.floats()
    constant: Poly = {tuple(4 * int(i == k) for k in range(5)): -1.0 for i in (2, 3, 4)}
    gaps = [_linear([*row[1:], 0.0, 0.0, 0.0]) for row in body.normal.floats().tolist()]
    if program.printed:
        program.require({}, parts, constant, [*gaps, _ball(5)], _bases(5))
        return
    constant = _plus(constant, _linear([*-f[1:], 0.0, 0.0, 0.0]), 1.0 / abs(f[0]))
    speeds: list[Poly] = [{tuple(int(i == k) for k in range(5)): 1.0} for i in (2, 3, 4)]
    for (i, u), (k, v) in itertools.product(enumerate(speeds), repeat=2):
        constant = _plus(constant, _multiply(u, v), 0.5 * mass[i, k] / abs(f[0]))
    program.require({}, parts, constant, [*gaps, _ball(5)], _bases(5))


def _mode(program: _PaperProgram, body: Exact, word: str, monomials: list[tuple[int, ...]]) -> None:
    """Require -dV/dt >= 0 along a mode, over the positions and velocities that satisfy its equalities."""
    rays, lines = mode_cone(body, word)
    if not len(rays) and not len(lines):
        return
    normal, tangent = body.normal.floats(), body.tangent.floats()
    closed = [body.normal.num[i] for i, letter in enumerate(word) if letter != "F"]
    stuck = [body.tangent.num[i] for i, letter in enumerate(word) if letter == "S"]
    places = directions(null_space(stack(closed, 3)[:, 1:]))
    speeds = directions(null_space(stack([*closed, *stuck], 3)))
    size = len(places) + len(speeds)
    to_q = np.concatenate([places, np.zeros((len(speeds), 2))]).T  # z, theta from the variables
    to_v = np.concatenate([np.zeros((len(places), 3)), speeds]).T
    forms = [_linear(row) for row in [*to_q, *to_v]]
    nonnegative = [_linear(normal[i, 1:] @ to_q) for i, c in enumerate(word) if c == "F"] + [
        _linear((1 if c == "P" else -1) * tangent[i] @ to_v) for i, c in enumerate(word) if c in "PN"
    ]
    for a in mode_accelerations(body, word):
        rate = [*forms[3:5], *({(0,) * size: x} for x in a.floats().tolist())]  # of z, theta, u, v, omega
        parts = []
        for m in monomials:
            total: Poly = {}
            for i in range(5):
                if m[i]:
                    less = tuple(n - (k == i) for k, n in enumerate(m))
                    total = _plus(total, _multiply(_compose(less, forms, size), rate[i]), -m[i])
            parts.append(total)
        program.require(
            {key: -value for key, value in forms[2].items()},
            parts,
            {},
            [*nonnegative, _ball(size)],
            _bases(size),
        )


def _require_decrease(
    program: _PaperProgram, body: Exact, contact: int, monomials: list[tuple[int, ...]]
) -> None:
    """Require V before - V after >= 0 over every impact at a contact, in the angle and the velocity."""
    n, t, back = (x.floats() for x in (body.normal[contact], body.tangent[contact], body.M_inv))
    place = directions(null_space(body.normal.num[contact][None, 1:]))[0]
    to_q = np.concatenate([place[:, None], np.zeros((2, 3))], axis=1)
    before = np.concatenate([np.zeros((3, 1)), np.eye(3)], axis=1)
    other = body.normal[1 - contact].floats()[1:] @ to_q
    for kind in list_impacts(body, contact):
        impulse = kind.impulse.floats() @ before
        after = before + back @ (np.outer(n, impulse[0]) + np.outer(t, impulse[1]))
        state_before, state_after = ([_linear(row) for row in [*to_q, *v]] for v in (before, after))
        parts = [_plus(_compose(m, state_before, 4), _compose(m, state_after, 4), -1.0) for m in monomials]
        rows = [other, -n @ before, *(row @ before for row in directions(kind.valid))]
        program.require({}, parts, {}, [*(_linear(row) for row in rows), _ball(4)], _bases(4))


def _flight(program: _PaperProgram, body: Exact, contact: int, monomials: list[tuple[int, ...]]) -> None:
    """Require V at a time Delta before an impact - V after it >= 0, in angle, velocity before, and Delta.

    By weight (q 2, v and Delta 1) the condition has terms up to twice the degree of V_2 only.
    """
    n, t, back = (x.floats() for x in (body.normal[contact], body.tangent[contact], body.M_inv))
    pull, fall = body.pull.floats(), body.fall.floats()
    place = directions(null_space(body.normal.num[contact][None, 1:]))[0]
    to_q = np.concatenate([place[:, None], np.zeros((2, 4))], axis=1)
    before = np.concatenate([np.zeros((3, 1)), np.eye(3), np.zeros((3, 1))], axis=1)
    time: Poly = {(0, 0, 0, 0, 1): 1.0}
    start = [_plus(_linear(row), time, -a) for row, a in zip(before, pull, strict=True)]
    mean = [_plus(_linear(row), time, -0.5 * a) for row, a in zip(before, pull, strict=True)]
    moved = [_multiply(time, mean_speed) for mean_speed in mean]
    earlier_state = [
        *(_plus(_linear(row), path, -1.0) for row, path in zip(to_q, moved[1:], strict=True)),
        *start,
    ]
    other = body.normal[1 - contact].floats()
    apart = _linear(other[1:] @ to_q)
    earlier = apart
    for value, path in zip(other, moved, strict=True):
        earlier = _plus(earlier, path, -float(value))
    arc = _plus(_linear(-2.0 * n @ before), time, -fall[contact])
    weighted = [m for m in _monomials(5, 3) if m[0] + sum(m) <= 3]
    bases = weighted, [m for m in weighted if m[0] + sum(m) <= 2]
    for kind in list_impacts(body, contact):
        impulse = kind.impulse.floats() @ before
        after = before + back @ (np.outer(n, impulse[0]) + np.outer(t, impulse[1]))
        state_after = [_linear(row) for row in [*to_q, *after]]
        parts = [_plus(_compose(m, earlier_state, 5), _compose(m, state_after, 5), -1.0) for m in monomials]
        rows = [_linear(row @ before) for row in [-n, *directions(kind.valid)]]
        x = {key: -value for key, value in moved[0].items()}
        program.require(x, parts, {}, [apart, earlier, time, arc, *rows, _ball(5)], bases)

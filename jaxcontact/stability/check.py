"""Proof checking: a certificate is substituted into every condition in rational arithmetic.

Owns the records `LyapunovFunction` and `Certificate` and the function `check`. Nothing here knows a solver or
rounds a number; what does not come out true is not proved.

The theorem (Varkonyi, theorem 2, for weight-2 functions of the zero-order dynamics). Let the equilibrium be
unambiguous, V_0 = v'Mv/2 - f q the energy, and every V_k not increase along contact modes and over
recurring impacts with the flights before them. If max V_k > 0 at every state but rest, the equilibrium is
stable. Instead of the paper's sufficient inequality (54) on V_2 alone, positivity is used as it is: with
one function beside the energy, V_2 = a q + v'Qv/2, it holds if

    a = s f + J_n^T y  with  s > 0, y > 0,    Q + s M positive definite,    rank (J_n; f) = nv,

for then s V_0 + V_2 = v'(Q + s M)v/2 + y gaps is positive unless v = 0 and all gaps are zero; there f q <=
0 is V_0 >= 0 and f q > 0 makes V_2 = s f q positive. So Q itself may be indefinite, which certifies more.
On level ground f is a combination of the gaps alone; then two functions with opposite drifts bound it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.stability.body import LocalTerms
from jaxcontact.stability.exact import (
    Conditions,
    Exact,
    Function,
    conditions,
    exact_terms,
    jump_form,
    make_function,
    negated,
    rate_value,
    starting_mode,
    static_forces_exist,
)
from jaxcontact.stability.rational import (
    Matrix,
    Row,
    combine,
    dot,
    exact,
    is_positive_definite,
    is_positive_semidefinite,
    null_space,
    reduce_rows,
    solve,
    transpose,
)


class LyapunovFunction(Record):
    """V(q, v) = a q + v' Q v / 2 with rational coefficients.

    Attributes:
        linear: a, (nv,) Fractions.
        quadratic: Q, (nv, nv) Fractions.
        turns: b_k, (nc, nv) Fractions; after an impact at k, Q + J_k b_k^T + b_k J_k^T takes the place of Q.
        weights: (s, y_1, ...) with a = s f + J_n^T y, for a function that stands alone beside the energy.
    """

    linear: tuple[Fraction, ...] = static()
    quadratic: tuple[tuple[Fraction, ...], ...] = static()
    turns: tuple[tuple[Fraction, ...], ...] = static()
    weights: tuple[Fraction, ...] = static(default=())

    def __call__(self, q: Any, v: Any) -> Any:
        """Its value in contact, in floats, over any leading axes."""
        a = np.array([float(x) for x in self.linear])
        matrix = np.array([[float(x) for x in row] for row in self.quadratic])
        return np.asarray(q) @ a + 0.5 * np.sum((np.asarray(v) @ matrix) * np.asarray(v), axis=-1)


class Certificate(Record):
    """What is known about an equilibrium; "stable" and "unstable" can be checked without any solver.

    Attributes:
        verdict: "stable", "unstable" or "undecided".
        method: the conditions that V satisfies: "homogeneous", "single" or "full".
        V: the functions beside the energy.
        gram: multipliers N >= 0 by (function, jump): minus the change of V minus N is semidefinite.
        residuals: margin of the program and what else was measured, by name.
        report: why, in words.
        mode: of an unstable equilibrium, the contact mode that starts from rest.
        body: the zero-order dynamics, whose stored numbers the proof is about.
    """

    verdict: str = static()
    method: str = static()
    V: tuple[LyapunovFunction, ...] = ()
    gram: dict[tuple[int, str], np.ndarray]
    residuals: dict[str, float]
    report: str = static()
    mode: str | None = static(default=None)
    body: LocalTerms


def check(certificate: Certificate) -> bool:
    """Whether a certificate proves its verdict, in rational arithmetic; False for anything else.

    Stable: equilibrium exists, no other mode starts from rest, and the functions satisfy every condition of
        `exact.py` and are positive together. Unstable: the named mode starts from rest. The statement is
        about the zero-order dynamics with the stored floats taken as exact.

    Derivative: none.
    """
    try:
        return _proved(certificate)
    except Exception:  # damaged in whatever way: not a proof
        return False


def _proved(certificate: Certificate) -> bool:
    if certificate.verdict not in ("stable", "unstable"):
        return False
    terms = certificate.body
    if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in jax.tree.leaves(terms)):
        return False
    body = exact_terms(terms)
    sound = all(mu >= 0 for mu in body.mu) and all(0 <= e < 1 for e in body.e)
    sound = sound and transpose(body.M) == body.M and is_positive_definite(body.M)
    if not sound or not static_forces_exist(body):
        return False
    word, strict = starting_mode(body)
    if certificate.verdict == "unstable":
        return word is not None
    if not strict:
        return False
    method = "homogeneous" if certificate.method == "full" else certificate.method
    if method not in ("homogeneous", "single"):
        return False
    return proves(body, certificate, conditions(body, method))


def proves(
    body: Exact, certificate: Certificate, every: Conditions, supply: Callable[[Matrix], Any] | None = None
) -> bool:
    """Whether the functions of a certificate satisfy the conditions of their method and are positive.

    With `supply`, multipliers that `certificate.gram` lacks are asked of it and stored there.
    """
    found = [_function(body, V) for V in certificate.V]
    if certificate.method == "single" and any(any(map(any, turns)) for turns in _turns(certificate)):
        return False
    if not _positive(body, found, [list(V.weights) for V in certificate.V]):
        return False
    functions = [energy(body), *found] if any(body.e) else found  # without restitution the energy never rises
    first = 0 if any(body.e) else 1
    return all(_never_rises(every, f, certificate.gram, first + k, supply) for k, f in enumerate(functions))


def _turns(certificate: Certificate) -> list[Matrix]:
    return [[list(row) for row in V.turns] for V in certificate.V]


def _function(body: Exact, V: LyapunovFunction) -> Function:
    """The stored function; of the wrong size or not symmetric it raises, and so proves nothing."""
    linear = [Fraction(x) for x in V.linear]
    quadratic = [[Fraction(x) for x in row] for row in V.quadratic]
    turns = [[Fraction(x) for x in row] for row in V.turns]
    if len(quadratic) != body.nv or len(turns) != body.nc:
        raise ValueError("wrong size")
    for vector in (linear, *quadratic, *turns):
        if len(vector) != body.nv:
            raise ValueError("wrong size")
    if quadratic != transpose(quadratic):
        raise ValueError("not a quadratic function")
    return make_function(body, linear, quadratic, turns)


def energy(body: Exact) -> Function:
    """The energy v'Mv/2 - f q."""
    return make_function(body, negated(body.force), body.M, [[Fraction(0)] * body.nv] * body.nc)


def _never_rises(
    every: Conditions,
    function: Function,
    gram: dict[tuple[int, str], Any],
    number: int,
    supply: Callable[[Matrix], Any] | None,
) -> bool:
    rates, jumps = every
    for rate in rates:
        if any(rate_value(rate, function, ray) > 0 for ray in rate.rays):
            return False
        if any(rate_value(rate, function, line) != 0 for line in rate.lines):
            return False
    for jump in jumps:
        form = jump_form(jump, function)
        if any(any(row) for row in form[jump.num_rays :]):
            return False
        square = [row[: jump.num_rays] for row in form[: jump.num_rays]]
        _, left = remaining(square)
        if supply is not None and len(left) > 2:
            gram[number, jump.name] = supply(left)
        if not _copositive(left, gram.get((number, jump.name))):
            return False
    return True


def remaining(form: Matrix) -> tuple[list[int], Matrix]:
    """A form without the rays whose products are all >= 0: it is copositive if the rest is."""
    kept = list(range(len(form)))
    while True:
        harmless = [i for i in kept if all(form[i][k] >= 0 for k in kept)]
        if not harmless:
            return kept, [[form[i][k] for k in kept] for i in kept]
        kept.remove(harmless[0])


def _copositive(form: Matrix, multipliers: Any) -> bool:
    if not form:
        return True
    if len(form) == 1:
        return form[0][0] >= 0
    if len(form) == 2:  # here the product is negative
        return form[0][0] >= 0 and form[1][1] >= 0 and form[0][1] ** 2 <= form[0][0] * form[1][1]
    if multipliers is None or np.shape(multipliers) != (len(form), len(form)):
        return False
    shift = exact(multipliers)
    if any(x < 0 for row in shift for x in row):
        return False
    left = [[a - b for a, b in zip(r, s, strict=True)] for r, s in zip(form, shift, strict=True)]
    return left == transpose(left) and is_positive_semidefinite(left)


def _positive(body: Exact, found: list[Function], weights: list[Row]) -> bool:
    """Whether the maximum of the energy and the functions is positive at every state but rest."""
    nv = body.nv
    if not found:
        return gaps_hold(body) and len(reduce_rows(body.normal)[1]) == nv
    if len(found) == 1:
        a, (s, *y) = found[0].linear, [Fraction(x) for x in weights[0]]
        if len(y) != body.nc or s <= 0 or any(x <= 0 for x in y):
            return False
        if combine([s, *y], [body.force, *body.normal], nv) != a:
            return False
        if len(reduce_rows([body.force, *body.normal])[1]) != nv:
            return False
        shifted = (
            [[x + s * m for x, m in zip(r, t, strict=True)] for r, t in zip(q, body.M, strict=True)]
            for q in found[0].quadratics
        )
        return all(is_positive_definite(each) for each in shifted)
    drift = null_space(body.normal, nv)
    if len(found) != 2 or len(drift) != 1 or not gaps_hold(body):
        return False
    along = [dot(function.linear, drift[0]) for function in found]
    return along[0] * along[1] < 0


def gaps_hold(body: Exact) -> bool:
    """Whether the external force presses on every gap: f = -J_n^T p, p > 0; then energy bounds v and gaps."""
    _, pivots = reduce_rows(transpose(body.normal))
    if len(pivots) < body.nc:
        mean = _pressing(body)
        return mean is not None
    p = solve(transpose(body.normal), negated(body.force))
    return p is not None and all(x > 0 for x in p)


def _pressing(body: Exact) -> Row | None:
    """Positive p for dependent gaps: the mean of all basic solutions, if it is positive."""
    from itertools import combinations

    rank = len(reduce_rows(body.normal)[1])
    corners = []
    for chosen in combinations(range(body.nc), rank):
        part = solve(transpose([body.normal[i] for i in chosen]), negated(body.force))
        if part is not None and all(x >= 0 for x in part):
            full = [Fraction(0)] * body.nc
            for i, x in zip(chosen, part, strict=True):
                full[i] = x
            corners.append(full)
    mean = [sum(column, Fraction(0)) for column in zip(*corners, strict=True)] if corners else []
    return mean if mean and all(x > 0 for x in mean) else None

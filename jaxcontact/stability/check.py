"""Proof checking: a certificate is substituted into every condition; entry function `check`.

Owns the records `LyapunovFunction` and `Certificate`. Functions V are checked in rational arithmetic, without
a solver and without rounding. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import jax
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.front_door import checked
from jaxcontact.stability import chatter_proof
from jaxcontact.stability.body import IMPACT_LAW, LocalTerms
from jaxcontact.stability.impact_conditions import Conditions, conditions, count_kinds_of_impact, jump_forms
from jaxcontact.stability.rational import (
    Rational,
    exact,
    is_positive_definite,
    is_positive_semidefinite,
    joined,
    null_space,
    rank,
    solve,
    whole,
    zeros,
)
from jaxcontact.stability.rational_modes import (
    Exact,
    RationalFunction,
    exact_terms,
    make_function,
    rate_values,
    starting_mode,
    static_forces_exist,
)

PAPER = "full", "printed"  # methods that search by the program of the paper


class LyapunovFunction(Record):
    """V(q, v) = a q + v' Q v / 2 with rational coefficients.

    Attributes:
        linear: a, (nv,) Fractions.
        quadratic: Q, (nv, nv) Fractions.
        turns: b_k, (nc, nv) Fractions; after an impact at k, Q + J_k b_k^T + b_k J_k^T replaces Q. With
            "by_kind" (3 nc, nv): by contact, for impacts that stick, then slip forward, then back.
        weights: (s, y_1, ...) with a = s f + J_n^T y, for a function that stands alone beside the energy.
    """

    linear: tuple[Fraction, ...] = static()
    quadratic: tuple[tuple[Fraction, ...], ...] = static()
    turns: tuple[tuple[Fraction, ...], ...] = static()
    weights: tuple[Fraction, ...] = static(default=())

    def __call__(self, q: PyTree, v: PyTree) -> PyTree:
        """Compute V in contact, in floats, over any leading axes."""
        a = np.array([float(x) for x in self.linear])
        matrix = np.array([[float(x) for x in row] for row in self.quadratic])
        return np.asarray(q) @ a + 0.5 * np.sum((np.asarray(v) @ matrix) * np.asarray(v), axis=-1)


class Certificate(Record):
    """A verdict on an equilibrium with its proof; "stable" and "unstable" can be checked without any solver.

    Attributes:
        verdict: "stable", "unstable" or "undecided".
        method: the conditions that V satisfies: "homogeneous", "by_kind", "single", "full" or "printed"; or
            "return_map".
        V: the functions beside the energy.
        gram: multipliers N >= 0 by (function, jump): minus the change of V minus N is semidefinite.
        residuals: margin of the program and other measured numbers, by name.
        report: the reason, in words.
        mode: of an unstable equilibrium, the contact mode that starts from rest.
        body: the zero-order dynamics, whose stored numbers the proof is about.
        levels: of "return_map", the function before landings, cell by cell, instead of V.
        law: the impact law of the motions that the verdict is about, in words.
    """

    verdict: str = static()
    method: str = static()
    V: tuple[LyapunovFunction, ...] = ()
    gram: dict[tuple[int, str], np.ndarray]
    residuals: dict[str, float]
    report: str = static()
    mode: str | None = static(default=None)
    body: LocalTerms
    levels: np.ndarray | None = None
    law: str = static(default=IMPACT_LAW)


@checked()
def check(certificate: Certificate) -> bool:
    """Return whether a certificate proves its verdict; False for "undecided" and for damaged certificates.

    Stable: the equilibrium exists, no other mode starts from rest, and the functions satisfy every condition
        of `rational_modes.py` and `impact_conditions.py` and are positive together, in rational arithmetic;
        with "return_map", the function before landings falls over the intervals in which floats enclose the
        motion. Unstable: a mode starts from rest. The statement is about the zero-order dynamics with the
        stored floats taken as exact.

    Derivative: none.
    """
    try:
        return _proved(certificate)
    except Exception:  # a damaged certificate proves nothing
        return False


def _proved(certificate: Certificate) -> bool:
    """Return whether a certificate proves its verdict; raise any error if it is damaged."""
    if certificate.verdict not in ("stable", "unstable"):
        return False
    terms = certificate.body
    if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in jax.tree.leaves(terms)):
        return False
    body = exact_terms(terms)
    sound = all(mu >= 0 for mu in body.mu.num) and all(0 <= e < body.e.den for e in body.e.num)
    sound = sound and body.M.equals(body.M.T) and is_positive_definite(body.M.num)
    if not sound or not static_forces_exist(body):
        return False
    word, strict = starting_mode(body)
    if certificate.verdict == "unstable":
        return word is not None
    if not strict:
        return False
    if certificate.method == "return_map":
        if certificate.law != IMPACT_LAW:
            return False
        return chatter_proof.proves(body, np.asarray(certificate.levels, float))
    method = "homogeneous" if certificate.method in PAPER else certificate.method
    if method not in ("homogeneous", "by_kind", "single"):
        return False
    return proves(body, certificate, conditions(body, method, certificate.law))


Supply = Callable[[Rational], np.ndarray | None]  # the multipliers of a form, None if there are none


def proves(
    body: Exact,
    certificate: Certificate,
    every: Conditions,
    supply: Supply | None = None,
) -> bool:
    """Return whether the functions of a certificate satisfy the conditions of their method and are positive.

    `supply` computes the multipliers of forms of more than two rays; they are stored in `certificate.gram`.

    The theorem (Varkonyi, theorem 2, for weight-2 functions of the zero-order dynamics): let the
    equilibrium be unambiguous, V_0 = v'Mv/2 - f q the energy, and every V_k not increase along contact modes
    and over recurring impacts with the flights before them. If max V_k > 0 at every state but rest, the
    equilibrium is stable. Instead of the paper's sufficient inequality (54) on V_2 alone, positivity is used
    as it is: with one function beside the energy, V_2 = a q + v'Qv/2, it holds if

        a = s f + J_n^T y  with  s > 0, y > 0,    Q + s M positive definite,    rank (J_n; f) = nv,

    for then s V_0 + V_2 = v'(Q + s M)v/2 + y gaps is positive unless v = 0 and all gaps are zero; there
    f q <= 0 is V_0 >= 0 and f q > 0 makes V_2 = s f q positive. So Q may be indefinite, which certifies more.
    On level ground f is a combination of the gaps alone; then two functions with opposite drifts bound it.
    """
    kinds = count_kinds_of_impact(certificate.method)
    candidates = [_read_function(body, V, kinds) for V in certificate.V]
    if certificate.method == "single" and any(any(map(any, V.turns)) for V in certificate.V):
        return False
    if not _maximum_is_positive(body, candidates, [exact(V.weights) for V in certificate.V]):
        return False
    elastic = any(body.e.num)  # without restitution the energy never rises
    functions = [energy(body, kinds), *candidates] if elastic else candidates
    first = 0 if elastic else 1
    return all(_never_rises(every, f, certificate.gram, first + k, supply) for k, f in enumerate(functions))


def _read_function(body: Exact, V: LyapunovFunction, kinds: int) -> RationalFunction:
    """Read the stored function; raise ValueError if it has the wrong size or is not symmetric."""
    linear, quadratic, turns = exact(V.linear), exact(V.quadratic), exact(V.turns)
    nv = body.nv
    if (
        linear.num.shape != (nv,)
        or quadratic.num.shape != (nv, nv)
        or turns.num.shape != (kinds * body.nc, nv)
    ):
        raise ValueError("wrong size")
    if not quadratic.equals(quadratic.T):
        raise ValueError("not a quadratic function")
    return make_function(body, linear, quadratic, turns)


def energy(body: Exact, kinds: int = 1) -> RationalFunction:
    """Make the energy v'Mv/2 - f q as a function V."""
    return make_function(body, -body.force, body.M, Rational(zeros(kinds * body.nc, body.nv)))


def _never_rises(
    every: Conditions,
    function: RationalFunction,
    gram: dict[tuple[int, str], PyTree],  # matrices, None where none was found
    number: int,
    supply: Supply | None,
) -> bool:
    """Return whether a function falls or stays along every rate and over every jump of the conditions."""
    rates, jumps = every
    for rate in rates:
        if any(x > 0 for x in rate_values(rate, function, rate.rays)):
            return False
        if any(rate_values(rate, function, rate.lines)):
            return False
    for jump, form in zip(jumps, jump_forms(jumps, function), strict=True):
        if np.any(form.num[jump.num_rays :]):
            return False
        left = remove_harmless_rays(form[: jump.num_rays, : jump.num_rays])
        if len(left) > 2:
            if any(x <= 0 for x in np.diag(left.num)):
                return False  # a negative square, or products that nothing pays for
            left = scale_rays(left)
            if supply is not None:
                gram[number, jump.name] = supply(left)
        if not _copositive(left, gram.get((number, jump.name))):
            return False
    return True


def remove_harmless_rays(form: Rational) -> Rational:
    """Remove the rays whose products are all >= 0; the form is copositive if the returned one is."""
    rays = list(range(len(form)))
    good = [[x >= 0 for x in row] for row in form.num.tolist()]
    while True:
        harmless = next((i for i in rays if all([good[i][k] for k in rays])), None)
        if harmless is None:
            return form[rays][:, rays]
        rays.remove(harmless)


def scale_rays(form: Rational) -> Rational:
    """Scale the rays of a form by powers of two to squares between about 1 / 2 and 4."""
    over = form.den.bit_length()
    shifts = [(x.bit_length() - over) // 2 for x in np.diag(form.num).tolist()]
    largest_shift = max(0, *shifts)
    up = whole([1 << (largest_shift - shift) for shift in shifts])
    return Rational(form.num * up[:, None] * up[None], form.den << (2 * largest_shift)).simplified()


def _copositive(form: Rational, multipliers: PyTree) -> bool:
    """Return whether x'Ax >= 0 for x >= 0: at once up to two rays, else by multipliers N >= 0, A - N >= 0."""
    entries = form.num
    if len(form) <= 1:
        return len(form) == 0 or entries[0, 0] >= 0
    if len(form) == 2:  # a negative entry in each row: `remove_harmless_rays` removed others
        (a, b), (_, c) = entries
        return a >= 0 and c >= 0 and b * b <= a * c
    if multipliers is None or np.shape(multipliers) != (len(form), len(form)):
        return False
    shift = exact(multipliers)
    if any(x < 0 for x in shift.num.ravel()) or not shift.equals(shift.T):
        return False
    return is_positive_semidefinite((form - shift).num)


def _maximum_is_positive(body: Exact, functions: list[RationalFunction], weights: list[Rational]) -> bool:
    """Return whether the maximum of the energy and the functions is positive at every state but rest."""
    nv, normal = body.nv, body.normal.num
    if not functions:
        return gaps_hold(body) and rank(normal) == nv
    if len(functions) == 1:
        rows = joined([body.force[None], body.normal])
        if len(weights[0]) != 1 + body.nc or any(x <= 0 for x in weights[0].num):
            return False
        if not (weights[0] @ rows).equals(functions[0].linear) or rank(rows.num) != nv:
            return False
        shifted = (q + weights[0][0] * body.M for q in functions[0].quadratics)
        return all(is_positive_definite(matrix.num) for matrix in shifted)
    drift = null_space(normal)
    if len(functions) != 2 or len(drift) != 1 or not gaps_hold(body):
        return False
    along = [function.linear.num @ drift[0] for function in functions]
    return bool(along[0] * along[1] < 0)


def gaps_hold(body: Exact) -> bool:
    """Return whether the external force presses on every gap: f = -J_n^T p, p > 0.

    The energy then bounds v and gaps.
    """
    if rank(body.normal.num) < body.nc:
        return _presses_on_all(body)
    p = solve(body.normal.num.T, -body.force.num)
    return p is not None and all(x > 0 for x in p.num)


def _presses_on_all(body: Exact) -> bool:
    """Return whether the basic solutions p >= 0 together press on every gap, of gaps that are dependent."""
    pressed: set[int] = set()
    for chosen in itertools.combinations(range(body.nc), rank(body.normal.num)):
        part = solve(body.normal.num[list(chosen)].T, -body.force.num)
        if part is not None and all(x >= 0 for x in part.num):
            pressed |= {i for i, x in zip(chosen, part.num, strict=True) if x > 0}
    return len(pressed) == body.nc

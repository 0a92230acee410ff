"""The search for a proof that an equilibrium is stable or unstable: entry function `certify`.

Page: docs/methods/stability.md.
"""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, Law, Sequential, law_as_pytree
from jaxcontact.stability import chatter_proof
from jaxcontact.stability.body import AT_ONCE_LAW, IMPACT_LAW, Body, LocalTerms, as_terms
from jaxcontact.stability.check import PAPER, Certificate, LyapunovFunction, gaps_hold, proves
from jaxcontact.stability.impact_conditions import RECURRING, Conditions, conditions, count_kinds_of_impact
from jaxcontact.stability.lyapunov_basis import ConditionFamily, family, reduced
from jaxcontact.stability.paper_program import paper_function
from jaxcontact.stability.program import (
    Candidate,
    Solver,
    best_function,
    form_multipliers,
    named_solver,
    rounded_candidate,
)
from jaxcontact.stability.rational import Rational, joined, null_space, rank
from jaxcontact.stability.rational_modes import (
    Exact,
    Unprovable,
    exact_terms,
    starting_mode,
    static_forces_exist,
)

METHODS = ("homogeneous", "by_kind", "full", "printed", "single", "return_map")


@checked()
def certify(
    body: Body,
    *,
    method: str = "homogeneous",
    degree: int = 3,
    solver: str | Solver = "clarabel",
    law: Law | None = None,
) -> Certificate:
    """Try to prove that an equilibrium on one to three contacts is Lyapunov stable, or that it is not.

    "homogeneous" looks for V_2 = a q + v'Qv/2 beside the energy: of any polynomial, this part dominates near
    the equilibrium under q ~ s^2, v ~ s. Every condition is then exact and small; `check` has the theorem,
    `rational_modes.py` and `impact_conditions.py` have the conditions. "single" is the test of Posa, Tobenkin
    & Tedrake: s V_0 + V_2 itself must not increase from any velocity, along any mode or in flight.
    "printed" is the program of the paper, "full" the same with two of its conditions weakened at no loss: see
    `paper_program.py`; with restitution both are large (half a minute instead of a second).
    "by_kind" lets V also depend on whether the last impact has stuck or slipped, and how; without restitution
    it is "homogeneous". "return_map" is for two feet without restitution and decides almost all of them: see
    `chatter_proof.py`.
    The verdict "stable" or "unstable" has passed `check`.

    The paper's (54) asks V_2 alone to be positive with growing velocity. This search only asks the larger of
    energy V_0 and V_2 to be positive: if s V_0 + V_2 > 0 with s > 0, one of them is positive, so that Q + s M
    must be definite and Q need not be. "full" uses this form, "printed" does not.

    Args:
        body: a PlanarBiped or LocalTerms at an equilibrium.
        method: "homogeneous", "by_kind", "full", "printed", "single" or "return_map".
        degree: of V_2 in the programs of "full" and "printed", 2 or 3.
        solver: of conic programs: "clarabel", or a callable (cost, A, b, cones, tolerance) -> an object with
            x, z, seconds and word, as described at `program.Solver`. No proof rests on it.
        law: of impacts. None is one contact at a time with `body.e`; `jc.impact.Sequential()` the same
            without restitution; `jc.impact.AnitescuPotra()` all contacts at once, every solution of it, for
            "homogeneous" alone.

    Returns:
        Certificate; its verdict is "unstable" exactly if the equilibrium is ambiguous.

    Raises:
        TypeError: a law that is no callable.
        ValueError: no equilibrium, bad numbers in the body, unknown method or solver, another degree, a law
            without conditions.
        ImportError: Clarabel is not installed.

    Derivative: none; see `margin_gradient`.
    """
    if degree not in (2, 3):
        raise ValueError(f"degree: expected 2 or 3, got {degree!r}")
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    solve = named_solver(solver)
    terms: LocalTerms = jax.tree.map(np.asarray, as_terms(body))
    law_name = _name_law(law, method)
    if law is not None:
        terms = terms.replace(e=np.zeros_like(terms.e))
    exact = exact_terms(terms)
    if not static_forces_exist(exact):
        raise ValueError("body: not an equilibrium; no contact forces within Coulomb's law hold it at rest")
    blank = Certificate(verdict="undecided", method=method, gram={}, residuals={}, report="", body=terms)
    blank = blank.replace(law=law_name)
    try:
        word, strict = starting_mode(exact)
        if word is not None:
            report = f"ambiguous: contact mode {word} also starts from rest"
            return blank.replace(verdict="unstable", mode=word, report=report)
        if not strict:
            return blank.replace(report="a contact mode is on the verge of starting from rest")
        if method == "return_map":
            return _certify_by_return_map(exact, blank)
        every = conditions(exact, "full" if method in PAPER else method, law_name)
        return _search_functions(exact, every, blank, degree, solve)
    except Unprovable as reason:
        return blank.replace(report=str(reason))


def _name_law(law: Law | None, method: str) -> str:
    """Name the law whose impacts the conditions are over; raise ValueError for one without conditions."""
    record = None if law is None else law_as_pytree(law)
    if record is None or isinstance(record, Sequential):
        return IMPACT_LAW
    if not isinstance(record, AnitescuPotra):
        raise ValueError(
            "law: expected None, jc.impact.AnitescuPotra() or jc.impact.Sequential(), whose impacts are "
            f"finitely many linear maps without restitution, got {law!r}; `falsify` takes any law"
        )
    if method != "homogeneous":
        raise ValueError(f"method: expected 'homogeneous' with jc.impact.AnitescuPotra(), got {method!r}")
    return AT_ONCE_LAW


def _certify_by_return_map(body: Exact, blank: Certificate) -> Certificate:
    levels = chatter_proof.find(body)
    if levels is None:
        return blank.replace(report="no function was found that falls from each landing to the next")
    return blank.replace(
        verdict="stable",
        residuals={"margin": chatter_proof.MIN_FALL},
        report="a function of the velocity before landings falls from each to the next",
        levels=levels,
    )


def _search_functions(
    body: Exact, every: Conditions, blank: Certificate, degree: int, solver: Solver
) -> Certificate:
    """Search functions V for the geometry of the body, with multipliers; return the checked certificate."""
    nv, has_one_function = body.nv, blank.method not in RECURRING
    kinds = count_kinds_of_impact(blank.method)
    candidates: list[Candidate] = []
    if rank(joined([body.normal, body.force[None]]).num) == nv:
        if not (gaps_hold(body) and rank(body.normal.num) == nv):
            condition_family = family(body, every, body.force, one_function=has_one_function, kinds=kinds)
            if blank.method in PAPER:
                best = _from_paper(body, condition_family, degree, solver, printed=blank.method == "printed")
            else:
                best = best_function(condition_family, solver, positive_quadratic=True)
            if best is None:
                return blank.replace(report="no function of this kind satisfies the conditions with a margin")
            candidates = [best]
    else:
        drift = null_space(body.normal.num)
        if len(drift) != 1 or not gaps_hold(body):
            return blank.replace(report="the contacts leave the body more freedom than one drift")
        for lead in (Rational(drift[0]), Rational(-drift[0])):
            condition_family = family(
                body, every, lead, drift=True, one_function=has_one_function, kinds=kinds
            )
            best = best_function(condition_family, solver, positive_quadratic=False)
            if best is None:
                return blank.replace(report="no function bounds the drift with a margin")
            candidates.append(best)
    functions = tuple(
        LyapunovFunction(
            linear=c.linear.fractions(),
            quadratic=c.quadratic.fractions(),
            turns=c.turns.fractions(),
            weights=c.weights.fractions(),
        )
        for c in candidates
    )
    residuals = {"margin": min([c.margin for c in candidates], default=1.0)}
    residuals["solver_seconds"] = sum(c.seconds for c in candidates)
    proof: Certificate = blank.replace(
        verdict="stable", V=functions, gram={}, residuals=residuals, report="every condition holds exactly"
    )
    # The paper's conditions imply the homogeneous ones, which `check` uses.
    needed = conditions(body, "homogeneous", blank.law) if blank.method in PAPER else every
    if proves(body, proof, needed, functools.partial(form_multipliers, solver)):
        return proof
    or_energy = ", or the energy," if any(body.e.num) else ""
    reason = f"the rounded function{or_energy} fails a condition"
    return proof.replace(verdict="undecided", report=reason)


def _from_paper(
    body: Exact, condition_family: ConditionFamily, degree: int, solver: Solver, *, printed: bool
) -> Candidate | None:
    """Solve the paper's program; return the weight-2 part of its V_2 with exact equalities, or None."""
    space = reduced(condition_family).space
    if not len(space):
        return None
    solution = paper_function(body, space, degree, solver, printed=printed)
    w = solution.x[: len(space)]
    if not np.all(np.isfinite(w)) or not np.any(w):
        return None
    return rounded_candidate(condition_family, space, w, margin=0.0, solution=solution)

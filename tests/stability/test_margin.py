"""Margins and their slopes, and the paper's program beside the homogeneous one."""

import itertools

import jax
import numpy as np
import pytest
from helpers.stability_bodies import ALPHA2, fig2, fig3

from jaxcontact.stability import certified_end, certify, check, margin, margin_gradient
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.impact_conditions import conditions
from jaxcontact.stability.lyapunov_basis import family
from jaxcontact.stability.program import best_function, clarabel
from jaxcontact.stability.rational_modes import exact_terms

LEVEL = fig2(0.5, 0.8).replace(alpha=0.0, L1=-0.5, L2=0.6)


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [fig2(0.4, 0.45), fig3(0.8, 0.6, e=0.4).replace(phi1=0.05), LEVEL],
    ids=["inelastic", "elastic", "level"],
)
def test_slopes_are_those_of_the_margin(body):
    """Against differences; and the margin has no unit of force."""
    names = ["L1", "h", "F"] + ["alpha"] * bool(body.alpha) + ["mu1", "e1", "phi1"] * bool(body.e1)
    for name, slope in margin_gradient(body, names).items():
        value = getattr(body, name)
        ahead, behind = (margin(body.replace(**{name: value + step})) for step in (1e-4, -1e-4))
        assert slope == pytest.approx((ahead - behind) / 2e-4, rel=1e-5, abs=2e-6)
        assert name != "F" or abs(slope) < 1e-14


def test_slopes_improve_a_marginal_stance():
    body = fig2(0.4, 0.45)
    before = margin(body)
    for _ in range(3):
        slopes = margin_gradient(body, ("L1", "L2"))
        body = body.replace(**{name: getattr(body, name) + 0.1 * slope for name, slope in slopes.items()})
    assert margin(body) > 1.2 * before
    assert check(certify(body))


def test_the_ends_of_the_certified_range():
    friction = certified_end(lambda mu: fig2(0.4, mu), 0.8, 0.0, tolerance=1e-3)
    assert 0.17 < friction < 0.4  # above the ambiguous region
    feet = certified_end(lambda d: fig2(d, 0.4), 0.8, 0.0, tolerance=1e-3)
    assert np.tan(ALPHA2) - 0.4 < feet < 0.45  # the lower end is where it becomes ambiguous
    assert check(certify(fig2(feet, 0.4))) and certify(fig2(feet - 1e-3, 0.4)).verdict != "stable"
    with pytest.raises(
        ValueError, match="outside: expected a value without a certificate, got 0.5, which has one"
    ):
        certified_end(lambda d: fig2(d, 1.0), 0.8, 0.5)
    for change, message in (
        ({"tolerance": 0.0}, "tolerance: expected a finite number > 0, got 0.0"),
        ({"tolerance": float("nan")}, "tolerance: expected finite numbers"),
        ({"outside": float("-inf")}, "outside: expected finite numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            certified_end(**{"make_body": lambda mu: fig2(0.4, mu), "inside": 0.8, "outside": 0.0} | change)
    neighbour = certified_end(lambda mu: fig2(0.4, mu), friction, friction - 1e-3, tolerance=1e-300)
    assert friction - 1e-3 < neighbour <= friction
    with pytest.raises(ValueError, match="inside: expected"):
        certified_end(lambda mu: fig2(0.4, mu), 0.1, 0.0)
    with pytest.raises(ValueError, match="expected one with a certificate"):
        margin_gradient(fig2(0.4, 0.3), ("L1",))
    for body, name in ((LEVEL, "alpha"), (fig3(0.6, 0.7).replace(e1=0.0), "e1")):
        with pytest.raises(ValueError, match=rf"body\.{name}: the program of the margin changes its form"):
            margin_gradient(body, (name,))


def test_slopes_of_a_stance_that_is_its_mirror_image():
    """The two programs of level ground tie: the margin falls whichever way a foot of a pair moves."""
    body = LEVEL.replace(L2=0.5, mu2=0.8)
    for name in ("L1", "mu1"):
        slope = margin_gradient(body, (name,))[name]
        value = getattr(body, name)
        ahead = margin(body.replace(**{name: value + 1e-6}))
        assert slope == pytest.approx((ahead - margin(body)) / 1e-6, rel=1e-3)


def test_the_papers_program_proves_what_it_can():
    for d, mu1 in ((0.9, 1.1), (0.04, 0.6)):
        full = certify(fig2(d, mu1), method="full")
        assert full.verdict == "stable" and check(full)
    assert certify(fig2(0.4, 0.3), method="full").verdict == "undecided"
    assert certify(fig2(0.3, 0.2), method="full").verdict == "unstable"


@pytest.mark.long
def test_the_printed_program_fails_where_weaker_conditions_do():
    """Its solver calls the program infeasible; (54) for V_2 alone and single multipliers ask too much."""
    words = []

    def solver(*arguments):
        answer = clarabel(*arguments)
        words.append(answer.word)
        return answer

    body = fig2(0.87, 0.37)
    failed = certify(body, method="printed", solver=solver)
    assert failed.verdict == "undecided" and "Infeasible" in words[0]
    full = certify(body, method="full")
    assert full.verdict == "stable" and check(full)
    printed = certify(fig2(0.7, 0.7), method="printed")
    assert printed.verdict == "stable" and check(printed)


@pytest.mark.slow
def test_the_printed_program_proves_less_than_the_full_one():
    count = {"homogeneous": 0, "full": 0, "printed": 0}
    for d, mu1 in itertools.product(np.linspace(0.04, 1.2, 8), repeat=2):
        for method in count:
            count[method] += certify(fig2(d, mu1), method=method).verdict == "stable"
    assert count["printed"] < 0.75 * count["full"] < 0.75 * count["homogeneous"]


def papers_conditions(body):
    """The best function that keeps to the paper's conditions at weight 2: any flight, any velocity, one Q."""
    exact = exact_terms(jax.tree.map(np.asarray, as_terms(body)))
    every = family(exact, conditions(exact, "full"), exact.force, one_function=True)
    return best_function(every, clarabel, positive_quadratic=True)


def test_with_restitution_the_papers_conditions_have_no_function_where_others_prove():
    assert papers_conditions(fig3(0.1, 1.3)).margin > 0
    assert papers_conditions(fig3(1.2, 0.6)) is None and certify(fig3(1.2, 0.6)).verdict == "stable"


@pytest.mark.slow
def test_with_restitution_half_of_the_stable_bodies_are_out_of_the_papers_reach():
    """At e = 0.1 over Fig. 3; so its program cannot certify most of what conditions that recur do."""
    ours = theirs = 0
    for d, mu in itertools.product(np.linspace(0.05, 1.5, 12), np.linspace(0.4, 1.4, 11)):
        body = fig3(d, mu)
        if certify(body).verdict == "stable":
            ours += 1
            theirs += papers_conditions(body) is not None
    assert ours > 100 and 0.4 * ours < theirs < 0.55 * ours


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_body", "d", "mu", "least"),
    [
        (fig2, np.linspace(0.04, 1.2, 12), np.linspace(0.04, 1.2, 12), 0.8),
        (fig3, (0.05, 0.3, 0.8), (0.5, 1.0), 0.3),  # half a minute for each body
    ],
    ids=["inelastic", "elastic"],
)
def test_both_methods_agree_wherever_both_decide(make_body, d, mu, least):
    pairs = []
    for each in itertools.product(d, mu):
        found = [certify(make_body(*each), method=method) for method in ("homogeneous", "full")]
        assert all(check(one) is (one.verdict != "undecided") for one in found)
        pairs.append([one.verdict for one in found])
    assert all(one == two for one, two in pairs if two != "undecided")
    stable = [sum(pair[i] == "stable" for pair in pairs) for i in range(2)]
    assert stable[1] >= least * stable[0]


@pytest.mark.slow
def test_the_papers_program_with_restitution_proves_less():
    """Half a minute for each body; at (0.8, 1.0) even the parts of weight 2 have next to no margin."""
    near = certify(fig3(0.1, 1.3), method="full")
    assert near.verdict == "stable" and check(near)
    assert certify(fig3(0.8, 1.0)).verdict == "stable"
    assert certify(fig3(1.2, 0.6), method="full").verdict == "undecided"


def test_the_degree_is_two_or_three():
    with pytest.raises(ValueError, match="degree: expected 2 or 3"):
        certify(fig2(0.5, 0.8), method="full", degree=5)

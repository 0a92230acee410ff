"""Certificates with a form for each kind of impact: Fig. 3 to the last point, motions, random bodies."""

import numpy as np
import pytest
from helpers.stability_bodies import (
    UNDECIDED_FIG3,
    energy_and_function_along,
    fig3,
    random_biped,
    three_feet,
)

from jaxcontact.stability import certify, check, excursion_bounds, falsify, is_equilibrium
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.chart import FIGURES

MAKE, RANGES = FIGURES["fig3"]
D, MU = (np.linspace(*ends, 30) for ends in RANGES.values())
POINTS = [(D[column], MU[row]) for row, columns in UNDECIDED_FIG3.items() for column in columns]


@pytest.mark.long
def test_all_points_of_fig_3_that_one_form_leaves_are_proved_stable():
    for at in POINTS:
        proof = certify(MAKE(*at), method="by_kind")
        assert proof.verdict == "stable" and proof.residuals["margin"] > 5e-4 and check(proof), at
        assert not check(proof.replace(method="homogeneous"))
        assert not check(proof.replace(body=certify(MAKE(0.05, 0.37)).body)), at
    assert len(POINTS) == 24 and certify(MAKE(*POINTS[0])).verdict == "undecided"


@pytest.mark.slow
@pytest.mark.parametrize("at", POINTS[::4])
def test_no_function_rises_along_motions(at):
    """The function after each impact is that of its kind, read from the slip after it."""
    body = MAKE(*at)
    rise, compared = energy_and_function_along(body, certify(body, method="by_kind"))
    assert compared > 300 and rise < 1e-7


def scaled(body, unit, weight):
    """The same body in other units of length and mass, as matrices."""
    terms = as_terms(body)
    sizes = np.array([1.0, 1.0, unit])
    return terms.replace(
        M=weight * terms.M * sizes[:, None] * sizes, J_n=terms.J_n * sizes, J_t=terms.J_t * sizes,
        force=9.81 * weight * terms.force * sizes,
    )  # fmt: skip


@pytest.mark.parametrize(("unit", "weight"), [(1e-3, 1e-6), (1e3, 1e7)])
def test_the_margin_has_no_units(unit, weight):
    margins = [
        certify(body, method="by_kind").residuals["margin"]
        for body in (MAKE(*POINTS[8]), scaled(MAKE(*POINTS[8]), unit, weight))
    ]
    assert margins[1] == pytest.approx(margins[0], rel=0.01)


@pytest.mark.long
def test_bodies_at_the_edge_of_the_kinds():
    for body in (
        fig3(0.8, 1.0).replace(e2=0.0),
        fig3(0.8, 1.0, e=0.0),
        fig3(0.8, 1.0).replace(alpha=0.0, L1=-0.8, L2=0.8),
        fig3(0.8, 1.0).replace(alpha=0.0, L1=-0.8, L2=0.8, mu1=0.0, mu2=0.0),
    ):
        proofs = [certify(body, method=method) for method in ("homogeneous", "by_kind")]
        assert proofs[1].verdict == proofs[0].verdict and check(proofs[1]) == check(proofs[0])
    proof = certify(three_feet(0.3, (0.4, 0.6, 0.4), 0.3), method="by_kind")
    assert proof.verdict == "undecided" or check(proof)
    level = certify(fig3(0.1, 0.45), method="by_kind")
    assert 0 < excursion_bounds(level).delta(0.5) < 0.5


@pytest.mark.slow
def test_no_motion_grows_where_the_kinds_prove_more():
    """Bodies that one form does not prove, with restitution: no proof meets a motion that grows."""
    rng, more = np.random.default_rng(7), 0
    for _ in range(400):
        body = random_biped(rng, [0.05, 0.1, 0.4])
        if not is_equilibrium(body) or certify(body).verdict != "undecided":
            continue
        proof = certify(body, method="by_kind")
        if proof.verdict == "stable":
            more += 1
            assert check(proof) and not falsify(body, num_samples=64).found
    assert more > 5

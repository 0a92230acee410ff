"""Margins and their slopes, and the paper's program beside the homogeneous one."""

import numpy as np
import pytest
from stability_bodies import fig2, fig3

from jaxcontact.stability import certified_end, certify, check, margin, margin_gradient


def test_slopes_improve_a_marginal_stance():
    body = fig2(0.4, 0.45)
    names = ("L1", "L2")
    before = margin(body)
    slopes = margin_gradient(body, names)
    ahead = (margin(body.replace(L1=body.L1 - 0.01)) - before) / -0.01
    assert abs(slopes["L1"] - ahead) < 0.1 * abs(slopes["L1"])
    for _ in range(3):
        slopes = margin_gradient(body, names)
        body = body.replace(**{name: getattr(body, name) + 0.1 * slope for name, slope in slopes.items()})
    assert margin(body) > 1.2 * before
    assert check(certify(body))


def test_the_ends_of_the_certified_range():
    friction = certified_end(lambda mu: fig2(0.4, mu), 0.8, 0.0, tolerance=1e-3)
    assert 0.17 < friction < 0.4  # above the ambiguous region
    assert certified_end(lambda d: fig2(d, 1.0), 0.8, 0.5) == 0.5
    with pytest.raises(ValueError, match="inside: expected"):
        certified_end(lambda mu: fig2(0.4, mu), 0.1, 0.0)
    with pytest.raises(ValueError, match="expected one with a certificate"):
        margin_gradient(fig2(0.4, 0.3), ("L1",))


def test_the_papers_program_agrees_wherever_it_decides():
    decided = 0
    for d, mu1 in ((0.9, 1.1), (0.4, 0.3)):
        full, homogeneous = certify(fig2(d, mu1), method="full"), certify(fig2(d, mu1))
        if full.verdict == "stable":
            decided += 1
            assert check(full) and homogeneous.verdict == "stable"
            quadratic = np.array([[float(x) for x in row] for row in full.V[0].quadratic])
            assert np.all(np.isfinite(quadratic))
    assert decided >= 1
    assert certify(fig2(0.3, 0.2), method="full").verdict == "unstable"


def test_the_papers_conditions_with_restitution_decide_less():
    near, far = fig3(0.1, 1.3), fig3(0.8, 1.0)
    for body in (near, far):
        full = certify(body, method="full")
        assert full.verdict in ("stable", "undecided")
        assert check(full) is (full.verdict == "stable")
        assert certify(body).verdict == "stable"
    with pytest.raises(ValueError, match="degree: expected 2 or 3"):
        certify(near, method="full", degree=5)

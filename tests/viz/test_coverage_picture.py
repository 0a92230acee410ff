"""The picture of a coverage statement: its curves are the record's, and it can be drawn when little is known."""

from __future__ import annotations

import numpy as np
import pytest

from jaxcontact.impact import Coverage
from jaxcontact.viz import plot_coverage


def record(radius):
    r = np.geomspace(1e-4, 1, 9)
    bound = np.clip(np.array([[0.1], [0.01]]) / r, 1e-3, 1.0)
    return Coverage(
        r=r, num_set=np.array([50, 100]), share_far=bound, share_bound=bound, uniform_bound=bound + 0.1,
        shares=np.array([0.1, 0.01]), radius=radius, num_test=100, num_failed=0, confidence=0.9,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("far", [0.5, np.inf, 0.0])
def test_the_curves_are_the_bounds(far, tmp_path):
    found = record(np.array([[0.2, far], [0.1, far]]))
    figure = plot_coverage(found, title="Block")
    left, right = figure.axes
    assert np.array_equal(left.lines[1].get_ydata(), found.share_bound[1])
    assert np.array_equal(left.lines[2].get_ydata(), found.uniform_bound[-1])
    assert list(right.lines[0].get_ydata()) == [0.2, 0.1]
    shares = [text.get_text() for text in right.get_legend().get_texts()]
    assert shares == ["10 % of the outcomes", "1 % of the outcomes"][: 2 if far == 0.5 else 1]
    assert "Block: bounds of 90 % confidence, 100 test samples" in figure.get_suptitle()
    figure.savefig(tmp_path / "coverage.png")

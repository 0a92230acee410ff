"""The growth of chatter against closed forms and an independent return map."""

import numpy as np
import pytest
from helpers.stability_bodies import UNDECIDED_FIG3, fig2

from jaxcontact.stability import chatter_rate, falsify
from jaxcontact.stability.chart import FIGURES

SLOPE = np.tan(np.pi / 6)


def boundary(d, rate, low, high):
    """The least mu1 without growth."""
    while high - low > 1e-7:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rate(d, middle) > 0 else (low, middle)
    return 0.5 * (low + high)


@pytest.mark.long
@pytest.mark.parametrize("d", [0.2, 0.45])
def test_rocking_without_slip_loses_what_the_lever_arms_tell(d):
    """The angular momentum about the new foot is kept: omega+ / omega- = (1 + r_1 r_2) / (1 + r_i^2)."""
    one, two = SLOPE - d, SLOPE + d
    kept = (2.0 + one * two) ** 2 / ((2.0 + one**2) * (2.0 + two**2))
    assert chatter_rate(fig2(d, 1.0)) == pytest.approx(np.log(kept) / 4, abs=1e-9)  # two impacts, two flights


class OnOneFoot:
    """The biped of Fig. 2 on one foot or the other, by Newton's and Coulomb's laws in plain numbers."""

    def __init__(self, d, mu1):
        self.place, self.mu = (SLOPE - d, SLOPE + d), (mu1, 2.0)
        self.normal = [np.array([0.0, 1.0, x]) for x in self.place]
        self.tangent = np.array([1.0, 0.0, 1.0])
        self.weight = np.array([0.5, -np.sqrt(0.75), 0.0])

    def held(self, foot, rates, direction):
        """What is added to `rates` (3,) so that the foot does not enter the ground, its slip by Coulomb's law."""
        normal, tangent, mu = self.normal[foot], self.tangent, self.mu[foot]
        both = np.array([normal, tangent])
        force = np.linalg.solve(both @ both.T, -both @ rates)
        if direction == 0 and abs(force[1]) <= mu * force[0]:
            return both.T @ force
        for sign in (direction,) if direction else (1.0, -1.0):
            column = normal - sign * mu * tangent
            push = column * -(normal @ rates) / (normal @ column)
            if direction or sign * (tangent @ (rates + push)) > 0:
                return push
        raise AssertionError("no consistent mode")

    def cycle(self, v):
        """From the velocity behind an impact at foot 0 to that behind the next one there."""
        for foot, other in ((0, 1), (1, 0)):
            gap = 0.0
            while True:  # stretches of slip and stick until the other foot lands
                slip = self.tangent @ v
                direction = np.sign(slip) if abs(slip) > 1e-12 else 0.0
                a = self.weight + self.held(foot, self.weight, direction)
                rate, fall = self.normal[other] @ v, self.normal[other] @ a
                lands = (-rate - np.sqrt(rate**2 - 2 * fall * gap)) / fall
                slows = self.tangent @ a
                stops = -slip / slows if direction * slows < 0 else np.inf
                time = min(lands, stops)
                gap += rate * time + 0.5 * fall * time**2
                v = v + a * time
                if lands <= stops:
                    break
            v = v + self.held(other, v, 0.0)
        return v

    def rate(self):
        """Growth per impact or flight, where the motion has settled."""
        v = np.array([-1.0, -self.place[0], 1.0])
        for _ in range(60):
            before = v / np.linalg.norm(v)
            v = self.cycle(before)
        return np.log(np.linalg.norm(v))


@pytest.mark.long
@pytest.mark.parametrize("d", [0.3, 0.45])
def test_the_boundary_of_stability_is_that_of_an_independent_map(d):
    """Varkonyi, Fig. 2: below this friction a motion grows by itself; it is told to 1e-6."""
    ends = SLOPE - d + 0.02, 0.8
    ours = boundary(d, lambda d, mu1: chatter_rate(fig2(d, mu1)), *ends)
    assert ours == pytest.approx(boundary(d, lambda d, mu1: OnOneFoot(d, mu1).rate(), *ends), abs=1e-6)
    assert falsify(fig2(d, ours - 1e-4)).found and not falsify(fig2(d, ours + 1e-4)).found


@pytest.mark.slow
def test_a_mode_that_is_kept_for_ever_and_bad_input():
    assert chatter_rate(fig2(0.3, 0.1)) == np.inf
    with pytest.raises(ValueError, match="not an equilibrium"):
        chatter_rate(fig2(0.3, 0.2).replace(mu2=0.2))
    with pytest.raises(ValueError, match="num_events"):
        chatter_rate(fig2(0.3, 0.2), num_events=0)


@pytest.mark.long
def test_no_motion_grows_at_points_of_fig_3_that_one_form_leaves():
    make_body, ranges = FIGURES["fig3"]
    d, mu = (np.linspace(*ends, 30) for ends in ranges.values())
    points = [(d[column], mu[row]) for row, columns in UNDECIDED_FIG3.items() for column in columns]
    rates = [chatter_rate(make_body(*at), num_samples=128, num_events=256) for at in points]
    assert len(rates) == 24 and max(rates) < 0.0

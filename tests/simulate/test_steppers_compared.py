"""The table of steppers: where outcomes are unique they agree, where they are not each is judged."""

import jax
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks import steppers_compared as compared


def converges(row):
    """Check a closed form, the first order of `TimeStepping` and the last step of `Variational`.

    `TimeStepping` strikes at most one step off the time of the impact, so the ball, which loses a third of
    1 m/s there, ends at most dt / 3 m away. Where in its step the impact falls decides how far.
    """
    errors = list(row.values())
    assert errors[0] < 1e-9
    for error, steps in zip(errors[1:4], (compared.COARSE, compared.MIDDLE, compared.FINE), strict=True):
        assert error < compared.ball().duration / steps / 3.0
    assert errors[5] < 1e-4


@pytest.mark.long
def test_a_ball_ends_where_the_closed_form_says():
    row = compared.compare(compared.ball())
    converges(row)
    assert row["1e10 N/m"] < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize("make", compared.UNIQUE[1:], ids=lambda make: make.__name__)
def test_steppers_agree_where_the_outcome_is_unique(make):
    row = list(compared.compare(make()).values())
    assert row[0] < 1e-9 and row[3] < row[1] and row[5] < 1e-4


@pytest.mark.slow
def test_a_velocity_behind_an_impact_is_judged():
    flat = compared.flat_block()
    for law, key in ((jc.impact.AnitescuPotra(), None), (flat.orders, jax.random.key(1))):
        verdicts = list(compared.judge(flat, law, key).values())
        assert all(np.char.startswith(verdicts[:6], "in ")), verdicts
    rebounds = list(compared.judge(flat, jc.impact.Propagative(restitution=0.5), None).values())
    assert all(np.char.startswith(rebounds[:6], "out ")), rebounds

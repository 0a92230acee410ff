"""Roots in one variable: how many steps the search for the time of an event takes."""

import jax
import jax.numpy as jnp
import pytest

from jaxcontact.solvers.roots import Bracket, illinois

HALF_G = 4.905


@pytest.mark.parametrize("end", [4.5e-3, 0.1, 1.0])
@pytest.mark.parametrize("gap", [1e-12, 5e-10, 1e-6])
def test_a_gap_that_closes_in_a_thousandth_of_a_step_is_found_in_few_tries(gap, end):
    """It starts almost closed, opens at 0.15 mm/s and falls back; as in a chatter just above the floor."""
    speed = 1.5e-4

    def height(t):
        return gap + speed * t - HALF_G * t**2

    x, value = jnp.array(end * gap / (gap - height(end))), jnp.array(gap)
    bracket = Bracket(jnp.array(0.0), jnp.array(end), value, jnp.array(height(end)), jnp.array(True))
    advance = jax.jit(illinois)
    for tries in range(40):
        if abs(float(height(x))) < 1e-15:
            break
        x, bracket = advance(x, height(x), bracket, jnp.array(tries % 8 == 7))
    closed_form = (speed + (speed**2 + 4.0 * HALF_G * gap) ** 0.5) / (2.0 * HALF_G)
    assert tries < 39 and abs(float(x) - closed_form) < 1e-10

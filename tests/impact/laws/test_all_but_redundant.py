"""Contacts that are redundant but for a slight tilt: steps of a block that is all but flat are solved.

Its corners slide a little differently. A contact mode takes a speed below its tolerance for zero, and only
huge impulses of corners against each other could make it zero.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.routh import resolve_draws
from jaxcontact.impact.laws.routh_steps import ImpactDraws, StepSettings

DT = 0.01  # s, in which weight pulls, and the gaps of a tilted block may close
PULL = -9.81 * DT


def steps(model, q, v, impulse_max, pick, selection):
    """One step each of blocks at rest at q (n, nq) but for v (n, nv)."""

    def one(q, v, impulse_max, pick):
        terms = jc.contact_terms(model, model.initial_state().replace(q=q))
        gap = terms.phi - jnp.min(terms.phi)
        terms = terms.replace(phi=gap, active=jnp.ones_like(terms.active))
        draws = (impulse_max[None], pick[None])
        return resolve_draws(terms, v, ImpactDraws(*draws), StepSettings(selection, 8), clearance=gap / DT)

    return jax.jit(jax.vmap(one))(*(jnp.asarray(each) for each in (q, v, impulse_max, pick)))


def worst(info):
    assert not np.any(np.asarray(info.status) & int(jc.Status.STALLED))
    return float(jnp.max(info.residual))


@pytest.mark.slow
def test_a_block_in_the_plane_that_all_but_stops_turning():
    """A corner that rests and slides by 1e-11 m/s, while the largest impulse of the other keeps it going."""
    block, tilt, turning = jc.models.rocking_block(), 3.9e-4, 0.0115
    v = np.array([-turning, PULL + 0.5 * turning, turning])

    def behind(first):
        n = len(first)
        caps = np.stack([first, np.full(n, 0.4)], axis=1)
        q = np.tile([0.0, 1.0, tilt], (n, 1))
        return steps(block, q, np.tile(v, (n, 1)), caps, np.zeros(n), "all")

    few = np.array([0.03, 0.04])
    turns = np.asarray(behind(few)[0])[:, 2]  # linear in the first cap until it stops
    still = few[0] - turns[0] * (few[1] - few[0]) / (turns[1] - turns[0])
    v_plus, info = behind(still * (1.0 + np.linspace(-1e-6, 1e-6, 101)))
    assert np.all(np.abs(v_plus[:, 2]) < 1e-6), v_plus
    assert worst(info) < 1e-12


@pytest.mark.slow
@pytest.mark.slow_cases("0.0")
@pytest.mark.parametrize("turning", [0.0, 0.1])
def test_a_box_in_space_that_is_all_but_flat(turning):
    box, rng, n = jc.models.box_drop_3d(), np.random.default_rng(0), 512
    tilt, way = 10.0 ** rng.uniform(-5, -3, n), rng.uniform(0, 2 * np.pi, n)
    around = np.stack([np.cos(way), np.sin(way)], axis=1)
    q = np.zeros((n, 7))
    q[:, 2], q[:, 3], q[:, 4:6] = 1.0, np.cos(tilt / 2), np.sin(tilt / 2)[:, None] * around
    v = np.zeros((n, 6))
    v[:, 2], v[:, 3:5] = PULL, turning * rng.uniform(-1, 1, (n, 1)) * around
    v_plus, info = steps(box, q, v, 0.3 * rng.uniform(size=(n, 4)), rng.uniform(size=n), "lemke")
    assert worst(info) < 1e-9
    assert np.all(info.energy_ratio <= 1.0 + 1e-12)

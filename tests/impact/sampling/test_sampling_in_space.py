"""Samples of spatial contacts with all solutions of every step as candidates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, draw_in_jit

import jaxcontact as jc
from jaxcontact.impact import resolve, sample
from jaxcontact.impact.sampling.draws import sobol
from jaxcontact.impact.sampling.outcomes import outcome_counts

STEPS = 12


def edge_of_box():
    """The box dropped flat and turning, on two of its corners."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    some = {name: getattr(terms, name)[:2] for name in ("J_n", "J_t", "phi", "mu", "active")}
    return terms.replace(**some), model.initial_state().v + jnp.array([0.0, 0.3, 0.0, 1.0, -0.5, 2.0]), 0.2


def drawn(terms, step, number, seed=0):
    """impulse_max (n, N, nc) and pick (n, N) of the samples."""
    nc = len(terms.mu)
    points = sobol(STEPS * (nc + 1), seed).uniform(np.arange(number), 0, STEPS * (nc + 1))
    points = points.T.reshape(number, STEPS, nc + 1)
    return points[..., :nc] * step, points[..., nc]


@pytest.mark.slow_cases("0.5", "None")
@pytest.mark.parametrize("restitution", [None, 0.5])
def test_samples_are_those_of_resolve(restitution):
    terms, v, step = edge_of_box()
    number = 16
    found = sample(
        terms,
        v,
        jc.impact.Routh(impulse_step=step, max_steps=STEPS, num_directions=4, restitution=restitution),
        num_samples=number,
    )
    assert found.complete and not np.any(jc.Status.failed(found.status))

    def one(caps, picks):
        return resolve(terms, v, caps, picks, num_directions=4, restitution=restitution)

    caps, picks = drawn(terms, step, number)
    v_plus, info = jax.vmap(one)(caps, picks)
    np.testing.assert_allclose(found.v_plus, v_plus, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.impulse, info.impulse, rtol=0, atol=1e-9)
    assert np.array_equal(found.num_iters, info.num_iters)


@pytest.mark.slow
def test_the_sampler_inside_jit_makes_the_same_samples():
    """And differentiates them: along v against central differences, where no mode changes."""
    terms, v, step = edge_of_box()
    key = jax.random.key(3)
    settings = {"impulse_step": step, "max_steps": STEPS, "num_samples": 16, "num_directions": 4}
    found = draw(terms, v, seed=key, **settings)

    def outcomes(v):
        return draw_in_jit(terms, v, key, **settings)[0]

    np.testing.assert_allclose(jax.jit(outcomes)(v), found.v_plus, rtol=0, atol=1e-12)
    along = jnp.array([0.3, -0.2, 0.1, 0.4, -0.1, 0.2])
    _, slopes = jax.jit(lambda v: jax.jvp(outcomes, (v,), (along,)))(v)
    h = 1e-6
    differences = (jax.jit(outcomes)(v + h * along) - jax.jit(outcomes)(v - h * along)) / (2 * h)
    close = np.abs(slopes - differences).max(axis=1) < 1e-6
    assert close.mean() > 0.8  # the others change modes within the difference


@pytest.mark.slow
def test_visited_is_all_but_for_few_steps():
    terms, v, step = edge_of_box()
    settings = {"impulse_step": step, "max_steps": STEPS, "num_samples": 8192, "num_directions": 4}
    every = draw(terms, v, selection="all", **settings)
    some = draw(terms, v, selection="visited", **settings)
    assert every.complete and not some.complete
    other = np.abs(np.asarray(every.v_plus) - np.asarray(some.v_plus)).max(axis=1) > 1e-9
    assert other.mean() < 1e-3


def with_lateral_motion(terms, mass):
    """The planar contacts in space: their body may also move sideways, where both contacts resist together."""
    nc, _, nv = terms.J_t.shape
    wide = np.zeros((nv + 1, nv + 1))
    wide[:nv, :nv], wide[nv, nv] = terms.M, mass
    sideways = np.zeros((nc, 1, nv + 1))
    sideways[..., nv] = 1.0
    along = np.concatenate([np.asarray(terms.J_t), np.zeros((nc, 1, 1))], axis=2)
    return terms.replace(
        M=jnp.asarray(wide),
        J_n=jnp.concatenate([terms.J_n, jnp.zeros((nc, 1))], axis=1),
        J_t=jnp.asarray(np.concatenate([along, sideways], axis=1)),
    )


@pytest.mark.slow
def test_the_block_in_space_is_the_block_in_the_plane():
    model = jc.models.rocking_block()
    planar = jc.contact_terms(model, model.initial_state())
    spatial = with_lateral_motion(planar, float(model.params.mass[0]))
    v = model.initial_state().v
    settings = {"impulse_step": model.impulse_step, "max_steps": model.max_steps, "num_samples": 4096}
    there = draw(spatial, jnp.append(v, 0.0), num_directions=4, **settings)
    here = draw(planar, v, **settings)
    np.testing.assert_allclose(there.v_plus[:, :-1], here.v_plus, rtol=0, atol=1e-9)
    np.testing.assert_allclose(there.v_plus[:, -1], 0.0, atol=1e-12)
    assert np.array_equal(there.num_iters, here.num_iters)


@pytest.mark.slow
def test_a_symmetric_impact_has_symmetric_shares():
    """A box that lands flat on an edge: its two corners are alike."""
    terms, _, step = edge_of_box()
    v = jnp.array([0.0, 0.3, -0.44, 0.0, 0.0, 0.0])  # along the edge's normal plane
    counts = outcome_counts(
        sample(
            terms,
            v,
            jc.impact.Routh(impulse_step=step, max_steps=STEPS, num_directions=4),
            num_samples=4096,
            seed=jax.random.key(1),
        ),
        terms,
    )
    for (a, b), number in counts.items():
        mirrored = counts.get((b, a), 0)
        assert abs(number - mirrored) <= 5.0 * np.sqrt(number + mirrored)
    assert len(counts) > 1


@pytest.mark.slow
def test_many_steps_in_space_are_told_unique_or_not():
    terms, v, step = edge_of_box()
    told = jc.impact.unique_steps(
        terms, v, jc.impact.Routh(impulse_step=step, max_steps=STEPS, num_directions=4), num_samples=256
    )
    assert told.num_steps == 256 and told.max_outcomes >= 1
    if told.num_several:
        assert len(told.example.outcomes) == told.max_outcomes

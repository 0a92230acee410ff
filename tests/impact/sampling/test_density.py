"""Other densities of the impulses: the identity changes no bit, the set stays, and mistakes are named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import drawing
from scipy.stats import kstest

import jaxcontact as jc
from jaxcontact.impact.laws.routh_law import FittedRouth
from jaxcontact.impact.sampling.density import shaped
from jaxcontact.impact.sampling.draws import Iid, sobol
from jaxcontact.impact.sampling.stream import Stream


def uniform(x):
    return x


def small(x):
    return x**2


def coupled(x):
    """The second contact gets what the first leaves: not a product of densities."""
    return jnp.stack([x[0], 1.0 - x[0] * x[1]])


@pytest.fixture(scope="module")
def gait():
    model = jc.models.compass_gait()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


def draw(gait, count=2000, **options):
    return drawing.draw(*gait, impulse_step=0.25, max_steps=5, num_samples=count, **options)


@pytest.mark.slow
@pytest.mark.float32
def test_the_identity_changes_no_bit(gait):
    plain, same = draw(gait, 500), draw(gait, 500, density=uniform)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(same), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.long
def test_fractions_have_the_density_asked_for():
    """x^2 has the distribution function sqrt; picks stay uniform; a step may start anywhere in a lane."""
    draws = shaped(Iid(key=jax.random.key(0)), small, 2)
    index = jnp.arange(4000, dtype=jnp.uint32)
    whole = np.asarray(draws.uniform(index, 0, 6))
    assert whole.shape == (6, 4000)
    for row in range(6):
        assert kstest(whole[row] if row % 3 == 2 else np.sqrt(whole[row]), "uniform").pvalue > 1e-3
    later = np.asarray(draws.uniform(index, jnp.full(4000, 3, jnp.int32), 3))
    assert np.array_equal(later, whole[3:])


@pytest.mark.slow
def test_the_measure_changes_and_the_set_does_not(gait):
    """Smaller impulses take more steps; their outcomes lie among those of the uniform density."""
    terms, _ = gait
    plain = draw(gait, 2**15, seed=1)
    for density in (small, coupled):
        other = draw(gait, 1000, density=density)
        ended = np.asarray(other.status) == 0
        assert ended.mean() > 0.5
        assert np.max(other.residual) < 1e-12
        found = jc.impact.contains(plain, np.asarray(other.v_plus)[ended], terms=terms)
        assert np.mean(np.asarray(found.inside)) > 0.98
    assert np.mean(draw(gait, density=small).num_iters) > np.mean(draw(gait).num_iters) + 0.3


def test_independence_is_known(gait):
    terms, v = gait
    quasi, independent = sobol(15, 0), Iid(key=jax.random.key(0))
    expected = [
        (quasi, "all", False),
        (independent, "all", True),
        (shaped(independent, small, 2), "all", True),
        (shaped(quasi, small, 2), "all", False),
        (independent, "visited", False),
        (independent, "lemke", True),
    ]
    for draws, selection, answer in expected:
        stream = Stream(
            terms, v, draws, FittedRouth(impulse_step=jnp.full(2, 0.25), max_steps=5, selection=selection)
        )
        assert stream.independent is answer
        assert stream.unmoved(1).independent is answer
    # Where nothing moves, samples are equal, and so independent.
    assert Stream(
        terms, 0.0 * v, quasi, FittedRouth(impulse_step=jnp.full(2, 0.25), max_steps=5, selection="all")
    ).independent
    assert jc.impact.sample(
        terms, v, jc.impact.Routh(impulse_step=0.25, max_steps=5), num_samples=9, seed=jax.random.key(0)
    ).independent
    assert not draw(gait, 500).independent


@pytest.mark.parametrize(
    ("density", "error", "message"),
    [
        (2.0, TypeError, "density: expected a function"),
        (lambda x: x[:1], ValueError, r"density: expected shape \(2,\) back, got \(1,\)"),
        (lambda x: 2.0 * x, ValueError, r"density: expected fractions in \[0, 1\]"),
        (lambda x: jnp.log(x - 0.5), ValueError, "or NaN"),
    ],
)
def test_mistakes_are_named(density, error, message):
    with pytest.raises(error, match=message):
        shaped(sobol(15, 0), density, 2)


def test_a_checkpoint_knows_its_density(gait, tmp_path):
    key = jax.random.key(3)
    samples = draw(gait, 60, density=small, seed=key, checkpoint=tmp_path)
    assert samples.independent and jc.impact.load_samples(tmp_path).independent
    with pytest.raises(ValueError, match="density"):
        draw(gait, 60, density=coupled, seed=key, checkpoint=tmp_path)

"""The picture of a set in space: its points are contact velocities, its bars shares of combinations of modes."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc


def two_balls():
    """Terms of two contacts of separate balls, and three samples, of which the last has failed."""
    unit = jnp.eye(6)
    terms = jc.ContactTerms(
        M=unit, J_n=unit[jnp.array([2, 5])], J_t=jnp.stack([unit[:2], unit[3:5]]), phi=jnp.zeros(2),
        mu=jnp.ones(2), active=jnp.ones(2, bool),
    )  # fmt: skip
    v = jnp.array([[3.0, 4.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 2.0], [9.0] * 6])
    samples = jc.impact.ImpactSamples(
        v_minus=jnp.array([5.0, 6.0, -1.0, 0.0, 0.0, -1.0]), v_plus=v, impulse=jnp.zeros((3, 2, 3)),
        status=jnp.array([0, 0, 16], jnp.uint32), num_solves=jnp.ones(3, int), energy_ratio=jnp.ones(3),
        residual=jnp.zeros(3),
    )  # fmt: skip
    return terms, samples


def test_points_and_bars(tmp_path):
    terms, samples = two_balls()
    star = jnp.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    figure = jc.viz.plot_spatial_impact(samples, terms, mujoco=star, title="Balls")
    figure.savefig(tmp_path / "balls.png")
    speed, plane, *_, bars = figure.axes
    assert np.array_equal(speed.collections[0].get_offsets(), [[5.0, 0.0], [0.0, 0.0]])
    assert np.array_equal(plane.collections[0].get_offsets(), [[3.0, 4.0], [0.0, 0.0]])
    ends = [line.get_xydata()[0] for line in plane.lines[2:]]
    np.testing.assert_allclose(ends, [[5.0, 6.0], [0.1, 0.2]])
    assert [text.get_text() for text in bars.get_yticklabels()] == ["A sticks, B lifts", "A slides, B lifts"]
    assert [bar.get_width() for bar in bars.patches] == [50.0, 50.0]


def test_round_off_is_not_drawn_large():
    terms, samples = two_balls()
    noise = samples.replace(v_plus=samples.v_plus.at[:, 5].set(jnp.array([1e-16, -1e-16, 0.0])))
    normal = jc.viz.plot_spatial_impact(noise, terms).axes[2]
    assert np.ptp(normal.get_ylim()) > 0.1


def test_mistakes_are_named():
    terms, samples = two_balls()
    with pytest.raises(ValueError, match=r"terms: expected spatial contacts"):
        jc.viz.plot_spatial_impact(samples, terms.replace(J_t=terms.J_t[:, :1]))
    with pytest.raises(ValueError, match=r"names: expected 2 names"):
        jc.viz.plot_spatial_impact(samples, terms, names=["A"])
    with pytest.raises(ValueError, match=r"mujoco: expected a velocity \(6,\)"):
        jc.viz.plot_spatial_impact(samples, terms, mujoco=jnp.zeros(2))
    with pytest.raises(ValueError, match=r"at least one sample with status 0"):
        jc.viz.plot_spatial_impact(samples.replace(status=jnp.full(3, 16, jnp.uint32)), terms)

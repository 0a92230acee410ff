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
        status=jnp.array([0, 0, 16], jnp.uint32), num_iters=jnp.ones(3, int), energy_ratio=jnp.ones(3),
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
    noise = samples.replace(v_plus=jnp.array([[1e-16], [-1e-16], [0.0]]) * jnp.ones((1, 6)))
    for axes in jc.viz.plot_spatial_impact(noise, terms).axes[:4]:
        assert np.ptp(axes.get_ylim()) > 0.1 and np.ptp(axes.get_xlim()) > 0.1


def test_panels_have_one_scale_and_bars_the_names_of_their_contacts():
    """The velocity before is far outside; the contact that does not touch is left out everywhere."""
    terms, samples = two_balls()
    figure = jc.viz.plot_spatial_impact(samples, terms, names=["left", "right"])
    speeds, planes = figure.axes[0:4:2], figure.axes[1:4:2]
    for pair in (speeds, planes):
        assert pair[0].get_xlim() == pair[1].get_xlim() and pair[0].get_ylim() == pair[1].get_ylim()
    assert planes[0].get_ylim()[1] < 6.0 and np.ptp(planes[0].get_xlim()) == np.ptp(planes[0].get_ylim())
    names = [text.get_text() for text in figure.axes[-1].get_yticklabels()]
    assert names == ["left sticks, right lifts", "left slides, right lifts"]
    alone = jc.viz.plot_spatial_impact(
        samples, terms.replace(active=jnp.array([False, True])), names=["", "right"]
    )
    assert [text.get_text() for text in alone.axes[-1].get_yticklabels()] == ["right lifts"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["outcomes", "before"]


@pytest.mark.slow
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

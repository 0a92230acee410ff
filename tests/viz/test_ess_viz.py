"""Pictures of event-selected systems: what they show, and their errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.ess import DormandPrince, integrate


@pytest.fixture(scope="module")
def trajectory():
    model = jc.models.affine_3d()
    coarse = DormandPrince(rtol=1e-6, atol=1e-8, longest=0.05)
    settings = jc.ess.Settings(eps=1e-2, ode=coarse, max_steps=256)
    return integrate(model, model.initial_state(), 0.0, 0.5, settings=settings)


@pytest.mark.long
def test_a_trajectory_has_a_mark_at_every_crossing(trajectory, tmp_path):
    assert np.diff(np.asarray(trajectory.t)).max() <= 0.05 + 1e-12
    figure = jc.viz.plot_trajectory(trajectory, names=list("xyz"), guards=("x", "y", "-z"), title="Table 1")
    figure.savefig(tmp_path / "trajectory.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["x", "y", "z"]
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [line.get_xdata().size for line in marks] == [1, 1, 1]
    assert abs(marks[0].get_ydata()[0]) < 1e-3  # x is zero where guard x is crossed
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y", "-z", "steps"]
    with pytest.raises(ValueError, match="components"):
        jc.viz.plot_trajectory(trajectory, components=(3,))
    with pytest.raises(ValueError, match="trajectory"):
        jc.viz.plot_trajectory(jax.tree.map(lambda a: a[None], trajectory))


def field(t, x, signs, control, params):
    return jnp.stack([1.0 + 0.3 * signs[1], 1.0 - 0.4 * signs[0]])


def guards(x, params):
    return x


def test_a_corner_shows_both_orders(tmp_path):
    model = jc.Model(system=jc.ess.EventSystem(field, guards), params=None, initial=jnp.zeros(2))
    figure = jc.viz.plot_corner(model, jnp.zeros(2), eps=0.1, radius=0.5, duration=1.8, starts=5)
    figure.savefig(tmp_path / "corner.png")
    labels = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert labels == {"0, 1", "1, 0"}
    with pytest.raises(ValueError, match="x_corner"):
        jc.viz.plot_corner(model, jnp.zeros(3), eps=0.1, radius=0.5, duration=1.0)


def test_the_order_is_fitted(tmp_path):
    widths = np.logspace(-6, -1, 11)
    figure = jc.viz.plot_order(widths, 3.0 * widths**2, fit=(1e-4, 1e-2), title="order")
    figure.savefig(tmp_path / "order.png")
    assert "order 2.000" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    with pytest.raises(ValueError, match="fit"):
        jc.viz.plot_order(widths, widths, fit=(1.0, 2.0))
    with pytest.raises(ValueError, match="errors: expected a finite number > 0"):
        jc.viz.plot_order(widths, -widths)

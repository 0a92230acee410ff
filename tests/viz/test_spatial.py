"""Pictures of spatial mechanisms and of compliant motion: what is drawn where, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon

import jaxcontact as jc


def drawn(axes, kind):
    return [patch for patch in axes.patches if isinstance(patch, kind)]


def test_a_view_keeps_lengths_and_hands():
    view = jc.viz.look(azimuth=-50.0, elevation=25.0)
    np.testing.assert_allclose(view.axes @ view.axes.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(np.linalg.det(view.axes), 1.0)
    assert view.flat(np.array([0.0, 0.0, 1.0]))[1] > 0.9  # up is up
    side = jc.viz.look(azimuth=-90.0, elevation=0.0)
    np.testing.assert_allclose(side.flat(np.eye(3)), [[1, 0], [0, 0], [0, 1]], atol=1e-15)


def test_a_box_shows_three_faces_above_its_ramp():
    model = jc.models.box_on_incline()
    figure = jc.viz.plot_mechanism(
        model, model.initial_state(), v={"after": np.ones(6), "at rest": np.zeros(6)}
    )
    assert [axes.get_title() for axes in figure.axes] == ["before", "after", "at rest"]
    polygons = drawn(figure.axes[0], Polygon)
    assert len(polygons) == 4
    assert polygons[0].get_zorder() < min(p.get_zorder() for p in polygons[1:])
    # The faces meet in the corner nearest to the eye; from the side, the box is its outline.
    side = Figure().add_subplot()
    jc.viz.draw_bodies(side, model, model.initial_state(), view=jc.viz.look(-90.0, 0.0), ground=False)
    (face,) = drawn(side, Polygon)
    edges = np.linalg.norm(np.diff(face.get_xy(), axis=0), axis=1)
    np.testing.assert_allclose(sorted(edges), [0.05, 0.05, 0.2, 0.2], rtol=1e-12)


def test_spheres_are_discs_where_they_are():
    model = jc.models.sphere_stack(3)
    axes = Figure().add_subplot()
    jc.viz.draw_bodies(axes, model, model.initial_state(), view=jc.viz.look(-90.0, 0.0))
    circles = drawn(axes, Circle)
    np.testing.assert_allclose([c.center for c in circles], [[0, 0.11], [0, 0.32], [0, 0.53]], atol=1e-12)
    assert {c.radius for c in circles} == {0.1}


def test_a_mechanism_without_contacts_can_be_drawn(tmp_path):
    model = jc.models.box_on_foundation(100)
    figure = jc.viz.plot_mechanism(model, model.initial_state(), title="cube")
    figure.savefig(tmp_path / "cube.png")
    (axes,) = figure.axes
    assert len(drawn(axes, Polygon)) == 4 and figure.get_suptitle() == "cube"  # the ground and three faces


def test_pressure_is_force_by_area(tmp_path):
    model = jc.models.box_on_foundation(100)
    lam = np.arange(100.0)
    figure = jc.viz.plot_pressure(
        model, model.initial_state(), lam, area=0.01, load_at=[0.5, 0.0, 0.5], title="load"
    )
    squares = figure.axes[1].collections[0]
    np.testing.assert_allclose(squares.get_array(), 100 * lam)
    figure.savefig(tmp_path / "pressure.png")


def test_curves_have_their_labels_and_scales():
    figure = jc.viz.plot_curves(
        {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])},
        xlabel="t (s)",
        ylabel="x (m)",
        yscale="log",
        title="two",
    )
    (axes,) = figure.axes
    labels = {text.get_text(): text for text in axes.texts}
    for label, end in (("a", 4.0), ("b", 6.0)):
        _, height = axes.transAxes.transform((1.0, labels[label].xy[1]))
        np.testing.assert_allclose(height, axes.transData.transform((2.0, end))[1])
    assert list(labels) == ["a", "b"] and labels["a"].get_color() == axes.lines[0].get_color()
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("t (s)", "x (m)", "log")
    (near,) = jc.viz.plot_curves({"a": ([1, 2], [1.0001, 1.0002])}, xlabel="t (s)", ylabel="x (m)").axes
    near.figure.draw_without_rendering()
    assert near.yaxis.get_major_formatter().get_offset() == ""  # a tick is the number itself


def test_mistakes_are_named():
    box, block = jc.models.box_on_incline(), jc.models.rocking_block()
    with pytest.raises(ValueError, match="expected a spatial mechanism"):
        jc.viz.draw_bodies(Figure().add_subplot(), block, block.initial_state())
    with pytest.raises(ValueError, match=r"names: expected 4, one per contact, got 2"):
        jc.viz.plot_mechanism(box, box.initial_state(), names=["a", "b"])
    with pytest.raises(ValueError, match=r"v: expected finite \(6,\) for 'after', got shape \(3,\)"):
        jc.viz.plot_mechanism(box, box.initial_state(), v=jnp.zeros(3))
    model = jc.models.box_on_foundation(100)
    with pytest.raises(ValueError, match=r"lam: expected \(100,\), one per element, got \(3,\)"):
        jc.viz.plot_pressure(model, model.initial_state(), np.ones(3), area=0.01)

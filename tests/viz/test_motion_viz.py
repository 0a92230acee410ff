"""Pictures of motions with impacts: what they show."""

import numpy as np

import jaxcontact as jc


def test_cradle_energy_gives_an_engine_one_colour():
    speed = np.array([1.0, 2.0, 3.0])
    ratio = np.array([[1.0, 0.5], [1.1, 0.5], [0.9, 0.5]])
    figure = jc.viz.plot_cradle_energy(
        {"ours": (speed, np.ones((3, 2))), "theirs": (speed, ratio)},
        {"theirs": ([1, 10], [1.0, 2.0]), "ours": ([1, 10], [1.0, 1.0])},
        title="cradle",
    )
    one, many = figure.axes
    assert len(one.lines) == 4 and len(many.lines) == 2
    np.testing.assert_array_equal(one.lines[2].get_ydata(), ratio[:, 0])
    colour = {line.get_label(): line.get_color() for line in many.lines}
    assert one.lines[0].get_color() == colour["ours"] != colour["theirs"] == one.lines[3].get_color()
    assert many.get_xscale() == many.get_yscale() == "log"


def test_order_difference_shows_zero_at_the_floor():
    figure = jc.viz.plot_order_difference({"a": ([0.0, 1.0], [0.0, 1e-3])}, floor=1e-16)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [1e-16, 1e-3])
    (label,) = figure.axes[0].texts
    assert label.get_text() == "a" and 0.9 < label.xy[1] <= 1.0  # beside the end of the curve

"""Pictures of paths over s and of the paradox: what they show."""

import numpy as np

import jaxcontact as jc
from jaxcontact.simulate import AugmentedPath, PieceKind

FREE, CONTACT, IMPACT, UNUSED = PieceKind.FREE, PieceKind.CONTACT, PieceKind.IMPACT, PieceKind.UNUSED
# A body falls, strikes, rests; the last row is not in use.
PATH = AugmentedPath(
    s=np.array([0.0, 1.0, 3.0, 5.0, 5.0]),
    t=np.array([0.0, 1.0, 1.0, 1.2, 1.2]),
    q=np.array([[0.0, 1.5, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
    v=np.array([[0.0, 0.0, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    lam=np.array([[[0.0, 0.0]], [[1.0, 0.0]], [[0.9, 0.0]], [[0.0, 0.0]]]),
    t_rate=np.array([1.0, 0.0, 0.1, 0.0]),
    kind=np.array([FREE, IMPACT, CONTACT, UNUSED]),
    impact=np.array([-1, 0, -1, -1]),
    collision=np.array([False, True, False, False]),
)


def test_a_path_over_t_and_over_s():
    figure = jc.viz.plot_path(PATH, 1, name="height", title="fall")
    over_t, over_s, rates = figure.axes
    np.testing.assert_array_equal(over_t.lines[1].get_xdata(), [0.0, 1.0, 1.0, 1.2])
    np.testing.assert_array_equal(over_s.lines[1].get_ydata(), [0.0, -2.0, 0.0, 0.0])
    (frozen,) = over_s.patches
    assert (frozen.get_x(), frozen.get_width()) == (1.0, 2.0)
    np.testing.assert_array_equal(rates.lines[1].get_ydata()[:-1], [0.0, 1.0, 0.9])


def test_phase_and_snapshots():
    figure = jc.viz.plot_phase({"falls": PATH}, lambda q, v: (q[:, 1] - 1.0, v[:, 1]), title="phase")
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [0.5, 0.0, 0.0, 0.0])
    corners = np.array([[-0.5, -1.0], [0.5, -1.0], [0.5, 1.0], [-0.5, 1.0]])
    figure = jc.viz.plot_snapshots(PATH, corners, {"start": 0, "strikes": 1}, title="snapshots")
    assert len(figure.axes) == 2
    # The body, the floor; and an arrow where it moves.
    assert [len(axes.texts) for axes in figure.axes] == [0, 1]
    np.testing.assert_allclose(figure.axes[1].patches[1].get_xy()[0], [-0.5, 0.0])


def test_chart_of_a_paradox():
    kind = np.array([[0, 0, 0], [0, 1, 2]])
    line = {"boundary": ([0.5, 2.5], [0.5, 0.5])}
    figure = jc.viz.plot_paradox(
        np.arange(3.0), np.arange(2.0), kind, names=("angle", "friction"), boundaries=line, title="rod"
    )
    (axes,) = figure.axes
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 4 and labels[-1] == "boundary" and axes.get_xlabel() == "angle"
    np.testing.assert_array_equal(np.asarray(axes.collections[0].get_array()).reshape(2, 3), kind)

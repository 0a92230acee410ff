"""The lines on the page of the gallery draw its pictures, and the page shows each of them."""

import re

import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

from benchmarks.figures import gallery

PICTURES = gallery.pictures()
QUICK = ("compass_gait.png", "humanoid.png")  # of the others compiling takes over ten seconds
MOST_LINES = 40  # of a picture, its imports and its robot included


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in QUICK else pytest.mark.slow) for name in PICTURES],
)
def test_the_lines_of_a_picture_draw_it(name, tmp_path):
    if name == "biped.png":
        pytest.importorskip("clarabel")
    path = gallery.draw(name, PICTURES[name], tmp_path)
    pyplot.close("all")
    if path.suffix == ".html":
        assert "const data = {" in path.read_text()
        return
    with Image.open(path) as picture:
        assert getattr(picture, "n_frames", 1) > (10 if path.suffix == ".gif" else 0)
        assert 300 <= picture.width <= 1200
        pixels = np.asarray(picture.convert("L"))
    assert 0.005 < np.mean(pixels < 250) < 0.9  # neither empty nor full


def test_the_page_shows_twelve_pictures_one_of_them_to_play():
    text = gallery.PAGE.read_text()
    assert len(PICTURES) == 12
    shown = re.findall(r'(?:\(|src=")\.\./_static/gallery/([\w.]+)', text)
    assert shown == list(PICTURES)
    assert [name for name in shown if name.endswith(".html")]
    first_page = (gallery.PAGE.parents[1] / "index.md").read_text()
    assert re.findall(r'src="_static/gallery/([\w.]+)"', first_page) == list(PICTURES)
    assert max(lines.count("\n") for lines in PICTURES.values()) <= MOST_LINES

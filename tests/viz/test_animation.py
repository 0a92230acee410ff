"""Animations: what is in the files, what they leave out, and what a browser says to them."""

import base64
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import browser
from matplotlib.animation import FFMpegWriter

import jaxcontact as jc
from jaxcontact.viz.film import film_of

T = 21


def motion(model, q, **more):
    """A trajectory of positions (..., T, nq) at steps of 50 ms."""
    q = np.asarray(q)
    t = np.broadcast_to(0.05 * np.arange(q.shape[-2]), q.shape[:-1])
    states = jc.State(
        q=jnp.asarray(q), v=jnp.zeros((*q.shape[:-1], model.initial_state().v.shape[0])), t=jnp.asarray(t)
    )
    fields = {"contacts": None, "impulse": None, "impacts": None, "status": None}
    return jc.simulate.Trajectory(states=states, **{**fields, **more})


def sliding(model, speed, worlds=()):
    """The model's state moved along x; worlds are speeds of their own."""
    q = np.tile(np.asarray(model.initial_state().q), (T, 1))
    along = np.linspace(0.0, 1.0, T)
    paths = [q + np.outer(along * each, np.eye(q.shape[1])[0]) for each in (speed, *worlds)]
    return np.stack(paths) if worlds else paths[0]


def page_data(path):
    text = path.read_text()
    return text, json.loads(re.search(r"const data = (\{.*\});", text)[1])


def test_a_page_is_one_file_without_addresses_and_holds_the_motion(tmp_path):
    model = jc.models.tossed_cube()
    path = tmp_path / "cube.html"
    q = sliding(model, 0.7)
    assert jc.viz.animate(motion(model, q), model, path, title="<cube>") == path
    text, data = page_data(path)
    assert not re.search(r"https?:|//[a-z]|src=|@import|url\(", text.replace("data:,", ""))
    assert "<cube>" not in text and "&lt;cube&gt;" in text
    assert data["t"] == [round(0.05 * k, 6) for k in range(T)]
    # Poses come back to what 16 bits hold.
    raw = np.frombuffer(base64.b64decode(data["poses"]), "<i2").reshape(T, 1, 7)
    places = np.asarray(data["origin"]) + data["step"] * raw[..., :3].view("<u2")
    np.testing.assert_allclose(places[:, 0], q[:, :3], atol=0.51 * data["step"])
    w = raw[:, 0, [6, 3, 4, 5]] / 32767.0
    np.testing.assert_allclose(
        np.abs(np.sum(w * q[:, 3:], axis=1)), np.linalg.norm(q[:, 3:], axis=1), atol=1e-4
    )


def test_no_impulse_is_lost_between_pictures_and_they_point_along_the_normals():
    model = jc.models.rocking_block()
    impulse = np.random.default_rng(0).uniform(size=(T - 1, 2, 2))
    impacts = jc.simulate.Impacts(
        t=jnp.array([0.42, jnp.nan]), touching=None, approaching=None, order=None,
        impulse=jnp.array([[2.0, 3.0], [9.0, 9.0]]), v_minus=None, v_plus=None, plastic=None, count=jnp.array(1),
    )  # fmt: skip
    given = motion(model, sliding(model, 0.2), impulse=jnp.asarray(impulse), impacts=impacts)
    film = film_of(given, model, None, rate=5.0)
    assert len(film.t) == 6 and film.t[-1] == pytest.approx(1.0)
    total = film.impulse.sum(axis=0)  # on a floor n = (0, 1), t = (1, 0)
    np.testing.assert_allclose(total[:, 0], impulse.sum(axis=0)[:, 1])
    np.testing.assert_allclose(total[:, 1], impulse.sum(axis=0)[:, 0] + [2.0, 3.0])
    one = np.zeros_like(film.impulse[0])
    np.testing.assert_allclose(film.impulse[0], one)  # nothing pushes before the start
    step = 4 * np.arange(6)
    for k in range(5):
        extra = [2.0, 3.0] if film.t[k] < 0.42 <= film.t[k + 1] else [0.0, 0.0]
        sums = impulse[step[k] : step[k + 1]].sum(axis=0)
        np.testing.assert_allclose(film.impulse[k + 1][:, 1], sums[:, 0] + extra)


def test_ghosts_are_grouped_by_where_they_end_and_failed_worlds_are_left_out():
    model = jc.models.rocking_block()
    speeds = [0.0, 3.0, 0.001, 3.002, 0.0, -2.0]
    worlds = sliding(model, 0.5, speeds)
    worlds[5, 4:] = np.nan
    film = film_of(motion(model, worlds), model, None, rate=30.0)
    assert film.ghosts.num_failed == 1 and film.ghosts.frames.positions.shape[0] == 6
    ends = film.ghosts.frames.centres[:, -1, 0, 0]
    for group in film.ghosts.groups:
        assert np.ptp(ends[group.worlds]) < 0.01
    assert [len(group.worlds) for group in film.ghosts.groups] == [2, 2, 1, 1]
    assert film.ghosts.groups[0].label == "outcome 1: 2 of 6"
    assert not film.ghosts.has_shares  # of so few worlds
    assert film.low[0] < -2.0 and film.high[0] > 3.0  # all of them are in the picture
    lost = film_of(motion(model, worlds[0]), model, motion(model, worlds[5:6]), rate=30.0)
    assert lost.ghosts.groups == () and lost.ghosts.num_failed == 1


def test_worlds_by_name_are_groups_of_these_names():
    model = jc.models.rocking_block()
    speeds = [0.0, 3.0, 0.001, -2.0]
    worlds = sliding(model, 0.5, speeds)
    worlds[1, 4:] = np.nan
    named = {"stays": motion(model, worlds[:2]), "leaves": motion(model, worlds[2:])}
    film = film_of(motion(model, worlds[0]), model, named, rate=30.0)
    assert film.ghosts.is_named and film.ghosts.has_shares and film.ghosts.num_failed == 1
    assert [group.label for group in film.ghosts.groups] == ["stays: 1 of 4", "leaves: 3 of 4"]
    assert [group.worlds.tolist() for group in film.ghosts.groups] == [[0], [1, 2, 3]]
    np.testing.assert_allclose(film.ghosts.frames.centres[:, -1, 0, 0], [0.5, 3.0, 0.001, -2.0], atol=1e-9)
    alone = film_of(motion(model, worlds[0]), model, {"slow": motion(model, worlds[3])}, rate=30.0)
    assert [group.label for group in alone.ghosts.groups] == ["slow"] and alone.ghosts.has_shares
    with pytest.raises(ValueError, match="ghosts: expected 1 to 6 names, got 0"):
        film_of(motion(model, worlds[0]), model, {}, rate=30.0)
    with pytest.raises(TypeError, match=r"ghosts\['slow'\]: expected a jc.simulate.Trajectory, got int"):
        film_of(motion(model, worlds[0]), model, {"slow": 3}, rate=30.0)


def test_a_long_title_has_lines(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    words, heading = [], Figure.suptitle
    monkeypatch.setattr(
        Figure, "suptitle", lambda self, text, **more: words.append(text) or heading(self, text, **more)
    )
    model = jc.models.rocking_block()
    title = "A block slides along the floor, and this title says so in more words than fit on one line"
    jc.viz.animate(motion(model, sliding(model, 0.5)), model, tmp_path / "a.gif", fps=4, title=title)
    assert words[0].replace("\n", " ") == title and max(map(len, words[0].split("\n"))) <= 62


def test_a_film_says_how_many_worlds_end_alike(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    model, texts, legend = jc.models.tossed_cube(), [], Figure.legend

    def noted(figure, **options):
        made = legend(figure, **options)
        texts.extend(text.get_text() for text in made.get_texts())
        return made

    monkeypatch.setattr(Figure, "legend", noted)
    worlds = motion(model, sliding(model, 0.7, worlds=(0.7, 0.7, 0.7, -0.7)))
    jc.viz.animate(worlds, model, tmp_path / "cubes.gif", fps=4)
    assert texts == ["outcome 1: 4 of 5", "outcome 2: 1 of 5"]
    assert '"shares":true' in jc.viz.animate(worlds, model, tmp_path / "cubes.html").read_text()


def test_gif_and_film_have_as_many_pictures_as_asked_for(tmp_path):
    from PIL import Image

    model = jc.models.rocking_block()
    given = motion(model, sliding(model, 0.5, [0.2, 0.8]), contacts=jnp.ones((3, T, 2), bool))
    path = jc.viz.animate(given, model, tmp_path / "a" / "block.gif", fps=4, slower=0.5)
    with Image.open(path) as picture:
        assert picture.n_frames == 3
        first = np.asarray(picture.convert("RGB")).astype(int)
        picture.seek(2)
        assert np.abs(np.asarray(picture.convert("RGB")).astype(int) - first).max() > 50
    if FFMpegWriter.isAvailable():
        assert jc.viz.animate(given, model, tmp_path / "b.mp4", fps=4).stat().st_size > 1000
    else:
        with pytest.raises(ImportError, match=r"a \.mp4 needs the program ffmpeg"):
            jc.viz.animate(given, model, tmp_path / "b.mp4")


def test_mistakes_are_named(tmp_path):
    model = jc.models.rocking_block()
    given, path = motion(model, sliding(model, 0.5)), tmp_path / "x.html"
    for change, error, message in (
        (
            {"path": "x.avi"},
            ValueError,
            r"path: expected a name that ends in \.html, \.gif, \.mp4, got 'x\.avi'",
        ),
        ({"fps": 0.0}, ValueError, "fps: expected a finite number > 0"),
        ({"trajectory": given.states}, TypeError, "trajectory: expected Trajectory, got State"),
        ({"ghosts": 3}, TypeError, "ghosts: expected Trajectory or a mapping, got 3"),
        (
            {"trajectory": motion(jc.models.compass_gait(), np.zeros((3, 4)))},
            ValueError,
            r"q \(T \+ 1, 3\) or",
        ),
        ({"trajectory": motion(model, np.full((3, 3), np.nan))}, ValueError, "finite states, row 0 is not"),
    ):
        arguments = {"trajectory": given, "path": path, **change}
        with pytest.raises(error, match=message):
            jc.viz.animate(arguments.pop("trajectory"), model, arguments.pop("path"), **arguments)
    assert not path.exists()


def canvas_colours(page):
    """How many colours the canvas has, and a sum of its bytes that tells pictures apart."""
    return page.evaluate(
        """(() => { const w = canvas.width, h = canvas.height, p = new Uint8Array(4 * w * h);
        gl.readPixels(0, 0, w, h, gl.RGBA, gl.UNSIGNED_BYTE, p);
        const seen = new Set(); let sum = 0;
        for (let i = 0; i < p.length; i += 4) {
          const c = p[i] + 256 * p[i + 1] + 65536 * p[i + 2]; seen.add(c); sum = (sum * 31 + c) % 4294967291; }
        return [seen.size, sum]; })()"""
    )


def slide(page, share):
    page.evaluate(f"$('at').value = {share} * $('at').max; $('at').dispatchEvent(new Event('input')); 1")
    page.painted()


@pytest.mark.skipif(browser.PROGRAM is None, reason="no Chromium on this machine: pages were not opened")
def test_pages_open_in_a_browser_without_complaint_and_the_slider_changes_the_picture(tmp_path):
    block, cube = jc.models.rocking_block(), jc.models.tossed_cube()
    for name, model, worlds in (
        ("plane", block, [0.5, 0.5, 0.9, 0.9]),
        ("few", block, [0.2, 0.9]),
        ("space", cube, []),
    ):
        impulse = np.ones((1 + len(worlds), T - 1, model.structure.num_contacts, model.structure.dim))
        given = motion(
            model, sliding(model, 0.5, worlds), impulse=jnp.asarray(impulse if worlds else impulse[0])
        )
        jc.viz.animate(given, model, tmp_path / f"{name}.html")
    with browser.page() as page:
        for name in ("plane", "space"):
            page.open(tmp_path / f"{name}.html")
            page.painted()
            colours, start = canvas_colours(page)
            assert colours > 20
            slide(page, 0.6)
            assert canvas_colours(page)[1] != start
            slide(page, 0.0)
            assert canvas_colours(page)[1] == start  # the same time is the same picture
            page.evaluate("eye.azimuth += 20; dirty = true; 1")
            page.painted()
            assert canvas_colours(page)[1] != start
            page.evaluate("play(true); 1")
            page.evaluate("new Promise(r => setTimeout(() => r(1), 300))")
            assert page.evaluate("now") > 0.0
            assert page.complaints == []
        assert page.evaluate("document.querySelectorAll('#legend i').length") == 0
        for name, lines, first in (("plane", 2, "outcome 1: 3 of 5"), ("few", 0, "pale: 3 worlds")):
            page.open(tmp_path / f"{name}.html")
            assert page.evaluate("document.querySelectorAll('#legend i').length") == lines
            assert page.evaluate("$('legend').firstChild.textContent") == first

"""`animate`: writes a motion as one page for a browser, as a GIF or as a film."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_positive
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io.atomic_files import replace_file
from jaxcontact.mechanics.system import Model
from jaxcontact.simulate import Trajectory
from jaxcontact.viz import planar, spatial
from jaxcontact.viz.film import Film, Group, film_of
from jaxcontact.viz.palette import ARROW, PUSH, arrow
from jaxcontact.viz.web_page import web_page

if TYPE_CHECKING:
    from matplotlib.animation import AbstractMovieWriter
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".html", ".gif", ".mp4")
LETTERS = 13  # of a title, per inch
LINE = 0.18  # inches, of a line of a title


@checked(fps=POSITIVE, slower=POSITIVE)
def animate(
    trajectory: Trajectory,
    model: Model,
    path: str | os.PathLike[str],
    *,
    ghosts: Trajectory | Mapping[str, Trajectory] | None = None,
    fps: float = 30.0,
    slower: float = 1.0,
    title: str | None = None,
    view: spatial.View | None = None,
) -> Path:
    """Write a motion as an animation of bodies, ground, contacts with impulses as arrows, and ghosts.

    The ending of the name decides the kind of file. An `.html` is one page that loads nothing else: it plays,
    has a slider, turns and zooms, in a browser, a notebook or these docs. A `.gif` and an `.mp4` are for
    papers. An arrow is the impulse on a contact since the previous picture.

    Args:
        trajectory: a motion; or an ensemble with worlds as its first axis, whose first world is drawn solid
            and all worlds as ghosts.
        model: the mechanism and its numbers.
        path: file to write; its ending is .html, .gif or .mp4.
        ghosts: worlds (worlds, T + 1, ...) to draw faintly, coloured by their end states; or such worlds by
            name, coloured by their names, which the picture shows.
        fps: pictures per second of the animation.
        slower: factor by which the animation is slower than the motion.
        title: of the animation.
        view: `look(azimuth, elevation, width=)` of a .gif or .mp4: the direction to look from, for a spatial
            mechanism, and the width.

    Returns:
        The path of the file.

    Raises:
        TypeError: if `trajectory` or `ghosts` is no trajectory.
        ValueError: for another ending, numbers out of range, states of another mechanism or not finite.
        ImportError: for a .mp4 without the program ffmpeg, or a .gif without the package pillow.
        OSError: if the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() not in KINDS:
        raise ValueError(f"path: expected a name that ends in {', '.join(KINDS)}, got {target.name!r}")
    for name, number in (("fps", fps), ("slower", slower)):
        check_positive(name, number)
    film = film_of(trajectory, model, ghosts, rate=fps * slower)
    if target.suffix.lower() == ".html":
        page = web_page(film, title=title or "A motion", slower=slower)
        replace_file(target, lambda file: _write(file, page))
        return target
    _write_pictures(film, target, fps, title, view or spatial.look())
    return target


def _write(file: BinaryIO, text: str) -> None:
    file.write(text.encode())


def _write_pictures(film: Film, target: Path, fps: float, title: str | None, view: spatial.View) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    writer = _writer(target, fps)
    extent, width = _extent(film, view), view.width
    tall = float(np.clip(width * extent[1] / extent[0], 0.4 * width, 1.3 * width))
    words = _in_lines(title or "", int(LETTERS * width))
    tall += (LINE * (words.count("\n") + 1) + 0.12) if title else 0.0
    figure = Figure(figsize=(width, tall), layout="constrained")
    FigureCanvasAgg(figure)  # an animation draws on it
    axes = figure.add_subplot()
    if title:
        figure.suptitle(words, fontsize=10)
    if film.ghosts is not None and film.ghosts.has_shares:
        _name_shares(figure, film.ghosts.groups)

    def draw(i: int) -> None:
        axes.clear()
        if film.scene.dim == 2:
            _draw_planar(axes, film, i)
        else:
            _draw_spatial(axes, film, i, view)
        axes.set_title(f"{film.t[i] - film.t[0]:.2f} s", fontsize=8, loc="right")
        if film.full > 0.0:
            axes.set_title("red: impulses on contacts", fontsize=8, loc="left", color=PUSH)

    draw(0)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # all pictures use the layout of the first
    target.parent.mkdir(parents=True, exist_ok=True)
    with writer.saving(figure, target, dpi=100):
        for i in range(len(film.t)):
            draw(i)
            writer.grab_frame()


def _in_lines(title: str, letters: int) -> str:
    """Break a title into lines of about equal length, with so many letters at most."""
    count = math.ceil(len(title) / letters)
    return textwrap.fill(title, min(letters, math.ceil(len(title) / count) + 6)) if count > 1 else title


def _name_shares(figure: Figure, groups: Sequence[Group]) -> None:
    """Say below the pictures how many worlds end alike, in the colours of their ghosts."""
    from matplotlib.patches import Patch

    shares = [Patch(color=group.colour, alpha=0.6, label=group.label) for group in groups]
    figure.legend(handles=shares, loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _writer(target: Path, fps: float) -> AbstractMovieWriter:
    """Make the writer of the pictures.

    Raises:
        ImportError: if its program or package is not installed.
    """
    from matplotlib.animation import FFMpegWriter, PillowWriter

    if target.suffix.lower() == ".gif":
        if not PillowWriter.isAvailable():
            raise ImportError("a .gif needs the package pillow: pip install pillow; an .html needs nothing")
        return PillowWriter(fps=fps)  # type: ignore[arg-type]  # it takes any number
    if not FFMpegWriter.isAvailable():
        raise ImportError(
            "a .mp4 needs the program ffmpeg, which is not on the path; a .gif or an .html needs none"
        )
    return FFMpegWriter(fps=fps)  # type: ignore[arg-type]


def _extent(film: Film, view: spatial.View) -> np.ndarray:
    """Return width and height of the visible part, m."""
    if film.scene.dim == 2:
        return film.high - film.low + 2.0 * planar.margin_of(film.low, film.high)
    low, high = spatial.limits(view, film.low, film.high)
    return high - low


def _draw_planar(axes: Axes, film: Film, i: int) -> None:
    frame = film.frames.at(i)
    planar.draw_planar(axes, film.scene, frame, film.low, film.high)
    for ghost, colour, alpha in _ghosts_at(film, i):
        planar.draw_planar_bodies(axes, film.scene, ghost, colour=colour, alpha=alpha)
    for place, along in _arrows(film, i):
        axes.plot(*place, "o", markersize=3.5, color=PUSH, markeredgewidth=0.0, zorder=8)
        if np.any(along):
            arrow(axes, place, along, PUSH)


def _draw_spatial(axes: Axes, film: Film, i: int, view: spatial.View) -> None:
    frame = film.frames.at(i)
    spatial.draw_spatial(axes, film.scene, frame, view, film.low, film.high)
    for ghost, colour, alpha in _ghosts_at(film, i):
        spatial.draw_spatial_bodies(axes, film.scene, ghost, view, colour=colour, alpha=alpha)
    for place, along in _arrows(film, i):
        flat = view.flat(place)
        axes.plot(*flat, "o", markersize=3.0, color=PUSH, markeredgewidth=0.0, zorder=8)
        if np.any(view.flat(along)):
            arrow(axes, flat, view.flat(along), PUSH)


def _ghosts_at(film: Film, i: int) -> list[tuple[PyTree, str, float]]:
    """List frames, colour and opacity of every ghost at one picture."""
    if film.ghosts is None:
        return []
    count = sum(len(group.worlds) for group in film.ghosts.groups)
    alpha = max(0.04, 0.5 / math.sqrt(max(count, 1)))
    return [
        (film.ghosts.frames.at((world, i)), group.colour, alpha)
        for group in film.ghosts.groups
        for world in group.worlds
    ]


def _arrows(film: Film, i: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """List the places of touching contacts and their arrows, m, at most twice the full length long."""
    arrows = []
    for contact in np.flatnonzero(film.touching[i]):
        push = film.impulse[i, contact]
        strength = float(np.linalg.norm(push))
        length = ARROW * film.size * min(strength / film.full, 2.0) if film.full > 0.0 else 0.0
        along = push * (length / strength) if strength > 0.0 else np.zeros_like(push)
        arrows.append((film.frames.contacts[i, contact], along))
    return arrows

"""Charts of stability over two parameters of a body, point by point: entry function `chart`.

Owns the loop over a grid, its file to resume from, and the grids of Varkonyi's Figures 2 and 3. A point is
certified by functions V, then by kinds of impacts or the return map; the motions of a row are one batch. The
paper only draws the circles; `certify(method="full")` replaces them. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.arguments import check_count, check_rows
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import checked
from jaxcontact.io import fingerprint
from jaxcontact.io.state_file import load_state, open_state, save_state
from jaxcontact.stability.body import Body, LocalTerms, PlanarBiped, as_terms
from jaxcontact.stability.certify import certify
from jaxcontact.stability.falsify import check_starts, run_many
from jaxcontact.stability.motion import DIVERGED

FORMAT = "jaxcontact stability chart, 3"
THREADS = 2  # rows at a time, so that certificates of one row and motions of another overlap


class Region(enum.IntEnum):
    """Knowledge of the equilibrium at a point of a chart."""

    UNDECIDED = 0
    CERTIFIED = 1
    FALSIFIED = 2
    AMBIGUOUS = 3
    NO_EQUILIBRIUM = 4


class Chart(Record):
    """Regions over two parameters.

    Attributes:
        names: of the two parameters.
        x: (nx,) values of the first.
        y: (ny,) values of the second.
        region: (ny, nx) of `Region`.
        margin: (ny, nx) of the certificates, 0 without one.
        diverging: (ny, nx) fraction of the motions that diverge.
        contradictions: number of points both certified and falsified; 0 unless something is wrong.
    """

    names: tuple[str, str] = static()
    x: np.ndarray
    y: np.ndarray
    region: np.ndarray
    margin: np.ndarray
    diverging: np.ndarray
    contradictions: int = static()


@checked(num_samples=check_count, max_events=check_rows)
def chart(
    make_body: Callable[..., Body],
    grid: Mapping[str, PyTree],
    *,
    num_samples: int = 64,
    seed: int = 0,
    max_events: int = 600,
    run: Run = DEFAULT_RUN,
) -> Chart:
    """Certify and falsify over a grid of two parameters; `viz.plot_stability_chart` draws it.

    Args:
        make_body: called with the two parameters by name; all its bodies have the same number of contacts.
        grid: the values of two parameters by name; the first is the x axis.
        num_samples: starts of the falsifier at each point, at least 1.
        seed: of those.
        max_events: of each motion, at least 1.
        run: executor, checkpoint, progress. A row is a block of work. The checkpoint is a file, written
            after every row; a run that was stopped resumes after its last row. It stores versions, grid,
            settings and the numbers of every body: these determine the chart. `progress` is called with the
            points done and all of them.

    Returns:
        Chart. Ambiguous points are unstable by their certificate.

    Raises:
        ValueError: the grid does not have two parameters, or one has no values; values, num_samples, seed or
            max_events out of range; the checkpoint is of another chart, with the names of what differs.
        ImportError: Clarabel is not installed.

    Derivative: none.
    """
    (first, x), (second, y) = _axes_of(grid)
    check_starts(num_samples, seed, max_events)

    compute = _ChartRows(make_body, (first, x), (second, y), (num_samples, seed, max_events))
    check_run(run, unused=("chunk", "devices", "about"))
    path, about, rows = None if run.checkpoint is None else Path(run.checkpoint), {}, []
    with open_state(path):
        if path is not None:
            about = {
                "format": FORMAT,
                **fingerprint.versions(),
                "grid": [first, x.tolist(), second, y.tolist()],
                "num_samples": int(num_samples),
                "seed": int(seed),
                "max_events": int(max_events),
                "make_body": fingerprint.of_numbers([compute.bodies(k) for k in range(len(y))]),
            }
            stored = load_state(path, about)
            rows = [] if stored is None else list(stored["rows"])
        left = [(k,) for k in range(len(rows), len(y))]
        computed = run_blocks(
            run, _ChartRows, compute.arguments, left, count=len(left), num_threads=THREADS, compiles=True
        )
        with contextlib.closing(computed):
            for values in computed:
                rows.append(values)
                if path is not None:
                    save_state(path, about, {"rows": np.array(rows)})
                if run.progress is not None:
                    run.progress(len(rows) * len(x), x.size * y.size)
    region, margin, diverging = np.stack(rows, axis=1)
    falsified = (diverging > 0) & (region == Region.UNDECIDED)
    return Chart(
        names=(first, second),
        x=x,
        y=y,
        region=np.where(falsified, int(Region.FALSIFIED), region).astype(int),
        margin=margin,
        diverging=diverging,
        contradictions=int(np.sum((region == Region.CERTIFIED) & (diverging > 0))),
    )


class _ChartRows:
    """Function of a row's number: region, margin and share of diverging motions of its points (3, nx)."""

    def __init__(
        self,
        make_body: Callable[..., Body],
        first: tuple[str, np.ndarray],
        second: tuple[str, np.ndarray],
        settings: tuple[int, int, int],
    ) -> None:
        self.arguments = make_body, first, second, settings

    def bodies(self, k: int) -> list[LocalTerms]:
        make_body, (first, x), (second, y), _ = self.arguments
        row_bodies = (make_body(**{first: float(a), second: float(y[k])}) for a in x)
        return [jax.tree.map(np.asarray, as_terms(body)) for body in row_bodies]

    def __call__(self, k: int) -> np.ndarray:
        """Certify and falsify the points of row k."""
        bodies = self.bodies(k)
        many = jax.tree.map(lambda *leaves: np.stack(leaves), *bodies)
        return np.stack([*_certified(bodies), _diverging(many, *self.arguments[3])])


def _axes_of(grid: Mapping[str, object]) -> list[tuple[str, np.ndarray]]:
    """List name and values of both parameters; raise ValueError if there are not two with finite values."""
    if len(grid) != 2:
        raise ValueError(f"grid: expected the values of two parameters by name, got {list(grid)}")
    axes = [(name, np.asarray(values, float).ravel()) for name, values in grid.items()]
    for name, values in axes:
        if not values.size or not np.all(np.isfinite(values)):
            raise ValueError(f"grid: expected finite values of {name!r}, got {values}")
    return axes


def _certified(bodies: list[LocalTerms]) -> tuple[np.ndarray, np.ndarray]:
    """Certify each body; return regions by the certificates alone, and margins."""
    region, margin = np.zeros(len(bodies)), np.zeros(len(bodies))
    region_of = {"stable": Region.CERTIFIED, "unstable": Region.AMBIGUOUS, "undecided": Region.UNDECIDED}
    for i, body in enumerate(bodies):
        try:
            certificate = certify(body)
            if certificate.verdict == "undecided":
                certificate = certify(body, method="by_kind" if np.any(body.e) else "return_map")
        except ValueError as error:
            if "not an equilibrium" not in str(error):
                raise
            region[i] = Region.NO_EQUILIBRIUM
            continue
        region[i] = region_of[certificate.verdict]
        margin[i] = certificate.residuals.get("margin", 0.0) if certificate.verdict == "stable" else 0.0
    return region, margin


def _diverging(many: LocalTerms, num_samples: int, seed: int, max_events: int) -> np.ndarray:
    _, end = run_many(many, num_samples, seed, max_events)
    return np.mean(np.asarray(end.outcome) == DIVERGED, axis=1)


def biped_on_slope(alpha: float, h: float, d: float, **others: float | jax.Array) -> PlanarBiped:
    """Make a biped whose weight acts midway between its feet, 2 d apart; foot 1 is uphill, alpha in rad."""
    middle = h * (jnp.tan(alpha) if isinstance(alpha, jax.Array) else np.tan(alpha))
    return PlanarBiped(alpha=alpha, h=h, L1=middle - d, L2=middle + d, **others)


def figure_2(d: float, mu1: float) -> PlanarBiped:
    """Make the biped of Varkonyi, Fig. 2: a slope of 30 degrees, mu2 = 2, no restitution."""
    return biped_on_slope(np.deg2rad(30.0), 1.0, d, mu1=mu1, mu2=2.0)


def figure_3(d: float, mu: float) -> PlanarBiped:
    """Make the biped of Varkonyi, Fig. 3: a slope of 20 degrees, equal friction, restitution 0.1."""
    return biped_on_slope(np.deg2rad(20.0), 1.0, d, mu1=mu, mu2=mu, e1=0.1, e2=0.1)


# Bodies and the ranges of their parameters.
FIGURES: dict[str, tuple[Callable[..., PlanarBiped], dict[str, tuple[float, float]]]] = {
    "fig2": (figure_2, {"d": (0.04, 1.2), "mu1": (0.04, 1.2)}),
    "fig3": (figure_3, {"d": (0.05, 1.5), "mu": (0.3, 1.4)}),
}

"""`python -m benchmarks polygon_sides [--figure FILE] [--results FILE]`: how many sides of a cone are enough.

Three landings with polygons of 4, 8 and 16 sides, polygons turned by half a side, and a square that is
turned at random in every step, beside the circular cone (`circular_cone`). All see the same largest
impulses in the same steps, so the outcome of each impulse order is compared with that of the circle.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import circular_cone, report, runner
from jaxcontact.impact.sampling.draws import sobol

SAMPLES, MAX_STEPS, COORDINATES = 256, 16, 18  # of all landings; four contacts then share their programs
STICKS = 1e-6  # m/s


@dataclasses.dataclass(frozen=True)
class Landing:
    """What lands, its velocity before, the largest impulse of a step, and which solutions are candidates."""

    terms: jc.ContactTerms
    v: np.ndarray
    step: float
    selection: str


def _box() -> Landing:
    """A box lands flat on four corners while it slides and turns."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    return _widened(terms, np.array([0.5, 0.3, -0.44, 0.2, 0.1, 1.0]), 0.2)


def _cube() -> Landing:
    """A cube lands on an edge, obliquely to it, and slides."""
    model = jc.models.box_drop_3d(all_corners=True)
    constants = {"constants": {"size": jnp.ones(3)}, "inertia": jnp.full((1, 3), 1.0 / 6.0)}
    params = model.params.replace(mu=jnp.full(8, 0.3), **constants)
    half = np.pi / 8
    q = jnp.array([0.0, 0.0, np.sqrt(0.5), np.cos(half), 0.0, np.sin(half), 0.0])
    v = np.array([0.6, 0.4, -1.0, 0.3, 0.2, 0.4])
    terms = jc.contact_terms(
        model.replace(params=params), model.initial_state().replace(q=q, v=jnp.asarray(v))
    )
    return Landing(terms.take(np.abs(np.asarray(terms.phi)) < 1e-9), v, 0.3, "all")


def _quadruped() -> Landing:
    """A dog lands on four feet while it runs and turns."""
    model = jc.models.quadruped()
    terms = jc.contact_terms(model, model.initial_state())
    feet = np.sort(np.argsort(np.asarray(terms.phi))[:4])
    standing = terms.take(feet).replace(phi=jnp.zeros(4), active=jnp.ones(4, bool))
    v = np.asarray(model.initial_state().v).copy()
    v[:6] = 1.5, 0.6, -1.0, 0.2, 0.1, 0.3
    return _widened(standing, v, 2.0)


def _widened(terms: jc.ContactTerms, v: np.ndarray, step: float) -> Landing:
    """With more coordinates, which no contact feels."""
    more = COORDINATES - len(v)
    M = jnp.eye(COORDINATES).at[: len(v), : len(v)].set(terms.M)
    J_n, J_t = jnp.pad(terms.J_n, [(0, 0), (0, more)]), jnp.pad(terms.J_t, [(0, 0), (0, 0), (0, more)])
    return Landing(terms.replace(M=M, J_n=J_n, J_t=J_t), np.pad(v, (0, more)), step, "lemke")


LANDINGS = {"box on four corners": _box, "cube on an edge": _cube, "quadruped on four feet": _quadruped}
CONES: dict[str, dict[str, Any]] = {
    "4 sides": {"k": 4},
    "4 sides, turned": {"k": 4, "turned": True},
    "4 sides, turned in every step": {"k": 4, "turn_polygon": True},
    "8 sides": {"k": 8},
    "8 sides, turned": {"k": 8, "turned": True},
    "16 sides": {"k": 16},
}
CIRCLE = "circle"
DRAWN = ("4 sides", "8 sides", "16 sides")


def outcomes(
    landing: Landing, k: int, turned: bool = False, turn_polygon: bool = False
) -> jc.impact.ImpactSamples:
    """Samples of a landing by one polygon; `turned` by half a side."""
    angle = np.pi / k if turned else 0.0
    turn = jnp.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    terms = landing.terms.replace(J_t=jnp.einsum("st,ctv->csv", turn, landing.terms.J_t))
    return jc.impact.sample(
        terms,
        jnp.asarray(landing.v),
        jc.impact.Routh(
            impulse_step=landing.step,
            max_steps=MAX_STEPS,
            num_directions=k,
            selection="lemke" if turn_polygon else landing.selection,
            turn_polygon=turn_polygon,
        ),
        num_samples=SAMPLES,
    )


def by_circle(landing: Landing) -> tuple[np.ndarray, np.ndarray]:
    """Velocities (n, nv) after the same impulse orders with the circular cone, and which did not end (n,)."""
    width = len(landing.terms.mu) + 1
    drawn = sobol(MAX_STEPS * width, 0).uniform(np.arange(SAMPLES), 0, MAX_STEPS * width)
    caps = np.asarray(drawn).T.reshape(SAMPLES, MAX_STEPS, width)[..., :-1] * landing.step
    after, good = circular_cone.outcomes(landing.terms, landing.v, caps)
    return after, ~good


def sliding(landing: Landing, after: np.ndarray) -> np.ndarray:
    """(n, nc, 2) tangential velocities, m/s."""
    return np.einsum("ctv,nv->nct", np.asarray(landing.terms.J_t), after)


def compare(name: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """Rows of the table, and the sliding velocities of the first contact by each cone."""
    landing = LANDINGS[name]()
    mass = np.asarray(landing.terms.M)

    def size(v: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", v, mass, v))

    truth, unfinished = by_circle(landing)
    ends = {CIRCLE: (truth, unfinished)}
    for cone, settings in CONES.items():
        samples = outcomes(landing, **settings)
        ends[cone] = (np.asarray(samples.v_plus), np.asarray(samples.status) != 0)
    before, rows, clouds = size(landing.v), [], {}
    for cone in (*CONES, CIRCLE):
        after, bad = ends[cone]
        slides = sliding(landing, after)
        clouds[cone] = slides[:, 0]
        slip = np.linalg.norm(slides, axis=2)
        apart = 100 * np.median(size(after - truth)) / before
        moved = 100 * size(after.mean(axis=0) - truth.mean(axis=0)) / before
        turns = CONES.get(cone, {}).get("turn_polygon", False)
        how = "Gauss-Seidel" if cone == CIRCLE else "lemke" if turns else landing.selection
        energy = 100 * np.mean(size(after) ** 2) / before**2
        rows.append(
            f"| {name} | {cone} | {how} | {100 * np.mean(slip < STICKS):.1f} | {slip.mean():.3f} "
            f"| {energy:.2f} | {apart:.2f} | {moved:.2f} | {np.count_nonzero(bad)} |"
        )
    return rows, clouds


def draw(clouds: dict[str, np.ndarray], path: Path) -> None:
    """Draw a panel for each number of sides, over the outcomes of the circle; a point is an impulse order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 2.9), layout="constrained")
    panels = figure.subplots(1, len(DRAWN), sharex=True, sharey=True)
    style = {"s": 9.0, "linewidths": 0}
    for axes, cone in zip(panels, DRAWN, strict=True):
        behind = axes.scatter(*clouds[CIRCLE].T, c="#bbbbbb", **style)
        points = axes.scatter(*clouds[cone].T, c="#0072b2", **style)
        axes.set(
            title=f"{cone} of the friction cone",
            xlabel="slides along x (m/s)",
            xticks=(0.0, 0.2, 0.4, 0.6),
            aspect="equal",
        )
    panels[0].set(ylabel="along y (m/s)", yticks=(-0.2, 0.0))
    labels = ["friction cone with so many sides", "circular friction cone"]
    figure.legend([points, behind], labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("The more sides a friction cone has, the more a corner slides as with a circular one")
    figure.savefig(path, dpi=110)


def table(rows: list[str]) -> str:
    """The table with what it was made with."""
    head = runner.header()
    return "\n".join(
        [
            f"{SAMPLES} impulse orders. {head['dtype']}, jax {head['jax']}; {head['date']}, "
            f"commit {head['commit']}.",
            "",
            "| landing | cone | solutions | contacts that stick % | sliding m/s | energy left % "
            "| median difference from the circle % | mean moved % | failed |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def main(arguments: list[str]) -> int:
    """Print the table; also draw it, and put it on a page, where asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks polygon_sides", description=__doc__)
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw there")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also put the table there")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rows, clouds = [], {}
    for name in LANDINGS:
        of_landing, clouds[name] = compare(name)
        rows += of_landing
        print("\n".join(of_landing), flush=True)
    if options.figure:
        draw(clouds["box on four corners"], options.figure)
    if options.results:
        report.put(options.results, "polygon sides", table(rows))
    return 0

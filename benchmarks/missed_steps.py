"""`python -m benchmarks missed_steps [-k WORD] [--results FILE]`: outcomes of a step that searches miss.

One step of five and six contacts, too many to enumerate in a law, beside every solution by brute force over
the contact modes. Each step is searched by `SEARCHES` samples of "visited", as the first step of an impact.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report, runner, step_modes
from jaxcontact.impact.laws.contact_space import friction_directions
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling import by_steps, lemke_on_host
from jaxcontact.mechanics.configuration import retract

SEARCHES = 64  # samples of a step
SAME = 1e-6  # difference of two outcomes, relative to the largest speed before, below which they are one
FOOT = """<body pos="0 {y} -0.9"><joint axis="0 1 0" pos="0 0 0.9"/><joint axis="1 0 0"/><joint axis="0 1 0"/>
<geom type="box" size="0.1 0.05 0.02" pos="0.03 0 -0.03" mass="4" friction="0.7"/></body>"""
BIPED = f"""<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.7"/>
<body pos="0 0 1"><freejoint/><geom type="box" size="0.15 0.2 0.3" pos="0 0 0.25" mass="20" contype="0"
conaffinity="0"/>{FOOT.format(y=0.1)}{FOOT.format(y=-0.1)}</body></worldbody></mujoco>"""


class Case(NamedTuple):
    """So many random problems and landings of a biped on some corners of its two box feet."""

    contacts: int
    sides: int
    random: int
    landings: int


CASES = (Case(5, 4, 180, 20), Case(6, 4, 8, 2), Case(5, 8, 8, 2))
Step = tuple[Any, jax.Array, np.ndarray]  # terms, velocity before, caps


def random_step(rng: np.random.Generator, count: int) -> Step:
    """Draw contacts with strong friction, so that steps often have several outcomes; some are redundant."""
    nv = int(rng.choice([9, 12, 18]))
    root, rows = rng.normal(size=(nv, nv)), rng.normal(size=(count, 3, nv))
    mass = root @ root.T + 0.3 * np.eye(nv)
    v = -np.linalg.solve(mass, rows[:, 0].sum(axis=0)) + 0.3 * rng.normal(size=nv)
    terms = jc.ContactTerms(
        M=jnp.asarray(mass), J_n=jnp.asarray(rows[:, 0]), J_t=jnp.asarray(rows[:, 1:]), phi=jnp.zeros(count),
        mu=jnp.asarray(rng.uniform(0.5, 5.0, count)), active=jnp.ones(count, bool),
    )  # fmt: skip
    return terms, jnp.asarray(v), rng.uniform(0.1, 1.0, count)


class Landings:
    """Random landings of the biped on corners of both feet."""

    def __init__(self) -> None:
        model = jc.load_mjcf(BIPED, contacts="world")
        state, _ = jc.place_on_ground(model, model.initial_state())
        self.model, self.state = model, state
        self.corners = np.flatnonzero(np.asarray(jc.contact_terms(model, state).phi) < 1e-3)

    def draw(self, rng: np.random.Generator, count: int) -> Step:
        """Draw a landing on `count` corners, with 1 m/s downwards."""
        nv = self.model.structure.num_velocities
        moved = rng.uniform(-0.2, 0.2, nv) * np.where(np.arange(nv) < 6, 0.2, 1.0)
        state = self.state.replace(q=retract(self.model.system, self.state.q, jnp.asarray(moved)))
        terms = jc.contact_terms(self.model, state).take(np.sort(rng.permutation(self.corners)[:count]))
        mu = jnp.asarray(rng.uniform(0.5, 1.5, count))
        terms = terms.replace(phi=jnp.zeros(count), active=jnp.ones(count, bool), mu=mu)
        v = 0.3 * rng.normal(size=nv)
        v[2] -= 1.0
        return terms, jnp.asarray(v), rng.uniform(1.0, 8.0, count)


def compare_step(step: Step, sides: int, rng: np.random.Generator, search: Any) -> tuple[int, int, int]:
    """Count the outcomes of a step by brute force, those that searches reach, and ends that are none."""
    terms, v, caps = step
    rows = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    listed, _ = step_modes.all_solutions(
        rows, np.asarray(terms.M), np.asarray(v), np.asarray(terms.mu), caps, friction_directions(2, sides),
        search,
    )  # fmt: skip
    host = lemke_on_host.LemkeOnHost(terms, v, sides, tries=by_steps.TRIES)
    picks = jnp.asarray(rng.uniform(size=(SEARCHES, 1)))
    draws = ImpactDraws(jnp.broadcast_to(jnp.asarray(caps), (SEARCHES, 1, len(caps))), picks)
    path = host.resolve(draws, SEARCHES, keeps_path=True)[2]
    assert path is not None
    if not len(listed):
        return 0, 0, SEARCHES
    apart = np.abs(path[:, 1, None] - listed[None]).max(axis=2) / np.abs(np.asarray(v)).max()
    return len(listed), int(np.sum(apart.min(axis=0) < SAME)), int(np.sum(apart.min(axis=1) >= SAME))


def compare(case: Case, seed: int = 0) -> list[dict[str, Any]]:
    """Compare all steps of a case; a row for random problems and one for landings."""
    import numba

    search, rng = step_modes.compile_search(numba.njit), np.random.default_rng(seed)
    draws = [("random", case.random, random_step)]
    if case.landings:
        draws.append(("biped", case.landings, Landings().draw))
    rows = []
    for kind, number, draw in draws:
        begin = time.process_time()
        counts = [compare_step(draw(rng, case.contacts), case.sides, rng, search) for _ in range(number)]
        listed, reached, other = np.array(counts).T
        rows.append({
            "kind": kind, "case": case, "number": number, "several": int(np.sum(listed > 1)),
            "outcomes": int(listed.sum()), "most": int(listed.max()), "missed": int(np.sum(listed - reached)),
            "steps": int(np.sum(reached < listed)), "other": int(other.sum()),
            "spent": time.process_time() - begin,
        })  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format a row per kind of problem."""
    head = runner.header()
    lines = [
        f"{head['device']}, jax {head['jax']}; {head['date']}, commit {head['commit']}.",
        "",
        "| contacts, sides | steps | with several outcomes | outcomes (most of one) | missed by "
        f"{SEARCHES} searches | in steps | ends that are none | processor s |",
        "|---" * 8 + "|",
    ]
    for row in rows:
        case = row["case"]
        lines.append(
            f"| {case.contacts}, {case.sides} | {row['number']} {row['kind']} | {row['several']} "
            f"| {row['outcomes']} ({row['most']}) | {row['missed']} | {row['steps']} | {row['other']} "
            f"| {row['spent']:.0f} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table; with --results also put it on that page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks missed_steps", description=__doc__)
    parser.add_argument("-k", default="", metavar="WORD", help='only cases that begin so: "5, 4"')
    parser.add_argument("--results", type=Path, metavar="FILE", help="also put the table there")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    found = []
    for case in CASES:
        if f"{case.contacts}, {case.sides}".startswith(options.k):
            found += compare(case)
            print(f"  {found[-2:]}", file=sys.stderr, flush=True)
    print(table(found))
    if options.results:
        report.put(options.results, "missed steps", table(found))
    return 0

"""Robots made such that a landing has one outcome, by stance, by masses, and by both; checked by samples.

`jc.optimize.impact_design` changes a robot of a file until its contacts are decoupled, or coupled as little
as can be. The landing is sampled over random orders of impulses before and after.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.robot_gaits import ROBOTS, load
from benchmarks.runner import Case
from jaxcontact.optimize.design_equations import DesignEquations

# by impulses that count: velocity of the landing, m/s forward and up, rad/s of pitch; the joints are at rest
FALLS = {"none": (0.5, -1.0, 0.5), "all": (0.5, -1.0, 0.5), "sliding": (3.0, -0.5, 0.25)}
RESTITUTION = 0.5
SAMPLES = 2**10
LONGEST_IMPULSE = 1.0  # N s, of a step of the impact law
STEPS = 60  # of the impact law
LEAST_ENDED = 0.99  # share of samples without a failure; the others are left out


class Landing(NamedTuple):
    """A robot, angles of its joints from which a stance is sought, rad, contacts that touch, and impulses."""

    robot: str
    joints: tuple[float, ...] | None  # None: those of the model
    contacts: tuple[int, ...]
    frictions: tuple[str, ...] = tuple(FALLS)


LANDINGS = {
    "standing": Landing("half_cheetah", (0.0,) * 6, (8, 14)),
    "gathered": Landing("half_cheetah", (0.8, 0.0, 0.0, -0.9, 0.0, 0.0), (8, 14)),
    "flat feet": Landing("planar_walker", (0.55, -0.3, -0.25, -0.25, -0.3, 0.55), (0, 1, 2, 3)),
    "four feet": Landing("quadruped", None, (0, 1, 2, 3), ("none",)),
}
FREE = {"stance": (False, True), "masses": (True, False), "both": (True, True)}


def load_landing(landing: Landing) -> tuple[Any, Any]:
    """Read a robot and put the contacts on the ground, with the least change of its joints."""
    model = load(landing.robot) if landing.robot in ROBOTS else getattr(jc.models, landing.robot)()
    start = model.initial_state()
    if landing.joints is not None:
        start = start.replace(q=start.q.at[3:].set(jnp.asarray(landing.joints)))
    start, info = jc.place_on_ground(model, start)
    jc.raise_if_failed(info)
    equations = DesignEquations(model, start, jc.optimize.DesignTask(contacts=landing.contacts))
    return model, equations.apply(equations.polish(equations.start, gaps_only=True))[1]


def task_of(model: Any, landing: Landing, free: str, friction: str) -> jc.optimize.DesignTask:
    """Make the task: masses within 1/3 to 3 times, joints within their limits."""
    has_masses, has_stance = FREE[free]
    hold = () if has_stance else tuple(range(model.structure.num_velocities))
    design = model.structure.bodies if has_masses else ()
    return jc.optimize.DesignTask(contacts=landing.contacts, design=design, hold=hold, friction=friction)


def spread(model: Any, state: Any, contacts: tuple[int, ...], friction: str) -> float:
    """Measure the largest distance of two sampled outcomes of a landing, relative to the speed, in |v|_M."""
    from scipy.spatial.distance import pdist

    terms = jc.contact_terms(model, state)
    if set(np.flatnonzero(np.asarray(terms.active))) != set(contacts):
        raise ValueError(f"contacts: expected {contacts} to touch, got {np.flatnonzero(terms.active)}")
    terms = terms.take(list(contacts))
    if friction == "none":
        terms = terms.replace(mu=jnp.zeros_like(terms.mu), J_t=terms.J_t[:, :1])  # no tangent counts
    law = jc.impact.Routh(impulse_step=LONGEST_IMPULSE, max_steps=STEPS, restitution=RESTITUTION)
    samples = jc.impact.sample(terms, state.v, law, num_samples=SAMPLES)
    ended = ~np.asarray(jc.Status.failed(samples.status))
    if np.mean(ended) < LEAST_ENDED:
        jc.raise_if_failed(samples)
    root = np.linalg.cholesky(np.asarray(terms.M))
    return float(
        np.max(pdist(np.asarray(samples.v_plus)[ended] @ root)) / np.linalg.norm(np.asarray(state.v) @ root)
    )


def _design(name: str, free: str, friction: str) -> Callable[[], dict[str, Any]]:
    landing = LANDINGS[name]
    model, start = load_landing(landing)
    rates = jnp.array([0, 1, 2] if model.structure.dim == 2 else [0, 2, 4])
    start = start.replace(v=start.v.at[rates].set(jnp.array(FALLS[friction])))
    task, first_joint = task_of(model, landing, free, friction), 3 if model.structure.dim == 2 else 7

    def run() -> dict[str, Any]:
        begin = time.process_time()
        params, state, report = jc.optimize.impact_design(model, start, task)
        seconds = time.process_time() - begin
        designed = model.replace(params=params)
        factors = np.asarray(params.mass / model.params.mass)
        return {
            "coupling before": report.coupling_before,
            "coupling": report.coupling,
            "spread before": spread(model, start, landing.contacts, friction),
            "spread": spread(designed, state, landing.contacts, friction),
            "largest gap, m": float(np.max(np.abs(report.gaps[list(landing.contacts)]))),
            "joints by, rad": float(np.max(np.abs(state.q - start.q)[first_joint:])),
            "masses times": f"{factors.min():.2f} to {factors.max():.2f}",
            "status": jc.Status.describe(report.status),
            "processor s": seconds,
        }

    return run


CASES = [
    Case(
        name=f"decoupled landing, {LANDINGS[name].robot} {name}, impulses {friction}, {free}",
        items=1, repeats=1, setup=functools.partial(_design, name, free, friction),
    )
    for name in LANDINGS
    for friction in LANDINGS[name].frictions
    for free in FREE
]  # fmt: skip

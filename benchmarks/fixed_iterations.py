"""`python -m benchmarks fixed_iterations [--put PAGE]`: the cost of loops that run to their limit.

Each call alone and in a batch, with loops that end early and inside of `jc.fixed_iterations`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report, runner

WORLDS = 64
FEW_WORLDS = {"a step of Variational, 1 impact": 4}  # a fixed batch of more takes minutes
RUNS, LONGEST = 101, 2.0  # timed runs, of which the median counts, and s of all of them

Call = Callable[[jax.Array], Any]


def calls() -> dict[str, tuple[Call, jax.Array]]:
    """Make the calls, each a function of one array, and the value of that array."""
    block = jc.models.rocking_block()
    state = block.initial_state()
    terms, v = jc.contact_terms(block, state), state.v
    caps = jnp.full((8, 2), 0.3)
    balls = jc.Model(
        system=jc.ess.EventSystem(lambda t, x, s, c, p: 1.0 - 0.3 * (s > 0), lambda x, p: x), params=None
    )
    flow = jc.ess.Settings(eps=0.01, max_steps=64, max_events=8)
    sprung = block.replace(
        params=block.params.replace(
            material=jc.compliant.Material(stiffness=jnp.array(1e5), damping=jnp.array(100.0))
        )
    )

    def step(model: jc.Model, stepper: Any, v: jax.Array) -> jax.Array:
        start = state.replace(v=v)
        return jc.simulate.rollout(model, start, jnp.zeros((1, 3)), stepper=stepper, dt=0.01).states.q

    routh = jc.impact.Routh(impulse_step=0.3, max_steps=8)
    return {
        "solve_lcp, 4 unknowns": (lambda w: jc.solve_lcp(jnp.eye(4) + 0.3, w), -jnp.arange(1.0, 5.0)),
        "impact.anitescu_potra": (lambda v: jc.impact.anitescu_potra(terms, v), v),
        "impact.sequential, 16 impacts": (
            lambda v: jc.impact.sequential(terms, v, (0, 1), max_impacts=16),
            v,
        ),
        "impact.propagate": (lambda v: jc.impact.propagate(terms, v, restitution=0.5), v),
        "impact.plastic": (lambda v: jc.impact.plastic(terms, v), v),
        "impact.routh_step": (lambda v: jc.impact.routh_step(terms, v, caps[0]), v),
        "impact.resolve, 8 steps": (lambda v: jc.impact.resolve(terms, v, caps, caps[:, 0]), v),
        "impact.sample_in_jit, 8 steps, 64 orders": (
            lambda v: jc.impact.sample_in_jit(terms, v, routh, jax.random.key(0), num_samples=64),
            v,
        ),
        "solve_friction, 2 contacts": (
            lambda v: jc.solve_friction(jnp.eye(6) + 0.1, jnp.concatenate([v, -v]), 0.5),
            jnp.array([-1.0, 0.4, 0.1]),
        ),
        "compliant.step": (lambda v: jc.compliant.step(sprung, state.replace(v=v), jnp.zeros(3), dt=0.01), v),
        "project": (lambda v: jc.project(block, state.replace(q=state.q.at[1].add(-0.01), v=v)), v),
        "ess.flow, 64 steps": (
            lambda x: jc.ess.flow(balls, x, 0.0, 2.0, settings=flow), jnp.array([-1.0, -0.5]),
        ),
        "a step of TimeStepping": (lambda v: step(block, jc.simulate.TimeStepping(), v), v),
        "a step of EventDriven, 8 events": (
            lambda v: step(block, jc.simulate.EventDriven(max_events=8), v), v,
        ),
        "a step of Variational, 1 impact": (
            lambda v: step(block, jc.simulate.Variational(max_impacts=1), v), v,
        ),
    }  # fmt: skip


def measure(function: Call, value: jax.Array) -> tuple[float, float, Any]:
    """Return the first call's processor time in s, that of a later one in us, and what it returned."""
    program = jax.jit(function)
    begin = time.process_time()
    result = jax.block_until_ready(program(value))
    first = time.process_time() - begin
    spent: list[float] = []
    while len(spent) < RUNS and (len(spent) < 5 or sum(spent) < LONGEST):
        begin = time.process_time()
        jax.block_until_ready(program(value))
        spent.append(time.process_time() - begin)
    return first, 1e6 * float(np.median(spent)), result


def difference(one: Any, other: Any) -> float:
    """Return the largest difference between two results, relative to the largest number of each array."""
    largest = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = np.asarray(a, float), np.asarray(b, float)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return math.inf
        off = np.max(np.abs(a - b), initial=0.0, where=np.isfinite(b))
        largest = max(largest, off / np.max(np.abs(b), initial=1e-300, where=np.isfinite(b)))
    return largest


def row(name: str, function: Call, value: jax.Array) -> str:
    """Make a line of the table."""
    cells, worst = [name], 0.0
    worlds = FEW_WORLDS.get(name, WORLDS)
    many = value * (1.0 + 0.01 * jnp.arange(worlds)[:, None] / worlds)
    for call, argument, share in ((function, value, 1), (jax.vmap(function), many, worlds)):
        first, early, one = measure(call, argument)
        fixed_first, fixed, other = measure(jc.fixed_iterations(call), argument)
        worst = max(worst, difference(other, one))
        cells += [f"{early / share:.3g}", f"{fixed / share:.3g}", f"{fixed / early:.2g}"]
        if share == 1:
            compiled = f"{first:.1f}, {fixed_first:.1f}"
    return "| " + " | ".join([*cells, compiled, f"{worst:.0e}"]) + " |"


def table() -> str:
    """Measure all calls; return the table with what it was made on."""
    head, few = runner.header(), next(iter(FEW_WORLDS.values()))
    lines = [
        f"Processor us of a call: alone, and per world of {WORLDS} in `vmap` ({few} for "
        f"Variational). {head['device']}, "
        f"{head['dtype']}, jax {head['jax']}; {head['date']}, commit {head['commit']}.",
        "",
        "| call | early | fixed | ratio | in a batch: early | fixed | ratio | first call, s | difference |",
        "|---" * 9 + "|",
    ]  # fmt: skip
    for name, (function, value) in calls().items():
        lines.append(row(name, function, value))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table; also put it on a page, where asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fixed_iterations", description=__doc__)
    parser.add_argument("--put", type=Path, metavar="PAGE", help="also put the table there, at its marks")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    text = table()
    print(text)
    if options.put:
        report.put(options.put, "fixed_iterations", text)
    return 0

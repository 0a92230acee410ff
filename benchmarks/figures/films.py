"""Makes the films of three plans, of which each is one call: `python -m benchmarks.figures.films [NAME ...]`.

The trot of go1 (`benchmarks/trot.py`), the hop by SciPy (`benchmarks/hop_by_scipy.py`), and the push found
from afar (`benchmarks/push_from_afar.py`).
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import hop_by_scipy, push_from_afar, trot
from benchmarks.own_optimiser import DT, STEPS

FOLDER = "docs/_static"
STRIDES = 4  # of the trot
STEPPER = jc.simulate.Compliant()


def film_trot() -> None:
    """Show the first strides of the trot, from a stance; of the robot with all its contacts."""
    _, model = trot.load(trot.ALL_CONTACTS)

    def policy(model: jc.Model, state: jc.State, t: Any, memory: Any, key: Any) -> tuple[Any, Any]:
        return trot.control(jnp, trot.FOUND, trot.SPEED, t, state.q, state.v), memory

    start = model.initial_state().replace(q=jnp.asarray(trot.stance()))
    steps = STRIDES * trot.STEPS
    motion = jc.simulate.rollout(
        model, start, policy, stepper=STEPPER, dt=trot.FOUND[0] / trot.STEPS, num_steps=steps
    )
    title = "Go1 begins to trot at 0.5 m/s, by 17 numbers that a gradient found"
    jc.viz.animate(motion, model, f"{FOLDER}/trot.gif", fps=15, title=title, view=jc.viz.look(-60.0, 12.0))


def film_hop() -> None:
    """Show the hop of seed 0."""
    model = jc.models.hopper()
    state, hop = jc.place_on_ground(model, model.initial_state())[0], hop_by_scipy.Hop(model)
    u = hop_by_scipy.plan_hop(hop, hop.draw(np.random.default_rng(0)))
    controls = jnp.repeat(jnp.asarray(u).reshape(hop_by_scipy.PIECES, -1), STEPS, axis=0)
    motion = jc.simulate.rollout(model, state, controls, stepper=STEPPER, dt=DT)
    title = "A hop, planned by SciPy: the trunk ends 20 cm farther"
    jc.viz.animate(motion, model, f"{FOLDER}/hop.gif", fps=16, slower=4.0, title=title)


def film_push() -> None:
    """Show the push of seed 0."""
    model = jc.load_mjcf(push_from_afar.SCENE, planar=True)
    state, cost = jc.place_on_ground(model, model.initial_state())[0], push_from_afar.plan()[0]
    push, _ = push_from_afar.anneal(cost, 0)
    motion = jc.simulate.rollout(
        model, state, jnp.asarray(push)[:, None], stepper=STEPPER, dt=push_from_afar.DT
    )
    title = "A push that a gradient found from 5 cm away: the box ends 30 cm farther"
    jc.viz.animate(motion, model, f"{FOLDER}/push.gif", fps=20, slower=3.0, title=title)


FILMS = {"trot": film_trot, "hop": film_hop, "push": film_push}


def main() -> None:
    """Make the films named, or all."""
    jax.config.update("jax_enable_x64", True)
    for name in sys.argv[1:] or FILMS:
        FILMS[name]()


if __name__ == "__main__":
    main()

"""Feedback in directions that no impact changes, beside feedback on all velocities, at a walker's landing.

The walker lands on both flat feet with its plan, or earlier or later than that. Within a window around the
planned landing the feedback of joints sees only the part of the error of velocities that a projector of
`jc.impact.invariant_subspace` leaves (Yang & Posa, *Impact-invariant control*, 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case
from jaxcontact._pytree import Record

DT, STEPS = 1e-3, 400  # s, number
DROP = 0.05  # s, until the feet land in the plan
WINDOW = (0.025, 0.045)  # s, before and after the landing
HEIGHT, RATE = 0.01, 0.02  # m, of the floor, and m/s or rad/s, of the start; standard deviations
WORLDS = 64
GAINS = (400.0, 20.0)  # N m/rad and N m s/rad, of every joint; motors have 60 and 30 N m
LAW = jc.impact.Routh(impulse_step=2.0, max_steps=15)
STEPPERS = {
    "compliant": jc.simulate.Compliant(),
    "rigid, random orders": jc.simulate.TimeStepping(impact=LAW),
}


class Feedback(Record):
    """Controls of a plan, and feedback of joints; in a window of time it sees a part of the rates' error.

    Attributes:
        states: (T + 1, ...) of the plan.
        inputs: (T, nu) controls of the plan.
        strength: (nu,) torques of motors, N m.
        gains: (2,) of angles and rates.
        projector: (nv, nv) part of an error of velocities that counts in the window.
    """

    states: Any
    inputs: jax.Array
    strength: jax.Array
    gains: jax.Array
    projector: jax.Array

    def __call__(self, model: Any, state: Any, t: Any, memory: Any, key: Any) -> tuple[jax.Array, Any]:
        """Return the controls at a state and time."""
        k = jnp.clip(jnp.round(t / DT).astype(jnp.int32), 0, STEPS - 1)
        q_error, v_error = self.states.q[k] - state.q, self.states.v[k] - state.v
        in_window = (t > DROP - WINDOW[0]) & (t < DROP + WINDOW[1])
        v_error = jnp.where(in_window, self.projector @ v_error, v_error)
        torque = self.gains[0] * q_error[3:] + self.gains[1] * v_error[3:]
        return jnp.clip(self.inputs[k] + torque / self.strength, -1.0, 1.0), memory


def plan_landing() -> tuple[Any, Any, Feedback]:
    """Make the walker, the contact terms at its landing, and the plan: joints that hold their pose."""
    model = jc.models.planar_walker()
    landed = jc.place_on_ground(model, model.initial_state())[0]
    g = float(jnp.linalg.norm(model.params.gravity))
    back = -DROP * landed.v[:3] - jnp.array([0.0, 0.5 * g * DROP**2, 0.0])
    start = landed.replace(q=landed.q.at[:3].add(back), v=landed.v.at[1].add(g * DROP))
    strength = jnp.sum(jnp.asarray(model.params.tree.moment), axis=1)
    rows = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], STEPS + 1, axis=0), landed)
    hold = Feedback(
        states=rows.replace(v=0 * rows.v), inputs=jnp.zeros((STEPS, len(strength))), strength=strength,
        gains=jnp.array(GAINS), projector=jnp.eye(len(landed.v)),
    )  # fmt: skip
    motion = jc.simulate.rollout(model, start, hold, stepper=STEPPERS["compliant"], dt=DT, num_steps=STEPS)
    plan = hold.replace(states=motion.states, inputs=motion.inputs)
    return model, jc.contact_terms(model, landed), plan


def projectors(terms: Any) -> dict[str, np.ndarray]:
    """Make what the feedback sees of an error of velocities in the window."""
    size = terms.M.shape[0]
    return {
        "all of it": np.eye(size),
        "what no normal impulse changes": jc.impact.invariant_subspace(terms, friction=False).projector,
        "what no impulse changes": jc.impact.invariant_subspace(terms).projector,
        "nothing": np.zeros((size, size)),
    }


def worlds(plan: Feedback) -> tuple[Any, jax.Array]:
    """Draw states (WORLDS, ...) near the start of the plan, on floors of other heights, and keys."""
    rng = np.random.default_rng(0)
    start = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], WORLDS, axis=0), plan.states)
    heights, rates = HEIGHT * rng.normal(size=WORLDS), RATE * rng.normal(size=start.v.shape)
    start = start.replace(q=start.q.at[:, 1].add(heights), v=start.v + rates)
    return start, jax.random.split(jax.random.key(1), WORLDS)


def measure(plan: Feedback, motion: Any) -> dict[str, np.ndarray]:
    """Measure motions: (WORLDS,) of each quantity."""
    times = DT * np.arange(STEPS)
    in_window = (times > DROP - WINDOW[0]) & (times < DROP + WINDOW[1])
    is_after = times >= DROP + WINDOW[1]
    added = np.asarray(motion.inputs - plan.inputs)
    angles = np.asarray(motion.states.q - plan.states.q)[:, 1:, 2:]
    rates = np.asarray(motion.states.v - plan.states.v)[:, 1:, 2:]
    return {
        "largest control added": np.abs(added[:, in_window]).max(axis=(1, 2)),
        "effort added, window": 1e3 * DT * (added[:, in_window] ** 2).sum(axis=(1, 2)),
        "effort added, after": 1e3 * DT * (added[:, is_after] ** 2).sum(axis=(1, 2)),
        "angles after, mrad": 1e3 * np.sqrt(np.mean(angles[:, is_after] ** 2, axis=(1, 2))),
        "rates after, mrad/s": 1e3 * np.sqrt(np.mean(rates[:, is_after] ** 2, axis=(1, 2))),
    }


def _landing(stepper: str, share: float) -> Callable[[], dict[str, Any]]:
    model, terms, plan = plan_landing()

    @jax.jit
    def simulate(start: Any, keys: jax.Array, policy: Feedback) -> Any:
        def one(state: Any, key: jax.Array) -> Any:
            return jc.simulate.rollout(
                model, state, policy, stepper=STEPPERS[stepper], dt=DT, num_steps=STEPS, key=key
            )

        return jax.vmap(one)(start, keys)

    def run() -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, projector in projectors(terms).items():
            policy = plan.replace(projector=jnp.asarray(projector), gains=share * plan.gains)
            motion = simulate(*worlds(plan), policy)
            jc.raise_if_failed(motion)
            figures = {key: f"{np.mean(x):.3g}" for key, x in measure(plan, motion).items()}
            row[f"sees {name}"] = ", ".join(f"{key} {value}" for key, value in figures.items())
        return row

    return run


CASES = [
    Case(
        name=f"invariant landing, {stepper}, gains times {share:g}", items=4 * WORLDS, repeats=1,
        setup=lambda stepper=stepper, share=share: _landing(stepper, share),
    )
    for stepper in STEPPERS
    for share in (1.0, 0.5)
]  # fmt: skip

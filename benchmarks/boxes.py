"""Compliant steps of boxes that slide on a floor and may meet: what candidates cost that are far apart.

Every box stops after v^2 / (2 mu g), beside its neighbours; four of its corners touch. With `max_contacts` a
step sees five contacts per box, of eight on the floor and 160 with every other box.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case

SIDE, MU, SPEED, APART = 0.1, 0.5, 0.3, 0.15  # m, friction, m/s, m from centre to centre
STEPS, DT = 20, 0.01
STOP = SPEED**2 / (2 * MU * 9.81)


def _boxes(count: int) -> jc.Model:
    """Boxes of 1 kg on a square grid, each sliding its own way."""
    names = tuple(f"box_{i}" for i in range(count))
    meet = tuple((names[i], names[k]) for i in range(count) for k in range(i))
    structure = jc.Structure(
        dim=3,
        bodies=names,
        num_positions=7 * count,
        quaternions=tuple(7 * i + 3 for i in range(count)),
        shapes=(
            *(jc.Box(name=name, body=name, size="size") for name in names),
            jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
        ),
        pairs=(*((name, "floor") for name in names), *meet),
    )
    number = np.arange(count)
    wide = int(np.ceil(count**0.5))
    q, v = np.zeros((count, 7)), np.zeros((count, 6))
    q[:, 0], q[:, 1], q[:, 2], q[:, 3] = APART * (number % wide), APART * (number // wide), SIDE / 2, 1.0
    v[:, 0], v[:, 1] = SPEED * np.cos(number), SPEED * np.sin(number)
    params = jc.Params(
        mass=jnp.ones(count),
        inertia=jnp.full((count, 3), SIDE**2 / 6),
        mu=jnp.array(MU),
        gravity=jnp.array([0.0, 0.0, -9.81]),
        constants={"size": jnp.full(3, SIDE)},
        material=jc.compliant.Material(stiffness=jnp.array(1e5), damping=jnp.array(1e2)),
    )
    state = jc.State(q=jnp.asarray(q.ravel()), v=jnp.asarray(v.ravel()), t=jnp.array(0.0))
    return jc.Model(system=jc.System(structure, jc.free_poses), params=params, initial=state)


def _sliding(count: int, max_contacts: int | None) -> Callable[[], dict[str, Any]]:
    model = _boxes(count)

    def motion(state: jc.State) -> Any:
        controls = jnp.zeros((STEPS, 6 * count))
        return jc.compliant.rollout(
            model, state, controls, dt=DT, settings=jc.compliant.Settings(max_contacts=max_contacts)
        )

    march = jax.jit(motion)

    def run() -> dict[str, Any]:
        states, info = jax.block_until_ready(march(model.initial_state()))
        way = np.asarray(states.q[-1] - model.initial_state().q).reshape(count, 7)[:, :2]
        error = np.max(np.abs(np.linalg.norm(way, axis=1) - STOP)) / STOP
        good = float(np.mean(np.asarray(info.status) == 0))
        return {"stop error %": 100 * float(error), "status 0 %": 100 * good}

    return run


def _case(count: int, max_contacts: int | None) -> Case:
    seen = "all candidates" if max_contacts is None else f"max_contacts {max_contacts}"
    setup = functools.partial(_sliding, count, max_contacts)
    return Case(name=f"{count} boxes, {seen}", items=STEPS, setup=setup, repeats=3)


# All candidates of 16 boxes are 57984 rows: too many to wait for.
CASES = [*(_case(n, 5 * n) for n in (1, 4, 16)), *(_case(n, None) for n in (1, 4))]

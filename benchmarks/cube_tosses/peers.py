"""MuJoCo's cube: the same mass, side and start, contacts softened by solref, its own friction."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cube_tosses.tosses import DT, GRAVITY, INERTIA, MASS

STEP = DT / 8  # s, that of the compliant steps
BOX = """<mujoco>
  <option timestep="{dt}" gravity="0 0 -{gravity}" integrator="implicitfast" cone="elliptic"/>
  <worldbody>
    <geom name="board" type="plane" size="5 5 1" condim="3" friction="{mu} 0 0" solref="{time} {ratio}"/>
    <body name="cube"><freejoint/>
      <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
      <geom type="box" size="{half} {half} {half}" condim="3" friction="{mu} 0 0" solref="{time} {ratio}"/>
    </body>
  </worldbody>
</mujoco>"""


def installed() -> bool:
    """Whether there is a package mujoco."""
    import importlib.util

    return importlib.util.find_spec("mujoco") is not None


def model(side: float, mu: float, time: float, ratio: float, dt: float = STEP) -> Any:
    """The compiled model: friction, time constant (s) and damping ratio of contacts."""
    import mujoco

    return mujoco.MjModel.from_xml_string(
        BOX.format(
            dt=dt, gravity=GRAVITY, mu=mu, time=max(time, 2 * dt), ratio=ratio, mass=MASS, inertia=INERTIA,
            half=0.5 * side,
        )
    )  # fmt: skip


def impact(compiled: Any, q: np.ndarray, v: np.ndarray, span: float) -> np.ndarray:
    """Velocities (n, 6) a time `span` after the starts q (n, 7), v (n, 6), taken back through gravity."""
    import mujoco

    data = mujoco.MjData(compiled)
    found = np.empty_like(v)
    steps = round(span / compiled.opt.timestep)
    for i in range(len(q)):
        mujoco.mj_resetData(compiled, data)
        data.qpos[:], data.qvel[:] = q[i], v[i]
        mujoco.mj_step(compiled, data, nstep=steps)
        found[i] = data.qvel
    found[:, 2] += GRAVITY * span
    return found


def motions(compiled: Any, q: np.ndarray, v: np.ndarray, rows: int, per_row: int) -> np.ndarray:
    """Poses (n, rows, 7) after every row from the starts q (n, 7), v (n, 6)."""
    import mujoco

    data = mujoco.MjData(compiled)
    found = np.empty((len(q), rows, 7))
    for world, poses in enumerate(found):
        mujoco.mj_resetData(compiled, data)
        data.qpos[:], data.qvel[:] = q[world], v[world]
        for row in range(rows):
            mujoco.mj_step(compiled, data, nstep=per_row)
            poses[row] = data.qpos
    return found

"""The gradient of one stride's cost, by MJX's forward mode and by differences of MuJoCo beside ours.

All engines move the same robot from the same start with the same controls over the same horizon, in one
piece. The stride is that of `jc.optimize.robot_gait` with controls changed at random, for at the gait itself
the error of the period has no gradient. Page: docs/methods/planning.md.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.robot_gaits import ROBOTS, load, path_of_robot
from benchmarks.runner import Case
from jaxcontact.optimize import stride_guess
from jaxcontact.optimize.multiple_shooting import SIZES, control_sizes
from jaxcontact.optimize.robot_gait import NUM_STEPS, SMALL_WORK, WORK

NUM_PIECES = 12
CHANGED = 0.05  # of the range of a control, standard deviation of its change
DIRECTIONS, STEP = 8, 1e-6  # of the differences that judge a gradient, and their scaled step
COARSE = 1e-5  # scaled step of the differences that are a peer
PEERS = ("hopper", "walker2d", "half_cheetah")

# (q, v, a row of controls for each step, s) -> q after each step, v at the end
Move = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


class Stride:
    """The cost of a stride as a function of flat, scaled variables: start, controls and duration."""

    def __init__(self, robot: str) -> None:
        self.model = model = load(robot)
        _, self.speed, duration = ROBOTS[robot]
        pieces, _ = jc.optimize.robot_gait(model, speed=self.speed, duration=duration)
        legs, nv = stride_guess.find_legs(model), model.structure.num_velocities
        self.order = np.arange(nv) if legs.mirror is None else legs.mirror
        self.ranges = control_sizes(model)
        self.units = np.concatenate([
            np.repeat(SIZES, nv), np.tile(self.ranges, NUM_PIECES), [SIZES[0] * float(pieces.duration)]
        ])  # fmt: skip
        shape = np.shape(pieces.controls)
        changed = pieces.controls + CHANGED * self.ranges * np.random.default_rng(0).normal(size=shape)
        start = [pieces.q[0], pieces.v[0], np.ravel(changed), [float(pieces.duration)]]
        self.x = np.concatenate(start) / self.units

    def cost(self, move: Move, x: Any) -> Any:
        """Compute the cost of `robot_gait` beside the squared errors of the period, scaled."""
        model, nv, z = self.model, self.model.structure.num_velocities, x * self.units
        q, v, duration = z[:nv], z[nv : 2 * nv], z[-1]
        controls = z[2 * nv : -1].reshape(NUM_PIECES, -1)
        dt = duration / (NUM_PIECES * NUM_STEPS)
        path, last = move(q, v, jnp.repeat(controls, NUM_STEPS, axis=0), dt)
        ends = jnp.concatenate([q[None], path[NUM_STEPS - 1 :: NUM_STEPS]])
        way = jnp.zeros(nv).at[0].set(self.speed * duration)
        missed = jnp.concatenate([
            (ends[-1][self.order] - q - way) / SIZES[0], (last[self.order] - v) / SIZES[1]
        ])  # fmt: skip
        gear = jnp.asarray(model.params.tree.gain)[:, None] * jnp.asarray(model.params.tree.moment)
        work = controls * (jnp.diff(ends, axis=0) @ gear.T)
        work = jnp.sum(jnp.sqrt(work**2 + SMALL_WORK**2) - SMALL_WORK)
        weight = jnp.sum(model.params.mass) * jnp.linalg.norm(model.params.gravity)
        effort = jnp.mean(jnp.sum((controls / self.ranges) ** 2, axis=1))
        return missed @ missed + effort + WORK * work / (weight * self.speed * duration)


@functools.cache
def stride_of(robot: str) -> Stride:
    """Find the stride of a robot once for all engines."""
    return Stride(robot)


def our_motion(stride: Stride) -> Move:
    """Move a robot by compliant steps."""
    model, state = stride.model, stride.model.initial_state()

    def move(q: Any, v: Any, controls: Any, dt: Any) -> tuple[Any, Any]:
        states, _ = jc.compliant.rollout(model, state.replace(q=q, v=v), controls, dt=dt)
        return states.q, states.v[-1]

    return move


def mujoco_model(robot: str, cone: str) -> Any:
    """Read the robot for MuJoCo, as ours: semi-implicit steps, contacts with the floor alone."""
    import mujoco

    mj = mujoco.MjModel.from_xml_path(str(path_of_robot(robot)))
    mj.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    mj.opt.cone = getattr(mujoco.mjtCone, f"mjCONE_{cone.upper()}")
    is_floor = mj.geom_bodyid == 0
    mj.geom_contype[:], mj.geom_conaffinity[:] = ~is_floor, is_floor
    return mj


def mjx_motion(robot: str, cone: str) -> Move:
    """Move a robot by steps of MJX."""
    from mujoco import mjx

    mj = mujoco_model(robot, cone)
    there, begin = mjx.put_model(mj), mjx.make_data(mj)

    def move(q: Any, v: Any, controls: Any, dt: Any) -> tuple[Any, Any]:
        timed = there.replace(opt=there.opt.replace(timestep=dt))

        def advance(data: Any, row: Any) -> tuple[Any, Any]:
            data = mjx.step(timed, data.replace(ctrl=row))
            return data, data.qpos

        end, path = jax.lax.scan(advance, begin.replace(qpos=q, qvel=v), controls)
        return path, end.qvel

    return move


def judge(value: Callable[[Any], Any], x: np.ndarray, gradient: np.ndarray) -> dict[str, Any]:
    """Compare a gradient with central differences of the same engine in random directions."""
    ways = np.random.default_rng(1).normal(size=(DIRECTIONS, x.size)) / np.sqrt(x.size)
    steps = STEP * ways
    slopes = np.array([float(value(x + step)) - float(value(x - step)) for step in steps]) / (2 * STEP)
    return {
        "cost": float(value(x)),
        "length of the gradient": float(np.linalg.norm(gradient)),
        "off differences": float(np.linalg.norm(ways @ gradient - slopes) / np.linalg.norm(slopes)),
    }


def _timed(
    slope: Callable[[Any], Any], value: Callable[[Any], Any], x: np.ndarray, motions: int
) -> Callable[[], dict[str, Any]]:
    """Compute a gradient in each run; it is judged in the second one, so that the median leaves that out."""
    calls = itertools.count()
    judged = functools.cache(lambda: judge(value, x, np.asarray(slope(x))))

    def run() -> dict[str, Any]:
        jax.block_until_ready(slope(x))
        return {"motions": motions, **(judged() if next(calls) else {})}

    return run


def _reverse(robot: str) -> Callable[[], dict[str, Any]]:
    """Compute the gradient in reverse mode, one motion forward and back."""
    stride = stride_of(robot)
    cost = functools.partial(stride.cost, our_motion(stride))
    slopes, values = jc.simd(jax.grad(cost), nan=False), jc.simd(cost, nan=False)
    return _timed(lambda x: slopes(x[None])[0], lambda x: values(x[None])[0], stride.x, 1)


def _forward(robot: str) -> Callable[[], dict[str, Any]]:
    """Compute the gradient in forward mode, a tangent in each lane."""
    stride = stride_of(robot)
    cost, size = functools.partial(stride.cost, our_motion(stride)), stride.x.size
    slopes = jc.simd(lambda x, unit: jax.jvp(cost, (x,), (unit,))[1], nan=False)
    values, units = jc.simd(cost, nan=False), np.eye(size)
    return _timed(
        lambda x: slopes(np.tile(x, (size, 1)), units), lambda x: values(x[None])[0], stride.x, size
    )


def _mjx(robot: str, cone: str) -> Callable[[], dict[str, Any]]:
    move, stride = mjx_motion(robot, cone), stride_of(robot)
    cost, units = functools.partial(stride.cost, move), jnp.eye(stride.x.size)

    @jax.jit
    def slope(x: Any) -> Any:  # one tangent after another; all at once take ten times as long on a CPU
        return jax.lax.map(lambda unit: jax.jvp(cost, (x,), (unit,))[1], units)

    return _timed(slope, jax.jit(cost), stride.x, stride.x.size)


def _differences(robot: str) -> Callable[[], dict[str, Any]]:
    """Take central differences of MuJoCo's C, one motion after another."""
    import mujoco

    mj, stride = mujoco_model(robot, "elliptic"), stride_of(robot)
    data, nv = mujoco.MjData(mj), stride.model.structure.num_velocities
    measure = jax.jit(lambda x, path, last: stride.cost(lambda *_: (path, last), x))

    def value(x: np.ndarray) -> float:
        z, path = x * stride.units, []
        mujoco.mj_resetData(mj, data)
        mj.opt.timestep = z[-1] / (NUM_PIECES * NUM_STEPS)
        data.qpos[:], data.qvel[:] = z[:nv], z[nv : 2 * nv]
        for row in z[2 * nv : -1].reshape(NUM_PIECES, -1):
            data.ctrl[:] = row
            for _ in range(NUM_STEPS):
                mujoco.mj_step(mj, data)
                path.append(data.qpos.copy())
        return float(measure(x, np.array(path), data.qvel.copy()))

    def slope(x: np.ndarray) -> np.ndarray:
        rows = COARSE * np.eye(x.size)
        return np.array([value(x + row) - value(x - row) for row in rows]) / (2 * COARSE)

    return _timed(slope, value, stride.x, 2 * stride.x.size)


ENGINES: dict[str, Callable[[str], Callable[[], dict[str, Any]]]] = {
    "reverse mode": _reverse,
    "forward mode": _forward,
    "MJX jvp, pyramids": functools.partial(_mjx, cone="pyramidal"),
    "MJX jvp, circular cones": functools.partial(_mjx, cone="elliptic"),
    "differences of MuJoCo": _differences,
}
CASES = [
    Case(name=f"gait gradient {robot}, {engine}", items=1, setup=functools.partial(setup, robot))
    for robot in PEERS for engine, setup in ENGINES.items()
]  # fmt: skip

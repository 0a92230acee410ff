"""A trot of Unitree's go1 from a feedback policy of few numbers, by gradient through compliant steps.

`control` places four feet in turn, corrects their places by the velocity and attitude of the trunk, and holds
the joints by PD gains. `descend` goes down along windows of three strides, each from where the last ended.
Beside it CMA-ES (pip package `cma`) with as many motions, and the found policy in MuJoCo.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.robots import packaged
from benchmarks.runner import Case

SPEED = 0.5  # m/s, commanded in the search
SHANK = 0.213  # m, length of a thigh and of a shank
HIP = (0.1881, 0.04675, 0.08)  # m, hip from the trunk along x and y, leg from the hip along y
FOOT = 0.023  # m, radius
FRONT = np.array([1.0, 1.0, -1.0, -1.0])  # legs FR, FL, RR, RL as in the file
LEFT = np.array([-1.0, 1.0, -1.0, 1.0])
SHIFT = np.array([0.0, 0.5, 0.5, 0.0])  # of the phase; diagonal legs swing together

# name: (start, scale of the search, lower and upper bound)
NUMBERS = {
    "period": (0.4, 0.05, 0.3, 0.6),  # s, of a stride
    "height": (0.27, 0.02, 0.2, 0.32),  # m, of the hips above the ground
    "lift": (0.06, 0.02, 0.03, 0.12),  # m, of a foot at the middle of its swing
    "sweep": (1.0, 0.2, 0.0, 3.0),  # way of a foot beside the commanded way of a stride
    "front": (0.0, 0.02, -0.1, 0.1),  # m, front feet from their hips along x
    "rear": (0.0, 0.02, -0.1, 0.1),
    "width": (0.0, 0.02, -0.05, 0.08),  # m, feet from their legs to the outside
    "press": (0.0, 0.01, 0.0, 0.05),  # m, down at the middle of a stance
    "step forward": (0.08, 0.03, 0.0, 0.3),  # s, by the error of the speed
    "step sideways": (0.12, 0.03, 0.0, 0.3),  # s, by the speed to the side
    "roll": (0.5, 0.2, 0.0, 2.0),  # length of legs by the attitude of the trunk
    "pitch": (0.5, 0.2, 0.0, 2.0),
    "roll rate": (0.03, 0.02, 0.0, 0.2),  # s
    "pitch rate": (0.03, 0.02, 0.0, 0.2),  # s
    "yaw": (0.03, 0.02, 0.0, 0.2),  # m, longer steps on one side by the heading
    "stiffness": (50.0, 10.0, 20.0, 100.0),  # N m/rad
    "damping": (0.8, 0.2, 0.2, 2.0),  # N m s/rad
}
START, SCALE, LOWEST, HIGHEST = (np.array(column) for column in zip(*NUMBERS.values(), strict=True))
FOUND = np.array([  # by `descend(0)`
    0.6, 0.2354, 0.0448, 1.0666, -0.0309, -0.053, 0.0405, 0.0154, 0.0841, 0.1663, 0.0367, 0.7337, 0.0546,
    0.069, 0.016, 88.2307, 1.141,
])  # fmt: skip
GAIN = 35.0  # N m/rad, of the servos of the file
CLEAR = 0.02  # m, a foot above the ground at the middle of its swing
STEPS = 150  # of a stride
STRIDES, COUNTED = 3, 2  # of a window, and how many of them cost
SETTLING, JUDGED = 5, 10  # strides from the stance to the course that is judged
WORLDS, DESCENTS, RATE = 8, 80, 0.4  # of a search; the rate is that of Adam, in parts of `SCALE`
SHAKEN = 0.15  # m/s and rad/s, standard deviation of the changes of the trunk's velocity before a window
FALLEN = 0.12  # m, height of a trunk that has fallen
HIGHER = 0.01  # m, above the stance of the file, whose feet are in the ground
PUSH, PUSHES = 0.3, 8  # m/s to either side, times within a stride


def attitude(xp: Any, q: Any) -> tuple[Any, Any, Any]:
    """Compute roll, pitch and yaw of the trunk, rad."""
    w, x, y, z = q[3], q[4], q[5], q[6]
    roll = xp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = xp.arcsin(xp.clip(2 * (w * y - z * x), -0.999, 0.999))
    return roll, pitch, xp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def joints(xp: Any, x: Any, y: Any, z: Any) -> Any:
    """Compute the angles (12,) that put four feet at places (4,) from their hips."""
    depth = xp.sqrt(xp.maximum(y * y + z * z - HIP[2] ** 2, 1e-3))
    hip = xp.arctan2(z, y) - xp.arctan2(-depth, LEFT * HIP[2])
    reach = xp.minimum(xp.sqrt(x * x + depth * depth), 1.96 * SHANK)
    knee = -2 * xp.arccos(reach / (2 * SHANK))
    return xp.stack([hip, -xp.arctan2(x, depth) - knee / 2, knee], axis=1).reshape(12)


def control(xp: Any, numbers: Any, speed: Any, t: Any, q: Any, v: Any) -> Any:
    """Choose targets (12,) of the servos for a commanded speed; `xp` is `numpy` or `jax.numpy`."""
    (period, height, lift, sweep, front, rear, width, press, forward, sideways, *_) = numbers
    (*_, by_roll, by_pitch, by_roll_rate, by_pitch_rate, by_yaw, stiffness, damping) = numbers
    roll, pitch, yaw = attitude(xp, q)
    ahead, aside = xp.cos(yaw) * v[0] + xp.sin(yaw) * v[1], xp.cos(yaw) * v[1] - xp.sin(yaw) * v[0]
    phase = (t / period + SHIFT) % 1.0
    stands, part = phase < 0.5, (2 * phase) % 1.0
    wave = xp.sin(np.pi * part)
    way = xp.where(stands, 1 - 2 * part, -xp.cos(np.pi * part))  # 1 at touch-down, -1 at lift-off
    x = xp.where(FRONT > 0, front, rear) + forward * (ahead - speed)
    x = x + (sweep * speed * period / 4 + by_yaw * yaw * LEFT) * way
    y = LEFT * (HIP[2] + width) + sideways * aside
    z = FOOT - height + xp.where(stands, -press * wave, lift * wave**2)
    z = z + (by_roll * roll + by_roll_rate * v[3]) * LEFT * (HIP[1] + HIP[2])
    z = z - (by_pitch * pitch + by_pitch_rate * v[4]) * FRONT * HIP[0]
    return q[7:] + (stiffness * (joints(xp, x, y, z) - q[7:]) - damping * v[6:]) / GAIN


FOLDER = "mujoco_playground/_src/locomotion/go1/xmls"
FEET_ALONE, ALL_CONTACTS = "feetonly", "fullcollisions"


@functools.cache
def load(contacts: str = FEET_ALONE) -> tuple[Any, jc.Model]:
    """Read the robot for MuJoCo and for us; a file of the package is there for each set of contacts."""
    mj = packaged((("playground", FOLDER), f"scene_mjx_{contacts}_flat_terrain.xml"))
    mj.opt.iterations, mj.opt.ls_iterations = 100, 50  # the file allows one, for speed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mj, jc.load_mjcf(mj, keyframe="home")


class Course(NamedTuple):
    """How a robot moved: means over the strides that count, `lowest` and `good` over all."""

    speed: Any  # m/s
    transport: Any  # mean of the sum of |power| of the joints over weight times commanded speed
    sway: (
        Any  # root mean square of sideways speed, m/s, and of roll, pitch and yaw rates, rad/s, as one vector
    )
    drag: Any  # m, root mean square of what swinging feet lack to `CLEAR`
    turn: Any  # rad, heading at the end
    lowest: Any  # m, height of the trunk
    good: Any  # share of steps that converged


def run_strides(model: jc.Model, strides: int, counted: int) -> Callable[..., tuple[Course, Any, Any]]:
    """Make (numbers, speed, q, v, push, step) -> (course, q and v at the end); the last strides count.

    The push, m/s, changes the sideways speed of the trunk before the step of that number.
    """
    weight = float(jnp.sum(model.params.mass) * jnp.linalg.norm(model.params.gravity))
    tree, num_steps, first = model.params.tree, STEPS * strides, STEPS * (strides - counted)

    def run(numbers: Any, speed: Any, q: Any, v: Any, push: Any, pushed: Any) -> tuple[Course, Any, Any]:
        def step(carry: Any, number: Any) -> tuple[Any, None]:
            state, sums, lowest, good = carry
            state = state.replace(v=state.v.at[1].add(jnp.where(number == pushed, push, 0.0)))
            u = control(jnp, numbers, speed, state.t, state.q, state.v)
            force = GAIN * (jnp.clip(u, tree.control_range[:, 0], tree.control_range[:, 1]) - state.q[7:])
            force = jnp.clip(force, tree.force_range[:, 0], tree.force_range[:, 1])
            after, info = jc.compliant.step(model, state, u, dt=numbers[0] / STEPS)
            phase = (state.t / numbers[0] + SHIFT) % 1.0
            swing = jnp.where(phase < 0.5, 0.0, jnp.sin(2 * np.pi * phase) ** 4)
            lacks = jnp.maximum(CLEAR * swing - info.gap[-4:], 0.0)  # of feet, where these alone touch
            row = jnp.stack([
                after.q[0] - state.q[0],
                jnp.sum(jnp.abs(force * 0.5 * (state.v[6:] + after.v[6:]))),
                after.v[1] ** 2 + jnp.sum(after.v[3:6] ** 2),
                jnp.mean(lacks**2),
            ])  # fmt: skip
            sums = sums + jnp.where(number >= first, row, 0.0)
            good = good + jnp.where(info.status == 0, 1.0 / num_steps, 0.0)
            return (after, sums, jnp.minimum(lowest, after.q[2]), good), None

        start = model.initial_state().replace(q=q, v=v), jnp.zeros(4), q[2], 0.0
        (end, sums, lowest, good), _ = jax.lax.scan(step, start, jnp.arange(num_steps))
        way, power, sway, drag = sums / (STEPS * counted)
        course = Course(
            way * STEPS / numbers[0], power / (weight * speed), jnp.sqrt(sway), jnp.sqrt(drag + 1e-12),
            attitude(jnp, end.q)[2], lowest, good,
        )  # fmt: skip
        return course, end.q, end.v

    return run


def cost(course: Course, speed: Any) -> Any:
    """Weigh a course: its cost of transport, and errors of speed, attitude, heading and swinging feet."""
    miss = jnp.sqrt(1 + ((course.speed - speed) / 0.02) ** 2) - 1
    return miss + course.transport + course.sway**2 + (course.turn / 0.1) ** 2 + (course.drag / 5e-3) ** 2


class Worlds:
    """Robots that go on walking while numbers change: the starts of windows."""

    def __init__(self, seed: int) -> None:
        self.home, self.rng = stance(), np.random.default_rng(seed)
        self.q, self.v = np.tile(self.home, (WORLDS, 1)), np.zeros((WORLDS, self.home.size - 1))

    def shaken(self) -> tuple[np.ndarray, np.ndarray]:
        """Return q and v for a window, the trunks of all worlds pushed at random."""
        v = self.v.copy()
        v[:, :6] += SHAKEN * self.rng.normal(size=(WORLDS, 6))
        return self.q, v

    def follow(self, course: Course, q: Any, v: Any) -> None:
        """Take the ends of a window as starts; the fallen ones stand up where they began."""
        q, v = np.array(q), np.array(v)
        q[:, :2] = 0.0
        fell = ~(np.asarray(course.lowest) > FALLEN) | ~np.all(np.isfinite(v), axis=1)
        q[fell], v[fell] = self.home, 0.0
        self.q, self.v = q, v


def stance() -> np.ndarray:
    """Return the pose of the file, its feet above the ground."""
    q = np.array(load()[1].initial_state().q)
    q[2] += HIGHER
    return q


@functools.cache
def programs() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make lanes of (numbers, q, v) -> (cost, (course, q, v)), and of its gradient by the numbers beside."""
    run = run_strides(load()[1], STRIDES, COUNTED)

    def value(numbers: Any, q: Any, v: Any) -> tuple[Any, tuple[Course, Any, Any]]:
        ended = run(numbers, SPEED, q, v, 0.0, -1)
        return cost(ended[0], SPEED), ended

    return jc.simd(value, nan=False), jc.simd(jax.value_and_grad(value, has_aux=True), nan=False)


def descend(seed: int, descents: int = DESCENTS, report: Any = None) -> np.ndarray:
    """Find numbers by Adam along the mean of the gradients of all worlds, each shortened to length 1."""
    import optax

    worlds, x = Worlds(seed), np.zeros(len(NUMBERS))
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, descents), b1=0.8, b2=0.9)
    memory = optimizer.init(x)
    for number in range(descents):
        numbers = START + SCALE * x
        (costs, ended), slope = programs()[1](np.tile(numbers, (WORLDS, 1)), *worlds.shaken())
        slope = np.nan_to_num(np.asarray(slope) * SCALE)
        size = np.linalg.norm(slope, axis=1, keepdims=True)
        change, memory = optimizer.update(np.mean(slope / np.maximum(size, 1.0), axis=0), memory)
        x = (np.clip(numbers + SCALE * np.asarray(change), LOWEST, HIGHEST) - START) / SCALE
        worlds.follow(*ended)
        if report is not None:
            report(number, numbers, costs, ended[0], size)
    return START + SCALE * x


def search_by_cma(motions: int, seed: int, spread: float = 0.5, repeats: int = 1) -> np.ndarray:
    """Find numbers by CMA-ES with so many motions, `repeats` a candidate; worlds follow the best one."""
    import cma

    worlds = Worlds(seed)
    options = {
        "seed": seed + 1, "verbose": -9, "maxfevals": motions // repeats,
        "bounds": [list((LOWEST - START) / SCALE), list((HIGHEST - START) / SCALE)],
    }  # fmt: skip
    search = cma.CMAEvolutionStrategy(np.zeros(len(NUMBERS)), spread, options)
    while not search.stop():
        candidates = search.ask()
        starts = (np.tile(each[:repeats], (len(candidates), 1)) for each in worlds.shaken())
        lanes = np.repeat(START + SCALE * np.array(candidates), repeats, axis=0)
        costs, ended = programs()[0](lanes, *starts)
        means = np.mean(np.nan_to_num(np.reshape(costs, (-1, repeats)), nan=1e3), axis=1)
        search.tell(candidates, list(means))
        best = repeats * int(np.argmin(means)) + np.arange(WORLDS) % repeats
        worlds.follow(*jax.tree.map(lambda leaf, best=best: leaf[best], ended))
    return START + SCALE * np.asarray(search.result.xfavorite)


@functools.cache
def _judging() -> Callable[..., Any]:
    return jc.simd(run_strides(load()[1], SETTLING + JUDGED, JUDGED), nan=False)


def judge(numbers: np.ndarray, speed: float = SPEED) -> dict[str, Any]:
    """Let the robot go ten strides from its stance, without a push and pushed at several times."""
    pushes = np.concatenate([[0.0], np.tile([PUSH, -PUSH], PUSHES)])
    times = STEPS * (SETTLING + 1) + np.repeat(np.arange(PUSHES), 2) * STEPS // PUSHES
    q, count = stance(), pushes.size
    course, _, _ = _judging()(
        np.tile(numbers, (count, 1)), np.full(count, speed), np.tile(q, (count, 1)),
        np.zeros((count, q.size - 1)), pushes, np.concatenate([[-1], times]),
    )  # fmt: skip
    stands = np.asarray(course.lowest) > FALLEN
    return {
        "speed": float(course.speed[0]),
        "cost of transport": float(course.transport[0] * speed / course.speed[0]),
        "cost": float(cost(jax.tree.map(lambda leaf: leaf[0], course), speed)),
        "heading": float(course.turn[0]),
        "lowest": float(course.lowest[0]),
        "pushed, of them upright": f"{np.sum(stands[1:])} of {count - 1}",
        "pushed, speed from": float(np.min(course.speed[1:])),
        "pushed, lowest": float(np.min(course.lowest[1:])),
        "converged %": 100 * float(np.mean(course.good)),
    }


class Contact(NamedTuple):
    """Contact of MuJoCo: the set of contacts, its step, s, and the time constant of contacts, s."""

    contacts: str = FEET_ALONE
    dt: float = 0.004
    time_constant: float = 0.02


STIFF = Contact(ALL_CONTACTS, 5e-4, 1e-3)  # the least time constant that MuJoCo allows


class Path(NamedTuple):
    """States after each step, and power of the joints during it, W."""

    q: np.ndarray
    v: np.ndarray
    power: np.ndarray


def path_in_mujoco(
    numbers: np.ndarray, contact: Contact, *, speed: float = SPEED, push: float = 0.0, pushed: float = 0.0
) -> Path:
    """Let the robot go as `judge` does, in MuJoCo, pushed after a number of strides."""
    import mujoco

    mj, dt = copy.copy(load(contact.contacts)[0]), contact.dt
    mj.opt.timestep, mj.opt.cone = dt, mujoco.mjtCone.mjCONE_ELLIPTIC
    mj.geom_solref[:, 0] = contact.time_constant
    data = mujoco.MjData(mj)
    data.qpos[:] = stance()
    rows = []
    for number in range(round((SETTLING + JUDGED) * numbers[0] / dt)):
        if number == round(pushed * numbers[0] / dt):
            data.qvel[1] += push
        data.ctrl[:] = control(np, numbers, speed, data.time, data.qpos, data.qvel)
        before = data.qvel[6:].copy()
        mujoco.mj_step(mj, data)
        power = np.sum(np.abs(data.actuator_force * 0.5 * (before + data.qvel[6:])))
        rows.append((data.qpos.copy(), data.qvel.copy(), power))
    return Path(*map(np.array, zip(*rows, strict=True)))


def course_of(path: Path, dt: float, weight: float) -> dict[str, float]:
    """Return speed and cost of transport over the strides that count, and the least height of the trunk."""
    first = round(len(path.q) * SETTLING / (SETTLING + JUDGED))
    speed = (path.q[-1, 0] - path.q[first, 0]) / (dt * (len(path.q) - 1 - first))
    return {
        "speed": float(speed),
        "cost of transport": float(np.mean(path.power[first:]) / (weight * speed)),
        "lowest": float(np.min(path.q[:, 2])),
    }


def beside_mujoco(numbers: np.ndarray) -> dict[str, Any]:
    """Describe the robot in MuJoCo, with contacts of the file and stiff ones, also pushed."""
    mj, figures = load()[0], {}
    weight = float(mj.body_subtreemass[0] * np.linalg.norm(mj.opt.gravity))
    times = SETTLING + 1 + np.arange(PUSHES) / PUSHES
    for name, contact in (("MuJoCo", Contact()), ("MuJoCo, stiff, all contacts", STIFF)):
        course = course_of(path_in_mujoco(numbers, contact), contact.dt, weight)
        pushed = [
            course_of(path_in_mujoco(numbers, contact, push=push, pushed=when), contact.dt, weight)
            for when in times for push in (PUSH, -PUSH)
        ]  # fmt: skip
        stands = sum(each["lowest"] > FALLEN for each in pushed)
        figures |= {f"{name}: {key}": value for key, value in course.items()}
        figures |= {
            f"{name}: pushed, of them upright": f"{stands} of {len(pushed)}",
            f"{name}: pushed, speed from": min(each["speed"] for each in pushed),
        }
    return figures


def _search(search: Callable[[], np.ndarray], motions: int, also_in_mujoco: bool) -> dict[str, Any]:
    begin = time.process_time()
    numbers = search()
    spent = time.process_time() - begin
    figures = {"numbers": np.round(numbers, 4).tolist(), "motions": motions, "processor s": spent}
    return figures | judge(numbers) | (beside_mujoco(numbers) if also_in_mujoco else {})


def _by_gradient(seed: int) -> Callable[[], dict[str, Any]]:
    return lambda: _search(lambda: descend(seed), WORLDS * DESCENTS, True)


def _by_cma(seed: int, times: int) -> Callable[[], dict[str, Any]]:
    motions = times * WORLDS * DESCENTS
    return lambda: _search(lambda: search_by_cma(motions, seed), motions, False)


SEEDS = (0, 1, 2)
FAIR = 5  # times the motions of the gradient: a gradient takes as long as so many motions
CASES = [
    *(
        Case(
            name=f"trot by gradient, seed {seed}",
            items=1,
            setup=functools.partial(_by_gradient, seed),
            repeats=1,
        )
        for seed in SEEDS
    ),
    *(
        Case(
            name=f"trot by CMA-ES, seed {seed}, {times} times the motions",
            items=1,
            setup=functools.partial(_by_cma, seed, times),
            repeats=1,
        )
        for seed in SEEDS
        for times in (1, FAIR)
    ),
]

"""`python -m benchmarks lanes`: the gradient of a motion by all its controls, for a batch of robots.

Each world starts with other velocities; the gradient is that of the third coordinate (height in space, pitch
in the plane) after `--steps` steps by the controls of every step. "jc.simd" and "XLA" are the reverse mode of
jaxcontact, "MuJoCo differences" one motion for every control by MuJoCo's C on all cores, "MJX forward" one
tangent for every control. Contacts of peers yield by another law, so their gradients are others.
`difference` is relative: to XLA's gradient for `jc.simd`, to those of a step ten times as long for
differences. Peers run fewer worlds; times are per world.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report, runner
from benchmarks.robots import GROUP, ROBOTS, Robot, scene_of, steps_of

NAMES = ("half_cheetah", "quadruped", "humanoid")
PEER_WORLDS = {"MuJoCo differences": 4, "MJX forward": 1}  # worlds that a peer runs
DIFFERENCE = 1e-6  # of a control, of one-sided differences
HEIGHT = 2  # place in q

Run = Callable[[], dict[str, Any]]


def _cost(robot: Robot, steps: int) -> Callable[..., jax.Array]:
    """Make the cost of one world, of (push, q, v)."""
    march = steps_of(Robot(**{**vars(robot), "steps": steps}))
    return lambda push, q, v: march(q, v, jnp.asarray(robot.dt), push)[0].q[-1, HEIGHT]


def _starts(robot: Robot, worlds: int, steps: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    scene = scene_of(robot, worlds)
    return scene, np.zeros((worlds, steps, scene.mj.nu)), scene.q, scene.v


def _ours(robot: Robot, worlds: int, steps: int, found: dict[str, np.ndarray], engine: str) -> Run:
    gradient = jax.grad(_cost(robot, steps))
    _, *batch = _starts(robot, worlds, steps)

    def in_groups(*world: jax.Array) -> jax.Array:
        return jax.lax.map(lambda each: gradient(*each), world, batch_size=min(GROUP, len(world[0])))

    run_batch = jc.simd(gradient, nan=False) if engine == "jc.simd" else jc.on_all_cores(in_groups)

    def run() -> dict[str, Any]:
        found[engine] = np.asarray(run_batch(*batch))
        both = [found[name] for name in ("jc.simd", "XLA") if name in found]
        if len(both) < 2:
            return {}
        return {"difference": float(np.max(np.abs(both[0] - both[1])) / np.max(np.abs(both[1])))}

    return run


def _differences(robot: Robot, worlds: int, steps: int, *_: Any) -> Run:
    import copy

    import mujoco
    import mujoco.rollout

    scene, _, q, v = _starts(robot, worlds, steps)
    mj = copy.copy(scene.mj)
    mj.opt.timestep = robot.dt
    threads = [mujoco.MjData(mj) for _ in runner.os_affinity()]
    start = np.zeros((worlds, mujoco.mj_stateSize(mj, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    start[:, 1 : 1 + mj.nq], start[:, 1 + mj.nq : 1 + mj.nq + mj.nv] = q, v
    count = steps * mj.nu
    moved = np.concatenate([np.zeros((1, count)), np.eye(count)]).reshape(-1, steps, mj.nu)

    def gradients(step: float) -> np.ndarray:
        pushes = np.tile(scene.controls + step * moved, (worlds, 1, 1))
        states, _ = mujoco.rollout.rollout(
            mj, threads, np.repeat(start, count + 1, axis=0), pushes, nstep=steps
        )
        ends = states[:, -1, 1 + HEIGHT].reshape(worlds, count + 1)
        return (ends[:, 1:] - ends[:, :1]) / step

    coarse = gradients(10 * DIFFERENCE)

    def run() -> dict[str, Any]:
        fine = gradients(DIFFERENCE)
        return {"difference": float(np.max(np.abs(fine - coarse)) / np.max(np.abs(fine)))}

    return run


def _mjx(robot: Robot, worlds: int, steps: int, *_: Any) -> Run:
    import copy

    from mujoco import mjx

    scene, controls, q, v = _starts(robot, worlds, steps)
    mj = copy.copy(scene.mj)
    mj.opt.timestep = robot.dt
    there, begin = mjx.put_model(mj), mjx.make_data(mj)

    def height(push: jax.Array, q: jax.Array, v: jax.Array) -> jax.Array:
        def again(data: Any, u: jax.Array) -> tuple[Any, None]:
            return mjx.step(there, data.replace(ctrl=jnp.asarray(scene.controls) + u)), None

        return jax.lax.scan(again, begin.replace(qpos=q, qvel=v), push)[0].qpos[HEIGHT]

    def gradient(push: jax.Array, q: jax.Array, v: jax.Array) -> jax.Array:
        tangents = jnp.eye(push.size).reshape(-1, *push.shape)
        return jax.lax.map(
            lambda t: jax.jvp(lambda p: height(p, q, v), (push,), (t,))[1], tangents, batch_size=16
        )

    run_batch = jax.jit(lambda *batch: jax.lax.map(lambda world: gradient(*world), batch))

    def run() -> dict[str, Any]:
        slopes = jax.block_until_ready(run_batch(controls, q, v))
        return {"finite": bool(jnp.all(jnp.isfinite(slopes)))}

    return run


ENGINES: dict[str, Callable[..., Run]] = {
    "jc.simd": _ours,
    "XLA": _ours,
    "MuJoCo differences": _differences,
    "MJX forward": _mjx,
}


def table(lines: list[dict[str, Any]]) -> str:
    """Make the table of the results, in the order of the lines."""
    first = lines[0]
    rows = [
        "| robot | engine | worlds | processor ms a world | wall ms | first call, cpu s | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        name = f"| {line['robot']} | {line['engine']} | {line['worlds']} |"
        if "skipped" in line:
            rows.append(f"{name} {line['skipped'].splitlines()[0][:90]} | | | |")
            continue
        difference = f"{line['difference']:.0e}" if "difference" in line else ""
        rows.append(
            f"{name} {line['cpu_us_per_item'] / 1e3:.3g} | {line['us_per_item'] / 1e3:.3g} "
            f"| {line['first_cpu_s']:.3g} | {difference} |"
        )
    head = f"Gradient of {first['steps']} steps by all controls. {first['device']}, {first['dtype']}, "
    head += f"jax {first['jax']}, mujoco {first['mujoco']}; {first['date']}, commit {first['commit']}"
    return f"{head}{', ' + first['note'] if first['note'] else ''}.\n\n" + "\n".join(rows)


def main(arguments: list[str]) -> int:
    """Measure, print one JSON line per case, and put the table on a page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lanes", description=__doc__)
    parser.add_argument("--robots", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--note", default="", help="a remark on the machine, for the page")
    parser.add_argument("--put", type=Path, metavar="PAGE", help="put the table there, at its marks")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    lines: list[dict[str, Any]] = []
    for name in options.robots:
        robot = next(each for each in ROBOTS if each.name == name)
        found: dict[str, np.ndarray] = {}
        for engine in options.engines:
            print(f"  {name} {engine} ...", file=sys.stderr, flush=True)
            worlds = min(options.batch, PEER_WORLDS.get(engine, options.batch))
            line = {"robot": name, "engine": engine, "worlds": worlds, "steps": options.steps}
            line |= {"note": options.note, **runner.header()}
            try:

                def setup(
                    robot: Robot = robot, worlds: int = worlds, found: Any = found, engine: str = engine
                ) -> Run:
                    return ENGINES[engine](robot, worlds, options.steps, found, engine)

                case = runner.Case(
                    name=f"{name} {engine}", items=worlds, setup=setup, repeats=options.repeats
                )
                line |= runner.measure(case)
            except ImportError as error:
                line |= {"skipped": runner.reason_to_skip(error)}
            except (NotImplementedError, ValueError) as error:
                line |= {"skipped": f"{type(error).__name__}: {error}"}
            lines.append(line)
            print(json.dumps(line), flush=True)
    if options.put:
        report.put(options.put, "lanes", table(lines))
    return 0

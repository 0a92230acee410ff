"""`python -m benchmarks robot_motions [--json FILE] [--put PAGE] [--pages FOLDER]`: drops of files.

Every file of `data/robot_files.txt`, those of fewest shapes first, falls on a floor until it rests, and from
there its steps are timed beside MuJoCo's: each file in a process of its own with a limit of processor time. A
robot without a free base gets one, a file without a floor gets that, where `load_mjcf` can do so; the rest
is as it is. Errors are the largest difference of a number of q from steps a sixteenth as long, each engine's
from its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report, runner
from benchmarks.robot_files import parser_of, path_of, rows_and_files, write_line

STEPS, WORLDS, JUDGED, REPEATS = 25, 256, 4, 3
FINER = 16  # steps of the reference in one step
SPREAD = 0.3  # rad/s and m/s, of the velocities at which timed worlds start
HEIGHT = 0.02  # m, from which a robot falls
FALL_SECONDS = 4.0  # after which a robot should rest
REST_SPEED = 0.01  # m/s, root of twice the kinetic energy over the mass
WEIGHT_TOLERANCE = 0.02  # of the weight, between it and what the floor carries at rest
SECONDS = 240  # of processor time for a file, most of it to compile
LOAD_FACTOR = 5  # wall time for that, on a machine with other work
COLUMNS = (
    "file", "nv", "candidates", "seen", "added", "left out", "dt, ms", "us a step", "MuJoCo's", "times",
    "error", "MuJoCo's", "converged %", "rests", "speed, m/s", "weight carried", "compile, cpu s",
)  # fmt: skip
NOT_BEGUN = "not begun"
UPRIGHT = 0.99  # least vertical part of the axis of a joint that lets a robot fall


@dataclasses.dataclass(frozen=True)
class Case:
    """A file for both engines: their models, what was added, the start, controls, weight in N."""

    mj: Any
    model: Any
    added: tuple[str, ...]
    q: np.ndarray
    controls: np.ndarray
    weight: float


def falling_joints(mj: Any) -> list[int]:
    """List the joints on the world that let a body fall: free ones and upright slides."""
    free, slide = 0, 2  # mjtJoint
    on_world = [j for j in range(mj.njnt) if mj.body_parentid[mj.jnt_bodyid[j]] == 0]
    upright = {j for j in on_world if mj.jnt_type[j] == slide and abs(mj.jnt_axis[j, 2]) > UPRIGHT}
    return [j for j in on_world if mj.jnt_type[j] == free or j in upright]


def has_floor(mj: Any) -> bool:
    """Tell whether a file has a plane that touches."""
    return bool(np.any((mj.geom_type == 0) & ((mj.geom_contype | mj.geom_conaffinity) > 0)))


def options_of(path: Path) -> dict[str, Any]:
    """Choose the options of `load_mjcf` with which a file falls on a floor, as far as it can."""
    from jaxcontact.io.mjcf_source import compile_source

    options: dict[str, Any] = {}
    mj = compile_source(path).mj
    if not falling_joints(mj):
        try:
            mj = compile_source(path, floating=True).mj
        except ValueError:  # its base is on joints
            return options
        options["floating"] = True
    return options if has_floor(mj) else options | {"floor": 0.0}


def case_of(path: Path) -> Case:
    """Load a file for both engines, lifted to where it falls."""
    import jaxcontact as jc
    from jaxcontact.io.mjcf_source import compile_source

    options = options_of(path)
    mj = compile_source(path, options.get("floating"), options.get("floor")).mj
    try:
        model = jc.load_mjcf(path, **options)
    except ValueError:
        model = jc.load_mjcf(path, unsupported="skip", **options)
    q = np.array(mj.key_qpos[0] if mj.nkey else mj.qpos0)
    controls = np.array(mj.key_ctrl[0]) if mj.nkey and mj.nu else np.zeros(model.num_controls)
    joints = falling_joints(mj)
    heavy = sum(float(mj.body_subtreemass[mj.jnt_bodyid[j]]) for j in joints)
    weight = heavy * abs(float(mj.opt.gravity[2]))
    return Case(mj, model, tuple(options), lifted(mj, q, joints), controls, weight)


def lifted(mj: Any, q: np.ndarray, joints: list[int]) -> np.ndarray:
    """Lift or lower what falls to HEIGHT above its first touch of the world, by MuJoCo's contacts."""
    import mujoco

    data, places = mujoco.MjData(mj), [int(mj.jnt_qposadr[j]) + 2 * (mj.jnt_type[j] == 0) for j in joints]

    def at(height: float) -> np.ndarray:
        moved = q.copy()
        moved[places] += height
        return moved

    def touches(height: float) -> bool:
        data.qpos[:] = at(height)
        mujoco.mj_forward(mj, data)
        welds = (
            mj.body_weldid[mj.geom_bodyid[contact.geom]] for contact in data.contact if contact.dist <= 0
        )
        return any(bool(np.any(pair == 0)) for pair in welds)

    reach = 2.0 * float(mj.stat.extent) + 2.0 * float(np.max(np.abs(q), initial=0.0))
    if not joints or touches(reach) or not touches(-reach):
        return q
    low, high = -reach, reach
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if touches(middle) else (low, middle)
    return at(high + HEIGHT)


def program_of(case: Case) -> Any:
    """Compile steps of many worlds: (q, v, dt) -> q, v, share that converged, mean force of the planes, N."""
    import jax
    import jax.numpy as jnp

    import jaxcontact as jc

    model, structure = case.model, case.model.structure
    controls = jnp.broadcast_to(jnp.asarray(case.controls), (STEPS, model.num_controls))
    planes = upward(structure)
    spins = model.params.spin_friction
    axes = structure.dim if spins is None else structure.dim + spins.shape[1]

    def steps(q: Any, v: Any, dt: Any) -> tuple[Any, ...]:
        state = model.initial_state().replace(q=q, v=v)
        states, info = jc.compliant.rollout(model, state, controls, dt=dt)
        rows = info.lam[:, info.lam.shape[1] - structure.num_contacts * axes :]
        normal = rows.reshape(STEPS, structure.num_contacts, axes)[:, :, 0]
        return states.q[-1], states.v[-1], jnp.mean(info.status == 0), jnp.mean(normal @ planes)

    return jc.simd(jax.jit(steps), nan=False)


def upward(structure: Any) -> np.ndarray:
    """Return for each candidate contact the vertical part of the normal of its plane, 0 without a plane."""
    from jaxcontact.geometry import HalfSpace, num_contacts

    table, parts = structure.shape_table, [np.zeros(0)]
    for pair in structure.pairs:
        plane = table[pair[1]]
        height = plane.normal[-1] if isinstance(plane, HalfSpace) else 0.0
        parts.append(np.full(num_contacts(structure.dim, table, (pair,)), height))
    return np.concatenate(parts)


def speed_of(mj: Any, q: np.ndarray, v: np.ndarray) -> float:
    """Compute the root of twice the kinetic energy over the mass, by MuJoCo, m/s."""
    import mujoco

    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = q, v
    mujoco.mj_forward(mj, data)
    mujoco.mj_energyVel(mj, data)
    return float(np.sqrt(2.0 * data.energy[1] / mj.body_subtreemass[0]))


def drop(case: Case, program: Any) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Let a robot fall until it rests; return the figures, q (k, nq) of the way and its times."""
    dt = float(case.mj.opt.timestep)
    q, v = case.q, np.zeros(case.mj.nv)
    ways, good, forces = [q], [], []
    for _ in range(int(np.ceil(FALL_SECONDS / (STEPS * dt)))):
        ends = program(q[None], v[None], np.array([dt]))
        q, v, share, force = (np.asarray(x)[0] for x in ends)
        ways, good, forces = [*ways, q], [*good, float(share)], [*forces, float(force)]
        if not np.all(np.isfinite(q)) or not np.all(np.isfinite(v)):
            return {"speed": np.inf}, np.array(ways[:-1]), dt * STEPS * np.arange(len(ways) - 1)
    line = {"speed": speed_of(case.mj, q, v), "drop converged %": 100.0 * float(np.mean(good))}
    if case.weight > 0.0:
        line["carried"] = float(np.mean(forces[-max(1, round(0.2 / (STEPS * dt))) :])) / case.weight
    return line, np.array(ways), dt * STEPS * np.arange(len(ways))


def beside_mujoco(case: Case, program: Any, q: np.ndarray) -> dict[str, Any]:
    """Time steps from q with random velocities by both engines; their errors by shorter steps."""
    from benchmarks.robots import Robot, Scene, mujoco_c, mujoco_truth

    dt, rng = float(case.mj.opt.timestep), np.random.default_rng(0)
    v = SPREAD * rng.normal(size=(WORLDS, case.mj.nv))
    robot = Robot("file", lambda: None, steps=STEPS, dt=dt)
    controls = case.controls if case.mj.nu else np.zeros(0)
    scene = Scene(robot, case.mj, np.tile(q, (WORLDS, 1)), v, controls)
    few = dataclasses.replace(scene, q=scene.q[:JUDGED], v=v[:JUDGED])
    finer, truth = (few.q, few.v), mujoco_truth(few)
    for _ in range(FINER):
        finer = program(*finer, np.full(JUDGED, dt / FINER))[:2]
    worlds = scene.q, v, np.full(WORLDS, dt)
    ours, (ends, _, good, _) = _processor_time(lambda: program(*worlds))
    theirs, (c_ends, c_good) = _processor_time(mujoco_c(scene))
    return {
        "us": 1e6 * ours / (WORLDS * STEPS),
        "mujoco us": 1e6 * theirs / (WORLDS * STEPS),
        "error": float(np.max(np.abs(ends[:JUDGED] - finer[0]))),
        "mujoco error": float(np.max(np.abs(c_ends[:JUDGED] - truth))),
        "converged %": 100.0 * float(np.mean(good)),
        "mujoco converged %": 100.0 * c_good,
    }


def _processor_time(run: Any) -> tuple[float, Any]:
    """Return the least processor time of several runs, s, and what the last one returned."""
    times, result = [], run()
    for _ in range(REPEATS):
        begin = time.process_time()
        result = run()
        times.append(time.process_time() - begin)
    return min(times), result


def measure(path: Path, pages: Path | None) -> dict[str, Any]:
    """Drop a file, time its steps, and write its page and picture."""
    import jax

    jax.config.update("jax_enable_x64", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = case_of(path)
    model = case.model
    row: dict[str, Any] = {
        "nv": int(case.mj.nv), "candidates": model.structure.num_contacts, "seen": model.max_contacts,
        "dt": float(case.mj.opt.timestep), "added": list(case.added),
        "left_out": [note.removeprefix("left out: ") for note in model.notes if note.startswith("left out")],
    }  # fmt: skip
    begin, spent = time.perf_counter(), time.process_time()
    program = program_of(case)
    program(case.q[None], np.zeros((1, case.mj.nv)), np.array([row["dt"]]))
    row |= {"first_s": time.perf_counter() - begin, "first_cpu_s": time.process_time() - spent}
    fallen, way, times = drop(case, program)
    row |= fallen | beside_mujoco(case, program, way[-1])
    if pages is not None:
        show(model, way, times, pages / name_of(path))
    return row


def name_of(path: Path) -> str:
    """Name the page of a file by its last folders."""
    return "_".join(path.with_suffix("").parts[-3:])


def show(model: Any, way: np.ndarray, times: np.ndarray, target: Path) -> None:
    """Write the page of a drop, and a picture of its end."""
    from matplotlib.figure import Figure

    import jaxcontact as jc

    structure = dataclasses.replace(model.structure, pairs=())  # shapes and motion alone
    bare = model.replace(system=dataclasses.replace(model.system, structure=structure))
    bare = bare.replace(params=bare.params.replace(mu=np.zeros(0), margin=None, spin_friction=None))
    none = np.zeros((len(times), 0), bool)
    states = jc.State(q=way, v=np.zeros((len(times), structure.num_velocities)), t=times)
    trajectory = jc.simulate.Trajectory(
        states=states, contacts=none, impulse=np.zeros((len(times) - 1, 0, 3)), impacts=None,
        status=np.zeros(len(times) - 1, np.uint32),
    )  # fmt: skip
    target.parent.mkdir(parents=True, exist_ok=True)
    jc.viz.animate(trajectory, bare, target.with_suffix(".html"), title=target.name)
    figure = Figure(figsize=(2.0, 2.0))
    end = jc.State(q=way[-1], v=states.v[-1], t=times[-1])
    jc.viz.draw_bodies(figure.add_axes((0, 0, 1, 1)), bare, end)
    figure.savefig(target.with_suffix(".png"), dpi=60)


def rests(row: dict[str, Any]) -> bool:
    """Tell whether a drop came to rest with its weight on the floor."""
    return row["speed"] <= REST_SPEED and abs(row.get("carried", np.inf) - 1.0) <= WEIGHT_TOLERANCE


def as_table(rows: list[dict[str, Any]]) -> str:
    """Make a Markdown table, with its summary first."""
    done, begun = [row for row in rows if "us" in row], sum(row.get("error") != NOT_BEGUN for row in rows)
    fell = [row for row in done if "carried" in row]
    ratios = np.array([row["us"] / row["mujoco us"] for row in done] or [np.nan])
    better = sum(row["error"] <= row["mujoco error"] for row in done)
    lines = [
        f"{len(done)} of {len(rows)} files were measured; {begun - len(done)} failed or were not done in "
        f"{SECONDS} s of processor time, most of it to compile; {len(rows) - begun} were not begun. A step "
        f"takes {np.median(ratios):.3g} times MuJoCo's processor time at the median, {ratios.min():.3g} to "
        f"{ratios.max():.3g} times, in {WORLDS} worlds that start where the robot came to rest, with random "
        f"velocities ({SPREAD} m/s, rad/s), at the file's own step; the error after {STEPS} steps is at "
        f"most MuJoCo's in {better} files. Of {len(fell)} that can fall, {sum(map(rests, fell))} rest "
        f"{FALL_SECONDS:g} s after a fall from {HEIGHT:g} m: slower than {REST_SPEED:g} m/s, and the "
        f"floor carries the weight within {WEIGHT_TOLERANCE:.0%}. *Added* is what the file lacks for a fall, "
        "and *seen* the contacts of least gap that a step sees.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    return "\n".join([*lines, *(_table_row(row) for row in rows if row.get("error") != NOT_BEGUN)])


def _table_row(row: dict[str, Any]) -> str:
    name = f"| {row['package']}: {row['file'].rpartition('/')[2]} |"
    if "us" not in row:
        return f"{name} {row['error'][:80].replace('|', ' ')} |" + " |" * (len(COLUMNS) - 2)
    carried = row.get("carried")
    cells = [
        str(row["nv"]), str(row["candidates"]), str(row["seen"] or "all"), ", ".join(row["added"]),
        "; ".join(row["left_out"]).replace("|", " ")[:60], f"{1e3 * row['dt']:g}",
        f"{row['us']:.3g}", f"{row['mujoco us']:.3g}", f"{row['us'] / row['mujoco us']:.3g}",
        f"{row['error']:.0e}", f"{row['mujoco error']:.0e}", f"{row['converged %']:.4g}",
        "held" if carried is None else ("yes" if rests(row) else "no"), f"{row['speed']:.1e}",
        "" if carried is None else f"{carried:.3f}", f"{row['first_cpu_s']:.0f}",
    ]  # fmt: skip
    return f"{name} {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    """Measure the files that match, and print the table."""
    parser = parser_of("robot_motions", __doc__)
    parser.add_argument(
        "--pages", type=Path, metavar="FOLDER", help="write a page and a picture of every drop"
    )
    parser.add_argument("--lines", action="store_true", help="take the lines of --json, measure nothing")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no file after so many")
    options = parser.parse_args(arguments)
    if options.one is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        print(json.dumps(measure(options.one, options.pages)))
        return 0
    rows, files = rows_and_files(options)
    end = time.monotonic() + 60.0 * options.minutes
    for package, name in by_shapes(files, options.folder):
        row = {"package": package, "file": name}
        if time.monotonic() > end or options.lines:
            rows.append(row | {"error": NOT_BEGUN})
            continue
        rows.append(row | _apart(path_of(package, name, options.folder), options))
        write_line(rows[-1], options)
    head, table = runner.header(), as_table(rows)
    text = "float64, " + ", ".join(
        f"{key} {head[key]}" for key in ("device", "jax", "mujoco", "date", "commit")
    )
    print(f"{text}\n\n{table}")
    if options.put:
        report.put(options.put, "robot_motions", f"{text}.\n\n{table}")
    return 0


def by_shapes(cases: list[tuple[str, str]], folder: Path) -> list[tuple[str, str]]:
    """Sort packages and files by the number of shapes that touch; files that MuJoCo cannot read come last."""
    from jaxcontact.io.mjcf_source import compile_source

    def shapes(case: tuple[str, str]) -> float:
        path = path_of(*case, folder)
        try:
            mj = compile_source(path).mj
        except (ValueError, TypeError):
            return np.inf
        return float(np.sum((mj.geom_contype | mj.geom_conaffinity) > 0))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(cases, key=shapes)


def _apart(path: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a file in a process of its own, within limits of processor time and of time."""
    if path is None:
        return {"error": "package is not there"}
    command = [sys.executable, "-m", "benchmarks", "robot_motions", "--one", str(path)]
    command += ["--pages", str(options.pages)] if options.pages else []
    late = {"error": f"not done in {SECONDS} s"}
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_FACTOR * SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return late
    if ran.returncode < 0:
        return late
    if ran.returncode:
        return {"error": (ran.stderr.strip().splitlines() or ["no message"])[-1]}
    result: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return result

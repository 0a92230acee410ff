"""`python -m benchmarks robot_files [-k REGEX] [--json FILE] [--put PAGE]`: robot files against MuJoCo.

Every file of `data/robot_files.txt` is loaded unedited, each in a process of its own. What is compared: the
contacts that MuJoCo has at random poses, mass matrix and bias force. Packages of the files are those of
`tests/robot_packages.txt`, unpacked into a folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report, runner
from jaxcontact.cli.cluster import add_cluster_option

LIST = Path(__file__).parent / "data" / "robot_files.txt"
FOLDER = Path(__file__).parents[1] / ".cache" / "robots"
POSES = 20
SEED = 0
SECONDS = 900  # a file may take, most of it to compile
SPREAD = 0.3  # rad or m, of joints about the reference
COMPARED = 12  # pairs of a file whose gaps are compared, drawn at random; each may take seconds to compile
MAX_DIFFERENCES = 400_000  # of the corners of two polytopes whose hull takes about a second
DIRECTIONS = 1000  # of which the smallest overlap of two geoms is searched
GAP_TOLERANCE = 1e-6  # of the size of the robot


def listed() -> list[tuple[str, str]]:
    """Package and path of every file."""
    lines = LIST.read_text().splitlines()
    return [(line.split()[0], line.split()[1]) for line in lines if line and not line.startswith("#")]


def path_of(package: str, name: str, folder: Path) -> Path | None:
    """Where a file of a package is, None where the package is not there."""
    for parts in ([folder], [folder / package]):
        path = Path(*parts) / name
        if path.is_file():
            return path
    for found in importlib.metadata.distributions(name=package):
        path = Path(str(found.locate_file(name)))
        if path.is_file():
            return path
    return None


def measure(path: Path, only_load: bool) -> dict[str, Any]:
    """Load a file and, unless it should only load, compare it with MuJoCo at random poses."""
    import jax

    import jaxcontact as jc
    from jaxcontact.io.mjcf_source import compile_source

    jax.config.update("jax_enable_x64", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mj = compile_source(path).mj
        begin = time.perf_counter()
        try:
            model, loads = jc.load_mjcf(path), "whole"
        except ValueError as error:
            line = {"loads": "no", "refused": str(error).removeprefix("source: not supported: ")[:300]}
            try:
                model = jc.load_mjcf(path, unsupported="skip")
            except ValueError:
                return line | {"nv": mj.nv}
            loads = "skip"
    row = {
        "loads": loads,
        "load_s": time.perf_counter() - begin,
        "nv": mj.nv,
        "bodies": mj.nbody - 1,
        "pairs": len(model.structure.pairs),
        "candidates": model.structure.num_contacts,
        "left_out": [note for note in model.notes if note.startswith("left out")],
        "ignored": [note for note in model.notes if note.startswith("ignored")],
    }
    if model.structure.num_velocities != mj.nv:
        raise AssertionError(f"nv {model.structure.num_velocities}, MuJoCo's {mj.nv}")
    return row if only_load else row | compare(mj, model)


def compare(mj: Any, model: Any) -> dict[str, Any]:
    """Largest differences of M, bias and gaps, and contacts of MuJoCo without a partner."""
    import jax
    import mujoco

    import jaxcontact as jc
    from jaxcontact.terms.contacts import contact_gaps

    rng, data = np.random.default_rng(SEED), mujoco.MjData(mj)
    mj.opt.ccd_tolerance, mj.opt.ccd_iterations = 1e-10, 200
    dynamics = jax.jit(lambda model, s: (jc.mass_matrix(model, s.q), jc.bias(model, s)))
    worst: dict[str, Any] = {"M": 0.0, "bias": 0.0}
    poses, meetings, placed = [], [], []
    for _ in range(POSES):
        data.qpos[:], data.qvel[:] = _random_pose(mj, rng), rng.normal(size=mj.nv)
        mujoco.mj_forward(mj, data)
        state = jc.State(q=np.array(data.qpos), v=np.array(data.qvel), t=np.array(0.0))
        M, bias = (np.asarray(x) for x in dynamics(model, state))
        expected = np.zeros((mj.nv, mj.nv))
        for row, basis in zip(expected, np.eye(mj.nv), strict=True):
            mujoco.mj_mulM(mj, data, row, basis)
        worst["M"] = max(worst["M"], _relative(M, expected))
        # A bias may be zero but for rounding.
        size = np.max(np.abs(expected)) * np.max(np.abs(data.qvel)) ** 2
        worst["bias"] = max(worst["bias"], _relative(bias, data.qfrc_bias - data.qfrc_passive, size))
        poses.append(state.q)
        meetings.append(_deepest(mj, data))
        placed.append(_place_geoms(mj, data))
    meeting = sorted({tuple(sorted(names)) for pose in meetings for names in pose})
    drawn = rng.permutation(len(meeting))[:COMPARED]
    met = _with_pairs(model, {frozenset(meeting[k]) for k in drawn})
    owner = _candidates_of_pairs(met)
    gaps = jax.jit(contact_gaps)
    found = [np.asarray(gaps(met, q)) if owner else np.zeros(0) for q in poses]
    alone = [names for names in meeting if frozenset(names) not in _candidates_of_pairs(model)]
    contacts = sum(map(len, meetings))
    worst |= {"contacts": contacts, "pairs_met": len(meeting), "alone": len(alone)}
    return worst | _compare_gaps(owner, found, meetings, placed, float(mj.stat.extent))


def _deepest(mj: Any, data: Any) -> dict[frozenset[str], float]:
    """The deepest gap of every pair that MuJoCo has in contact."""
    from jaxcontact.io.mjcf_pairs import geom_name

    deepest: dict[frozenset[str], float] = {}
    for contact in data.contact:
        names = frozenset(geom_name(mj, int(geom)) for geom in contact.geom)
        gap = float(contact.dist - contact.includemargin)
        deepest[names] = min(gap, deepest.get(names, np.inf))
    return deepest


def _with_pairs(model: Any, meeting: set[frozenset[str]]) -> Any:
    """The model with only these pairs, as far as it has them."""
    structure, owner = model.structure, _candidates_of_pairs(model)
    pairs = tuple(pair for pair in structure.pairs if frozenset(pair) in meeting)
    rows = np.concatenate([np.zeros(0, int), *(owner[frozenset(pair)] for pair in pairs)])
    numbers = {
        name: None if getattr(model.params, name) is None else getattr(model.params, name)[rows]
        for name in ("mu", "margin", "spin_friction")
    }
    system = dataclasses.replace(model.system, structure=dataclasses.replace(structure, pairs=pairs))
    return model.replace(system=system, params=model.params.replace(**numbers))


class Placed(NamedTuple):
    """A geom in the world: axes (3, 3) and centre, and of a box or a mesh its corners (n, 3) there."""

    kind: str
    size: np.ndarray
    axes: np.ndarray
    centre: np.ndarray
    corners: np.ndarray | None

    def reach(self, direction: np.ndarray) -> float:
        """Return how far the geom reaches along a unit vector of the world, m."""
        if self.corners is not None:
            return float(np.max(self.corners @ direction))
        local, (first, second, _) = direction @ self.axes, self.size
        extra = {
            "sphere": first,
            "capsule": first + second * abs(local[2]),
            "cylinder": first * np.hypot(local[0], local[1]) + second * abs(local[2]),
            "ellipsoid": np.linalg.norm(self.size * local),
        }[self.kind]
        return float(self.centre @ direction + extra)


def _place_geoms(mj: Any, data: Any) -> dict[str, Placed]:
    """Place every convex geom in contact, by name."""
    from jaxcontact.io.mjcf_hulls import hull_of
    from jaxcontact.io.mjcf_pairs import geom_name, kind_of

    placed = {}
    for geom in sorted({int(geom) for contact in data.contact for geom in contact.geom}):
        kind, mesh, corners = kind_of(mj, geom), int(mj.geom_dataid[geom]), None
        if kind == "box":
            signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1]), axis=-1).reshape(-1, 3)
            corners = signs * mj.geom_size[geom]
        elif kind == "mesh":
            start = int(mj.mesh_vertadr[mesh])
            points = np.asarray(mj.mesh_vert[start : start + int(mj.mesh_vertnum[mesh])], float)
            corners = hull_of(points).corners
        elif kind not in ("sphere", "capsule", "cylinder", "ellipsoid"):
            continue
        axes, centre = data.geom_xmat[geom].reshape(3, 3).copy(), data.geom_xpos[geom].copy()
        corners = None if corners is None else corners @ axes.T + centre
        placed[geom_name(mj, geom)] = Placed(kind, mj.geom_size[geom], axes, centre, corners)
    return placed


def _depth_by_directions(first: Placed, second: Placed) -> float:
    """Minus the depth of two convex geoms: their smallest overlap, searched from many directions."""
    from scipy.optimize import minimize

    def overlap(direction: np.ndarray) -> float:
        unit = direction / np.linalg.norm(direction)
        return first.reach(unit) + second.reach(-unit)

    starts = np.random.default_rng(SEED).normal(size=(DIRECTIONS, 3))
    nearest = sorted(starts, key=overlap)[:12]
    options = {"xatol": 1e-12, "fatol": 1e-15, "maxiter": 4000}
    return -min(minimize(overlap, x, method="Nelder-Mead", options=options).fun for x in nearest)


def _depth_by_differences(first: np.ndarray, second: np.ndarray) -> float | None:
    """Minus the depth of two overlapping polytopes: the nearest face of the hull of all differences."""
    from scipy.spatial import ConvexHull

    if len(first) * len(second) > MAX_DIFFERENCES:
        return None
    hull = ConvexHull((first[:, None] - second[None]).reshape(-1, 3))
    return float(np.max(hull.equations[:, 3]))


def _compare_gaps(
    owner: dict[frozenset[str], np.ndarray],
    found: list[np.ndarray],
    meetings: list[dict[frozenset[str], float]],
    placed: list[dict[str, Placed]],
    size: float,
) -> dict[str, Any]:
    """The largest difference of the deepest gaps of pairs, by the size of the robot, and its pair.

    Boxes and meshes that overlap are compared with the hull of the differences of their corners, which is
    exact. All others are compared with MuJoCo, and where the two differ with the smallest overlap that a
    search finds.
    """
    worst, mujoco_errors, example = 0.0, [], ""
    for gaps, meeting, geoms in zip(found, meetings, placed, strict=True):
        for names, gap in meeting.items():
            if names not in owner:
                continue
            nearest = float(gaps[owner[names]].min())
            exact = _exact_gap([geoms[name] for name in names if name in geoms], gap, nearest, size)
            expected = gap if exact is None else exact
            mujoco_errors += [] if exact is None else [abs(gap - exact)]
            if abs(nearest - expected) > worst:
                worst = abs(nearest - expected)
                other = "MuJoCo" if exact is None else "smallest overlap"
                example = f"{' and '.join(sorted(names))}: {nearest:.6g}, {other} {expected:.6g} m"
    mujoco_gap = max(mujoco_errors) / size if mujoco_errors else None
    return {"gap": worst / size, "mujoco_gap": mujoco_gap, "example": example}


def _exact_gap(geoms: list[Placed], gap: float, nearest: float, size: float) -> float | None:
    """Return the exact gap of two geoms that overlap, None where it is MuJoCo's or must be."""
    if len(geoms) < 2 or gap >= 0.0:
        return None
    corners = [geom.corners for geom in geoms]
    exact = None if any(x is None for x in corners) else _depth_by_differences(*corners)
    if exact is None and abs(nearest - gap) > GAP_TOLERANCE * size:
        exact = _depth_by_directions(*geoms)
    return exact


def _candidates_of_pairs(model: Any) -> dict[frozenset[str], np.ndarray]:
    """The candidates of every pair of shapes."""
    from jaxcontact.geometry import num_contacts

    structure, start, owner = model.structure, 0, {}
    table = structure.shape_table
    for pair in structure.pairs:
        count = num_contacts(structure.dim, table, (pair,))
        owner[frozenset(pair)] = np.arange(start, start + count)
        start += count
    return owner


def _random_pose(mj: Any, rng: np.random.Generator) -> np.ndarray:
    """A pose near the reference, with joints in their ranges."""
    import mujoco

    q = mj.qpos0.copy()
    mujoco.mj_integratePos(mj, q, SPREAD * rng.normal(size=mj.nv), 1.0)
    for j in np.flatnonzero(mj.jnt_limited):
        if mj.jnt_type[j] >= 2:  # slide, hinge
            low, high = mj.jnt_range[j]
            q[mj.jnt_qposadr[j]] = np.clip(q[mj.jnt_qposadr[j]], low, high)
    return q


def _relative(found: np.ndarray, expected: np.ndarray, size: float = 0.0) -> float:
    return float(np.max(np.abs(found - expected)) / (max(np.max(np.abs(expected)), size) or 1.0))


def as_table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table, with its summary first."""
    compared = [row for row in rows if "gap" in row]
    whole = sum(row.get("loads") == "whole" for row in rows)
    met = sum(row["pairs_met"] for row in compared)
    alone = sum(row["alone"] for row in compared)
    within = sum(row["gap"] <= GAP_TOLERANCE for row in compared)
    lines = [
        f"{whole} of {len(rows)} files load whole, with all their contacts. {len(compared)} of them were "
        f"compared at {POSES} poses: of {met} pairs that MuJoCo has in contact {alone} have no partner, and "
        f"the gaps of {within} files ({COMPARED} random pairs each) agree within {GAP_TOLERANCE:g} of the "
        "size. Errors of M and bias are relative, gaps by the size. Boxes and meshes that overlap meet "
        "the hull of the differences of their corners, which is exact, and so do gaps of MuJoCo. Other pairs "
        "meet MuJoCo, and where the two differ the smallest overlap that a search over directions finds.",
        "",
        "| file | loads | nv | pairs | candidates | M | bias | gap | MuJoCo's gap | met (alone) | left out |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_table_row, rows)])


def _table_row(row: dict[str, Any]) -> str:
    name = f"| {row['package']}: {row['file'].rpartition('/')[2]} |"
    if "error" in row:
        return f"{name} error: {row['error'][:80]} | | | | | | | | | |"
    cells = [row["loads"], str(row["nv"]), str(row.get("pairs", "")), str(row.get("candidates", ""))]
    if "gap" in row:
        other = "-" if row.get("mujoco_gap") is None else f"{row['mujoco_gap']:.0e}"
        cells += [f"{row[key]:.0e}" for key in ("M", "bias", "gap")]
        cells += [other, f"{row['pairs_met']} ({row['alone']})"]
    else:
        cells += [""] * 5
    out = row.get("refused") or "; ".join(row.get("left_out", []))
    return f"{name} {' | '.join([*cells, out.replace('|', ' ')[:80]])} |"


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """Make the parser of a command that measures files one by one and continues where it stopped."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)
    parser.add_argument("-k", default="", metavar="REGEX", help="only files whose package or path matches")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the packages are unpacked")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="lines so far, which are not measured again"
    )
    parser.add_argument("--put", type=Path, metavar="PAGE", help="put the table on a page, at its marks")
    parser.add_argument("--one", type=Path, metavar="PATH", help=argparse.SUPPRESS)
    return parser


def rows_and_files(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Read the lines so far; return them, and packages and files that match and are still to be measured."""
    stored = options.json.read_text().splitlines() if options.json and options.json.is_file() else []
    rows = [json.loads(line) for line in stored]
    measured = {(row["package"], row["file"]) for row in rows}
    files = [file for file in listed() if re.search(options.k, " ".join(file)) and file not in measured]
    return rows, files


def write_line(row: dict[str, Any], options: argparse.Namespace) -> None:
    """Show a line, and add it to the file of lines."""
    print(json.dumps(row), file=sys.stderr, flush=True)
    if options.json:
        with options.json.open("a") as file:
            file.write(json.dumps(row) + "\n")


def main(arguments: list[str]) -> int:
    """Measure the files that match, each in a process of its own, and print the table."""
    parser = parser_of("robot_files", __doc__)
    parser.add_argument("--loads", action="store_true", help="only load the files, which takes minutes")
    add_cluster_option(parser)
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(measure(options.one, options.loads)))
        return 0
    rows, wanted = rows_and_files(options)
    cases = [(package, name, options.folder, options.loads) for package, name in wanted]
    for row in runner.results_of(_measure_apart, cases, options):
        rows.append(row)
        write_line(row, options)
    table = as_table(rows)
    head = runner.header()
    told = "float64, " + ", ".join(f"{key} {head[key]}" for key in ("jax", "mujoco", "date", "commit"))
    print(f"{told}\n\n{table}")
    if options.put:
        report.put(options.put, "robot_files", f"{told}.\n\n{table}")
    return 0


def _measure_apart(package: str, name: str, folder: Path, only_load: bool) -> dict[str, Any]:
    """Measure a file in a process of its own."""
    path = path_of(package, name, folder)
    row = {"package": package, "file": name}
    return row | ({"error": "package is not there"} if path is None else _in_a_process(path, only_load))


def _in_a_process(path: Path, only_load: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks", "robot_files", "--one", str(path)]
    command += ["--loads"] if only_load else []
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {SECONDS} s"}
    if ran.returncode:
        return {"error": (ran.stderr.strip().splitlines() or ["no message"])[-1]}
    result: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

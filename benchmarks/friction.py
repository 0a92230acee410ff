"""`python -m benchmarks friction [--problems FOLDER] [--figure FILE] [--put PAGE]`: friction problems.

Heaps and plates made here, or every `.npz` (W, q, mu, dim), Siconos text and FCLIB file of FOLDER. One
residual judges all answers, De Saxce's natural map or that of the associated law. Performance profiles give
the share solved within a factor of the best time. Siconos runs in a process of its own.
A peer that is not installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxcontact as jc
from benchmarks import report
from jaxcontact.batching.all_cores import num_cores

LEVELS = (1e-4, 1e-8)
FACTORS = (1.0, 2.0, 5.0, 20.0, 100.0, np.inf)
HEADINGS = {"coulomb": "Coulomb's law", "associated": "Associated law"}
PYTHONS = ("/usr/bin/python3", "python3")
COPIES, COPIED_ROWS = 1000, 200  # problems of a batch, and their largest number of rows
SINGLES = 3  # of these copies, which Siconos solves
REPEATS, LONG = 5, 0.2  # calls of a problem that are timed, and more until so many seconds have passed


class Answer(NamedTuple):
    """Impulses, seconds, and whether a status promises success."""

    r: np.ndarray
    seconds: float
    promised: bool


Answers = dict[str, list[list[Answer]]]  # by solver and problem, with every tolerance that was asked for


def plate(rng: np.random.Generator, nc: int) -> jc.io.FrictionProblem:
    """A free body that falls with contacts in one plane."""
    x = np.concatenate([rng.uniform(-1.0, 1.0, (nc, 2)), np.full((nc, 1), -0.3)], axis=1)
    arms = np.cross(np.eye(3)[None, [2, 0, 1]], -x[:, None])
    J = np.concatenate([np.broadcast_to(np.eye(3)[[2, 0, 1]], (nc, 3, 3)), -arms], axis=2).reshape(-1, 6)
    v = rng.normal(size=6) - 2.0 * np.eye(6)[2]
    return jc.io.FrictionProblem(J @ J.T, J @ v, np.full(nc, 0.6), 3)


def heap(rng: np.random.Generator, nc: int) -> jc.io.FrictionProblem:
    """Points of masses over two decades, pushed together in pairs."""
    bodies = max(2, nc // 2)
    mass = np.repeat(10.0 ** rng.uniform(-1.0, 1.0, bodies), 3)
    J = np.zeros((3 * nc, 3 * bodies))
    for k in range(nc):
        a, b = rng.choice(bodies, 2, replace=False)
        frame = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        J[3 * k : 3 * k + 3, 3 * a : 3 * a + 3], J[3 * k : 3 * k + 3, 3 * b : 3 * b + 3] = frame, -frame
    return jc.io.FrictionProblem((J / mass) @ J.T, J @ rng.normal(size=3 * bodies), np.full(nc, 0.4), 3)


def collection(folder: Path | None) -> dict[str, jc.io.FrictionProblem]:
    """Problems by name: those of the folder, or generated ones."""
    rng = np.random.default_rng(0)
    if folder:
        return dict(read(folder))
    problems = {f"plate {nc}": plate(rng, nc) for nc in (1, 4, 16)}
    problems |= {f"heap {nc}": heap(rng, nc) for nc in (4, 16, 64)}
    return problems


def read(folder: Path) -> Iterator[tuple[str, jc.io.FrictionProblem]]:
    """Read the problems of a folder."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npz":
            data = np.load(path)
            dim = int(data["dim"])
            mu = np.broadcast_to(data["mu"], data["q"].size // dim)
            yield path.stem, jc.io.FrictionProblem(data["W"], data["q"], mu, dim)
        elif path.suffix in (".dat", ".hdf5", ".h5"):
            yield path.stem, jc.io.load_friction_problem(path)


def dense(problem: jc.io.FrictionProblem) -> np.ndarray:
    """W as one matrix."""
    if isinstance(problem.W, tuple):
        return problem.W[1] @ np.linalg.solve(problem.W[0], problem.W[1].T)
    return problem.W


def residual(problem: jc.io.FrictionProblem, r: np.ndarray, law: str = "coulomb") -> float:
    """The natural map of a law as a velocity, over the largest |q|; numpy alone."""
    W, nc = dense(problem), len(problem.mu)
    own = np.abs(np.diag(W)).reshape(nc, -1).max(axis=1)[:, None]
    u, push = (W @ r + problem.q).reshape(nc, -1), own * r.reshape(nc, -1)
    asked = push - u
    if law == "coulomb":
        asked[:, 0] -= problem.mu * np.linalg.norm(u[:, 1:], axis=1)
    size, mu = np.linalg.norm(asked[:, 1:], axis=1), problem.mu
    inside = size <= mu * asked[:, 0]
    normal = np.where(inside, asked[:, 0], np.maximum(asked[:, 0] + mu * size, 0.0) / (1.0 + mu**2))
    share = np.where(inside, 1.0, mu * normal / np.where(size > 0, size, 1.0))
    granted = np.concatenate([normal[:, None], share[:, None] * asked[:, 1:]], axis=1)
    worst = np.abs(granted - push).max() / max(np.abs(problem.q).max(), np.finfo(float).tiny)
    return float(worst) if np.isfinite(worst) else np.inf


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The value of a call, and the shortest time of some calls after the first."""
    value, shortest, _ = timed_twice(call)
    return value, shortest


def timed_twice(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The value of a call, its shortest time, and its shortest processor time: others use the cores, too."""
    value, shortest, busy, count, start = call(), np.inf, np.inf, 0, time.perf_counter()
    while time.perf_counter() < start + LONG or (count < REPEATS and not shortest > LONG):
        began, used = time.perf_counter(), time.process_time()
        value = call()
        shortest, busy = min(shortest, time.perf_counter() - began), min(busy, time.process_time() - used)
        count += 1
    return value, shortest, busy


def ours(problems: dict[str, jc.io.FrictionProblem], law: str) -> Answers:
    """Answers of `jc.solve_friction`."""
    answers = []
    for problem in problems.values():
        W, q, mu = problem.W, problem.q, np.asarray(problem.mu)
        ((r, _), info), seconds = timed(
            lambda W=W, q=q, mu=mu, dim=problem.dim: jc.solve_friction(W, q, mu, dim=dim, law=law)
        )
        answers.append([Answer(r, seconds, int(info.status) == 0)])
    return {"solve_friction": answers}


def copies(problem: jc.io.FrictionProblem, count: int) -> np.ndarray:
    """Rates (count, n) that differ from q by 1 % in the range of W."""
    moves = np.random.default_rng(0).normal(size=(count, problem.q.size)) @ dense(problem).T
    size = np.abs(moves).max(axis=1, keepdims=True)
    return problem.q + 0.01 * np.abs(problem.q).max() * moves / np.where(size > 0, size, 1.0)


def copy_lines(problems: dict[str, jc.io.FrictionProblem], seconds: float) -> list[str]:
    """Lines of a table of many copies at once; Siconos' time is its shortest of some copies, one by one."""
    small = {name: problem for name, problem in problems.items() if problem.q.size <= COPIED_ROWS}
    rates = {name: copies(problem, COPIES) for name, problem in small.items()}
    singles = {
        f"{name} {k}": problem._replace(q=rates[name][k])
        for name, problem in small.items()
        for k in range(SINGLES)
    }
    theirs = judge(singles, by_siconos(singles, seconds), "coulomb")
    if not theirs:
        return []
    single = theirs["Siconos, best"].seconds[1].reshape(-1, SINGLES).mean(axis=1)
    lines = [f"{COPIES} copies at once, q moved by 1 %, beside Siconos' shortest times of {SINGLES} of them:"]
    lines[0] += (
        " The last column has the processor time of all threads over the number of cores: without other work."
    )
    heads = "problem | contacts | ms | solved | of Siconos | by processor time"
    lines += ["", f"| {heads} |", "|---|---|---|---|---|---|"]
    for (name, problem), time_of_one in zip(small.items(), single, strict=True):
        W, mu, q, dim = dense(problem), np.asarray(problem.mu), rates[name], problem.dim
        (_, info), spent, used = timed_twice(
            lambda W=W, q=q, mu=mu, dim=dim: jc.solve_friction(W, q, mu, dim=dim)
        )
        ratios = [x / (COPIES * time_of_one) for x in (spent, used / num_cores())]
        cells = f"{1e3 * spent:.3g} | {np.mean(info.status == 0):.3f} | {ratios[0]:.2f} | {ratios[1]:.2f}"
        lines.append(f"| {name} | {len(problem.mu)} | {cells} |")
    return [*lines, ""]


def by_clarabel(problems: dict[str, jc.io.FrictionProblem]) -> Answers:
    """Answers of Clarabel for the associated law, a cone program."""
    try:
        import clarabel
        from scipy import sparse
    except ModuleNotFoundError:
        print("Clarabel: not installed")
        return {}
    answers = []
    for problem in problems.values():
        W, q, dim = dense(problem), problem.q, problem.dim
        signs = [np.r_[-m, -np.ones(dim - 1)] for m in problem.mu]
        cones = sparse.diags_array(np.concatenate(signs)).tocsc()
        attempts = []
        for tolerance in (1e-6, 1e-9, 1e-13):
            settings = clarabel.DefaultSettings()
            settings.verbose = False
            settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
            upper, kinds = sparse.csc_matrix(np.triu(0.5 * (W + W.T))), [clarabel.SecondOrderConeT(dim)]
            data = (upper, q, sparse.csc_matrix(cones), np.zeros(q.size), kinds * len(problem.mu), settings)
            solution, seconds = timed(lambda data=data: clarabel.DefaultSolver(*data).solve())
            attempts.append(Answer(np.array(solution.x), seconds, False))
        answers.append(attempts)
    return {"Clarabel": answers}


def by_siconos(problems: dict[str, jc.io.FrictionProblem], seconds: float) -> Answers:
    """Answers by every solver of Siconos, with `seconds` for each call; empty without Siconos."""
    script = Path(__file__).with_name("siconos_process.py")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        arrays = {"count": np.array(len(problems))}
        for k, problem in enumerate(problems.values()):
            arrays |= {f"W_{k}": dense(problem), f"q_{k}": problem.q, f"mu_{k}": problem.mu}
            arrays[f"dim_{k}"] = np.array(problem.dim)
        np.savez(source, **arrays)
        for python in PYTHONS:
            command = [python, str(script), str(source), str(target), str(seconds)]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError:
                continue
            if done.returncode == 0:
                return siconos_answers(np.load(target), len(problems))
    print("Siconos: not installed for", ", ".join(PYTHONS))
    return {}


def siconos_answers(data: Any, count: int) -> Answers:
    """Read the answers of `siconos_process.py`; "Siconos, best" has those of all its solvers."""
    names = [f"Siconos {name}" for name in data["names"]]
    answers: Answers = {name: [] for name in ("Siconos, best", *names)}
    for k in range(count):
        pairs = zip(data[f"r_{k}"], data[f"seconds_{k}"], strict=True)
        table = [[Answer(r, float(t), False) for r, t in zip(*line, strict=True)] for line in pairs]
        answers["Siconos, best"].append([answer for line in table for answer in line])
        for i, name in enumerate(names):
            answers[name].append([line[i] for line in table])
    return answers


class Judged(NamedTuple):
    """The smallest residual (problems,), and the shortest times within each level (levels, problems)."""

    error: np.ndarray
    seconds: np.ndarray


def judge(problems: dict[str, jc.io.FrictionProblem], answers: Answers, law: str) -> dict[str, Judged]:
    """Judge all answers by one residual."""
    judged = {}
    for name, each in answers.items():
        errors, times = [], []
        for problem, attempts in zip(problems.values(), each, strict=True):
            pairs = [(residual(problem, answer.r, law), answer.seconds) for answer in attempts]
            errors.append(min(error for error, _ in pairs))
            times.append([min([t for e, t in pairs if e <= level], default=np.inf) for level in LEVELS])
        judged[name] = Judged(np.array(errors), np.array(times).T)
    return judged


def shares(times: dict[str, np.ndarray], factors: Any) -> dict[str, list[float]]:
    """The share of problems that every solver solves within each factor of the best time of any."""
    best = np.min(np.stack(list(times.values())), axis=0)
    best = np.where(np.isfinite(best), best, 0.0)
    return {
        name: [float(np.mean(np.isfinite(row) & (row <= factor * best))) for factor in factors]
        for name, row in times.items()
    }


def profile_lines(times: dict[str, np.ndarray]) -> list[str]:
    """Lines of a table of `shares`."""
    heads = ["any" if np.isinf(factor) else f"{factor:g} x" for factor in FACTORS]
    lines = ["| solver | " + " | ".join(heads) + " |", "|---|" + "---|" * len(FACTORS)]
    with np.errstate(invalid="ignore"):
        for name, row in shares(times, FACTORS).items():
            lines.append(f"| {name} | " + " | ".join(f"{share:.2f}" for share in row) + " |")
    return lines


def answer_lines(problems: dict[str, jc.io.FrictionProblem], judged: dict[str, Judged]) -> list[str]:
    """Lines of a table of every problem: the time within the sharper level, and the smallest residual."""
    lines = ["| problem | contacts | " + " | ".join(judged) + " |", "|---|---|" + "---|" * len(judged)]
    for k, (title, problem) in enumerate(problems.items()):
        cells = [
            f"{1e3 * each.seconds[1, k]:.3g} ms, {each.error[k]:.0e}"
            if np.isfinite(each.seconds[1, k])
            else f"-, {each.error[k]:.0e}"
            for each in judged.values()
        ]
        lines.append(f"| {title} | {len(problem.mu)} | " + " | ".join(cells) + " |")
    return lines


def draw(path: Path, by_law: dict[str, dict[str, Judged]]) -> None:
    """Draw the profiles of both laws at the sharper level."""
    draw_profiles(
        path,
        {
            law: shares({name: each.seconds[-1] for name, each in judged.items()}, FACTORS)
            for law, judged in by_law.items()
        },
    )


def draw_profiles(path: Path, by_law: dict[str, dict[str, list[float]]]) -> None:
    """Draw the shares solved over the time allowed, by law and solver, in percent."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(by_law), figsize=(10, 4.2), sharey=True, layout="constrained")
    for axes, (law, profiles) in zip(panels, by_law.items(), strict=True):
        lowest = 200.0  # of the labels so far, which keep a distance
        for name, row in sorted(profiles.items(), key=lambda item: -item[1][-1]):
            (line,) = axes.plot(range(len(row)), 100 * np.array(row), "o-", ms=4)
            lowest = min(100 * row[-1], lowest - 5.5)
            axes.text(len(row) - 0.85, lowest, name, color=line.get_color(), va="center")
        ticks = ["any time" if np.isinf(factor) else f"{factor:g} x" for factor in FACTORS]
        axes.set_xticks(range(len(FACTORS)), ticks)
        axes.set(xlim=(-0.2, len(FACTORS) + 0.9), ylim=(-2, 105), title=HEADINGS[law])
        axes.set_xlabel("time allowed, in multiples of the quickest solver's")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"problems solved to {LEVELS[-1]:g} (%)")
    solved = min(profiles["solve_friction"][-1] for profiles in by_law.values())
    figure.suptitle(f"Given time, solve_friction solves {100 * solved:.0f} % of the problems by both laws")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def report_lines(
    problems: dict[str, jc.io.FrictionProblem], law: str, judged: dict[str, Judged]
) -> list[str]:
    """Lines of the profiles of a law."""
    counts = [
        f"{name} {int(np.sum(each.error <= LEVELS[1]))} (largest residual {each.error.max():.0e})"
        for name, each in judged.items()
    ]
    lines = [
        f"Law {law}, {len(problems)} problems; solved within {LEVELS[1]:g}: " + ", ".join(counts) + ".",
        "",
    ]
    for k, level in enumerate(LEVELS):
        lines += [f"Share solved within {level:g}, by time over the best:", ""]
        lines += [*profile_lines({name: each.seconds[k] for name, each in judged.items()}), ""]
    return lines


def main(arguments: list[str]) -> int:
    """Print the answers and the profiles."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks friction", description=__doc__)
    parser.add_argument("--problems", type=Path, metavar="FOLDER", help="these problems")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw the profiles there")
    parser.add_argument("--put", type=Path, metavar="PAGE", help="put the profiles on a page, at its marks")
    parser.add_argument("--seconds", type=float, default=20.0, help="for a call of Siconos")
    options = parser.parse_args(arguments)
    problems = collection(options.problems)
    print("Drake: its SAP takes a plant, not matrices; left out")
    coulomb = ours(problems, "coulomb") | by_siconos(problems, options.seconds)
    associated = ours(problems, "associated") | by_clarabel(problems)
    by_law = {
        "coulomb": judge(problems, coulomb, "coulomb"),
        "associated": judge(problems, associated, "associated"),
    }
    busy = f"{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.0f}"
    lines = [
        f"Measured on {busy}; a call of Siconos ends after {options.seconds:g} s and then counts as failed.",
        "",
    ]
    lines += [line for law, judged in by_law.items() for line in report_lines(problems, law, judged)]
    wrong = {
        law: sum(
            answer[0].promised and error > LEVELS[1]
            for answer, error in zip(
                answers["solve_friction"], by_law[law]["solve_friction"].error, strict=True
            )
        )
        for law, answers in (("coulomb", coulomb), ("associated", associated))
    }
    if "Siconos, best" in by_law["coulomb"]:
        lines += copy_lines(problems, options.seconds)
    lines.append("Wrong with status 0: " + ", ".join(f"{law} {count}" for law, count in wrong.items()) + ".")
    for law, judged in by_law.items():
        print("\n".join([f"Law {law}:", "", *answer_lines(problems, judged), ""]))
    print("\n".join(lines))
    if options.put:
        report.put(options.put, "friction", "\n".join(lines))
    if options.figure:
        draw(options.figure, by_law)
    return int(any(wrong.values()))

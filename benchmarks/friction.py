"""`python -m benchmarks friction [--problems FOLDER] [--figure FILE]`: friction problems, by us and by peers.

Heaps and plates made here, and every `.npz` (W, q, mu, dim), Siconos text and FCLIB file of FOLDER. One
residual judges all answers, that of De Saxce's natural map, and a table tells the share solved within a
factor of the best time. Siconos runs in a process of its own, with the first Python that has it. What is
not installed is left out, line by line.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import jaxcontact as jc

LEVELS = (1e-4, 1e-8)
FACTORS = (1.0, 2.0, 5.0, 20.0, 100.0, np.inf)
PYTHONS = ("/usr/bin/python3", "python3")
Solver = Callable[[jc.io.FrictionProblem], tuple[np.ndarray, float, bool]]


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
    """Problems by name."""
    rng = np.random.default_rng(0)
    problems = {f"plate {nc}": plate(rng, nc) for nc in (1, 4, 16)}
    problems |= {f"heap {nc}": heap(rng, nc) for nc in (4, 16, 64)}
    for path in sorted(folder.iterdir()) if folder else ():
        if path.suffix == ".npz":
            data = np.load(path)
            problems[path.stem] = jc.io.FrictionProblem(
                data["W"],
                data["q"],
                np.broadcast_to(data["mu"], data["q"].size // data["dim"]),
                int(data["dim"]),
            )
        elif path.suffix in (".dat", ".hdf5", ".h5"):
            problems[path.stem] = jc.io.load_friction_problem(path)
    return problems


def dense(problem: jc.io.FrictionProblem) -> np.ndarray:
    """W as one matrix."""
    if isinstance(problem.W, tuple):
        return problem.W[1] @ np.linalg.solve(problem.W[0], problem.W[1].T)
    return problem.W


def residual(problem: jc.io.FrictionProblem, r: np.ndarray) -> float:
    """De Saxce's natural map as a velocity, over the largest |q|; numpy alone."""
    W, nc = dense(problem), len(problem.mu)
    own = np.abs(np.diag(W)).reshape(nc, -1).max(axis=1)[:, None]
    u, push = (W @ r + problem.q).reshape(nc, -1), own * r.reshape(nc, -1)
    asked = push - u
    asked[:, 0] -= problem.mu * np.linalg.norm(u[:, 1:], axis=1)
    size, mu = np.linalg.norm(asked[:, 1:], axis=1), problem.mu
    inside = size <= mu * asked[:, 0]
    normal = np.where(inside, asked[:, 0], np.maximum(asked[:, 0] + mu * size, 0.0) / (1.0 + mu**2))
    share = np.where(inside, 1.0, mu * normal / np.where(size > 0, size, 1.0))
    granted = np.concatenate([normal[:, None], share[:, None] * asked[:, 1:]], axis=1)
    worst = np.abs(granted - push).max() / max(np.abs(problem.q).max(), np.finfo(float).tiny)
    return float(worst) if np.isfinite(worst) else np.inf


def ours(problem: jc.io.FrictionProblem) -> tuple[np.ndarray, float, bool]:
    """Impulses, the least time of five once compiled, and whether the status promises success."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        (r, _), info = jax.block_until_ready(
            jc.solve_friction(problem.W, problem.q, problem.mu, dim=problem.dim)
        )
        times.append(time.perf_counter() - began)
    return np.asarray(r), min(times[1:]), int(info.status) == 0


def by_siconos(problems: dict[str, jc.io.FrictionProblem], seconds: float) -> dict[str, list[tuple]]:
    """Answers (r, seconds, promised) by solver, in the order of the problems; empty without Siconos."""
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
                done = subprocess.run(command, capture_output=True, text=True, timeout=4 * seconds)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0:
                data = np.load(target)
                return {
                    f"Siconos {name}": [
                        (data[f"r_{k}"][i], float(data[f"seconds_{k}"][i]), False)
                        for k in range(len(problems))
                    ]
                    for i, name in enumerate(data["names"])
                }
    print("Siconos: not installed for", ", ".join(PYTHONS))
    return {}


def profiles(times: dict[str, np.ndarray], solved: dict[str, np.ndarray]) -> list[str]:
    """Lines of a table: the share solved within each factor of the best time of any solver."""
    every = np.stack([np.where(solved[name], times[name], np.inf) for name in times])
    best = np.min(every, axis=0)
    lines = [
        "| solver | " + " | ".join("any" if np.isinf(f) else f"{f:g} x" for f in FACTORS) + " |",
        "|---|" + "---|" * len(FACTORS),
    ]
    for name, row in zip(times, every, strict=True):
        with np.errstate(invalid="ignore"):
            shares = [np.mean(np.isfinite(row) & (row <= factor * best)) for factor in FACTORS]
        lines.append(f"| {name} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return lines


def draw(path: Path, times: dict[str, np.ndarray], solved: dict[str, np.ndarray], title: str) -> None:
    """Draw the profile as curves."""
    import matplotlib.pyplot as plt

    every = np.stack([np.where(solved[name], times[name], np.inf) for name in times])
    best, factors = np.min(every, axis=0), np.geomspace(1.0, 1e4, 200)
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, row in zip(times, every, strict=True):
        shares = [np.mean(np.isfinite(row) & (row <= factor * best)) for factor in factors]
        axes.step(factors, shares, where="post", label=name)
    axes.set(xscale="log", xlabel="time over the best", ylabel="share solved", title=title, ylim=(0.0, 1.02))
    axes.legend()
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def main(arguments: list[str]) -> int:
    """Print the answers and the profiles."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks friction", description=__doc__)
    parser.add_argument("--problems", type=Path, metavar="FOLDER", help="also these problems")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw the profile within 1e-8 there")
    parser.add_argument("--seconds", type=float, default=300.0, help="for Siconos in all")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    problems = collection(options.problems)
    answers = {"solve_friction": [ours(problem) for problem in problems.values()]}
    answers |= by_siconos(problems, options.seconds)
    errors = {
        name: np.array([residual(p, a[0]) for p, a in zip(problems.values(), each, strict=True)])
        for name, each in answers.items()
    }
    times = {name: np.array([seconds for _, seconds, _ in each]) for name, each in answers.items()}
    print("| problem | contacts | " + " | ".join(answers) + " |\n|---|---|" + "---|" * len(answers))
    for k, (title, problem) in enumerate(problems.items()):
        cells = [f"{1e3 * times[name][k]:.2f} ms, {errors[name][k]:.0e}" for name in answers]
        print(f"| {title} | {len(problem.mu)} | " + " | ".join(cells) + " |")
    for level in LEVELS:
        print(f"\nWithin {level:g}, the share solved by time over the best:\n")
        print("\n".join(profiles(times, {name: each <= level for name, each in errors.items()})))
    wrong = sum(
        promised and error > LEVELS[1]
        for (_, _, promised), error in zip(answers["solve_friction"], errors["solve_friction"], strict=True)
    )
    print(f"\nWrong with status 0: {wrong} of {len(problems)}")
    if options.figure:
        solved = {name: each <= LEVELS[1] for name, each in errors.items()}
        draw(options.figure, times, solved, "friction problems within 1e-8")
    return int(wrong > 0)

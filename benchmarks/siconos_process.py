"""Siconos on the problems of a file, run by a Python that has it: `siconos_process.py IN OUT SECONDS`.

IN and OUT are npz files: W_k, q_k, mu_k, dim_k of problems k, and r_k, seconds_k (solvers,) with NaN for
failures. It imports nothing of this project.
"""

import sys
import time

import numpy as np

TOLERANCE = 1e-10


def solve(numerics, name, W, q, mu, dim, seconds):
    """Solve one problem by one solver; returns impulses and the least time of three."""
    space = "2D" if dim == 2 else "3D"
    if not hasattr(numerics, f"SICONOS_FRICTION_{space}_{name}"):
        return np.full(q.size, np.nan), np.nan
    least = np.inf
    for _ in range(3):
        problem = numerics.FrictionContactProblem(dim, mu.size, W.copy(), q.copy(), mu.copy())
        options = numerics.SolverOptions(getattr(numerics, f"SICONOS_FRICTION_{space}_{name}"))
        options.dparam[0], options.iparam[0] = TOLERANCE, 20000
        r, u = np.zeros(q.size), np.zeros(q.size)
        driver = numerics.fc2d_driver if dim == 2 else numerics.fc3d_driver
        began = time.perf_counter()
        driver(problem, r, u, options)
        least = min(least, time.perf_counter() - began)
        if least > seconds / 10:
            break
    return r, least


def main():
    import siconos.numerics as numerics

    source, target, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    data, results, began = np.load(source), {}, time.perf_counter()
    names = ("NSGS", "NSN_AC", "ADMM")
    for k in range(int(data["count"])):
        problem = [data[f"{key}_{k}"] for key in ("W", "q", "mu")]
        answers = []
        for name in names:
            late = time.perf_counter() - began > seconds
            answers.append(
                (np.full(problem[1].size, np.nan), np.nan)
                if late
                else solve(numerics, name, *problem, int(data[f"dim_{k}"]), seconds)
            )
        results[f"r_{k}"] = np.stack([r for r, _ in answers])
        results[f"seconds_{k}"] = np.array([t for _, t in answers])
    np.savez(target, names=np.array(names), **results)


if __name__ == "__main__":
    main()

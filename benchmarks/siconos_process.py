"""Siconos on the problems of a file, run by a Python that has it: `siconos_process.py IN OUT SECONDS`.

IN and OUT are npz files: W_k, q_k, mu_k, dim_k of problems k, and r_k, seconds_k (tolerances, solvers), NaN
for failures. Every call has a process of its own, which ends after SECONDS.
"""

import multiprocessing
import sys
import time

import numpy as np

TOLERANCES = (1e-5, 1e-10)  # asked of Siconos; the first is for the loose level of the profiles
ITERATIONS = {"NSGS": 100000, "NSN_AC": 200, "ADMM": 20000}
REPEATS, LONG = 5, 0.2  # calls that are timed, and more until so many seconds have passed


def solve(results, name, W, q, mu, dim, tolerance):
    """Send the impulses and the shortest time of some calls by one solver, from arrays to arrays, as ours."""
    import siconos.numerics as numerics

    space, shortest = "2D" if dim == 2 else "3D", np.inf
    solver = getattr(numerics, f"SICONOS_FRICTION_{space}_{name}", None)
    if solver is None:
        return
    driver = numerics.fc2d_driver if dim == 2 else numerics.fc3d_driver
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + LONG or (count < REPEATS and not shortest > LONG):
        began = time.perf_counter()
        problem = numerics.FrictionContactProblem(dim, mu.size, W, q, mu)
        options = numerics.SolverOptions(solver)
        options.dparam[0], options.iparam[0] = tolerance, ITERATIONS[name]
        r, u = np.zeros(q.size), np.zeros(q.size)
        driver(problem, r, u, options)
        shortest, count = min(shortest, time.perf_counter() - began), count + 1
    results.send((r, shortest))


def solve_apart(limit, *arguments):
    """Solve in a process that ends after `limit` seconds, or with Siconos."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.Process(target=solve, args=(sender, *arguments))
    child.start()
    sender.close()
    answer = np.full(arguments[2].size, np.nan), np.nan
    try:
        if receiver.poll(limit):
            answer = receiver.recv()
    except EOFError:
        pass
    child.kill()
    child.join()
    return answer


def main():
    """Solve all problems of a file by all solvers."""
    import siconos.numerics  # noqa: F401  loaded once, before processes part

    source, target, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
    data, results = np.load(source), {}
    for k in range(int(data["count"])):
        problem = [data[f"{key}_{k}"] for key in ("W", "q", "mu")]
        dim = int(data[f"dim_{k}"])
        answers = [
            [solve_apart(limit, name, *problem, dim, tolerance) for name in ITERATIONS]
            for tolerance in TOLERANCES
        ]
        results[f"r_{k}"] = np.array([[r for r, _ in line] for line in answers])
        results[f"seconds_{k}"] = np.array([[t for _, t in line] for line in answers])
    np.savez(target, names=np.array(list(ITERATIONS)), **results)


if __name__ == "__main__":
    main()

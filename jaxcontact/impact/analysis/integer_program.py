"""Mixed-integer linear programs by HiGHS in a process of their own; entry `solve_apart`.

HiGHS prints notes from C code that no option of SciPy stops. A process has a standard output of its own, so
nothing appears in the caller's, and other threads keep theirs. This file is also what that process runs.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class IntegerProgram(NamedTuple):
    """Minimise cost . x over matrix @ x <= limits and 0 <= x <= highest, x integer where `is_integer`.

    `options` are those of `scipy.optimize.milp`.
    """

    cost: np.ndarray
    matrix: Any  # dense or a sparse one of SciPy
    limits: np.ndarray
    highest: np.ndarray
    is_integer: np.ndarray
    options: dict[str, float]


Answer = tuple[np.ndarray | None, float | None]  # the best x, and the number that no cost . x goes below


def solve_apart(program: IntegerProgram) -> Answer:
    """Solve a program in a process; in this one, where HiGHS may print, if no process can be had."""
    import scipy

    folders = [str(Path(str(package.__file__)).parents[1]) for package in (np, scipy)]
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    command, problem = [sys.executable, "-P", __file__], pickle.dumps(tuple(program))
    surroundings = os.environ | {"PYTHONPATH": path}
    try:
        ran = subprocess.run(command, input=problem, capture_output=True, env=surroundings)
        answer: Answer = pickle.loads(ran.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):  # a frozen program has no interpreter of its own
        return solve(program)
    return answer


def solve(program: IntegerProgram) -> Answer:
    """Solve a program by HiGHS, in this process."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # imported late because its import is slow

    found = milp(
        program.cost,
        constraints=LinearConstraint(program.matrix, ub=program.limits),
        integrality=program.is_integer,
        bounds=Bounds(0.0, program.highest),
        options=program.options,
    )
    return found.x, found.mip_dual_bound


def main() -> None:
    """Solve the program on standard input, and write the answer to what was standard output."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    answer = solve(IntegerProgram(*pickle.load(sys.stdin.buffer)))
    with results:
        pickle.dump(answer, results)


if __name__ == "__main__":
    main()

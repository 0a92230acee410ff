"""Systems of strict linear inequalities on the host, by a linear program: `has_interior`."""

from __future__ import annotations

import numpy as np

INTERIOR = 1e-9  # a larger t is that of an interior, a smaller one is rounding


def has_interior(rows: np.ndarray) -> bool:
    """Tell whether some x has rows @ x > 0, of rows (r, k) of length one; without rows any x does."""
    from scipy.optimize import linprog  # inside the function, because the import takes long

    if not len(rows):
        return True
    k = rows.shape[1]
    # Largest t <= 1 with rows @ x >= t, |x| <= 1; x = 0 has t = 0.
    program = linprog(
        np.append(np.zeros(k), -1.0), A_ub=np.column_stack([-rows, np.ones(len(rows))]),
        b_ub=np.zeros(len(rows)), bounds=[(-1.0, 1.0)] * k + [(None, 1.0)],
    )  # fmt: skip
    return bool(program.status == 0 and -program.fun > INTERIOR)

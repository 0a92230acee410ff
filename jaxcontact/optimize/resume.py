"""The state of an optimisation on disk, from which a killed run resumes: entry functions `save`, `load`.

Owns the contents of the one file, which is replaced as a unit, and the check that it belongs to the current
run. Page: docs/understand/long-runs.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.io.state_file import load_state, save_state

FORMAT = "jaxcontact optimisation, 8"


@dataclasses.dataclass
class Steps:
    """The steps of a run so far.

    Attributes:
        state: of the optimizer.
        costs: (steps + 1,) at the start and after each step.
        residuals: (steps + 1,) largest violation at the same times.
        visited: (steps + 1, n) controls in their sizes at the same times.
        doubtful: whether the next step asks for the one-sided derivative.
        is_cut: whether the state is that of a later step than the last one.
        has_failed: whether the search ended because no step from its last point has a motion.
    """

    state: PyTree
    costs: list[float]
    residuals: list[float]
    visited: list[np.ndarray]
    doubtful: bool
    is_cut: bool = False
    has_failed: bool = False

    def until(self, num_steps: int) -> Steps:
        """Cut the run to its state after `num_steps` steps, for a run with no more steps."""
        first_steps, is_cut = slice(num_steps + 1), num_steps < len(self.costs) - 1
        return dataclasses.replace(
            self,
            costs=self.costs[first_steps],
            residuals=self.residuals[first_steps],
            visited=self.visited[first_steps],
            is_cut=is_cut,
            has_failed=self.has_failed and not is_cut,
        )


def save(path: Path, about: Mapping[str, object], run: Steps) -> None:
    """Write the steps of a run to a file, from which it can resume."""
    arrays = {f"state_{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(run.state))}
    names = ("costs", "residuals", "visited", "doubtful", "has_failed")
    arrays |= {name: np.array(getattr(run, name)) for name in names}
    save_state(path, about, arrays)


def load(path: Path, about: Mapping[str, object], state: PyTree) -> Steps | None:
    """Read the steps that `save` wrote; return None if there is no file.

    Args:
        about: properties that determine the current run; see `fingerprint`.
        state: of its optimizer at the start.

    Raises:
        ValueError: the file is damaged, or of another run.
    """
    data = load_state(path, about)
    return None if data is None else _read_steps(data, state)


def _read_steps(data: Mapping[str, np.ndarray], state: PyTree) -> Steps:
    leaves, tree = jax.tree.flatten(state)
    stored = [data[f"state_{i}"] for i in range(len(leaves))]
    restored = [
        array if isinstance(leaf, np.ndarray) else jnp.asarray(array, jnp.result_type(leaf))
        for array, leaf in zip(stored, leaves, strict=True)
    ]
    return Steps(
        state=jax.tree.unflatten(tree, restored),
        costs=data["costs"].tolist(),
        residuals=data["residuals"].tolist(),
        visited=list(data["visited"]),
        doubtful=bool(data["doubtful"]),
        has_failed=bool(data["has_failed"]),
    )

"""The state of an optimisation on disk: one file, replaced whole, so that a killed run goes on.

Owns the file's contents and the check that it belongs to the run at hand.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.io import fingerprint
from jaxcontact.io.atomic_files import replace_file

FORMAT = "jaxcontact optimisation, 2"


@dataclasses.dataclass
class Steps:
    """The steps of a run so far.

    Attributes:
        state: of the optimizer.
        costs: (steps + 1,) at the start and after each step.
        residuals: (steps + 1,) largest violation at the same times.
        visited: (steps + 1, n) controls in their sizes at the same times.
        doubtful: whether the next step asks for the one-sided derivative.
    """

    state: Any
    costs: list[float]
    residuals: list[float]
    visited: list[np.ndarray]
    doubtful: bool

    def until(self, num_steps: int) -> Steps:
        """The run as it was after `num_steps` steps, for one that takes no more of them."""
        kept = slice(num_steps + 1)
        return dataclasses.replace(
            self, costs=self.costs[kept], residuals=self.residuals[kept], visited=self.visited[kept]
        )


def save(path: Path, about: Mapping[str, Any], run: Steps) -> None:
    """Write everything a run needs to go on."""
    arrays: dict[str, Any] = {f"state_{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(run.state))}
    arrays |= {"about": np.array(json.dumps(about)), "doubtful": np.array(run.doubtful)}
    arrays |= {name: np.array(getattr(run, name)) for name in ("costs", "residuals", "visited")}
    replace_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def load(path: Path, about: Mapping[str, Any], state: Any) -> Steps | None:
    """What `save` wrote, or None where there is no file.

    Args:
        about: what determines the run at hand; see `fingerprint`.
        state: of its optimizer at the start.

    Raises:
        ValueError: the file is damaged, or of another run.
    """
    if not path.exists():
        return None
    try:
        with np.load(path) as file:
            data = {name: file[name] for name in file.files}
        there = json.loads(str(data["about"])) if "about" in data else {"format": None}
        if there["format"] != about["format"]:
            there, about = ({"format": each["format"]} for each in (there, about))
        differences = fingerprint.differences(there, about)
        run = None if differences else _steps(data, state)
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint: {path} cannot be read ({error}) and was left as it is") from None
    if differences:
        raise ValueError(
            f"checkpoint: {path} is of another run and was left as it is; these differ: "
            + ", ".join(differences)
        )
    return run


def _steps(data: Mapping[str, np.ndarray], state: Any) -> Steps:
    leaves, tree = jax.tree.flatten(state)
    kept = [jnp.asarray(data[f"state_{i}"], jnp.result_type(leaf)) for i, leaf in enumerate(leaves)]
    return Steps(
        state=jax.tree.unflatten(tree, kept),
        costs=data["costs"].tolist(),
        residuals=data["residuals"].tolist(),
        visited=list(data["visited"]),
        doubtful=bool(data["doubtful"]),
    )

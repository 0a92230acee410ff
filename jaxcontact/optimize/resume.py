"""The state of an optimisation on disk: one file, replaced whole, so that a killed run goes on.

Owns the file's contents and the check that it belongs to the run at hand.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def save(
    path: Path,
    start: jax.Array,
    s: jax.Array,
    state: Any,
    costs: list[float],
    residuals: list[float],
    visited: list[np.ndarray],
) -> None:
    """Write everything a run needs to go on, by renaming a temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    leaves: dict[str, Any] = {f"state_{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(state))}
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "wb") as file:
        np.savez(
            file, start=np.asarray(start), s=np.asarray(s), costs=np.array(costs),
            residuals=np.array(residuals), visited=np.array(visited), **leaves,
        )  # fmt: skip
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(
    path: Path, start: jax.Array, state: Any
) -> tuple[jax.Array, Any, list[float], list[float], list[np.ndarray]] | None:
    """What `save` wrote, or None where there is no file.

    Raises:
        ValueError: the file is damaged, or of a run from another start or with another optimizer.
    """
    if not path.exists():
        return None
    leaves, tree = jax.tree.flatten(state)
    try:
        with np.load(path) as data:
            found = {name: data[name] for name in data.files}
        kept = [found[f"state_{i}"] for i in range(len(leaves))]
        s, costs, residuals = found["s"], found["costs"].tolist(), found["residuals"].tolist()
        begin, visited = found["start"], list(found["visited"])
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint: {path} cannot be read ({error}) and was left as it is") from None
    same = np.array_equal(begin, np.asarray(start)) and f"state_{len(leaves)}" not in found
    same &= all(np.shape(a) == np.shape(b) for a, b in zip(kept, leaves, strict=True))
    if not same:
        raise ValueError(
            f"checkpoint: {path} is of another run (another start or optimizer) and was left as it is"
        )
    restored = jax.tree.unflatten(
        tree, [jnp.asarray(a, jnp.result_type(b)) for a, b in zip(kept, leaves, strict=True)]
    )
    return jnp.asarray(s), restored, costs, residuals, visited

"""A file of arrays that a run replaces again and again, with the items that determine the run: `StateFile`.

Owns `open_state`, which keeps other processes from the file; docs/understand/long-runs.md has the files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxcontact.io.atomic_files import lock_file
from jaxcontact.io.run_store import Items, Rows, check_same_run
from jaxcontact.io.sealed_arrays import read_arrays, write_arrays


@contextlib.contextmanager
def open_state(path: Path | None) -> Iterator[None]:
    """Keep other processes from a file that is replaced again and again; do nothing for None.

    Raises:
        ValueError: another process is writing to it.
    """
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock")
    with lock_file(lock, path):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def save_state(path: Path, about: Items, arrays: Rows) -> None:
    """Write all arrays that a run needs to resume, with the items `about` that determine the run.

    Raises:
        OSError: the file cannot be written; the old one stays.
    """
    write_arrays(path, {**arrays, "about": np.array(json.dumps(about))})


def load_state(path: Path, about: Items) -> dict[str, np.ndarray] | None:
    """Read the arrays that `save_state` wrote; return None if there is no file.

    Raises:
        ValueError: the file is damaged, or of another run.
    """
    try:
        arrays = read_arrays(path)
        stored = json.loads(str(arrays.pop("about")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"checkpoint: {path} cannot be read ({error}) and was left as it is") from None
    current = json.loads(json.dumps(about))
    if stored.get("format") != current.get("format"):
        stored, current = ({"format": description.get("format")} for description in (stored, current))
    check_same_run(f"{path} is of another run", stored, current)
    return arrays


class StateFile(NamedTuple):
    """A file of arrays that is replaced again and again, and the items that determine its run; or no file."""

    path: Path | None
    about: Items

    def load(self) -> dict[str, np.ndarray] | None:
        """Read the arrays as `load_state`; return None without a file."""
        return None if self.path is None else load_state(self.path, self.about)

    def save(self, arrays: Rows) -> None:
        """Write the arrays as `save_state`, if there is to be a file."""
        if self.path is not None:
            save_state(self.path, self.about, arrays)

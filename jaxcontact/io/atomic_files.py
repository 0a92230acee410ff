"""The atomic writer behind every checkpoint and record: a file is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Write a temporary file beside `path`, and rename it to `path` once it is on the disk.

    A reader sees the old file or the new one, at whatever moment the process ends.

    Args:
        path: of the file; a missing folder is created.
        write: writes the contents to the open binary file.

    Raises:
        OSError: the folder or the file cannot be written; the old file stays as it is.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_of(target)
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)  # puts the new name on the disk, too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def temporary_of(path: Path) -> Path:
    """Path of the temporary file that holds the contents while they are written; ignore one left behind."""
    return path.with_name(f"{path.name}.tmp")

"""The atomic writer of every checkpoint and record, and the lock that one process at a time holds."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Write a temporary file beside `path`, and rename it to `path` after it is on the disk.

    A reader sees the old file or the new one, even if the process ends at any moment.

    Args:
        path: of the file; a missing folder is created.
        write: writes the contents to the open binary file, which it may also read and seek in.

    Raises:
        OSError: the folder or the file cannot be written; the old file stays as it is.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{threading.get_native_id()}.tmp")
    try:
        with _new_file(temporary) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)  # puts also the new name on the disk
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_temporary_of(path: Path, name: str) -> bool:
    """Tell whether `name` is that of a temporary file of `path`, of a live process or of a killed one."""
    return re.fullmatch(re.escape(path.name) + r"\.\d+\.tmp", name) is not None


def open_no_link(path: Path, mode: str) -> IO[bytes]:
    """Open a file without a buffer; a link in its place is an OSError."""
    return open(path, mode, buffering=0, opener=lambda name, flags: os.open(name, flags | NO_FOLLOW, 0o666))


@contextlib.contextmanager
def lock_file(path: Path, what: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open the file `path`, made if it is missing, and lock it while the context lasts.

    The operating system holds the lock for as long as the process lives.

    Raises:
        ValueError: another process has the lock; the message says that it writes to `what`.
    """
    import fcntl  # POSIX only

    with open_no_link(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = os.fstat(file.fileno()).st_ino == path.stat(follow_symlinks=False).st_ino
        except (BlockingIOError, FileNotFoundError):
            alone = False
        if not alone:
            raise ValueError(f"checkpoint: another process is writing to {what}")
        yield file


NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # a flag of open: a link is an error; 0 on systems without it


def _new_file(path: Path) -> BinaryIO:
    """Create and open a new file, after removing a file of that name that a killed thread left."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_FOLLOW
    try:
        number = os.open(path, flags, 0o666)
    except FileExistsError:
        path.unlink()
        number = os.open(path, flags, 0o666)
    return os.fdopen(number, "w+b")

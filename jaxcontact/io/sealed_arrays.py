"""Named arrays in one `.npz` file with a digest: a file that a program or a worn disk changed is refused.

The SHA-256 of all bytes before it stands at the end of the file, as the comment of the zip archive that an
`.npz` file is; `numpy.load` also reads the file. Entry functions: `write_arrays` and `read_arrays`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import IO, BinaryIO

import numpy as np

from jaxcontact.io.atomic_files import replace_file

MARK = b"sha256:"  # begins the comment
LENGTH = len(MARK) + 64  # bytes of the comment
PIECE = 2**20  # bytes read at a time, which limits memory


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays and their digest to a file, completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """

    def write(file: BinaryIO) -> None:
        np.savez(file, allow_pickle=False, **arrays)
        file.seek(-2, os.SEEK_END)  # an archive ends with the length of its comment
        file.write(LENGTH.to_bytes(2, "little"))
        size = file.tell()
        file.seek(0)
        digest = _digest(file, size)
        file.seek(size)
        file.write(MARK + digest.encode())

    replace_file(path, write)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read the arrays that `write_arrays` wrote, after checking their digest.

    Raises:
        ValueError: the file is not as it was written.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END) - LENGTH
        mark, digest = b"", ""
        if size > 0:
            file.seek(size)
            tail = file.read()
            mark, digest = tail[: len(MARK)], tail[len(MARK) :].decode("ascii", "replace")
        file.seek(0)
        if mark != MARK or _digest(file, size) != digest:
            raise ValueError(f"{path} is damaged, or was not written by this package: its digest is wrong")
        file.seek(0)
        with np.load(file, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}


def _digest(file: IO[bytes], size: int) -> str:
    """Hash the next `size` bytes of a file; return the digest in hexadecimal."""
    hashed = hashlib.sha256()
    while size > 0 and (piece := file.read(min(PIECE, size))):
        hashed.update(piece)
        size -= len(piece)
    return hashed.hexdigest()

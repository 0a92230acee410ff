"""Results of a long run on disk, block by block: a run killed at any moment resumes and ends with equal bits.

Owns `Store`, a folder that blocks of rows are appended to, made by `open_store`; one that is replaced is in
`state_file`. docs/understand/long-runs.md has the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np

from jaxcontact.io import fingerprint
from jaxcontact.io.atomic_files import is_temporary_of, lock_file, open_no_link, replace_file

MANIFEST, JOURNAL = "manifest.json", "finished.jsonl"
Rows = Mapping[str, np.ndarray]
Items = Mapping[str, Any]  # of a run or a block, by name: what JSON has


class Layout(NamedTuple):
    """Array of a store: dtype, shape of all its rows, bytes of its header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    header: bytes


class Entry(NamedTuple):
    """Line of the journal: rows begin, ..., end - 1, their digests, and integers that later blocks use."""

    begin: int
    end: int
    digests: Mapping[str, str]
    facts: Sequence[int]


class Store:
    """Blocks of rows of one run, filled from the front; `open_store` makes it.

    Attributes:
        entries: the finished blocks, in order.
    """

    def __init__(self, folder: Path, manifest: Items, unit: str, journal: IO[bytes] | None) -> None:
        self.folder, self.unit = folder, unit
        self.arrays = _make_layouts(manifest["arrays"])
        self.total = min((layout.shape[0] for layout in self.arrays.values()), default=0)
        self._run, self._journal = manifest["digest"], journal
        try:
            text = (folder / JOURNAL).read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{folder}: not a checkpoint, it has no {JOURNAL}") from None
        self.entries, self._length = self._parsed(text)

    @property
    def num_finished(self) -> int:
        """Rows that are finished."""
        return self.entries[-1].end if self.entries else 0

    def read(self, entry: Entry) -> dict[str, np.ndarray]:
        """Read and verify the rows of one block, into new memory: mapped pages would add up."""
        rows = {}
        for name, layout in self.arrays.items():
            width = int(np.prod(layout.shape[1:]))
            offset = len(layout.header) + entry.begin * width * layout.dtype.itemsize
            count = (entry.end - entry.begin) * width
            try:
                with open_no_link(self.folder / f"{name}.npy", "rb") as file:
                    file.seek(offset)
                    data = _read_all(file, count * layout.dtype.itemsize)
            except OSError as error:
                raise damage(self.folder, f"{name}.npy cannot be read ({error})") from None
            if hashlib.sha256(data).hexdigest() != entry.digests.get(name):
                place = f"{self.unit} {entry.begin} to {entry.end - 1}"
                raise damage(self.folder, f"{name}.npy is not as it was written in {place}")
            rows[name] = np.frombuffer(data, layout.dtype).reshape(entry.end - entry.begin, *layout.shape[1:])
        return rows

    def check_files(self) -> None:
        """Raise ValueError if a file does not have the header and the size that it was made with."""
        for name, layout in self.arrays.items():
            try:
                with open_no_link(self.folder / f"{name}.npy", "rb") as file:
                    header, size = _read_all(file, len(layout.header)), file.seek(0, os.SEEK_END)
            except OSError as error:
                raise damage(self.folder, f"{name}.npy cannot be read ({error})") from None
            if header != layout.header or size != _size(layout):
                raise damage(self.folder, f"{name}.npy is not of the header and the size it was made with")

    def start(self) -> None:
        """Drop the partial line that a kill left in the journal, and make the files if no block is finished.

        Raises:
            OSError: the disk has no room for all rows; no file is left then.
        """
        assert self._journal is not None
        with self._reported(self.num_finished):
            self._journal.truncate(self._length)
            if not self.entries:
                self._make_files()

    def append(self, begin: int, rows: Rows, facts: Sequence[int] = ()) -> None:
        """Write a block and flush it to the disk; then enter it in the journal, flushed.

        Raises:
            OSError: the disk is full, or failed; the blocks before stay good.
        """
        assert self._journal is not None
        digests, end = {}, begin
        with self._reported(begin):
            for name, layout in self.arrays.items():
                block = np.ascontiguousarray(rows[name], layout.dtype)
                end = begin + len(block)
                data = block.reshape(-1).view(np.uint8).data
                with open_no_link(self.folder / f"{name}.npy", "r+b") as file:
                    file.seek(len(layout.header) + begin * block[0].nbytes)
                    write_all(file, data)
                    os.fsync(file.fileno())
                digests[name] = hashlib.sha256(data).hexdigest()
            entry = {"begin": begin, "end": end, "sha256": digests, "facts": list(facts)}
            line = json.dumps(entry | {"line": self._line_digest(entry)}) + "\n"
            write_all(self._journal, memoryview(line.encode()))
            os.fsync(self._journal.fileno())

    def mapped(self) -> dict[str, np.ndarray]:
        """Return all finished rows as memory-mapped arrays, each block compared with its digests."""
        self.check_files()
        for entry in self.entries:
            self.read(entry)
        mapped: dict[str, np.ndarray] = {}
        for name, layout in self.arrays.items():
            shape, path = (self.num_finished, *layout.shape[1:]), self.folder / f"{name}.npy"
            empty = not np.prod(shape)  # which cannot be mapped
            header = len(layout.header)
            mapped[name] = (
                np.zeros(shape, layout.dtype) if empty else np.memmap(path, layout.dtype, "r", header, shape)
            )
        return mapped

    def _make_files(self) -> None:
        """Make empty arrays of the full size, all or none; the space is claimed."""
        paths = []
        try:
            for name, layout in self.arrays.items():
                paths.append(self.folder / f"{name}.npy")
                _write_empty(paths[-1], layout)
        except OSError:
            for path in paths:
                path.unlink(missing_ok=True)
            raise

    def _parsed(self, text: bytes) -> tuple[list[Entry], int]:
        """Parse the journal; return its entries, and the length of the text before an unfinished line."""
        length = text.rfind(b"\n") + 1
        entries: list[Entry] = []
        lines = text[:length].split(b"\n")[:-1]
        for number, line in enumerate(lines, 1):
            entry = self._entry(line, entries[-1].end if entries else 0)
            if entry is None:
                raise damage(self.folder, f"line {number} of {JOURNAL} is not as it was written")
            entries.append(entry)
        # A kill leaves the beginning of a line. A line with one more byte had its end changed.
        if text[length:] and self._entry(text[length:-1], entries[-1].end if entries else 0) is not None:
            raise damage(self.folder, f"line {len(lines) + 1} of {JOURNAL} is not as it was written")
        return entries, length

    def _entry(self, line: bytes, begin: int) -> Entry | None:
        """Parse the entry of a line; return None for a line that is not as it was written at this place."""
        try:
            fields = json.loads(line)
            if fields.pop("line") != self._line_digest(fields) or fields["begin"] != begin:
                return None
            return Entry(fields["begin"], fields["end"], fields["sha256"], fields["facts"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _line_digest(self, fields: Items) -> str:
        """Compute the digest of a block: of its run, its place and its arrays."""
        return hashlib.sha256((self._run + json.dumps(fields)).encode()).hexdigest()

    @contextlib.contextmanager
    def _reported(self, done: int) -> Iterator[None]:
        """Add to an OSError the number of stored rows."""
        with _explained(self.folder, f"{done} of {self.total} {self.unit}"):
            yield


@contextlib.contextmanager
def open_store(folder: Path, described: Items, template: Rows, total: int, unit: str) -> Iterator[Store]:
    """Open the store of a run, made if there is none yet, and keep other processes out.

    Args:
        folder: of the files.
        described: the items that determine the run, ready for JSON; see `fingerprint`.
        template: arrays by name, of no rows.
        total: number of rows of the whole run.
        unit: the word for rows in messages, such as "samples".

    Raises:
        ValueError: a store that is damaged, of another run, or in use by another process; other files.
        OSError: the folder cannot be written.
    """
    shapes = {name: [array.dtype.str, [total, *array.shape[1:]]] for name, array in template.items()}
    manifest = json.loads(json.dumps(dict(described) | {"arrays": shapes}))
    manifest["digest"] = _manifest_digest(manifest)
    path = folder / MANIFEST
    with _explained(folder, f"0 of {total} {unit}"):
        folder.mkdir(parents=True, exist_ok=True)
        present = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder)}
    others = {name for name in present if name != JOURNAL and not is_temporary_of(path, name)}
    if MANIFEST in present and JOURNAL not in present:
        raise damage(folder, f"{JOURNAL} is missing")
    if MANIFEST not in present and others:
        raise ValueError(f"checkpoint: {folder} holds other files and no {MANIFEST}; give an empty folder")
    if MANIFEST not in present and present.get(JOURNAL):
        raise damage(folder, f"{MANIFEST} is missing")
    with lock_file(folder / JOURNAL, folder) as journal:
        if path.exists():
            check_same_run(f"{folder} is of another run", _manifest(folder), manifest)
        else:
            with _explained(folder, f"0 of {total} {unit}"):
                replace_file(
                    path, lambda file: write_all(file, memoryview(json.dumps(manifest, indent=1).encode()))
                )
        store = Store(folder, manifest, unit, journal)
        if store.entries:
            store.check_files()
        yield store


def load_store(folder: Path, unit: str) -> tuple[Items, Store]:
    """Read the manifest and the journal of a store, which another process may be writing to.

    Raises:
        ValueError: no store, or damage.
    """
    manifest = _manifest(folder)
    return manifest, Store(folder, manifest, unit, None)


def num_finished(folder: str | os.PathLike[str]) -> int:
    """Count the rows that a store lists as finished, unverified; 0 if there is no good list."""
    try:
        return load_store(Path(folder), "rows")[1].num_finished
    except (OSError, ValueError):
        return 0


def damage(folder: Path, what: str) -> ValueError:
    """Make the error of a checkpoint that no run can resume from."""
    return ValueError(f"checkpoint: {folder} is damaged and was left as it is: {what}")


def write_all(file: IO[bytes] | BinaryIO, data: memoryview) -> None:
    """Write all bytes, in as many calls as the system needs."""
    while len(data):
        data = data[file.write(data) :]


def _read_all(file: Any, size: int) -> bytearray:  # a raw file; IO has no `readinto`
    """Read and return `size` bytes, or all bytes up to the end if there are fewer."""
    data, done = bytearray(size), 0
    while done < size and (count := file.readinto(memoryview(data)[done:])):
        done += count
    return data if done == size else data[:done]


def _manifest(folder: Path) -> dict[str, object]:
    """Read and verify the manifest of a store."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        good = manifest["digest"] == _manifest_digest(manifest)
    except FileNotFoundError:
        raise ValueError(f"{folder}: not a checkpoint, it has no {MANIFEST}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damage(folder, f"{MANIFEST} cannot be read ({type(error).__name__}: {error})") from None
    if not good:
        raise damage(folder, f"{MANIFEST} is not as it was written")
    return dict(manifest)


def _manifest_digest(manifest: Items) -> str:
    fields = {name: value for name, value in manifest.items() if name != "digest"}
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def check_same_run(what: str, stored: Items, current: Items) -> None:
    """Raise ValueError, naming the items that differ, unless both are of one run."""
    hidden = {"digest"} if stored.get("arrays") == current.get("arrays") else {"digest", "arrays"}
    shown = [{k: v for k, v in description.items() if k not in hidden} for description in (stored, current)]
    differences = fingerprint.differences(*shown) or (["arrays"] if "arrays" in hidden else [])
    if differences:
        raise ValueError(f"checkpoint: {what} and was left as it is; these differ: " + ", ".join(differences))


def _make_layouts(arrays: Items) -> dict[str, Layout]:
    layouts = {}
    for name, (dtype, shape) in arrays.items():
        header = io.BytesIO()
        layout = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(header, layout)
        layouts[name] = Layout(np.dtype(dtype), tuple(shape), header.getvalue())
    return layouts


def _size(layout: Layout) -> int:
    """Compute the size of the whole file, bytes."""
    return len(layout.header) + int(np.prod(layout.shape)) * layout.dtype.itemsize


def _write_empty(path: Path, layout: Layout) -> None:
    """Write a new array of zeros, whose space is claimed."""
    size = _size(layout)

    def write(file: BinaryIO) -> None:
        file.write(layout.header)
        file.flush()
        if size > len(layout.header) and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), len(layout.header), size - len(layout.header))
        file.truncate(size)

    replace_file(path, write)


@contextlib.contextmanager
def _explained(folder: Path, stored: str) -> Iterator[None]:
    """Add to an OSError its consequence for the run."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"checkpoint: cannot write to {folder}: {error.strerror}. {stored} are stored; "
            "the same call resumes after them",
        ) from error

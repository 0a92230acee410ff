"""Samples on disk as they come: a run that may be killed at any moment and goes on with the same bits.

Owns the files of a checkpoint. All of them can be read without this package:

    manifest.json     what is sampled: versions, settings, every number of the contact terms; never changes
    v_plus.npy, ...   one plain array per field of `ImpactSamples`, for all samples, filled from the front
    finished.jsonl    one line per finished chunk: its range, the SHA-256 of its rows in every array, the
                      facts that later chunks use (`Chunk`), and the SHA-256 of the line

The space for the arrays is claimed at the start, so a disk that is too small says so before any work. A
chunk is written, flushed to the disk, and only then entered in finished.jsonl: rows that no line names are
worth nothing and are computed again. A half-written last line is what a kill leaves, and is dropped; any
other discrepancy is damage, and then nothing is touched. The lock is on finished.jsonl, held by the operating
system for as long as the process lives.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from jaxcontact.impact.sampling.stream import Chunk, ImpactSamples, Stream
from jaxcontact.io import fingerprint
from jaxcontact.io.atomic_files import replace_file, temporary_of
from jaxcontact.io.manifest import MANIFEST, check_manifest, damage

FORMAT = "jaxcontact impact samples, 3"  # a new number where the same draws end in other bits
JOURNAL = "finished.jsonl"
FIELDS = ("v_plus", "impulse", "status", "num_solves", "energy_ratio", "residual", "path")


def load_samples(directory: str | os.PathLike[str]) -> ImpactSamples:
    """The finished samples of a checkpoint, as memory-mapped arrays; the run may still be going on.

    Every row is read once and compared with its SHA-256. Without this package, `numpy.load("v_plus.npy",
    mmap_mode="r")` gives the rows of a whole run; the last "end" in finished.jsonl is how many are finished.

    Args:
        directory: the `checkpoint` of `sample`, or of `jaxcontact impact --checkpoint`.

    Returns:
        ImpactSamples of NumPy arrays.

    Raises:
        ValueError: no checkpoint, no finished chunk in it, or damage.

    Derivative: none.
    """
    folder = Path(directory)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        total, dtype = int(manifest["num_samples"]), np.dtype(manifest["dtype"])
        v_minus = np.array(manifest["v"], dtype)
        complete, independent = bool(manifest["complete"]), bool(manifest["independent"])
        with_path = bool(manifest["keep_path"])
        with open(folder / JOURNAL, "rb") as journal:
            entries, _ = _entries(folder, journal.read())
    except FileNotFoundError as error:
        raise ValueError(f"{folder}: not a checkpoint, it has no {Path(error.filename).name}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise damage(folder, f"{MANIFEST} cannot be read ({error})") from None
    if not entries:
        raise ValueError(f"{folder}: no chunk is finished yet")
    arrays = {name: _mapped(folder, name, total) for name in FIELDS if with_path or name != "path"}
    for entry in entries:
        _read(folder, entry, arrays)
    end = entries[-1]["end"]
    parts = {name: array[:end] for name, array in arrays.items()}
    return ImpactSamples(v_minus=v_minus, complete=complete, independent=independent, **parts)  # type: ignore[arg-type]


def num_finished(directory: str | os.PathLike[str]) -> int:
    """How many samples a checkpoint lists as finished, unverified; 0 where there is no good list."""
    try:
        entries, _ = _entries(Path(directory), (Path(directory) / JOURNAL).read_bytes())
    except (OSError, ValueError):
        return 0
    return int(entries[-1]["end"]) if entries else 0


def describe(
    stream: Stream, num_samples: int, seed: int | jax.Array, about: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest: equal ones give the same bits on one kind of machine."""
    names = ("M", "J_n", "J_t", "phi", "mu", "active")
    draws: Any = seed
    if isinstance(seed, jax.Array):
        draws = [str(jax.random.key_impl(seed)), *np.asarray(jax.random.key_data(seed)).ravel().tolist()]
    manifest = {
        "format": FORMAT,
        **{f"about {name}": value for name, value in about.items()},
        **fingerprint.versions(),
        "platform": stream.devices[0].platform,
        "dtype": str(stream.v.dtype),
        "num_samples": num_samples,
        "selection": stream.law.selection,
        "complete": stream.complete,
        "independent": stream.independent,
        "density": getattr(stream.draws, "fingerprint", None),
        "seed": int(draws) if isinstance(draws, np.integer) else draws,
        "max_steps": stream.law.max_steps,
        "impulse_step": np.asarray(stream.law.impulse_step).tolist(),
        "keep_path": stream.keep_path,
        "num_directions": stream.law.num_directions,
        **{f"terms.{name}": np.asarray(getattr(stream.terms, name)).tolist() for name in names},
        "v": np.asarray(stream.v).tolist(),
    }
    if stream.law.restitution is not None:
        manifest["restitution"] = np.asarray(stream.law.restitution).tolist()
    if stream.law.turn_polygon:
        manifest["turn_polygon"] = True
    loaded: dict[str, Any] = json.loads(json.dumps(manifest))
    return loaded


def stored(folder: Path, manifest: Mapping[str, Any], stream: Stream, size: int) -> Generator[Chunk]:
    """The chunks found, verified, then the missing ones, each safe on the disk before it is yielded.

    Raises:
        ValueError: a checkpoint that is damaged, of another run, or in use by another process.
        OSError: the folder cannot be written; the message says how much is stored.
    """
    total = int(manifest["num_samples"])
    template = _fields(stream.unmoved(0))
    with _opened(folder, manifest) as journal:
        entries, length = _entries(folder, journal.read())
        arrays = {name: _mapped(folder, name, total, like) for name, like in template.items() if entries}
        done = []
        for entry in entries:
            facts = np.array(entry["facts"], np.int64)
            samples = stream.unmoved(0).replace(**_read(folder, entry, arrays))
            yield Chunk(entry["begin"], entry["end"], samples, facts)
            done.append((entry["end"], facts))
        stands = done[-1][0] if done else 0
        if stands == total:
            return
        with _told(folder, stands, total):
            journal.truncate(length)
            if not done:
                _create(folder, total, template)
        arrays = {name: _mapped(folder, name, total) for name in template}
        with contextlib.closing(stream.chunks(total, size, done=done)) as chunks:
            for chunk in chunks:
                with _told(folder, chunk.begin, total):
                    _append(folder, chunk, arrays, journal)
                yield chunk


@contextlib.contextmanager
def _opened(folder: Path, manifest: Mapping[str, Any]) -> Iterator[BinaryIO]:
    """The locked journal of a checkpoint of this run, made where there is none yet."""
    import fcntl  # POSIX only

    path = folder / MANIFEST
    with _told(folder, 0, int(manifest["num_samples"])):
        folder.mkdir(parents=True, exist_ok=True)
        present = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
        if MANIFEST in present and JOURNAL not in present:
            raise damage(folder, f"{JOURNAL} is missing")
        if MANIFEST not in present and (set(present) - {JOURNAL, temporary_of(path).name}):
            raise ValueError(
                f"checkpoint: {folder} holds other files and no {MANIFEST}; give an empty folder"
            )
        if MANIFEST not in present and present.get(JOURNAL):
            raise damage(folder, f"{MANIFEST} is missing")
        journal = open(folder / JOURNAL, "a+b", buffering=0)  # noqa: SIM115
    with journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"checkpoint: another process is writing to {folder}") from None
        if path.exists():
            check_manifest(folder, manifest)
        else:
            with _told(folder, 0, int(manifest["num_samples"])):
                _write_whole(path, json.dumps(manifest, indent=1).encode())
        journal.seek(0)
        yield journal


def _entries(folder: Path, text: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines of the journal, and the length of the text up to a line that a kill cut short."""
    length = text.rfind(b"\n") + 1
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(text[:length].splitlines(), 1):
        try:
            entry = json.loads(line)
            good = entry.pop("line") == _line_digest(entry)
            follows = entry["begin"] == (entries[-1]["end"] if entries else 0)
        except (ValueError, TypeError, KeyError, AttributeError):
            good = follows = False
        if not (good and follows):
            raise damage(folder, f"line {number} of {JOURNAL} is not as it was written")
        entries.append(entry)
    return entries, length


def _read(folder: Path, entry: Mapping[str, Any], arrays: Mapping[str, np.memmap]) -> dict[str, np.ndarray]:
    """The rows of one finished chunk, verified, in memory of their own: mapped pages would add up."""
    begin, end = entry["begin"], entry["end"]
    rows = {}
    for name, array in arrays.items():
        width = int(np.prod(array.shape[1:]))
        offset = array.offset + begin * width * array.dtype.itemsize
        count = (end - begin) * width
        flat = np.fromfile(folder / f"{name}.npy", array.dtype, count, offset=offset)
        if _digest(flat) != entry["sha256"].get(name):
            raise damage(folder, f"{name}.npy is not as it was written in samples {begin} to {end - 1}")
        rows[name] = flat.reshape(-1, *array.shape[1:])
    return rows


def _mapped(folder: Path, name: str, total: int, like: np.ndarray | None = None) -> np.memmap:
    try:
        array = np.load(folder / f"{name}.npy", mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise damage(folder, f"{name}.npy cannot be read ({error})") from None
    wrong = array.shape[:1] != (total,)
    if like is not None:
        wrong |= array.dtype != like.dtype or array.shape[1:] != like.shape[1:]
    if wrong:
        raise damage(folder, f"{name}.npy is not of the size it was made")
    return array


def _create(folder: Path, total: int, template: Mapping[str, np.ndarray]) -> None:
    """Empty arrays of the full size, all or none."""
    made = []
    try:
        for name, like in template.items():
            header = io.BytesIO()
            shape = (total, *like.shape[1:])
            layout = {"descr": like.dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(header, layout)
            made.append(folder / f"{name}.npy")
            size = int(np.prod(shape)) * like.dtype.itemsize
            _write_whole(made[-1], header.getvalue(), size)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _append(folder: Path, chunk: Chunk, arrays: Mapping[str, np.memmap], journal: BinaryIO) -> None:
    """Write one chunk: its rows, flushed, then its line in the journal, flushed."""
    digests = {}
    for name, rows in _fields(chunk.samples).items():
        rows = np.ascontiguousarray(rows)
        array = arrays[name]
        with open(folder / f"{name}.npy", "r+b", buffering=0) as file:
            file.seek(array.offset + chunk.begin * rows[0].nbytes)
            _write_all(file, rows.data.cast("B"))
            os.fsync(file.fileno())
        digests[name] = _digest(rows)
    entry = {
        "begin": chunk.begin,
        "end": chunk.end,
        "sha256": digests,
        "facts": chunk.facts.tolist(),
    }
    line = json.dumps(entry | {"line": _line_digest(entry)}) + "\n"
    _write_all(journal, memoryview(line.encode()))
    os.fsync(journal.fileno())


def _write_all(file: BinaryIO, data: memoryview) -> None:
    while len(data):
        data = data[file.write(data) :]


def _write_whole(path: Path, start: bytes, empty: int = 0) -> None:
    """A new file: `start`, then `empty` bytes of claimed space."""

    def write(file: BinaryIO) -> None:
        file.write(start)
        file.flush()
        if empty and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), len(start), empty)
        file.truncate(len(start) + empty)

    replace_file(path, write)


@contextlib.contextmanager
def _told(folder: Path, done: int, total: int) -> Iterator[None]:
    """An OSError inside says what it means for the run."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"checkpoint: cannot write to {folder}: {error.strerror}. {done} of {total} samples are stored; "
            "the same call goes on behind them",
        ) from error


def _fields(samples: ImpactSamples) -> dict[str, np.ndarray]:
    fields = {name: getattr(samples, name) for name in FIELDS}
    return {name: np.asarray(array) for name, array in fields.items() if array is not None}


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.data.cast("B")).hexdigest()


def _line_digest(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry).encode()).hexdigest()

"""Object files of LLVM modules, compiled by processes of their own and stored in JAX's compilation cache.

The entry function is `read_or_compile`. A file in that folder begins with a digest of its name and its
code, so that damaged or exchanged files are compiled again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any  # Any: a setting of JAX

import jax

from jaxcontact.native import llvm_worker

APART = 200_000  # characters of text; compiling a longer module takes longer than starting a process
DIGEST_BYTES = hashlib.sha256().digest_size  # bytes of the digest at the start of a file
POLL_SECONDS = 0.005  # between two looks at a process; short beside its start, a tenth of a second


def object_name(text: str, level: int) -> str:
    """Return the digest of a module, of this CPU, of the compiler and of its level of optimisation."""
    import llvmlite
    from llvmlite import binding

    cpu = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    settings = f"{llvmlite.__version__} {cpu} {level}"
    return hashlib.sha256(f"{settings}\n{text}".encode()).hexdigest()


Module = tuple[str, int]  # its text, and its level of optimisation


def read_or_compile(modules: list[Module], workers: int) -> list[bytes]:
    """Read the object files of modules from the folder or compile them; an interrupt ends all processes."""
    store = _Store.of_jax()
    codes: dict[int, bytes] = {}
    names = [object_name(*module) for module in modules]
    for k, name in enumerate(names):
        code = store.read(name) if store else None
        if code is not None:
            codes[k] = code
    missing = [k for k in range(len(modules)) if k not in codes]
    for k, code, seconds in _compile({k: modules[k] for k in missing}, workers):
        codes[k] = code
        if store:
            store.write(names[k], code, seconds)
    return [codes[k] for k in range(len(modules))]


def _compile(modules: dict[int, Module], workers: int) -> Iterator[tuple[int, bytes, float]]:
    """Compile modules; yield the key, the code and the seconds of each."""
    waiting = [k for k, (text, _) in modules.items() if len(text) >= APART]
    running: dict[int, _Process] = {}
    try:
        while waiting and len(running) < workers:
            k = waiting.pop(0)
            running[k] = _Process(*modules[k])
        for k, (text, level) in modules.items():
            if len(text) < APART:
                begin = time.perf_counter()
                yield k, llvm_worker.compile_text(text, level), time.perf_counter() - begin
        while running:
            for k in [k for k, process in running.items() if process.has_ended()]:
                code, seconds = running.pop(k).result()
                if waiting:
                    following = waiting.pop(0)
                    running[following] = _Process(*modules[following])
                yield k, code, seconds
            time.sleep(POLL_SECONDS)
    finally:
        for process in running.values():
            process.kill()


class _Process:
    """A process that compiles a module."""

    def __init__(self, text: str, level: int) -> None:
        self._text, self._level, self._begin = text, level, time.perf_counter()
        self._files: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - closed at the end
        source, target = self._files
        source.write(text.encode())
        source.seek(0)
        worker = [sys.executable, "-I", llvm_worker.__file__, str(level)]
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(worker, stdin=source, stdout=target, stderr=subprocess.DEVNULL)

    def has_ended(self) -> bool:
        """Return whether there is a result."""
        return self._process is None or self._process.poll() is not None

    def result(self) -> tuple[bytes, float]:
        """Return the code and the seconds since the start; compile here if the process failed."""
        self._files[1].seek(0)
        code = self._files[1].read()
        self._close()
        if self._process is None or self._process.returncode:
            code = llvm_worker.compile_text(
                self._text, self._level
            )  # a frozen program, say, has no interpreter of its own
        return code, time.perf_counter() - self._begin

    def kill(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        for file in self._files:
            file.close()


@dataclasses.dataclass(frozen=True)
class _Store:
    """JAX's folder of compiled programs."""

    folder: Path

    @staticmethod
    def of_jax() -> _Store | None:
        """Return the folder that JAX's settings name.

        Return None if they name no folder, if the folder is not on this machine, or if they limit its size:
        only JAX can keep such a limit.
        """
        folder = _setting("compilation_cache_dir")
        if not folder or not _setting("enable_compilation_cache"):
            return None
        folder = folder.removeprefix("file://")
        if "://" in folder or _setting("compilation_cache_max_size") != -1:
            return None
        return _Store(Path(folder))

    def _path(self, name: str) -> Path:
        return self.folder / f"jaxcontact-native-{name}.o"

    def read(self, name: str) -> bytes | None:
        """Read the code of that name; return None if there is none or the file is damaged."""
        try:
            content = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _complain("reading", error)
            return None
        code = content[DIGEST_BYTES:]
        if content[:DIGEST_BYTES] != _digest(name, code):
            _complain("reading", ValueError(f"{self._path(name)} is damaged; it is compiled again"))
            return None
        return code

    def write(self, name: str, code: bytes, seconds: float) -> None:
        """Write code that took so many seconds, if JAX's settings would store it."""
        if seconds < _setting("persistent_cache_min_compile_time_secs"):
            return
        if len(code) < _setting("persistent_cache_min_entry_size_bytes"):
            return
        path = self._path(name)
        part = path.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(_digest(name, code) + code)
            part.replace(path)
        except OSError as error:
            _complain("writing", error)


def _setting(name: str) -> Any:
    """Return a setting of JAX."""
    return getattr(jax.config, f"jax_{name}")


def _digest(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + code).digest()


def _complain(doing: str, error: Exception) -> None:
    """Warn of a failure in the folder as JAX does, or raise it if JAX's settings ask for that."""
    if _setting("raise_persistent_cache_errors"):
        raise error
    warnings.warn(
        f"Error {doing} persistent compilation cache entry of jc.simd: {type(error).__name__}: {error}",
        stacklevel=2,
    )

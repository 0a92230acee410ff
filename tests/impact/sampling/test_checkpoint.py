"""Runs on disk: killed, damaged, foreign, locked, out of space; the bits of an uninterrupted run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers.drawing import draw

import jaxcontact as jc
from jaxcontact.io import run_store

SETTINGS: dict[str, Any] = {"impulse_step": 0.25, "max_steps": 5, "num_samples": 3000, "chunk": 400}
ABOUT = {"model": "compass_gait"}


@pytest.fixture(scope="module")
def gait() -> tuple[jc.ContactTerms, jax.Array]:
    model = jc.models.compass_gait()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


@pytest.fixture(scope="module")
def finished(gait: tuple, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished checkpoint, to copy and spoil."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    draw(*gait, checkpoint=folder, about=ABOUT, **SETTINGS)
    return folder


class Stopped(Exception):
    pass


def stop_at(samples: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done >= samples:
            raise Stopped

    return progress


def same_bits(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Digest and time of change of every file."""
    return {
        p.name: (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in folder.iterdir()
    }


def count(total: int | None, samples: jc.impact.ImpactSamples) -> int:
    return (total or 0) + samples.status.size


# --------------------------------------------------------------------------------------------------- going on


@pytest.mark.long
@pytest.mark.slow_cases("options2")
@pytest.mark.float32
@pytest.mark.parametrize(
    "options", [{}, {"selection": "visited"}, {"selection": "lemke"}, {"keep_path": True}]
)
def test_a_stopped_run_ends_with_the_same_bits(gait: tuple, tmp_path: Path, options: dict) -> None:
    settings = SETTINGS | {"num_samples": 1500} | options
    whole = draw(*gait, **settings)
    for samples in (400, 900):
        with pytest.raises(Stopped):
            draw(*gait, checkpoint=tmp_path, progress=stop_at(samples), **settings)
        part = jc.impact.load_samples(tmp_path)
        assert samples <= part.status.size < 1500
        assert same_bits(part.v_plus, whole.v_plus[: part.status.size])
    result = draw(*gait, checkpoint=tmp_path, **settings)
    assert same_bits(result, whole)
    assert result.complete == whole.complete
    assert isinstance(result.v_plus, np.memmap)
    assert same_bits(jc.impact.load_samples(tmp_path), whole)


def test_reduce_sees_stored_chunks_first_and_another_chunk_size_goes_on(gait: tuple, tmp_path: Path) -> None:
    whole = draw(*gait, **SETTINGS)
    with pytest.raises(Stopped):
        draw(*gait, checkpoint=tmp_path, progress=stop_at(1200), **SETTINGS)

    def collect(parts: list | None, samples: jc.impact.ImpactSamples) -> list:
        return [*(parts or []), samples]

    parts = draw(*gait, checkpoint=tmp_path, reduce=collect, **(SETTINGS | {"chunk": 1000}))
    assert [p.status.size for p in parts] == [400, 400, 400, 1000, 800]
    assert same_bits(np.concatenate([p.impulse for p in parts]), whole.impulse)
    assert all(same_bits(p.v_minus, whole.v_minus) for p in parts)


def test_a_finished_run_is_only_read(gait: tuple, finished: Path) -> None:
    before = contents(finished)
    assert draw(*gait, checkpoint=finished, about=ABOUT, reduce=count, **SETTINGS) == 3000
    assert contents(finished) == before


def test_files_are_readable_without_the_package(gait: tuple, finished: Path) -> None:
    whole = draw(*gait, **SETTINGS)
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["num_samples"] == 3000
    assert manifest["about model"] == "compass_gait"
    assert np.array_equal(np.array(manifest["terms.M"]), gait[0].M)
    lines = [json.loads(line) for line in (finished / "finished.jsonl").read_text().splitlines()]
    assert [line["end"] for line in lines] == [*range(400, 3000, 400), 3000]
    for name in ("v_plus", "impulse", "status", "num_iters", "energy_ratio", "residual"):
        array = np.load(finished / f"{name}.npy", mmap_mode="r")
        assert same_bits(array, getattr(whole, name))
        rows = array[lines[1]["begin"] : lines[1]["end"]]
        assert hashlib.sha256(rows.tobytes()).hexdigest() == lines[1]["sha256"][name]


def test_no_contact_approaches(gait: tuple, tmp_path: Path) -> None:
    terms, v = gait
    samples = draw(terms, -0.0 * v, checkpoint=tmp_path, **SETTINGS)
    assert not np.any(samples.v_plus)
    assert samples.status.shape == (3000,)


def test_a_torn_last_line_is_dropped(gait: tuple, finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    journal = folder / "finished.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
        assert jc.impact.load_samples(folder).status.size == 2800
        draw(*gait, checkpoint=folder, about=ABOUT, reduce=count, **SETTINGS)
        assert {k: d for k, (d, _) in contents(folder).items()} == {
            k: d for k, (d, _) in contents(finished).items()
        }


# ----------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"impulse_step": 0.2}, r"impulse_step \(\[0.25, 0.25\] there, \[0.2, 0.2\] now\)"),
        ({"max_steps": 6}, r"max_steps \(5 there, 6 now\)"),
        ({"num_samples": 4000}, r"num_samples \(3000 there, 4000 now\)"),
        ({"seed": 1}, r"seed \(0 there, 1 now\)"),
        ({"seed": jax.random.key(3)}, "seed"),
        ({"selection": "visited"}, r'selection \("all" there, "visited" now\)'),
        ({"keep_path": True}, "keep_path"),
        ({"about": {"model": "ramone"}}, r'about model \("compass_gait" there, "ramone" now\)'),
        ({"mu": 0.3}, "terms.mu"),
        ({"dtype": "float32"}, r'dtype \("float64" there, "float32" now\)'),
        ({"version": "0.0.9"}, r'version \("0.1.0" there, "0.0.9" now\)'),
        ({"jax": "0.9"}, "jax version"),
    ],
)
def test_another_run_is_refused(
    gait: tuple, finished: Path, change: dict, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms, v = gait
    settings = SETTINGS | {"about": ABOUT} | change
    if "mu" in change:
        terms = terms.replace(mu=np.full(2, settings.pop("mu")))
    if "dtype" in change:
        del settings["dtype"]
        terms = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(np.float32), terms)
        v = v.astype(np.float32)
    if "version" in change:
        monkeypatch.setattr(jc, "__version__", settings.pop("version"))
    if "jax" in change:
        monkeypatch.setattr(jax, "__version__", settings.pop("jax"))
    before = contents(finished)
    with pytest.raises(ValueError, match=f"of another run.*left as it is.*{message}"):
        draw(terms, v, checkpoint=finished, **settings)
    assert contents(finished) == before


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "a bit of the first chunk": (lambda f: flip(f / "v_plus.npy", 200), "v_plus.npy .* samples 0 to 399"),
    "a bit of the last chunk": (
        lambda f: flip(f / "residual.npy", -1),
        "residual.npy .* samples 2800 to 2999",
    ),
    "an array cut short": (
        lambda f: os.truncate(f / "impulse.npy", 5000),
        "impulse.npy is not of the header and the size",
    ),
    "an array replaced": (
        lambda f: np.save(f / "status.npy", np.zeros(9)),
        "status.npy is not of the header and the size",
    ),
    "an array missing": (lambda f: (f / "status.npy").unlink(), "status.npy cannot be read"),
    "a number of the journal": (lambda f: flip(f / "finished.jsonl", 10), "line 1 of finished.jsonl"),
    "a line of the journal missing": (
        lambda f: (f / "finished.jsonl").write_bytes((f / "finished.jsonl").read_bytes().partition(b"\n")[2]),
        "line 1 of finished.jsonl",
    ),
    "no journal": (lambda f: (f / "finished.jsonl").unlink(), "finished.jsonl is missing"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "holds other files and no manifest.json"),
    "half a manifest": (lambda f: os.truncate(f / "manifest.json", 300), "manifest.json cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused(gait: tuple, finished: Path, tmp_path: Path, damage: str) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    spoil, message = DAMAGES[damage]
    spoil(folder)
    before = contents(folder)
    with pytest.raises(ValueError, match=message):
        draw(*gait, checkpoint=folder, about=ABOUT, reduce=count, **SETTINGS)
    assert contents(folder) == before
    with pytest.raises(ValueError, match=r"\.npy|\.jsonl|\.json"):
        jc.impact.load_samples(folder)


def test_a_folder_with_other_files_is_refused(gait: tuple, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"holds other files and no manifest.json; give an empty folder"):
        draw(*gait, checkpoint=tmp_path, **SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(ValueError, match=r"not a checkpoint, it has no manifest.json"):
        jc.impact.load_samples(tmp_path)


@pytest.mark.parametrize("lock", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_two_runs_at_once_are_refused(gait: tuple, finished: Path, lock: int) -> None:
    with open(finished / "finished.jsonl", "rb") as journal:
        fcntl.flock(journal, lock)
        with pytest.raises(ValueError, match="another process is writing to"):
            draw(*gait, checkpoint=finished, about=ABOUT, **SETTINGS)
        assert jc.impact.load_samples(finished).status.size == 3000
    draw(*gait, checkpoint=finished, about=ABOUT, **SETTINGS)


# ---------------------------------------------------------------------------------------------------- full disks


@pytest.mark.parametrize("allowed", [0, 100, 5000])
def test_a_full_disk_loses_nothing(
    gait: tuple, tmp_path: Path, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes some bytes of the third chunk and no more; later there is room again."""
    whole = draw(*gait, **SETTINGS)
    with pytest.raises(Stopped):
        draw(*gait, checkpoint=tmp_path, progress=stop_at(800), **SETTINGS)
    stands = jc.impact.load_samples(tmp_path).status.size
    left, write_all = allowed, run_store.write_all

    def write(file: Any, data: memoryview) -> None:
        nonlocal left
        write_all(file, data[:left])
        if len(data) > left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= len(data)

    with monkeypatch.context() as patch:
        patch.setattr(run_store, "write_all", write)
        with pytest.raises(OSError, match=rf"No space left on device. {stands} of 3000 samples are stored"):
            draw(*gait, checkpoint=tmp_path, **SETTINGS)
    assert jc.impact.load_samples(tmp_path).status.size == stands
    assert same_bits(draw(*gait, checkpoint=tmp_path, **SETTINGS), whole)


@pytest.mark.slow
def test_a_disk_too_small_is_told_before_any_work(gait: tuple, tmp_path: Path) -> None:
    """The largest file allowed stands in for the size of the disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        with pytest.raises(OSError, match="cannot write to .*File too large. 0 of 3000 samples are stored"):
            draw(*gait, checkpoint=tmp_path, **SETTINGS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {p.name for p in tmp_path.iterdir()} == {"manifest.json", "finished.jsonl"}
    assert draw(*gait, checkpoint=tmp_path, reduce=count, **SETTINGS) == 3000


# ------------------------------------------------------------------------------------------- killed processes

RUN = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
model = jc.models.compass_gait()
terms = jc.contact_terms(model, model.initial_state())
law = jc.impact.Routh(impulse_step=0.25, max_steps=5, selection=sys.argv[4])
jc.impact.sample(terms, model.initial_state().v, law, num_samples=int(sys.argv[2]), reduce=lambda a, s: 0,
                 run=jc.Run(chunk=int(sys.argv[3]), checkpoint=sys.argv[1]))
"""


def kill_until_done(folder: Path, total: int, chunk: int, selection: str, kills: int) -> int:
    """Kill a run now and then, mostly in the midst of its chunks; returns how often a kill met it."""
    generator = random.Random(4)
    journal = folder / "finished.jsonl"
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment = os.environ | cache
    for attempt in range(100):
        stands = run_store.num_finished(folder)
        text = journal.read_bytes() if journal.exists() else b""
        finished = text[: text.rfind(b"\n") + 1]
        command = [sys.executable, "-c", RUN, str(folder), str(total), str(chunk), selection]
        run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        if attempt < kills:
            aim = stands + generator.randrange(1, total // (kills + 1))
            while run.poll() is None and run_store.num_finished(folder) < aim:
                time.sleep(0.002)
            time.sleep(generator.random() * 0.02)
            run.send_signal(signal.SIGKILL)
        _, errors = run.communicate(timeout=300)
        assert run.returncode in (0, -signal.SIGKILL), errors
        assert journal.read_bytes().startswith(finished)  # no finished chunk is lost or done again
        if run.returncode == 0:
            assert run_store.num_finished(folder) == total
            return attempt
    raise AssertionError("never done")


@pytest.mark.slow
def test_killed_several_times_it_ends_with_the_same_bits(gait: tuple, tmp_path: Path) -> None:
    total = 60_000
    assert kill_until_done(tmp_path / "run", total, 500, "all", kills=3) == 3
    whole = jc.impact.sample(*gait, jc.impact.Routh(impulse_step=0.25, max_steps=5), num_samples=total)
    assert same_bits(jc.impact.load_samples(tmp_path / "run"), whole)


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["all", "visited"])
def test_killed_many_times(gait: tuple, tmp_path: Path, selection: str) -> None:
    total = 200_000
    assert kill_until_done(tmp_path / "run", total, 300, selection, kills=25) >= 20
    whole = jc.impact.sample(
        *gait, jc.impact.Routh(impulse_step=0.25, max_steps=5, selection=selection), num_samples=total
    )
    assert same_bits(jc.impact.load_samples(tmp_path / "run"), whole)

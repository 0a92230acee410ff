"""The store of long runs: a flipped bit, a swap, a copy from another run are refused or change nothing."""

import os
import shutil

import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact._pytree import Record
from jaxcontact.io import run_store
from jaxcontact.io.records import load_record, save_record
from jaxcontact.io.run_store import load_store, open_store
from jaxcontact.io.state_file import load_state, open_state, save_state

TOTAL, BLOCK = 10, 3
FLIPS, MANY_FLIPS = 1000, 100_000


def rows_of(begin, end, seed=0):
    """Rows whose numbers tell their run and place."""
    number = np.arange(begin, end)
    return {
        "v": seed + 0.1 * np.stack([number, number**2], axis=1),
        "status": (number + seed).astype(np.uint32),
        "good": number % 2 == seed,
        "none": np.zeros((end - begin, 0)),
    }


def resume(folder, seed=0, until=TOTAL):
    """What a run finds and computes, block by block, as the drivers do."""
    described = {"format": "test, 1", "seed": seed, "settings": {"step": [0.1, 0.25]}}
    parts = []
    with open_store(folder, described, rows_of(0, 0), TOTAL, "rows") as store:
        parts += [store.read(entry) for entry in store.entries]
        facts = [list(entry.facts) for entry in store.entries]
        if store.num_finished < until:
            store.start()
            for begin in range(store.num_finished, until, BLOCK):
                part = rows_of(begin, min(begin + BLOCK, TOTAL), seed)
                store.append(begin, part, [begin, 7])
                parts.append(part)
                facts.append([begin, 7])
    assert facts == [[begin, 7] for begin in range(0, until, BLOCK)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def load(folder):
    return load_store(folder, "rows")[1].mapped()


def same(one, other):
    assert one.keys() == other.keys()
    return all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


@pytest.fixture
def finished(tmp_path):
    folder = tmp_path / "finished"
    assert same(resume(folder), rows_of(0, TOTAL))
    return folder


def test_a_run_cut_short_resumes_and_is_read_without_the_package(tmp_path):
    folder = tmp_path / "run"
    assert same(resume(folder, until=6), rows_of(0, 6))
    assert same(load(folder), rows_of(0, 6)) and run_store.num_finished(folder) == 6
    with open(folder / "finished.jsonl", "ab") as journal:
        journal.write(b'{"begin": 6, "e')  # what a kill leaves
    assert same(load(folder), rows_of(0, 6))
    assert same(resume(folder), rows_of(0, TOTAL))
    for name, array in rows_of(0, TOTAL).items():
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), array)


def refusal(use, folder, want):
    """The message of the ValueError that it raises, or "" where it gives the rows."""
    try:
        assert same(use(folder), want)
    except ValueError as error:
        return str(error)
    return ""


def check_flips(folder, count, seed):
    """Flip a bit anywhere in the files; loading and resuming give the rows as they were or a named refusal."""
    rng = np.random.default_rng(seed)
    files = sorted(path for path in folder.iterdir())
    sizes = np.array([path.stat().st_size for path in files])
    want, outcomes = rows_of(0, TOTAL), {"refused": 0, "harmless": 0}
    for _ in range(count):
        file = files[rng.choice(len(files), p=sizes / sizes.sum())]
        original = file.read_bytes()
        data = bytearray(original)
        place, bit = int(rng.integers(len(data))), int(rng.integers(8))
        data[place] ^= 1 << bit
        for use in (load, resume):
            file.write_bytes(data)
            message = refusal(use, folder, want)
            outcomes["refused" if message else "harmless"] += 1
            assert not message or ("damaged" in message and file.name in message), (place, bit, message)
            assert (use is resume and not message) or file.read_bytes() == data, "left as it is"
            file.write_bytes(original)
    return outcomes


def test_flipped_bits_are_refused_or_harmless(finished):
    outcomes = check_flips(finished, FLIPS // 2, 0)
    assert outcomes["refused"] > 0.9 * FLIPS


@pytest.mark.slow
def test_many_flipped_bits_are_refused_or_harmless(finished):
    check_flips(finished, MANY_FLIPS // 2, 1)


def test_swaps_and_copies_from_another_run_are_refused(finished, tmp_path):
    other = tmp_path / "other"
    resume(other, seed=1)
    for name in ("v.npy", "status.npy", "good.npy", "finished.jsonl", "manifest.json"):
        folder = shutil.copytree(finished, tmp_path / f"copy of {name}")
        shutil.copy(other / name, folder / name)
        for use in (load, resume):
            with pytest.raises(ValueError, match=r"damaged|another run"):
                use(folder)
    folder = shutil.copytree(other, tmp_path / "all of it")
    with pytest.raises(
        ValueError, match=r"is of another run and was left as it is; these differ: seed \(1 there"
    ):
        resume(folder)
    lines = (finished / "finished.jsonl").read_bytes().splitlines(keepends=True)
    (finished / "finished.jsonl").write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
    for use in (load, resume):
        with pytest.raises(ValueError, match="line 1 of finished.jsonl is not as it was written"):
            use(finished)


@pytest.mark.parametrize("dtype", [">f8", np.float32])
def test_an_edit_with_numpy_is_refused(finished, dtype):
    np.save(finished / "v.npy", np.load(finished / "v.npy").astype(dtype))
    for use in (load, resume):
        with pytest.raises(ValueError, match="v.npy is not of the header and the size it was made with"):
            use(finished)


def test_links_are_not_followed(finished, tmp_path):
    """A link in the place of a file of the run is an error, and what it points to stays as it was."""
    letter = tmp_path / "letter"
    letter.write_text("dear")
    folder = tmp_path / "run"
    resume(folder, until=3)
    (folder / "v.npy").unlink()
    (folder / "v.npy").symlink_to(letter)
    with pytest.raises(ValueError, match="v.npy cannot be read"):
        resume(folder)
    path = tmp_path / "state.npz"
    save_state(path, {}, {"a": np.zeros(1)})
    for name in {f"state.npz.{number}.tmp" for number in range(os.getpid(), os.getpid() + 1)}:
        (tmp_path / name).symlink_to(letter)
    save_state(path, {}, {"a": np.ones(1)})
    assert letter.read_text() == "dear"
    np.testing.assert_array_equal(load_state(path, {})["a"], [1.0])


def test_one_process_at_a_time(tmp_path):
    arguments = (tmp_path / "run", {}, rows_of(0, 0), TOTAL, "rows")
    for enter, name in (
        (lambda: open_store(*arguments), "run"),
        (lambda: open_state(tmp_path / "state.npz"), "state.npz"),
    ):
        with enter(), pytest.raises(ValueError, match=f"another process is writing to .*{name}"), enter():
            pass
        with enter():
            pass
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run"]


class StoredPair(Record):
    """A record with an array and a name."""

    values: np.ndarray
    name: str


def flipped_file(path, read, original, count):
    """Every flipped bit of a sealed file is refused by its name."""
    rng = np.random.default_rng(2)
    for _ in range(count):
        data = bytearray(original)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(ValueError, match=path.name):
            read()
    path.write_bytes(original)
    read()


def test_files_that_are_replaced_refuse_flips_and_edits(tmp_path):
    path, about = tmp_path / "state.npz", {"format": "test, 1", "grid": [0.1, 0.25]}
    save_state(path, about, {"rows": np.arange(6.0).reshape(2, 3)})
    flipped_file(path, lambda: load_state(path, about), path.read_bytes(), FLIPS // 4)
    with np.load(path) as data:  # NumPy reads it
        arrays = dict(data)
    with pytest.raises(ValueError, match=r"of another run.*these differ: grid"):
        load_state(path, about | {"grid": [0.1, 0.26]})
    np.savez(path, **arrays | {"rows": np.zeros((2, 4))})
    with pytest.raises(ValueError, match="state.npz cannot be read"):
        load_state(path, about)
    assert load_state(tmp_path / "none.npz", about) is None
    record = tmp_path / "pair.npz"
    save_record(record, StoredPair(values=np.arange(4.0), name="a"))
    flipped_file(record, lambda: load_record(record, StoredPair), record.read_bytes(), FLIPS // 4)


def test_settings_of_a_run_are_named():
    for settings, error, message in (
        ({"chunk": 0}, ValueError, "chunk: expected an integer >= 1, got 0"),
        ({"devices": []}, ValueError, "devices: expected JAX devices, at least one"),
        ({"checkpoint": 3}, TypeError, "checkpoint: expected a path, got int"),
        ({"about": {"model": 3}}, TypeError, "about: expected texts by name"),
        ({"progress": 3}, TypeError, "progress: expected a function, got 3"),
    ):
        with pytest.raises(error, match=message):
            jc.Run(**settings)

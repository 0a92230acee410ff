import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact._pytree import Record, static
from jaxcontact.io.atomic_files import replace_file
from jaxcontact.io.records import load_record, save_record
from jaxcontact.io.sealed_arrays import write_arrays


class Inner(Record):
    values: object
    name: str = static(default="inner")


class Outer(Record):
    inner: object
    count: int = 3
    nothing: object = None


def test_a_record_comes_back_as_it_was(tmp_path):
    path = tmp_path / "new folder" / "outer.npz"
    save_record(path, Outer(inner=Inner(values=jnp.array([1.0, np.nan]), name="mine"), count=5))
    found = load_record(path, Outer)
    assert isinstance(found, Outer) and isinstance(found.inner, Inner)
    np.testing.assert_array_equal(found.inner.values, [1.0, np.nan])
    assert (found.inner.name, found.count, found.nothing) == ("mine", 5, None)


def test_another_file_is_refused_by_name(tmp_path):
    save_record(tmp_path / "inner.npz", Inner(values=jnp.zeros(2)))
    with pytest.raises(ValueError, match="holds a Inner, expected a Trajectory"):
        jc.simulate.Trajectory.load(tmp_path / "inner.npz")
    np.savez(tmp_path / "plain.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match=r"plain.npz is damaged, or was not written by this package"):
        load_record(tmp_path / "plain.npz", Inner)
    write_arrays(tmp_path / "arrays.npz", {"a": np.zeros(2)})
    with pytest.raises(ValueError, match="holds no record"):
        load_record(tmp_path / "arrays.npz", Inner)
    with pytest.raises(TypeError, match=r"inner: expected an array.* got function"):
        save_record(tmp_path / "bad.npz", Outer(inner=lambda: None))


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    replace_file(path, lambda file: file.write(b"old"))

    def full(file):
        file.write(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        replace_file(path, full)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

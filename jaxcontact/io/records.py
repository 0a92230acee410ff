"""Records of arrays in one `.npz` file, by the dotted names of their fields: `save_record`, `load_record`."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Self

import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.io.sealed_arrays import read_arrays, write_arrays

_KINDS = "__kinds__"  # entry of the file: the class of each record, and each plain value, by dotted name


def save_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record and its nested records; fields are arrays, numbers, strings, None or records.

    Raises:
        TypeError: a field has another type.
        OSError: the file cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    kinds: dict[str, object] = {}
    _flatten("", record, arrays, kinds)
    arrays[_KINDS] = np.array(json.dumps(kinds))
    write_arrays(path, arrays)


def load_record(path: str | os.PathLike[str], expected: type[Record]) -> PyTree:
    """Read the record that `save_record` wrote; return it and its nested records in their classes.

    Raises:
        ValueError: the file is not as it was written, or holds another kind of record.
        OSError: the file cannot be read.
    """
    arrays = read_arrays(path)
    if _KINDS not in arrays:
        raise ValueError(f"path: {path} holds no record; expected one that `save` wrote")
    kinds = json.loads(str(arrays.pop(_KINDS)))
    name = kinds.get("", {}).get("record")
    if name != expected.__name__:
        raise ValueError(f"path: {path} holds a {name}, expected a {expected.__name__}")
    return _restore("", arrays, kinds, _record_classes())


class FileRecord(Record):
    """A record that a file can hold."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to a `.npz` file; a write that fails leaves no partial file.

        Raises:
            OSError: the file cannot be written.
        """
        save_record(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a record that `save` wrote.

        Raises:
            ValueError: the file holds something else.
            OSError: the file cannot be read.
        """
        loaded: Self = load_record(path, cls)
        return loaded


def _flatten(name: str, value: object, arrays: dict[str, np.ndarray], kinds: dict[str, object]) -> None:
    if isinstance(value, Record):
        fields = [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]
        kinds[name] = {"record": type(value).__name__, "fields": fields}
        for field in fields:
            _flatten(f"{name}.{field}" if name else field, getattr(value, field), arrays, kinds)
    elif value is None or isinstance(value, bool | int | float | str):
        kinds[name] = {"value": value}
    elif hasattr(value, "dtype"):
        arrays[name] = np.asarray(value)
    else:
        raise TypeError(f"{name}: expected an array, a number, a record or None, got {type(value).__name__}")


def _restore(
    name: str, arrays: dict[str, np.ndarray], kinds: dict[str, PyTree], classes: dict[str, PyTree]
) -> PyTree:
    if name in arrays:
        return jnp.asarray(arrays[name])
    kind = kinds[name]
    if "record" not in kind:
        return kind["value"]
    if kind["record"] not in classes:
        raise ValueError(
            f"path: {name or 'the file'} is a {kind['record']}, which this version does not have"
        )
    inner = {
        field: _restore(f"{name}.{field}" if name else field, arrays, kinds, classes)
        for field in kind["fields"]
    }
    return classes[kind["record"]](**inner)


def _record_classes() -> dict[str, object]:
    classes: dict[str, object] = {}
    todo: list[type[Record]] = [Record]
    while todo:
        for cls in todo.pop().__subclasses__():
            classes[cls.__name__] = cls
            todo.append(cls)
    return classes

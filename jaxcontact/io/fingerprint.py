"""What determines a run, in words and hashes: by it a checkpoint knows its own run from another.

Owns the hash of numbers, that of a program, and the words for what differs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

SHORT = 100  # characters of both values up to which a message shows them


def of_numbers(tree: Any) -> str:
    """A hash of a pytree of arrays: its names, shapes, dtypes and bits."""
    found = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.asarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def of_program(traced: Any) -> str:
    """A hash of `jax.jit(f).trace(...)`: all that f computes, with the numbers that it closes over.

    Unseen is what a host callback does, and what the function reads while it runs.
    """
    return hashlib.sha256(traced.lower().as_text().encode()).hexdigest()


def versions() -> dict[str, str]:
    """Of this package and of JAX; another one of either may give other bits."""
    package = sys.modules[__name__.partition(".")[0]]
    return {"version": package.__version__, "jax version": jax.__version__}


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The items that differ, by name, with both values where they are short."""
    found = []
    for name in dict.fromkeys((*here, *there)):
        one, other = (json.dumps(each.get(name)) for each in (there, here))
        if one != other:
            short = len(one) + len(other) < SHORT
            found.append(f"{name} ({one} there, {other} now)" if short else name)
    return found

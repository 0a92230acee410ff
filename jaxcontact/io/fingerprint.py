"""Fingerprints of a run: hashes of its numbers and of its program, and the versions that computed it.

A checkpoint stores the fingerprint, and so refuses to continue another run. `differences` names the items
that differ, for the message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import jax
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.batching.environment import versions as versions

SHORT_TEXT = 100  # characters; a message shows two values that together have fewer


def of_numbers(tree: PyTree) -> str:
    """Hash a pytree of arrays: its names, shapes, dtypes and bits."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def of_program(traced: jax.stages.Traced) -> str:
    """Hash `jax.jit(f).trace(...)`: all operations of f, with the numbers that f closes over.

    The hash does not see the code of a host callback, nor data that f reads while it runs.
    """
    return hashlib.sha256(traced.lower().as_text().encode()).hexdigest()


def differences(stored: Mapping[str, object], current: Mapping[str, object]) -> list[str]:
    """List the items that differ, by name, with both values if they are short."""
    items = []
    for name in dict.fromkeys((*current, *stored)):
        stored_text, current_text = (json.dumps(record.get(name)) for record in (stored, current))
        if stored_text != current_text:
            short = len(stored_text) + len(current_text) < SHORT_TEXT
            items.append(f"{name} ({stored_text} there, {current_text} now)" if short else name)
    return items

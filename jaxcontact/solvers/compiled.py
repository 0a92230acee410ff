"""Flags of compiled functions (numba), and the digest of their sources: what machine code shares.

numba keeps compiled code by the file of a function, not of those that it calls. So only entries are kept, and
each has the digest of all its files in its closure, which numba compares.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

Options = Any  # of numba's `njit`: keywords of one type each
ALLOCATES: Options = {"no_cfunc_wrapper": True, "nogil": True, "error_model": "numpy"}
KEPT = ALLOCATES | {"cache": True}
# Functions that do not allocate need no counts of references, which are a third of the time of one contact.
PLAIN = ALLOCATES | {"_nrt": False, "no_cpython_wrapper": True}
EPS = float(np.finfo(float).eps)


def digest_sources(*names: str) -> int:
    """Compute a number that changes with the text of a file of this package; names are those of modules."""
    digest, folder = hashlib.sha256(), Path(__file__).parent
    for path in (
        folder.with_name("tolerances.py"),
        *(folder / f"{name}.py" for name in ("compiled", *names)),
    ):
        digest.update(path.read_bytes())
    return int(digest.hexdigest()[:15], 16)


@njit(fastmath={"reassoc"}, **PLAIN)  # sums in the order of vectors
def dot(W, i, r):  # type: ignore[no-untyped-def]
    """Compute one entry of W r."""
    total = 0.0
    for j in range(r.shape[0]):
        total += W[i, j] * r[j]
    return total

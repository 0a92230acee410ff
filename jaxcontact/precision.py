"""Where single precision is known to fall short, and the warning that says so, once per process."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

FRICTION = 100.0  # friction and spread of masses above which single precision solves fewer impacts
SPREAD = 1e4

_said: set[str] = set()


class PrecisionWarning(UserWarning):
    """Computing in single precision where double precision is needed."""


def warn_if_single(dtype: Any, what: str) -> None:
    """Warn, the first time in a process, that `what` is computed in single precision, if it is."""
    if jnp.finfo(dtype).bits >= 64 or _said:
        return
    warnings.warn(
        f"single precision with {what}: more results fail, or have few digits; "
        'use double precision, jax.config.update("jax_enable_x64", True)',
        PrecisionWarning,
        stacklevel=3,
    )
    _said.add(what)  # behind the warning: one that is made an error is raised each time


def check_precision(mass: Any, mu: Any) -> None:
    """`warn_if_single` for a mass matrix (nv, nv) and friction (nc,) that are not traced."""
    diagonal = np.diag(np.asarray(mass))
    if np.any(np.asarray(mu) > FRICTION):
        warn_if_single(diagonal.dtype, f"friction above {FRICTION:g}")
    elif np.max(diagonal) > SPREAD * np.min(diagonal):
        warn_if_single(diagonal.dtype, f"masses spread by more than {SPREAD:g}")

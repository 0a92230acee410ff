"""The modules of compiled functions, which need numba: `load_machine_code`."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType


@functools.cache
def load_machine_code(name: str) -> ModuleType | None:
    """Load a module of this package; None without numba, or where it has no folder for what it compiles."""
    try:
        return importlib.import_module(f"jaxcontact.solvers.{name}")
    except (ImportError, RuntimeError):
        return None

"""The import of the optional package mujoco, only where a function needs it."""

from __future__ import annotations

import importlib
from types import ModuleType


def mujoco_package(caller: str) -> ModuleType:
    """The module mujoco.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        return importlib.import_module("mujoco")
    except ImportError as error:
        raise ImportError(f"{caller} needs the package mujoco: pip install jaxcontact[mujoco]") from error

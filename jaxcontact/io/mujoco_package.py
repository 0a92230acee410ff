"""The package mujoco, which is imported only where it is used."""

from __future__ import annotations

import importlib
from types import ModuleType


def mujoco_package(caller: str) -> ModuleType:
    """The module mujoco.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("mujoco")
    except ImportError as error:
        raise ImportError(f"{caller} needs the package mujoco: pip install jaxcontact[mujoco]") from error

"""The optional package mujoco, imported only if a function needs it, and the flags of its models."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mujoco


def mujoco_package(caller: str) -> ModuleType:
    """Import and return the module mujoco.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        return importlib.import_module("mujoco")
    except ImportError as error:
        raise ImportError(f"{caller} needs the package mujoco: pip install jaxcontact[mujoco]") from error


def is_disabled(mj: mujoco.MjModel, *words: str) -> bool:
    """Tell whether the file disables one of the flags `words`; an older MuJoCo may lack a flag."""
    flags = mujoco_package("load_mjcf").mjtDisableBit
    return any(mj.opt.disableflags & int(getattr(flags, f"mjDSBL_{word.upper()}", 0)) for word in words)


def is_enabled(mj: mujoco.MjModel, word: str) -> bool:
    """Tell whether the file enables a flag, such as "override"."""
    return bool(
        mj.opt.enableflags & int(getattr(mujoco_package("load_mjcf").mjtEnableBit, f"mjENBL_{word.upper()}"))
    )

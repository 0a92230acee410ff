"""Names of a package that are imported when they are first used.

Owns the `__getattr__` of the front door: JAX takes a second to load, and the command line tells of a mistake
before.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def on_first_use(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], tuple[str, ...]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names load when they are first asked for.

    Args:
        package: its dotted name.
        homes: the names, by the module of the package that defines them; "" has the modules themselves.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if home.get(name):
            value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        from importlib.util import find_spec

        module = f"{package}.{name}"
        if name.startswith("__") or find_spec(module) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(module)  # the import system makes it an attribute

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names, tuple(home)

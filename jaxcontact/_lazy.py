"""Names of a package that are imported at their first use: `on_first_use`.

Owns the `__getattr__` of the package: JAX takes a second to load, and the command line reports a mistake
before that.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def on_first_use(
    package: str, init_file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], tuple[str, ...]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package whose names load at their first use.

    Args:
        package: its dotted name.
        init_file: its `__init__.py`; the stub beside it, `__init__.pyi`, has the names, each in a line
            `from module import name as name`.
    """
    with open(init_file + "i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    home = {words[3]: words[1] for words in lines}

    def get(name: str) -> object:
        if home.get(name, package) != package:
            value = getattr(importlib.import_module(home[name]), name)
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

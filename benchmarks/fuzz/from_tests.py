"""Modules of the tests, for checks that share their oracles; in a checkout of the repository."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"


def from_tests(name: str) -> Any:
    """Import a module of the tests by the name that the tests use."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module(name)

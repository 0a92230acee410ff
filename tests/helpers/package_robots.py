"""Robots of other pip packages for tests, which are skipped where a package is not installed."""

import functools

import pytest

from benchmarks import package_robots
from benchmarks.package_robots import REFUSED, WHOLE

__all__ = ["REFUSED", "WHOLE", "compiled", "path_of", "spec_of"]


def skipping(read):
    """Skip a test that reads a file of a package that is not installed."""

    @functools.wraps(read)
    def read_or_skip(file):
        try:
            return read(file)
        except ImportError as missing:
            pytest.skip(str(missing))

    return read_or_skip


path_of, spec_of, compiled = map(
    skipping, (package_robots.path_of, package_robots.spec_of, package_robots.compiled)
)

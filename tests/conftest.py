"""Settings of every test: double precision, strict shapes, fixed seeds.

JAXCONTACT_FLOAT32=1 turns double precision off and keeps only the tests marked `float32`.
`--fifth 3` keeps one fifth of the files, which `make test` compiles as users do; `--day 8` keeps the short tests of the
other fifths, as 8 % 5 = 3, and a twentieth of the long tests of all files, as 8 % 20.
"""

import collections
import os
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings

FLOAT32 = os.environ.get("JAXCONTACT_FLOAT32", "0") == "1"

jax.config.update("jax_enable_x64", not FLOAT32)
jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("jaxcontact", derandomize=True, deadline=None, database=None)
settings.load_profile("jaxcontact")


def pytest_addoption(parser):
    parser.addoption("--fifth", type=int, help="0..4: only the files of this fifth")
    parser.addoption("--day", type=int, help="short tests outside of its fifth, a twentieth of the long ones")


def fifth_of(path):
    """Return the fifth, 0..4, of a file of tests; the same on every machine."""
    return zlib.crc32(path.relative_to(Path(__file__).parent).as_posix().encode()) % 5


def pytest_ignore_collect(collection_path, config):
    """Import only the files of the fifths asked for; in single precision only those with such tests."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    if FLOAT32 and "mark.float32" not in collection_path.read_text():
        return True
    only = config.getoption("--fifth")
    return True if only is not None and fifth_of(collection_path) != only else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    _mark_slow_cases(items)
    if (day := config.getoption("--day")) is not None:
        _keep(config, items, lambda item: _is_of_day(day, item))
        _put_long_files_first(items)
    if not FLOAT32:
        return
    _keep(config, items, lambda item: item.get_closest_marker("float32") is not None)
    for item in items:  # which know that they run in single precision
        item.add_marker(pytest.mark.filterwarnings("ignore::jaxcontact.PrecisionWarning"))


def _is_of_day(day, item):
    """Tell whether a test is a long one of the day's twentieth, or a short one outside of the day's fifth."""
    if is_long(item):
        return zlib.crc32(item.nodeid.encode()) % 20 == day % 20
    return fifth_of(item.path) != day % 5


def is_long(item):
    return item.get_closest_marker("long") is not None


def _keep(config, items, wanted):
    """Leave out the tests that are not wanted, in place."""
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]


def _put_long_files_first(items):
    """Sort files by their numbers of long tests, so that none of these begins when the others are done."""
    numbers = collections.Counter(item.path for item in items if is_long(item))
    items.sort(key=lambda item: -numbers[item.path])


def _mark_slow_cases(items):
    """Mark the cases that `slow_cases` names, by their ids; refuse ids that no case has."""
    cases = {}
    for item in items:
        marker = item.get_closest_marker("slow_cases")
        if marker is not None:
            of_test = cases.setdefault(item.nodeid.partition("[")[0], (set(marker.args), set()))
            of_test[1].add(item.callspec.id)
            if item.callspec.id in marker.args:
                item.add_marker(pytest.mark.slow)
    for name, (named, collected) in cases.items():
        if len(collected) > 1 and not named <= collected:
            raise pytest.UsageError(
                f"{name}: slow_cases names {sorted(named - collected)}, which are no cases"
            )


def _forget_programs():
    """Every compiled program holds memory maps, of which Linux grants a process 65530; then it crashes."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


@pytest.fixture(scope="module", autouse=True)
def _few_memory_maps():
    yield
    _forget_programs()


@pytest.fixture(autouse=True)
def _few_memory_maps_of_slow_cases(request):
    yield
    if request.node.get_closest_marker("slow"):
        _forget_programs()


@pytest.fixture
def rng():
    """A generator that gives every test the same numbers."""
    return np.random.default_rng(20240611)


@pytest.fixture
def tolerance():
    """`tolerance(double, single)`: the first in double precision, the second in single."""
    return lambda double, single: single if FLOAT32 else double


@pytest.fixture
def saved(monkeypatch):
    """Figures by the name of the file that they were saved to: a test looks at what they draw."""
    from matplotlib.figure import Figure

    figures, save = {}, Figure.savefig

    def keep(figure, path, **options):
        if isinstance(path, (str, Path)):  # an animation saves its frames in memory
            figures[Path(path).name] = figure
        return save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures

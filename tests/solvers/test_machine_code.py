"""Machine code on the disk: numba compiles an entry again if any file that it calls has changed."""

import shutil
from pathlib import Path

import pytest

from jaxcontact.solvers import compiled
from jaxcontact.solvers.machine_code import load_machine_code


@pytest.mark.parametrize("name", ["solvers/friction_sweeps", "solvers/compiled", "tolerances"])
def test_the_digest_changes_with_each_file(name, tmp_path, monkeypatch):
    room = Path(compiled.__file__).parent
    shutil.copytree(room, tmp_path / "solvers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(room.with_name("tolerances.py"), tmp_path)
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "solvers" / "compiled.py"))
    before = compiled.digest_sources("friction_sweeps", "friction_steps")
    assert before == compiled.digest_sources("friction_sweeps", "friction_steps") < 2**60
    path = tmp_path / f"{name}.py"
    path.write_text(path.read_text() + "# changed\n")
    assert compiled.digest_sources("friction_sweeps", "friction_steps") != before


@pytest.mark.parametrize(
    "module, entries",
    [("friction_code", ["solve_compiled", "solve_each"]), ("lemke_code", ["solve_steps", "solve_ends"])],
)
def test_entries_have_the_digest_of_all_files_that_they_call(module, entries):
    code = load_machine_code(module)
    home = Path(compiled.__file__).parent
    called, files = set(), [module]
    while files:
        name = files.pop()
        called.add(name)
        for line in (home / f"{name}.py").read_text().splitlines():
            if line.startswith("from jaxcontact.solvers."):
                other = line.split()[1].rsplit(".", 1)[1]
                files += [other] if other not in called else []
    expected = compiled.digest_sources(*sorted(called - {"compiled"}))
    for entry in entries:
        assert [cell.cell_contents for cell in getattr(code, entry).py_func.__closure__] == [expected]

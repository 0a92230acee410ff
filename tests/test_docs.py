"""The site builds without warnings and without a network, and its API pages have every public function."""

import importlib
import inspect
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.room_imports import BLOCK, HOUSE, draw_rooms
from helpers.signatures import public_names, rooms

import jaxcontact as jc

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 400_000  # bytes of a notebook


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    for package in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(package)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    for name, text in pages.items():
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*src="([^"]*)"|<link[^>]*href="([^"]*)"', text)
        assert not [link for pair in loaded for link in pair if "//" in link], name
    for room in ("impact", "compliant", "ess", "simulate", "stability", "viz"):
        text = pages[f"_api/jaxcontact.{room}.html"]
        for name, value in public_names(getattr(jc, room)).items():
            if inspect.isfunction(value) and value.__module__.startswith("jaxcontact"):
                assert f'id="jaxcontact.{room}.{name}"' in text, name
    law = pages["_api/jaxcontact.impact.html"].partition('id="jaxcontact.impact.anitescu_potra"')[2]
    for section in ("Status", "Derivative"):
        assert re.search(rf'class="rubric"[^>]*>{section}', law[:20_000])


def test_every_public_call_is_on_one_api_page():
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    listed = []
    for room, text in conf["api_pages"]().items():
        module = importlib.import_module(room)
        names = re.findall(r"\.\. auto(?:class|function):: (\S+)", text)
        listed += [id(getattr(module, name.rpartition(".")[2])) for name in names]
    assert len(set(listed)) == len(listed)
    for room, module in rooms().items():
        for name, value in public_names(module).items():
            if callable(value) and getattr(value, "__module__", "").startswith("jaxcontact"):
                assert id(value) in listed, f"{room}.{name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_with_the_outputs_of_one_run(path):
    text = path.read_text()
    assert len(text) < LARGEST
    cells = json.loads(text)["cells"]
    prose = "".join(line for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"])
    assert "$" not in prose  # mathematics that a script from elsewhere would set
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [1 + k for k in range(len(code))]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any(output.get("name") == "stdout" for output in outputs)
    assert not [
        output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"
    ]
    assert not re.search(r"/(?:home|root|tmp|work|usr|Users)/|Warning:|0x[0-9a-f]{6}", text)
    assert f"notebooks/{path.stem}\n" in (ROOT / "docs" / "index.md").read_text()


def test_outputs_are_compared_but_for_round_off():
    pytest.importorskip("nbclient", reason="the extra `notebooks` runs them")
    from run_notebooks import same

    assert same("x = 1.2345, off by 3e-12", "x = 1.2346, off by 5.1e-13")
    assert not same("x = 1.23", "x = 1.33")
    assert not same("inside", "outside")
    assert not same("1 2", "1 2 3")


@pytest.mark.parametrize("kind", ["law", "shape", "stepper"])
def test_what_one_adds_fits_in_one_short_file(kind):
    assert len((ROOT / "tests" / "extending" / f"test_own_{kind}.py").read_text().splitlines()) <= 60


def test_the_house_lists_every_room():
    table = (ROOT / "docs" / "extend" / "house.md").read_text()
    cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    listed = {name.partition("/")[0] for name in re.findall(r"`([\w/]+)`", cells)}
    package = ROOT / "jaxcontact"
    rooms = {path.name for path in package.iterdir() if (path / "__init__.py").is_file()}
    assert listed == rooms | {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}


def test_the_picture_of_the_rooms_is_that_of_the_source():
    assert BLOCK.search(HOUSE.read_text())[2] == draw_rooms(), "python tests/helpers/room_imports.py"

"""The site builds without warnings and without a network, and its API pages have every public function."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.signatures import public_names

import jaxcontact as jc

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    for package in ("sphinx", "myst_parser", "furo"):
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


@pytest.mark.parametrize("kind", ["law", "shape", "stepper"])
def test_what_one_adds_fits_in_one_short_file(kind):
    assert len((ROOT / "tests" / "extending" / f"test_own_{kind}.py").read_text().splitlines()) <= 60

"""Wheel and source distribution: built from a copy of the tree, used away from it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "out", "build", "dist", "*.egg-info", "_build")
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # building changes sys.argv
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""
USE = """
import pathlib, sys
import jaxcontact as jc
from jaxcontact.models.robots import file_of
assert pathlib.Path(jc.__file__).is_relative_to(sys.argv[1]), jc.__file__
assert "<mujoco" in file_of("quadruped")
from jaxcontact.cli.main import main
sys.exit(main(["view", "rocking_block", "--out", sys.argv[2]]))
"""


def builds():
    """Whether a setuptools that reads this pyproject.toml is installed."""
    try:
        import setuptools
    except ImportError:
        return False
    return int(setuptools.__version__.partition(".")[0]) >= 77


def test_the_citation_has_this_version_and_the_paper_of_every_method():
    text = (ROOT / "CITATION.cff").read_text()
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in text
    assert f'__version__ = "{version}"' in (ROOT / "jaxcontact" / "__init__.py").read_text()
    pages = [path for path in (ROOT / "docs" / "papers").glob("*.md") if path.name != "README.md"]
    for page in pages:
        for name in re.findall(r"\w+", page.read_text().splitlines()[0]):
            assert f"family-names: {name}," in text, name
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the citation")
    assert len(yaml.safe_load(text)["references"]) == len(pages)


@pytest.mark.slow
@pytest.mark.skipif(not builds(), reason="setuptools 77 or newer builds the distributions")
def test_distributions_hold_what_they_need_and_work_elsewhere(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    made = tmp_path / "made"
    done = subprocess.run([sys.executable, "-c", BUILD, str(made)], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = made.glob("*.whl")
    (source,) = made.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for needed in ("py.typed", "viz/templates/viewer.html", "models/mjcf/quadruped.xml"):
            assert f"jaxcontact/{needed}" in names
        assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
        archive.extractall(tmp_path / "installed")  # what pip does with a wheel of Python alone
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("tests/test_packaging.py", "tests/public_names.txt", "docs/understand/glossary.md", "CHANGELOG.md",
                   "CITATION.cff", "CONTRIBUTING.md", "Makefile", "LICENSE"):  # fmt: skip
        assert needed in inside, needed
    assert not [name for name in inside if name.endswith(".pyc")]
    page = tmp_path / "block.html"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    arguments = [sys.executable, "-c", USE, str(tmp_path / "installed"), str(page)]
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 10_000

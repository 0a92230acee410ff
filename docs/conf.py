"""The site: pages in Markdown, notebooks with their outputs, API pages from the docstrings.

Needs no network and executes no notebook; `make docs` builds it.

API pages are written for every public name of every room when a build begins, so none can be forgotten.
Pictures of the gallery are drawn if they are missing or their lines changed.
"""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import jaxcontact

project, author = "jaxcontact", "The jaxcontact developers"
copyright = author
version = release = jaxcontact.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "jaxcontact"
html_static_path = ["_static"]
html_show_sourcelink = False
myst_heading_anchors = 3
nb_execution_mode = "off"  # `python -m tests.run_notebooks` executes them
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_use_rtype = False
napoleon_use_ivar = True  # fields of a named tuple are documented once
napoleon_custom_sections = ["Status", "Derivative"]
SECTIONS = re.compile(r"(Status|Derivative): (.*)")

ROOMS = {
    "jaxcontact": "The front door: mechanisms, robots, matrices, status",
    "jaxcontact.io": "Files: models from MuJoCo, friction problems",
    "jaxcontact.models": "Ready mechanisms and robots",
    "jaxcontact.impact": "Impacts: laws, sampling, analysis",
    "jaxcontact.compliant": "Motion with springs and dampers of any stiffness",
    "jaxcontact.ess": "Event-selected systems and the one-sided derivative",
    "jaxcontact.simulate": "Motion by any stepper",
    "jaxcontact.optimize": "Trajectories, gaits and designs by gradient",
    "jaxcontact.stability": "Stability of equilibria on frictional contacts",
    "jaxcontact.viz": "Pictures and animations",
    "jaxcontact.mechanics": "Mechanics",
    "jaxcontact.terms": "Terms: a mechanism at one state as matrices",
    "jaxcontact.geometry": "Contact geometry",
    "jaxcontact.mechanics.joints": "`jc.joints`: joints as constraints between bodies",
    "jaxcontact.algebra.rotations": "`jc.rotations`: quaternions and rotations",
    "jaxcontact.optimize.gaits": "`jc.gaits`: mechanisms with their gait problems",
    "jaxcontact.peers": "Other simulators, for comparison",
}


def public_names(room):
    """Functions, classes and values of a room by name, without modules; of a file, its own."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in sorted(names)}
    home = "jaxcontact" if hasattr(module, "__path__") else room
    return {
        name: value
        for name, value in found.items()
        if not inspect.ismodule(value) and (getattr(value, "__module__", "") or "").startswith(home)
    }


def api_pages():
    """The text of the page of each room; what the front door has is only there."""
    pages, seen = {}, set()
    for room, title in ROOMS.items():
        # Names in annotations are those of the room: `Settings` of two rooms are two.
        lines = [room, "=" * len(room), "", f".. currentmodule:: {room}", "", title + ".", ""]
        for name, value in public_names(room).items():
            if id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.isclass(value):
                lines += [f".. autoclass:: {room}.{name}", "   :members:", ""]
            elif callable(value) and getattr(value, "__doc__", None) and hasattr(value, "__name__"):
                lines += [f".. autofunction:: {room}.{name}", ""]
        pages[room] = "\n".join(lines)
    return pages


def write_api(_app=None):
    """Write the pages into the folder that `index.md` lists; pages of earlier builds go."""
    folder = Path(__file__).parent / "_api"
    folder.mkdir(exist_ok=True)
    for page in folder.glob("*.rst"):
        page.unlink()
    for room, text in api_pages().items():
        (folder / f"{room}.rst").write_text(text)


def draw_gallery(_app=None):
    """Draw the pictures of the gallery by the lines on its page."""
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-m", "benchmarks.figures.gallery"], cwd=root, check=True)


def copy_notebooks(_app=None):
    """Copy the notebooks, which live beside the package, into the site; their links lead to its pages."""
    root = Path(__file__).parent
    (root / "notebooks").mkdir(exist_ok=True)
    for notebook in (root.parent / "notebooks").glob("*.ipynb"):
        (root / "notebooks" / notebook.name).write_text(notebook.read_text().replace("](../docs/", "](../"))


def link_notebooks(_app, _name, source):
    """Turn links of a page to notebooks beside the package into links to their pages."""
    source[0] = source[0].replace("](../../notebooks/", "](../notebooks/")


def plain(_app, what, _name, _object, _options, lines):
    """Docstrings are plain text with `code`: what would mean something to reStructuredText is escaped.

    A line `Derivative: exact.` becomes a section of that name.
    """
    text, in_section = [], False
    for line in lines:
        section = SECTIONS.fullmatch(line)
        if section:
            text += [f"{section[1]}:", f"    {section[2]}"]
            in_section = True
            continue
        in_section = in_section and bool(line)
        text.append("    " + line.strip() if in_section else line)
    lines[:] = [_escaped(line) for line in text]


def _escaped(line):
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", part) for part in parts
    )


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", write_api)
    app.connect("builder-inited", copy_notebooks)
    app.connect("builder-inited", draw_gallery)
    app.connect("source-read", link_notebooks)
    app.connect("autodoc-process-docstring", plain, priority=100)  # before napoleon

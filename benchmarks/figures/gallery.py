"""Draws the pictures of the gallery by the lines on its page: `python -m benchmarks.figures.gallery [NAME]`.

`make docs` draws those that are missing, or whose lines changed; the lines of a picture lie beside it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import jax

PAGE = Path(__file__).parents[2] / "docs" / "start" / "gallery.md"
FOLDER = PAGE.parents[1] / "_static" / "gallery"
WRITTEN = re.compile(r'"(\w+\.(?:png|gif|html))"')  # in the lines of a picture


def pictures() -> dict[str, str]:
    """Return the lines of each picture by the name of its file."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {WRITTEN.findall(lines)[-1]: lines for lines in blocks}


def draw(name: str, lines: str, folder: Path) -> Path:
    """Run the lines of a picture in a folder, and return the picture's path."""
    before = Path.cwd(), jax.config.jax_enable_x64  # type: ignore[attr-defined]
    os.chdir(folder)
    try:
        exec(compile(lines, name, "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before[0])
        jax.config.update("jax_enable_x64", before[1])
    return folder / name


def main(names: list[str]) -> None:
    """Draw these pictures; without names those that are missing or have changed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = pictures()
    for old in FOLDER.iterdir():
        if old.with_suffix("").name not in {Path(name).stem for name in found}:
            old.unlink()
    for name, lines in found.items():
        copy = (FOLDER / name).with_suffix(".txt")
        is_drawn = (FOLDER / name).is_file() and copy.is_file() and copy.read_text() == lines
        if Path(name).stem in names or (not names and not is_drawn):
            print(f"draws {draw(name, lines, FOLDER).name}", flush=True)
            copy.write_text(lines)


if __name__ == "__main__":
    main(sys.argv[1:])

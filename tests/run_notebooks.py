"""Executes the notebooks of the site in fresh kernels, and holds their stored outputs to what comes.

Run by `make test-all` as `python -m tests.run_notebooks`; with `--store` it writes the outputs into the files instead.
Names of notebooks choose some.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
ROUND_OFF = 1e-5  # printed numbers may differ by that much: residuals are made of it
RTOL = 2e-2  # of the others; the cells assert what matters


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What each code cell printed."""
    return [
        "".join(output.get("text", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def same(stored: str, came: str) -> bool:
    """The same words, and the same numbers but for round-off."""
    if [word.split() for word in NUMBER.split(stored)] != [word.split() for word in NUMBER.split(came)]:
        return False
    pairs = zip(map(float, NUMBER.findall(stored)), map(float, NUMBER.findall(came)), strict=True)
    return all(abs(a - b) <= max(ROUND_OFF, RTOL * max(abs(a), abs(b))) for a, b in pairs)


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs and nothing of this machine; an exception in a cell ends the run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=900, kernel_name="python3", record_timing=False, coalesce_streams=True
    ).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise RuntimeError(f"{path.name} complains: {output.text}")
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main(arguments: list[str]) -> int:
    """Run notebooks, and compare or store."""
    parser = argparse.ArgumentParser(prog="python -m tests.run_notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="of notebooks; all without one")
    parser.add_argument("--store", action="store_true", help="write the outputs into the files")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - {path.stem for path in FOLDER.glob("*.ipynb")}:
        parser.error(f"no notebook named {', '.join(sorted(unknown))}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA's remark on a slow compile is no output
    stale = []
    for path in sorted(FOLDER.glob("*.ipynb")):
        if options.names and path.stem not in options.names:
            continue
        begin = time.perf_counter()
        notebook = execute(path)
        if options.store:
            nbformat.write(notebook, path)
        elif not all(map(same, texts(nbformat.read(path, as_version=4)), texts(notebook))):
            stale.append(path.stem)
        print(f"{path.name}: ran in {time.perf_counter() - begin:.0f} s", flush=True)
    if stale:
        print(f"stored outputs differ; look, then run with --store: {', '.join(stale)}")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

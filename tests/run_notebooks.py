"""Executes every notebook in a fresh kernel; the files themselves keep no outputs.

Run by `make test-all` as `python -m tests.run_notebooks`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"


def main() -> int:
    """Run all notebooks; an exception in a cell ends the run."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if any(cell.get("outputs") for cell in notebook.cells):
            print(f"{path.name}: has stored outputs; strip them")
            return 1
        begin = time.perf_counter()
        NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
        print(f"{path.name}: ran in {time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

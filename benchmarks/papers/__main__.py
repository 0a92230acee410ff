"""Draw every figure and table of the papers: `python -m benchmarks.papers [--out DIR] [-k TEXT]`."""

from __future__ import annotations

import argparse
import importlib
import time
import traceback
from pathlib import Path

MODULES = ("halm_posa", "seghete_murphey", "drumwright", "anderson_revzen", "varkonyi")


def main() -> int:
    """Draw; the exit status is 1 if a figure failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description="Figures and tables of the papers."
    )
    parser.add_argument("--out", type=Path, default=Path("out/papers"), help="folder (default %(default)s)")
    parser.add_argument("-k", default="", help="only files whose name contains this text")
    options = parser.parse_args()
    import jax

    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = drawn = 0
    for name in MODULES:
        for file, draw in importlib.import_module(f"benchmarks.papers.{name}").FIGURES.items():
            file = f"{name}_{file}"
            if options.k not in file:
                continue
            drawn += 1
            begin, worked = time.perf_counter(), time.process_time()
            try:
                draw(options.out / file)
                clock, processor = time.perf_counter() - begin, time.process_time() - worked
                print(f"{file:44} {clock:6.1f} s, of a processor {processor:6.1f} s", flush=True)
            except ImportError as error:  # a peer that is not installed
                print(f"{file:44} left out: {error}", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
    if not drawn:
        parser.error(f"-k: no file has {options.k!r} in its name")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

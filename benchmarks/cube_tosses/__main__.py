"""`python -m benchmarks.cube_tosses [--data FILE.npz] [--json OUT] [--pictures FOLDER]`.

Fits on the 350 shipped tosses and scores FILE; without one, each half of the shipped tosses by the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax

from benchmarks import runner
from benchmarks.cube_tosses import protocol, report


def main(arguments: list[str] | None = None) -> int:
    """Run the protocol and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cube_tosses", description=__doc__)
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="tosses to score; default: cross-validation"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="also draw the pictures there")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also replace the section of this page")
    parser.add_argument("--tosses", type=int, metavar="N", help="only the first N of each file, for a look")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    begin = time.perf_counter()
    parts = protocol.run(
        options.data, options.tosses, lambda words: print(words, file=sys.stderr, flush=True)
    )
    found = protocol.summary(parts)
    name = options.data.name if options.data else "the shipped tosses, each half by the other"
    head = {**runner.header(), "scored": name}
    print(report.text(head, found))
    spent = {"seconds": time.perf_counter() - begin, "processor seconds": time.process_time()}
    print(f"{spent['seconds']:.0f} s, of processor time {spent['processor seconds']:.0f} s", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps({"header": head, **found, **spent}, indent=2))
    if options.results:
        report.replace_section(options.results, report.text(head, found))
    if options.pictures:
        from benchmarks.cube_tosses import pictures

        pictures.draw(parts, found, options.pictures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Guards that something guards: `python -m tests.mutants [-k REGEX]`, run by `make test-all`.

Each mutant takes one condition of soundness out of a copy of the package and runs the test that must notice.
The tests pass without mutants first; a mutant whose test still passes survives, and is an error, as is one
whose snippet is not found exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutant_list import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent
COPIED = ("jaxcontact", "tests", "pyproject.toml")


def copy_to(folder: Path, more: tuple[str, ...] = ()) -> None:
    """Copy the package and its tests, with nothing compiled."""
    for name in (*COPIED, *more):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(source, folder / name)


def apply(mutant: Mutant, folder: Path) -> None:
    """Changes the copy, or raises ValueError where the snippet is not there exactly once."""
    path = folder / "jaxcontact" / mutant.file
    text = path.read_text()
    if (count := text.count(mutant.before)) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has its snippet {count} times, expected once")
    path.write_text(text.replace(mutant.before, mutant.after))


def run_tests(folder: Path, tests: list[str]) -> tuple[int, str]:
    """Exit code of pytest and the end of what it said. Programs are shared: a mutant's have other names."""
    environment = os.environ | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")
        + " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def verdict(mutant: Mutant, folder: Path) -> str:
    """ "killed", or why not."""
    copy = folder / re.sub(r"\W+", "_", mutant.name)
    copy.mkdir()
    try:
        copy_to(copy)
        apply(mutant, copy)
        code, said = run_tests(copy, [mutant.test])
    except ValueError as error:
        return str(error)
    finally:
        shutil.rmtree(copy)
    # 1: tests failed. Anything else (no such test, a crash of pytest) kills nobody.
    return "killed" if code == 1 else ("SURVIVED" if code == 0 else f"pytest ended with {code}: {said}")


def main() -> int:
    """Run the mutants; exit code 1 where one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only mutants whose name matches")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at a time")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if re.search(options.k, mutant.name)]
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clean = folder / "clean"
        clean.mkdir()
        copy_to(clean)
        code, said = run_tests(clean, sorted({mutant.test for mutant in chosen}))
        if code:
            print(f"without a mutant the tests do not pass:\n{said}")
            return 1
        print(f"{time.perf_counter() - begin:5.0f} s  the tests pass without a mutant", flush=True)
        bad = 0
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, said in zip(chosen, pool.map(lambda m: verdict(m, folder), chosen), strict=True):
                bad += said != "killed"
                print(f"{time.perf_counter() - begin:5.0f} s  {mutant.name}: {said}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} mutants killed in {time.perf_counter() - begin:.0f} s")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

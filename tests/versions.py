"""`python -m tests.versions [--keep]`: a sample of the tests with the oldest packages, and with each Python.

Makes an environment for each case in .cache/versions, and says which cases cannot be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".cache" / "versions"
PYTHONS = ("3.11", "3.12", "3.13")
SAMPLE = (
    "tests/test_signatures.py", "tests/test_pytree.py", "tests/solvers/test_lcp.py", "tests/io/test_load_mjcf.py",
    "tests/impact/laws/test_anitescu_potra.py", "tests/impact/analysis", "tests/viz/test_mujoco_peer.py",
    "tests/native/test_rules.py", "tests/io/test_friction_files.py",
)  # fmt: skip


def floors(project: dict) -> list[str]:
    """The lower bounds of the packages that the tests need, as pins; a bound such as 3.9 is 3.9.0."""
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    pins = []
    for requirement in wanted:
        name, bound = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        digits = bound.split(".")
        pins.append(f"{name}=={'.'.join([*digits, *['0'] * (3 - len(digits))][: max(3, len(digits))])}")
    return pins


def cases() -> dict[str, tuple[str, list[str] | None]]:
    """The Python and the pins of each case; None is the newest packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, tuple[str, list[str] | None]] = {
        f"oldest, Python {PYTHONS[0]}": (PYTHONS[0], floors(project))
    }
    return found | {f"newest, Python {python}": (python, None) for python in PYTHONS}


def run(*command: str | Path) -> bool:
    print("+", *command, flush=True)
    return subprocess.run([str(word) for word in command], cwd=ROOT).returncode == 0


def interpreter(python: str) -> str | None:
    """The path of a Python of that version, on the path or installed by pyenv, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(pyenv.glob(f"versions/{python}.*/bin/python"))
    for name in (f"python{python}", sys.executable, *installed):
        path = shutil.which(name)
        code = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
        if path:
            told = subprocess.run([path, "-c", code], capture_output=True, text=True)
            if told.returncode == 0 and told.stdout.strip() == python:
                return str(path)
    return None


def outcome(python: str, pins: list[str] | None, folder: Path) -> str:
    """Install one case and run the sample; return what became of it."""
    path = interpreter(python)
    if path is None:
        return f"not run: no Python {python} on this machine"
    if not run(path, "-m", "venv", folder):
        return "not run: no environment could be made"
    pip = (folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    # A pin without a wheel for this Python is left to pip's choice, and is named.
    left_out = [pin for pin in pins or [] if not run(*pip, "--only-binary", ":all:", "--no-deps", pin)]
    kept = [pin for pin in pins or [] if pin not in left_out]
    if not run(*pip, "-e", ".[test]", *kept):
        return "not run: its packages cannot be installed together"
    note = f" (without {', '.join(left_out)}: no wheels)" if left_out else ""
    quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}"
    passed = run(folder / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *SAMPLE)
    return ("passed" if passed else "FAILED") + note


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args()
    results = {}
    for name, (python, pins) in cases().items():
        if not re.search(options.k, name):
            continue
        folder = FOLDER / re.sub(r"\W+", "_", name)
        results[name] = outcome(python, pins, folder)
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    width = max(map(len, results))
    print("\n".join(f"{name:{width}}  {result}" for name, result in results.items()))
    return 1 if any(result.startswith("FAILED") for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.kills [--minutes N] [--every S] [--seed S]`: long runs, killed about every S seconds.

`sample` and `ensemble` take turns. Each is killed until it is done, and then compared, bit by bit, with the
same run that nobody killed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
kind, seed, total, chunk, folder = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
model = jc.models.compass_gait()
state = model.initial_state()
law = jc.impact.Routh(impulse_step=0.25, max_steps=5)
run = jc.Run(chunk=chunk, checkpoint=folder)
if kind == "sample":
    jc.impact.sample(jc.contact_terms(model, state), state.v, law, num_samples=total, seed=seed, run=run,
                     reduce=lambda count, samples: 0)
else:
    motion = jc.simulate.MotionSettings(stepper=jc.simulate.TimeStepping(impact=law), duration=0.5, dt=0.01)
    jc.simulate.ensemble(model, state, motion,
                         num_worlds=total, seed=seed, run=run, reduce=lambda count, worlds: 0)
"""
TOTALS = {"sample": 2**23, "ensemble": 2**17}  # some minutes of work each
CHUNK, WHOLE_CHUNK = 700, 2**16  # small where it is killed, so that kills meet the writing
LAST = 3600  # s, until a run that nobody kills ends


def start(kind: str, seed: int, chunk: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own."""
    command = [sys.executable, "-c", PROGRAM, kind, str(seed), str(TOTALS[kind]), str(chunk), str(folder)]
    return subprocess.Popen(command)


def kill_until_done(kind: str, seed: int, every: float, folder: Path, chance: random.Random) -> int | None:
    """Kill a run again and again until it is done; return how often, None where it ended otherwise."""
    kills = 0
    while True:
        process = start(kind, seed, CHUNK, folder)
        try:
            code = process.wait(timeout=every * chance.uniform(0.5, 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        return kills if code == 0 else None


def differing(one: Path, other: Path) -> list[str]:
    """Names of the arrays that differ, or that one of the two folders lacks."""
    names = sorted({path.name for folder in (one, other) for path in folder.glob("*.npy")})
    equal = [
        name
        for name in names
        if (one / name).exists()
        and (other / name).exists()
        and subprocess.run(["cmp", "-s", one / name, other / name]).returncode == 0
    ]
    return [name for name in names if name not in equal]


def main() -> int:
    """Take turns until the time is over; exit code 1 if a bit differs or a run ends with an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="under kills, default 60")
    parser.add_argument("--every", type=float, default=60.0, metavar="S", help="seconds between kills")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the runs and of the kills")
    options = parser.parse_args()
    chance, begin = random.Random(options.seed), time.monotonic()
    under_kills, total, failures = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as parent:
        folders = {kind: Path(parent, kind) for kind in TOTALS}
        for kind, folder in folders.items():
            if start(kind, options.seed, WHOLE_CHUNK, folder).wait(timeout=LAST):
                raise SystemExit(f"{kind} ends with an error though nobody kills it")
        for kind in itertools.cycle(TOTALS):
            first, killed = time.monotonic(), Path(parent, "killed")
            kills = kill_until_done(kind, options.seed, options.every, killed, chance)
            wrong = ["ended with an error"] if kills is None else differing(killed, folders[kind])
            shutil.rmtree(killed)
            under_kills += time.monotonic() - first
            total, failures = total + (kills or 0), failures + bool(wrong)
            print(
                f"{time.monotonic() - begin:6.0f} s  {kind}: {kills} kills, {wrong or 'same bits'}",
                flush=True,
            )
            if under_kills > 60.0 * options.minutes:
                break
    print(f"{total} kills in {under_kills:.0f} s, {failures} runs with other bits")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

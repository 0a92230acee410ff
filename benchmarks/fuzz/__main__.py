"""Random problems against independent oracles; exit code 1 where an answer is wrong without saying so.

Rounds of all checks take turns, the check with the least time spent next. A round is one seed; a failure
prints the line that repeats it. Interrupted or terminated, it prints the counts so far.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
import traceback
import warnings

import jax

SHOWN = 24  # failures of a check that are printed; all are counted
SCRIPT = """
import jax
jax.config.update("jax_enable_x64", True)
from benchmarks.fuzz.checks import CHECKS
print(*CHECKS["{name}"]({seed}).failures, sep="\\n")"""


def main(arguments: list[str] | None = None) -> int:
    """Run the checks, print the counts as a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, metavar="N", help="how long, default 5")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first round, or of --case")
    parser.add_argument("--case", metavar="NAME", help="one round of one check")
    parser.add_argument("--only", metavar="NAME,...", help="these checks alone")
    parser.add_argument("--rounds", type=int, metavar="N", help="of each check, instead of minutes")
    parser.add_argument("--first", action="store_true", help="end at the first failure")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    warnings.filterwarnings("ignore", message="single precision")  # it is tried out on purpose
    from benchmarks.fuzz.checks import CHECKS
    from benchmarks.fuzz.tally import Check, Tally, table

    checks: dict[str, Check] = dict(CHECKS)
    if options.case or options.only:
        names = [options.case] if options.case else options.only.split(",")
        if unknown := [name for name in names if name not in CHECKS]:
            parser.error(f"expected checks among {', '.join(CHECKS)}, got {', '.join(unknown)}")
        checks = {name: CHECKS[name] for name in names}
    total = {name: Tally() for name in checks}
    spent, rounds = dict.fromkeys(checks, 0.0), dict.fromkeys(checks, 0)
    begin = time.perf_counter()
    first: dict[str, int] = {}  # seed of the first failure of each check

    def take_turns() -> None:
        while True:
            name = min(checks, key=lambda n: rounds[n] if options.rounds else spent[n])
            seed = options.seed + rounds[name]
            start = time.perf_counter()
            try:
                found = checks[name](seed)
            except Exception:
                found = Tally(failures=["raised " + traceback.format_exc(limit=-3).replace("\n", " ")])
            spent[name] += time.perf_counter() - start
            rounds[name] += 1
            room = len(found.failures) if options.case else min(3, SHOWN - len(total[name].failures))
            for line in found.failures[: max(0, room)]:
                when = f"{time.perf_counter() - begin:6.0f} s, {time.process_time():.0f} s of CPU"
                print(f"{when}  python -m benchmarks.fuzz --case {name} --seed {seed}   # {line}", flush=True)
            total[name].add(found)
            if found.failures:
                first.setdefault(name, seed)
            late = time.perf_counter() - begin > 60.0 * options.minutes
            if min(rounds.values()) == options.rounds if options.rounds else late:
                return
            if options.case or (options.first and found.failures):
                return

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        take_turns()
    print(table(total, spent, rounds))
    for name, seed in first.items():
        print(SCRIPT.format(name=name, seed=seed))
    print(f"\n{time.perf_counter() - begin:.0f} s, {time.process_time():.0f} s of CPU")
    return 1 if any(tally.failures for tally in total.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

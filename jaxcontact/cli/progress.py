"""The progress of a command: one line on standard error that is overwritten again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

WIDTH = 24  # characters of a bar
LINE = 100  # characters of a line, which covers the one before
WAIT = 2.0  # s; a shorter run of samples prints nothing


def _show(text: str, last: bool) -> None:
    print(f"\r  {text}", end="\n" if last else "", file=sys.stderr, flush=True)


def bar(describe: Callable[..., str] | None = None, also: Callable[[], str] = str) -> Callable[..., None]:
    """Make a function (num_done, total, *values) that prints a bar; `describe` turns values into text.

    The time left is that of all steps up to the total, at the rate since the first one, which compiles; a
    search may end before. `also` returns what is printed at the end.
    """
    start = time.perf_counter()
    first: tuple[float, int] | None = None
    last = 0

    def report(num_done: int, total: int, *values: object) -> None:
        nonlocal first, last
        now = time.perf_counter()
        if first is None or num_done <= last:  # the first report, or that of a new phase
            first = now, num_done
        last = num_done
        filled = "#" * (WIDTH * num_done // total)
        words = "" if describe is None else f"{describe(*values)}  "
        left = ""
        if first[1] < num_done < total:
            left = f", {(now - first[0]) / (num_done - first[1]) * (total - num_done):.0f} s left"
        text = f"[{filled:<{WIDTH}}] {num_done}/{total}  {words}{now - start:.0f} s{left}{also()} "
        _show(f"{text:<{LINE}}", num_done == total)

    return report


def describe_search(cost: float, residual: float, slope: float) -> str:
    """Describe a point of an optimisation: its cost, largest error and length of the gradient."""
    return f"cost {cost:.5f}  error {residual:.0e}  slope {slope:.0e}"


def rate_of_samples(stored: int, also: Callable[[], str] = str) -> Callable[[int, int], None]:
    """Make a function (num_done, total) that prints the samples done, their rate and the time left.

    It prints if a run takes longer than `WAIT` seconds, and then every second. Rate and time left exclude
    the `stored` samples and the first chunk after them, which compiles. `also` returns what is
    printed at the end.
    """
    begin = shown = time.perf_counter()
    start: tuple[float, int] | None = None

    def report(num_done: int, total: int) -> None:
        nonlocal shown, start
        now = time.perf_counter()
        if start is None and num_done > stored:
            start = now, num_done
        if now - begin < WAIT or (now - shown < 1.0 and num_done < total):
            return
        shown = now
        text = f"{num_done:>9} of {total} samples"
        if start is not None and num_done > start[1]:
            rate = (num_done - start[1]) / (now - start[0])
            text += f", {rate:,.0f} per second, {(total - num_done) / rate:.0f} s left"
        _show(f"{text + also():<70}", num_done == total)

    return report

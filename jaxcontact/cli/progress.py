"""Progress of a command, one line on standard error that is written over and over."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

WIDTH = 24  # of a bar


def _show(text: str, last: bool) -> None:
    print(f"\r  {text}", end="\n" if last else "", file=sys.stderr, flush=True)


def bar(describe: Callable[..., str] | None = None) -> Callable[..., None]:
    """A bar to call with what is done, what there is, and what `describe` puts into words."""
    start = time.perf_counter()

    def report(done: int, total: int, *more: float) -> None:
        filled = "#" * (WIDTH * done // total)
        words = "" if describe is None else f"{describe(*more)}  "
        spent = time.perf_counter() - start
        _show(f"[{filled:<{WIDTH}}] {done}/{total}  {words}{spent:.0f} s ", done == total)

    return report


def rate_of_samples(stored: int, wait: float = 2.0, every: float = 1.0) -> Callable[[int, int], None]:
    """Samples done, per second and time left, once a run takes longer than `wait` seconds.

    Rate and time left are those of the chunks behind `stored` samples and the first one, which compiles.
    """
    begin = shown = time.perf_counter()
    start: tuple[float, int] | None = None

    def report(done: int, total: int) -> None:
        nonlocal shown, start
        now = time.perf_counter()
        if start is None and done > stored:
            start = now, done
        if now - begin < wait or (now - shown < every and done < total):
            return
        shown = now
        text = f"{done:>9} of {total} samples"
        if start is not None and done > start[1]:
            rate = (done - start[1]) / (now - start[0])
            text += f", {rate:,.0f} per second, {(total - done) / rate:.0f} s left"
        _show(f"{text:<70}", done == total)

    return report

"""The progress of a run of samples: one line on standard error that is overwritten again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from jaxcontact.batching.progress import overwrite_line

WAIT = 2.0  # s; a shorter run of samples prints nothing


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
        overwrite_line(f"{text + also():<70}", is_last=num_done == total)

    return report

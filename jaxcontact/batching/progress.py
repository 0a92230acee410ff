"""Where a computation on the host stands: what every optimiser reports, `Progress`, and the line of it.

Owns the form of reports to `Run.progress`, and `progress_line`, which prints them. Page:
docs/understand/long-runs.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from jaxcontact.front_door import checked

WIDTH = 24  # characters of a bar
LINE = 100  # characters of a line, which covers the one before


class Progress(NamedTuple):
    """Where an optimisation stands: the third value that it reports, after the numbers of steps.

    Attributes:
        cost: of the last point; for a design the squared length of the change, for an identification the
            score or misfit.
        slope: length of the gradient, along the constraints and of numbers that no bound stops.
        residual: largest error of the constraints; None if there are none.
        phase: of a search in parts, such as a start or a level of smoothing.
    """

    cost: float
    slope: float
    residual: float | None = None
    phase: str = ""

    def __str__(self) -> str:
        """Describe the point on a line."""
        phase = f"{self.phase}: " if self.phase else ""
        error = "" if self.residual is None else f"  error {self.residual:.0e}"
        return f"{phase}cost {self.cost:.6g}{error}  slope {self.slope:.0e}"


Report = Callable[[int, int, Progress], None]  # report(done, total, progress), of an optimiser


def overwrite_line(text: str, *, is_last: bool) -> None:
    """Print a line on standard error that the next one overwrites, unless it is the last."""
    print(f"\r  {text}", end="\n" if is_last else "", file=sys.stderr, flush=True)


@checked()
def progress_line(also: Callable[[], str] = str) -> Callable[..., None]:
    """Make a function for `jc.Run(progress=)` that prints one line on standard error, again and again.

    The line has a bar, the numbers of steps, the time so far and the time left; of an optimisation also cost,
    error of the constraints, length of the gradient and phase. The time left is that of all steps up to the
    total, at the rate since the first one, which compiles; a search may end before.

    Args:
        also: returns text for the end of the line.

    Returns:
        (done, total, progress=None) -> None.
    """
    begin = time.perf_counter()
    first: tuple[float, int] | None = None
    last = 0

    def report(done: int, total: int, progress: Progress | None = None) -> None:
        nonlocal first, last
        now = time.perf_counter()
        if first is None or done <= last:  # the first report, or that of a new phase
            first = now, done
        last = done
        filled = "#" * (WIDTH * done // total)
        words = "" if progress is None else f"{progress}  "
        left = ""
        if first[1] < done < total:
            left = f", {(now - first[0]) / (done - first[1]) * (total - done):.0f} s left"
        text = f"[{filled:<{WIDTH}}] {done}/{total}  {words}{now - begin:.0f} s{left}{also()} "
        overwrite_line(f"{text:<{LINE}}", is_last=done == total)

    return report

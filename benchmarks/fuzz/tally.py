"""What checks find: counts, the worst residual of each oracle, failures with their reproducing line.

An answer with a failing status bit is declined, not wrong; only a wrong answer without one is a failure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxcontact.status import Status


@dataclasses.dataclass
class Tally:
    """What one round, or all rounds, of a check found.

    Attributes:
        problems: answers looked at, the declined ones included.
        declined: answers with a failing status bit.
        worst: per oracle the largest residual that passed or failed, over its limit.
        residual: per oracle the largest residual itself.
        failures: one line each.
    """

    problems: int = 0
    declined: int = 0
    worst: dict[str, float] = dataclasses.field(default_factory=dict)
    residual: dict[str, float] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)

    def count(self, status: Any) -> np.ndarray:
        """Counts answers by their status; returns which succeeded."""
        good = (np.atleast_1d(np.asarray(status)) & np.uint32(int(Status.FAILURES))) == 0
        self.problems += good.size
        self.declined += int(np.sum(~good))
        return good

    def judge(self, oracle: str, value: Any, limit: Any, good: Any = True, note: Any = "") -> None:
        """Compares residuals (...,) of one oracle with their limit wherever `good`; NaN fails."""
        value, limit, good = np.broadcast_arrays(*np.atleast_1d(value, limit, good))
        if not np.any(good):
            return
        share = np.where(np.isnan(value), np.inf, value / limit)
        share = np.where(good, share, -np.inf)
        top = int(np.argmax(share))
        if share.flat[top] >= self.worst.get(oracle, -np.inf):
            self.worst[oracle] = float(share.flat[top])
            self.residual[oracle] = float(value.flat[top])
        for lane in np.flatnonzero(share > 1.0):
            self.failures.append(
                f"{oracle}: {value.flat[lane]:.3g} > {limit.flat[lane]:.3g}, lane {lane} {note}".rstrip()
            )

    def poisoned(
        self, spoilt: np.ndarray, status: Any, answer: Any, before: Any, rounding: float = 0.0
    ) -> None:
        """Spoilt lanes must say so; the others must have the very answer that they had `before`.

        `rounding`: of their largest number, where a loop moves lanes that still run to other places.
        """
        failed = (np.asarray(status) & np.uint32(int(Status.FAILURES))) != 0
        self.judge("poisoned lane says so", (~failed).astype(float), 0.5, spoilt)
        now, then = (np.asarray(a).reshape(len(spoilt), -1) for a in (answer, before))
        room = rounding * np.max(np.abs(then), axis=1, keepdims=True, initial=0.0)
        moved = ~np.all((now == then) | (np.abs(now - then) <= room), axis=1)
        self.judge("neighbour of poison", moved.astype(float), 0.5, ~spoilt)

    def add(self, other: Tally) -> None:
        """Takes in what another round found."""
        self.problems += other.problems
        self.declined += other.declined
        for oracle, share in other.worst.items():
            if share >= self.worst.get(oracle, -np.inf):
                self.worst[oracle], self.residual[oracle] = share, other.residual[oracle]
        self.failures += other.failures


Check = Callable[[int], Tally]  # a seed to what its round found


def table(total: dict[str, Tally], seconds: dict[str, float], rounds: dict[str, int]) -> str:
    """The counts as a Markdown table."""
    rows = [
        "| check | rounds | answers | declined | failures | s | worst residual per oracle (over its limit) |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, tally in total.items():
        worst = ", ".join(
            f"{oracle} {tally.residual[oracle]:.1e} ({share:.1e})" for oracle, share in tally.worst.items()
        )
        rows.append(
            f"| {name} | {rounds[name]} | {tally.problems} | {tally.declined} | {len(tally.failures)} "
            f"| {seconds[name]:.0f} | {worst} |"
        )
    return "\n".join(rows)

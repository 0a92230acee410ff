"""A search from guesses in turn, each in phases, that resumes from a checkpoint: entry `PhasedSearch`.

Owns the record of where the search stands and its file; `sequential_quadratic` has the steps. Page:
docs/understand/long-runs.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from jaxcontact.batching.progress import Progress, Report
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run
from jaxcontact.io.state_file import StateFile, open_state
from jaxcontact.optimize import sequential_quadratic
from jaxcontact.optimize.sequential_quadratic import ProgramPoint, ProgramState

FORMAT = "jaxcontact search in phases, 1"
NEARLY = 1e-4  # length of the errors up to which the search compares costs alone
JOINED = 1e-3  # length of the errors at which no further guess is tried


class PhasedProblem(Protocol):
    """A cost with constraints; `pushes` are the shares of contact forces that act in a phase."""

    pushes: np.ndarray
    evaluations: int

    def evaluate(self, s: np.ndarray) -> ProgramPoint:
        """Compute cost, constraints and their derivatives."""


class Phase(NamedTuple):
    """A search under certain contact forces: its largest number of steps and last change of a variable."""

    name: str
    pushes: np.ndarray
    max_iters: int
    change: float


class PhasedRecord(NamedTuple):
    """What a search continues from: its guess and phase, the steps there, and the ends of guesses so far.

    The ends (k, n) have errors of lengths `violations` (k,) and last changes `changes` (k,). At the end of
    the search `phase` is the number of phases. `seconds` are those before the search was resumed.
    """

    guess: int
    phase: int
    state: ProgramState
    ends: np.ndarray
    violations: np.ndarray
    changes: np.ndarray
    evaluations: int
    seconds: float


class PhasedSearch:
    """A search for variables of least cost under constraints, from guesses in turn until one leads there.

    `about` has the items that determine the search; a checkpoint of another one is refused.
    """

    def __init__(
        self, problem: PhasedProblem, guesses: Sequence[Callable[[], np.ndarray]], phases: Sequence[Phase],
        bounds: tuple[np.ndarray, np.ndarray], about: Mapping[str, object], run: Run = DEFAULT_RUN,
    ) -> None:  # fmt: skip
        self._problem, self._guesses, self._phases, self._bounds = problem, guesses, phases, bounds
        path = None if run.checkpoint is None else Path(run.checkpoint)
        self._file = StateFile(path, {"format": FORMAT, **about})
        self._report: Report | None = run.progress
        self._begin = 0.0

    def run(self) -> PhasedRecord:
        """Search, from the checkpoint if there is one; every step is on the disk before it is reported.

        Raises:
            ValueError: a checkpoint that is damaged, of another search, or in use by another process.
            OSError: the checkpoint cannot be written.
        """
        self._begin = time.perf_counter()
        with open_state(self._file.path):
            record = self._load() or self._first_record()
            self._begin -= record.seconds
            self._problem.evaluations = record.evaluations - record.state.num_recomputed
            while record.phase < len(self._phases):
                record = self._run_phase(record)
                self._save(record)
        return record

    def _first_record(self) -> PhasedRecord:
        start, none = self._start(0), np.zeros(0)
        return PhasedRecord(0, 0, start, np.zeros((0, start.s.size)), none, none, 0, 0.0)

    def _start(self, guess: int) -> ProgramState:
        """Make the state of a search from a guess."""
        return sequential_quadratic.begin(self._guesses[guess](), self._bounds)

    def _run_phase(self, record: PhasedRecord) -> PhasedRecord:
        """Search to the end of a phase, and return the record of the next one."""
        phase = self._phases[record.phase]

        def report(state: ProgramState, point: ProgramPoint) -> None:
            self._save(record._replace(state=state))
            if self._report is not None:
                slope = sequential_quadratic.slope_along(point, self._bounds)
                largest = float(np.max(np.abs(point.residuals), initial=0.0))
                name = f"{phase.name}, guess {record.guess + 1}"
                self._report(state.num_steps, phase.max_iters, Progress(point.cost, slope, largest, name))

        self._problem.pushes = phase.pushes
        end = sequential_quadratic.minimise(
            self._problem.evaluate, record.state, self._bounds, max_iters=phase.max_iters,
            change=phase.change, tol=NEARLY, progress=report,
        )  # fmt: skip
        start = sequential_quadratic.begin(end.point.s, self._bounds)
        record = record._replace(phase=record.phase + 1, state=start)
        if record.phase < len(self._phases):
            return record
        record = record._replace(
            ends=np.concatenate([record.ends, end.point.s[None]]),
            violations=np.append(record.violations, end.point.violation),
            changes=np.append(record.changes, end.change),
        )
        if end.point.violation <= JOINED or record.guess + 1 == len(self._guesses):
            return record
        return record._replace(guess=record.guess + 1, phase=0, state=self._start(record.guess + 1))

    def _save(self, record: PhasedRecord) -> None:
        state, evaluations = record.state, self._problem.evaluations
        counts = record.guess, record.phase, state.num_steps, state.num_leaps, state.must_leap, evaluations
        numbers = state.radius, state.weight, time.perf_counter() - self._begin
        arrays = {"s": state.s, "best": state.best, "counts": np.array(counts), "numbers": np.array(numbers)}
        arrays |= {name: getattr(record, name) for name in ("ends", "violations", "changes")}
        self._file.save(arrays)

    def _load(self) -> PhasedRecord | None:
        """Read the record from the checkpoint; return None if there is none."""
        data = self._file.load()
        if data is None:
            return None
        guess, phase, num_steps, num_leaps, must_leap, evaluations = data["counts"].tolist()
        radius, weight, seconds = data["numbers"].tolist()
        state = ProgramState(data["s"], data["best"], radius, weight, num_steps, num_leaps, bool(must_leap))
        ends, violations, changes = (data[name] for name in ("ends", "violations", "changes"))
        return PhasedRecord(guess, phase, state, ends, violations, changes, evaluations, seconds)

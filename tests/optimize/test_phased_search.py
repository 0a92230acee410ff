"""Searches in phases: what the checkpoint of one is good for, killed at every place."""

import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.io import state_file
from jaxcontact.optimize.phased_search import Phase, PhasedSearch
from jaxcontact.optimize.sequential_quadratic import ProgramPoint

BOUNDS = np.full(3, -9.0), np.full(3, 9.0)
SHORT, LONG = (
    (Phase("plan", np.zeros(1), plan, 1e-2), Phase("law", np.ones(1), law, 1e-6))
    for plan, law in ((2, 4), (6, 25))
)


class Valley:
    """A bent valley on a sphere, which `pushes` dents; they also forbid the half with the first guess."""

    def __init__(self):
        self.pushes, self.evaluations = np.ones(1), 0

    def evaluate(self, s):
        self.evaluations += 1
        push = float(self.pushes[0])
        errors = np.array([s @ s - 9.0 + push * np.sin(7 * s[0]), push * (s[2] < 0)])
        slopes = np.array([2 * s + push * np.array([7 * np.cos(7 * s[0]), 0.0, 0.0]), np.zeros(3)])
        bend = s[1] - s[0] ** 2
        rise = np.array([-2 * (1 - s[0]) - 40 * s[0] * bend, 20 * bend, 0.0])
        curvature = np.diag([2 + 80 * s[0] ** 2, 20.0, 0.0])
        cost = (1 - s[0]) ** 2 + 10 * bend**2
        return ProgramPoint(s, cost, rise, curvature, errors, slopes)


GUESSES = (lambda: np.array([0.1, -0.7, -2.0]), lambda: np.array([0.4, 0.3, 2.0]))


def search(phases, checkpoint=None, progress=None, about=("valley", 1)):
    problem = Valley()
    record = PhasedSearch(
        problem, GUESSES, phases, BOUNDS, dict([about]), jc.Run(checkpoint=checkpoint, progress=progress)
    ).run()
    return record, problem.evaluations


def assert_same(found, expected):
    for name in ("guess", "phase", "ends", "violations", "changes"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(expected[0], name))
    assert found[1] == expected[1]


@pytest.mark.long
def test_a_search_killed_at_any_write_resumes_to_the_same_bits(tmp_path, monkeypatch):
    """Writes are after every step, at the end of every phase, and of the search; kills before or after one."""
    write, left, is_before = state_file.save_state, [10**9], [False]

    def killed(*arguments):
        left[0] -= 1
        if left[0] == 0 and is_before[0]:
            raise KeyboardInterrupt
        write(*arguments)
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(state_file, "save_state", killed)
    uninterrupted = search(SHORT, tmp_path / "all.npz")
    total = 10**9 - left[0]
    assert total > 12 and uninterrupted[0].guess == 1
    for number in range(1, total + 1):
        path, left[0], is_before[0] = tmp_path / f"{number}.npz", number, number % 3 == 1
        with pytest.raises(KeyboardInterrupt):
            search(SHORT, path)
        left[0] = 10**9
        assert_same(search(SHORT, path), uninterrupted)
        assert 10**9 - left[0] == total - number + is_before[0]


def test_a_search_killed_at_every_third_step_resumes_again_and_again(tmp_path):
    uninterrupted = search(LONG)
    record = uninterrupted[0]
    assert record.guess == 1 and record.phase == 2 and record.violations[0] > 1e-2 > record.violations[1]
    path, kills, names = tmp_path / "run.npz", 0, []

    def kill(step, total, at):
        names.append(at.phase)
        if len(names) % 3 == 0:
            raise KeyboardInterrupt

    while True:
        try:
            found = search(LONG, path, kill)
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills > 5
    assert_same(found, uninterrupted)
    assert list(dict.fromkeys(names)) == ["plan, guess 1", "law, guess 1", "plan, guess 2", "law, guess 2"]
    assert_same(search(LONG, path), uninterrupted)  # a finished search is read


def test_checkpoints_of_other_searches_and_damaged_ones_are_refused(tmp_path):
    path = tmp_path / "run.npz"
    search(SHORT, path)
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"another run and was left as it is; these differ: valley \(1 there, 2"
    ):
        search(SHORT, path, about=("valley", 2))
    assert path.read_bytes() == before
    path.write_bytes(before[:-30])
    with pytest.raises(ValueError, match="cannot be read"):
        search(SHORT, path)

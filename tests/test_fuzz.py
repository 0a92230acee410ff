"""The fuzzer's own parts: its oracles know closed forms, and a wrong answer ends in exit code 1."""

import importlib

import numpy as np
import pytest

from benchmarks.fuzz import __main__, checks, oracles, problems, surfaces, tally
from jaxcontact import Status
from tests.fuzz_faults import FAULTS
from tests.mutants import ROOT

FOUND = (  # rounds that found a fault
    ("compliant", 51260755), ("compliant", 51260764), ("spin", 51260745), ("shapes", 51260755), ("motions", 51260748),
    ("elastic", 51261536), ("elastic", 51261701), ("spatial", 51260770), ("spatial", 51260772),
    ("every_outcome", 51260775), ("simultaneous", 51260902),
)  # fmt: skip
QUICK = ("files", "inputs", "trees", "energies")  # checks of which every run of the tests has a round


def point_mass(v, mu):
    """1 kg on the ground, in the plane."""
    J = np.array([[[[0.0, 1.0], [1.0, 0.0]]]])
    return problems.Batch(
        np.eye(2)[None], J, np.array([v]), np.array([[mu]]), np.zeros((1, 1)), np.ones((1, 1), bool)
    )


@pytest.mark.parametrize(
    ("v", "mu", "expected"),
    [
        ((1.0, -1.0), 0.5, (0.5, 0.0)),
        ((1.0, -1.0), 2.0, (0.0, 0.0)),
        ((0.3, -1.0), 0.0, (0.3, 0.0)),
        ((0.3, 2.0), 1.0, (0.3, 2.0)),
    ],
)
def test_brute_force_and_residuals_of_a_point_mass(v, mu, expected):
    batch = point_mass(v, mu)
    found, valid = oracles.outcomes(batch)
    np.testing.assert_allclose(np.unique(found[valid].round(12), axis=0), [expected])
    change = np.subtract(expected, v)
    impulse = np.array([[[change[1], change[0]]]])
    assert all(x <= 1e-15 for x in oracles.residuals(batch, np.array([expected]), impulse).values())
    worst = oracles.residuals(batch, np.array([v]), 0.0 * impulse)
    assert (max(worst.values()) > 0.1) == (v[1] < 0)


def test_a_cap_leaves_what_it_cannot_stop():
    found, valid = oracles.outcomes(point_mass((0.0, -1.0), 0.5), np.array([[0.25]]))
    np.testing.assert_allclose(np.unique(found[valid].round(12), axis=0), [(0.0, -0.75)])


def test_units_change_numbers_and_not_the_problem():
    rng = np.random.default_rng(0)
    batch = problems.random_batch(rng, 8, 3, 2, 6, None)
    factors = 10.0 ** rng.uniform(-3, 3, (3, 8))
    other = problems.in_units(batch, factors, 10.0 ** rng.uniform(-2, 2, batch.v.shape))
    one, two = oracles.scaled(batch), oracles.scaled(other)
    np.testing.assert_allclose(two.D, one.D, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(two.u / two.speed[:, None], one.u / one.speed[:, None], rtol=1e-9, atol=1e-9)


def test_a_declined_answer_is_no_failure_and_nan_is_one():
    found = tally.Tally()
    good = found.count(np.array([0, int(Status.STALLED), int(Status.GRAZING)], np.uint32))
    assert good.tolist() == [True, False, True] and found.declined == 1
    found.judge("oracle", np.array([0.5, 9.0, 0.1]), 1.0, good)
    assert not found.failures and found.residual == {"oracle": 0.5}
    found.judge("oracle", np.array([np.nan, 9.0, 2.0]), 1.0, good)
    assert len(found.failures) == 2


def test_failures_print_their_line_and_end_in_exit_code_1(monkeypatch, capsys):
    def wrong(seed):
        found = tally.Tally(problems=1)
        found.judge("oracle", float(seed), 3.5)
        return found

    monkeypatch.setattr(checks, "CHECKS", {"wrong": wrong})
    for seed, code in ((4, 1), (3, 0)):
        monkeypatch.setattr("sys.argv", ["fuzz", "--case", "wrong", "--seed", str(seed)])
        assert __main__.main() == code
        said = capsys.readouterr().out
        assert ("python -m benchmarks.fuzz --case wrong --seed 4   # oracle: 4 > 3.5" in said) == bool(code)
        assert f"| wrong | 1 | 1 | 0 | {code} |" in said
        assert ('CHECKS["wrong"](4).failures' in said) == bool(code)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_a_round_that_found_a_fault_finds_nothing(name, seed):
    assert not checks.CHECKS[name](seed).failures


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in checks.CHECKS]
)
def test_a_round_of_every_check_finds_nothing(name):
    found = checks.CHECKS[name](0)
    assert found.problems and not found.failures


def test_a_file_whose_wrong_bits_are_believed_is_found(monkeypatch, tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(4.0).tobytes())
    monkeypatch.setattr(surfaces, "stored", lambda seed=0: [(path, lambda: np.frombuffer(path.read_bytes()))])
    assert all("other numbers" in line for line in surfaces.files(0).failures) and surfaces.files(0).failures


def test_the_subcommand_of_benchmarks_is_the_fuzzer(monkeypatch, capsys):
    monkeypatch.setattr(checks, "CHECKS", {"good": lambda seed: tally.Tally(problems=seed)})
    monkeypatch.setattr("sys.argv", ["benchmarks", "fuzz", "--case", "good", "--seed", "7"])
    assert importlib.import_module("benchmarks.__main__").main() == 0
    assert "| good | 1 | 7 | 0 | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_to_be_found_has_its_place_and_its_check(fault):
    assert (ROOT / "jaxcontact" / fault.file).read_text().count(fault.before) == 1
    assert fault.test in checks.CHECKS and fault.before != fault.after


def test_rounds_end_at_their_number_or_at_the_first_failure(monkeypatch, capsys):
    def every_third(seed):
        return tally.Tally(problems=1, failures=["wrong"] if seed % 3 == 2 else [])

    monkeypatch.setattr(checks, "CHECKS", {"good": lambda seed: tally.Tally(problems=1), "bad": every_third})
    for options, count in ([], 4), (["--first"], 3):
        assert __main__.main(["--rounds", "4", *options]) == 1
        said = capsys.readouterr().out
        assert f"| good | {count} |" in said and f"| bad | {count} |" in said

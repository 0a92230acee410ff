"""Friction problems in the files of Siconos and FCLIB: texts written by hand, and round trips."""

import h5py
import numpy as np
import pytest

import jaxcontact as jc

W = np.array([[2.0, 0.5, 0.0, 0.0], [0.25, 1.0, 0.0, 0.0], [0.0, 0.0, 3.0, -1.0], [0.0, 0.0, -1.0, 1e-9]])
Q, MU = np.array([-1.0, 0.5, 1e-300, 4.0]), np.array([0.3, 0.7])

DENSE = """2\n2\n0\n4\n4\n4\t4
2 0.25 0 0
0.5 1 0 0
0 0 3 -1
0 0 -1 1e-9
-1 0.5 1e-300 4
0.3 0.7
"""
BLOCKS = """2\n2\n1\n4\n4\n2\n2\n2\n2\t4\t\n2\t4\t\n3\n2\n0\t1\t2\t\n0\t1\t
2\n0.25\n0.5\n1\n3\n-1\n-1\n1e-9
-1 0.5 1e-300 4\n0.3 0.7\n0\n"""
HEAD = "2\n2\n2\n4\n4\n"
TRIPLET = (
    HEAD
    + "0\nCSparse Version 3.1.4, Oct 10, 2014.\ntriplet: 4-by-4, nzmax: 8 nnz: 8\n"
    + "".join(f"    {i} {j} : {W[i, j]:.17g}\n" for i, j in zip(*np.nonzero(W), strict=True))
)
COLUMNS = (
    HEAD
    + "1\nCSparse Version 3.1.4, Oct 10, 2014.\n4-by-4, nzmax: 8 nnz: 8, 1-norm: 4\n"
    + "".join(
        f"    col {j} : locations {2 * j} to {2 * j + 1}\n"
        + "".join(f"      {i} : {W[i, j]:.17g}\n" for i in np.nonzero(W[:, j])[0])
        for j in range(4)
    )
)
TAIL = "-1 0.5 1e-300 4\n0.3 0.7\n"


@pytest.mark.parametrize("text", [DENSE, BLOCKS, TRIPLET + TAIL, COLUMNS + TAIL])
def test_texts_of_siconos(tmp_path, text):
    (tmp_path / "problem.dat").write_text(text)
    problem = jc.io.load_friction_problem(tmp_path / "problem.dat")
    np.testing.assert_array_equal(problem.W, W)
    np.testing.assert_array_equal(problem.q, Q)
    np.testing.assert_array_equal(problem.mu, MU)
    assert problem.dim == 2


def test_a_global_text_is_condensed(tmp_path):
    """A mass of 2 under a force of -4 on the floor of w = (0, 1): falls with -2 and slides with 1."""
    text = "2\n1\n0\n2\n2\n2\t2\n2 0\n0 2\n0\n2\n2\n2\t2\n1 0\n0 1\n-4 0\n0 1\n0.5\n"
    (tmp_path / "global.dat").write_text(text)
    (mass, rows), q, mu, dim = jc.io.load_friction_problem(tmp_path / "global.dat")
    np.testing.assert_array_equal(mass, 2.0 * np.eye(2))
    np.testing.assert_array_equal(rows, np.eye(2))
    np.testing.assert_allclose(q, [-2.0, 1.0])
    assert dim == 2 and mu == [0.5]


@pytest.mark.parametrize("name", ["a.dat", "a.hdf5"])
def test_round_trips_keep_every_bit(tmp_path, name):
    rng = np.random.default_rng(0)
    mass, rows = np.diag(rng.uniform(1.0, 2.0, 5)), rng.normal(size=(6, 5)) * (rng.random((6, 5)) < 0.5)
    q, mu = rng.normal(size=6), rng.random(2)
    jc.io.save_friction_problem(tmp_path / name, rows @ rows.T, q, mu)
    local = jc.io.load_friction_problem(tmp_path / name)
    np.testing.assert_array_equal(local.W, rows @ rows.T)
    np.testing.assert_array_equal(local.q, q)
    np.testing.assert_array_equal(local.mu, mu)
    jc.io.save_friction_problem(tmp_path / name, (np.diag(mass), rows), q, mu)
    whole = jc.io.load_friction_problem(tmp_path / name)
    np.testing.assert_array_equal(whole.W[0], mass)
    np.testing.assert_array_equal(whole.W[1], rows)
    np.testing.assert_array_equal(whole.q, q)
    assert whole.dim == 3


@pytest.mark.parametrize("kind", [-2, 8])
def test_sparse_forms_of_fclib(tmp_path, kind):
    """By rows, and as triplets."""
    rows, columns = np.nonzero(W)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("fclib_local")
        group["spacedim"], matrix = [2], group.create_group("W")
        for key, value in {"nzmax": 8, "m": 4, "n": 4, "nz": kind}.items():
            matrix[key] = [value]
        matrix["x"] = W[rows, columns]
        matrix["p"] = columns if kind > 0 else [0, 2, 4, 6, 8]
        matrix["i"] = rows if kind > 0 else columns
        vectors = group.create_group("vectors")
        vectors["q"], vectors["mu"] = Q, MU
    problem = jc.io.load_friction_problem(tmp_path / "a.h5")
    np.testing.assert_array_equal(problem.W, W)


def test_what_is_no_problem_is_refused_by_name(tmp_path):
    for text in ("", "hello", "3\n1\n0\n3\n3\n3 3\n1 2 3", DENSE[:-10]):
        (tmp_path / "bad.dat").write_text(text)
        with pytest.raises(ValueError, match=r"bad\.dat: expected a friction problem"):
            jc.io.load_friction_problem(tmp_path / "bad.dat")
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        file.create_group("other")
    with pytest.raises(ValueError, match=r"bad\.h5: expected a group"):
        jc.io.load_friction_problem(tmp_path / "bad.h5")
    with pytest.raises(ValueError, match="W: expected"):
        jc.io.save_friction_problem(tmp_path / "a.dat", np.eye(3), np.zeros(6), 0.5)
    assert not (tmp_path / "a.dat").exists()

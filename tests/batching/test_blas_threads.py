"""Threads of BLAS: one in the block, as many as before behind it, and without the package no change."""

import sys

import numpy as np
import pytest

from jaxcontact.batching.blas_threads import one_blas_thread


def test_without_the_package_nothing_changes(monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with one_blas_thread():
        assert np.linalg.cholesky(np.eye(3))[0, 0] == 1.0


def test_one_thread_inside_and_those_from_before_afterwards():
    threads = pytest.importorskip("threadpoolctl")

    def counts():
        return [pool["num_threads"] for pool in threads.threadpool_info() if pool["user_api"] == "blas"]

    before = counts()
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        assert before and set(counts()) == {1}
        raise ZeroDivisionError
    assert counts() == before

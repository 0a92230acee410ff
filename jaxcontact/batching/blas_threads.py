"""One thread for factorisations of small matrices on the host: entry `one_blas_thread`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in this block, if the package threadpoolctl is there.

    Threads of a factorisation of some hundred rows wait for one another, and where other work has the cores
    they wait far longer than one thread computes.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield

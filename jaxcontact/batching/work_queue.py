"""Blocks of work on an executor; their results come in the order of the blocks, whichever is ready first.

Owns `in_order` and the pool of threads of this machine. It works with any `concurrent.futures.Executor`.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool of threads; work that has not begun at the end is dropped."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(
    executor: Executor,
    function: Callable[..., Result],
    blocks: Iterable[tuple[Any, ...]],
    *,
    ahead: int,
    compiles: bool = False,
) -> Generator[Result]:
    """Yield function(*block) of every block, in the order of the blocks.

    Args:
        executor: computes the blocks.
        function: of a block's items.
        blocks: taken one by one, as they are submitted.
        ahead: number of blocks that are submitted before the first result is waited for.
        compiles: whether the first block compiles a program that the others share. If so, they wait for it;
            otherwise several threads would compile.

    Raises:
        Exception: raised by `function`, at the place of its block; blocks after it are cancelled.
    """
    jobs: collections.deque[Future[Result]] = collections.deque()
    try:
        for number, block in enumerate(blocks):
            jobs.append(executor.submit(function, *block))
            if compiles and number == 0:
                jobs[0].exception()
            if len(jobs) > ahead:
                yield jobs.popleft().result()
        while jobs:
            yield jobs.popleft().result()
    finally:
        for job in jobs:
            job.cancel()

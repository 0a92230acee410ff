"""Blocks of work on an executor; their results come in the order of the blocks, whichever is ready first.

Owns `in_order` and the pool of threads of this machine. It works with any `concurrent.futures.Executor`;
`remote_blocks` adds the needs of other processes.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Result = TypeVar("Result")
ATTEMPTS = 3  # times that a block is submitted at most, if no answer comes


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
    blocks: Iterable[tuple[object, ...]],
    *,
    ahead: int | Callable[[], int],
    compiles: bool = False,
    patience: float | None = None,
) -> Generator[Result]:
    """Yield function(*block) of every block, in the order of the blocks.

    Args:
        executor: computes the blocks.
        function: of a block's items; a block without an answer is computed again, so it has no side effects.
        blocks: taken one by one, as they are submitted.
        ahead: number of blocks that are submitted before the first result is waited for, or a function that
            returns it.
        compiles: whether the first block compiles a program that the others share. If so, they wait for it;
            otherwise several threads would compile.
        patience: s, wait for the next result; after it the block is submitted again, and the first answer
            counts. None: without limit.

    Raises:
        TimeoutError: no answer to a block that was submitted ATTEMPTS times.
        Exception: raised by `function`, at the place of its block; blocks after it are cancelled.
    """
    jobs: collections.deque[tuple[tuple[object, ...], list[Future[Result]]]] = collections.deque()

    def next_result() -> Result:
        block, futures = jobs[0]
        result = _first_answer(executor, function, block, futures, patience)
        jobs.popleft()
        return result

    try:
        for number, block in enumerate(blocks):
            jobs.append((block, [executor.submit(function, *block)]))
            if compiles and number == 0:
                jobs[0][1][0].exception()
            while len(jobs) > (ahead() if callable(ahead) else ahead):
                yield next_result()
        while jobs:
            yield next_result()
    finally:
        for _, futures in jobs:
            for future in futures:
                future.cancel()


def _first_answer(
    executor: Executor,
    function: Callable[..., Result],
    block: tuple[object, ...],
    futures: list[Future[Result]],
    patience: float | None,
) -> Result:
    """Wait for the first answer to a block, and submit the block again while there is none."""
    while True:
        answered = wait(futures, timeout=patience, return_when=FIRST_COMPLETED).done
        for future in answered:
            for other in futures:
                other.cancel()  # those that are done stay as they are
            return future.result()
        if len(futures) == ATTEMPTS:
            raise TimeoutError(f"no answer to a block within {patience:g} s, submitted {ATTEMPTS} times")
        futures.append(executor.submit(function, *block))

"""Blocks of work: results in order from any executor, few blocks ahead, an error at its place."""

import threading
import time
from concurrent.futures import Executor, Future

import pytest

from jaxcontact.batching.work_queue import in_order, threads


class AtOnce(Executor):
    """An executor that computes when it is asked, and notes in what order."""

    def __init__(self):
        self.submitted = []

    def submit(self, function, /, *args, **options):
        self.submitted.append(args)
        future = Future()
        future.set_result(function(*args, **options))
        return future


def test_results_are_in_order_whichever_is_ready_first():
    with threads(4) as pool:
        waits = ((number, 0.02 * (number % 3 == 0)) for number in range(12))
        slow = lambda number, wait: (time.sleep(wait), number)[1]  # noqa: E731
        assert list(in_order(pool, slow, waits, ahead=4)) == list(range(12))


def test_no_more_blocks_are_taken_than_are_needed():
    executor = AtOnce()
    results = in_order(executor, lambda number: number, ((number,) for number in range(1000)), ahead=3)
    assert [next(results), next(results)] == [0, 1]
    assert len(executor.submitted) == 5
    results.close()


def test_others_wait_for_the_block_that_compiles():
    compiled = threading.Event()

    def compute(number):
        if number:
            assert compiled.is_set()
        else:
            time.sleep(0.05)
            compiled.set()
        return number

    with threads(3) as pool:
        assert list(in_order(pool, compute, ((k,) for k in range(6)), ahead=3, compiles=True)) == list(
            range(6)
        )


def test_an_error_comes_at_its_place():
    def fail(number):
        if number == 2:
            raise KeyError(number)
        return number

    with threads(2) as pool:
        results = in_order(pool, fail, ((number,) for number in range(50)), ahead=2)
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(KeyError):
            next(results)

"""Blocks in other processes: the bits of this one, faults by their names, blocks as long as the overhead asks."""

import hashlib
import multiprocessing
import pickle
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.batching import remote_blocks
from jaxcontact.batching.remote_blocks import ExecutorError, RemoteQueue, make_recipe, remote_queue


class Changed(Executor):
    """An executor that computes at once, and whose answers a test changes on their way."""

    def __init__(self, change=lambda number, answer: answer):
        self.change, self.blocks, self.count = change, [], 0

    def submit(self, function, /, *args, **options):
        future, before = Future(), self.count
        answer = function(*args, **options)
        if answer["number"] >= 0:
            self.blocks.append(answer["number"])
            self.count += 1
            answer = self.change(before, answer)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(answer)
        return future


def square(offset):
    """Make the function of a worker."""

    def compute(x):
        if x == 13:
            raise KeyError(x)
        return np.asarray(jnp.asarray(x, float) ** 2 + offset)

    return compute


def results(executor, numbers=range(6), patience=None, check=None, make=square):
    queue = remote_queue(jc.Run(executor=executor, patience=patience), make, 0.5, check=check)
    return [float(x) for x in queue.results(((k,) for k in numbers), len(numbers))]


EXPECTED = [k * k + 0.5 for k in range(6)]


def test_results_come_in_order_with_the_settings_of_this_process():
    assert results(ThreadPoolExecutor(3)) == EXPECTED
    with jax.enable_x64(not jax.config.jax_enable_x64):
        recipe = make_recipe(square, 0.5)
    answer = remote_blocks.compute_block(tuple(recipe), 0, [(2,)])
    (value,), error = pickle.loads(answer["data"])
    assert error is None
    assert value.dtype == (jnp.float32 if jax.config.jax_enable_x64 else jnp.float64)


def test_an_error_of_the_function_comes_at_its_place_and_as_it_is():
    queue = remote_queue(jc.Run(executor=ThreadPoolExecutor(2)), square, 0.5)
    results = queue.results(((k,) for k in (1, 2, 13, 3)), 4)
    assert [float(next(results)), float(next(results))] == [1.5, 4.5]
    with pytest.raises(KeyError, match="13"):
        next(results)


class Odd(Exception):
    """An error that can be sent, and not received."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def fail(_):
    def compute(x):
        raise Odd("no", "way")

    return compute


def test_an_error_that_cannot_be_received_is_told_by_its_text():
    with pytest.raises(RuntimeError, match="Odd in a worker: no way"):
        results(ThreadPoolExecutor(1), make=fail)


def other_version(number, answer):
    return {
        "worker": "m1 process 7",
        "number": number,
        "environment": answer["environment"] | {"version": "9"},
    }


def flipped(number, answer):
    data = bytearray(answer["data"])
    data[-3] ^= 1
    return answer | {"data": bytes(data)}


def other_place(number, answer):
    """The answer of the same worker to the next block."""
    return answer | {"number": answer["number"] + 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_version, r"the worker on m1 process 7 would compute other bits; these differ: version \(9 there"),
        (flipped, "sent a damaged block 0"),
        (other_place, "sent a damaged block 0"),
        (lambda n, a: ModuleNotFoundError("No module named 'jaxcontact'"), "is the same version of jaxcontact"),
        (lambda n, a: BrokenExecutor("a child process terminated"), "workers or the scheduler were lost"),
        (lambda n, a: {"worker": "m2 process 8", "number": 0, "environment": a["environment"],
                       "unreadable": "ImportError: robot"}, "m2 process 8 cannot load the function: ImportError"),
    ],
)  # fmt: skip
def test_a_fault_ends_in_one_line_that_names_it(change, message):
    with pytest.raises(ExecutorError, match=message) as caught:
        results(Changed(change))
    assert "\n" not in str(caught.value)


def test_a_worker_that_computes_other_bits_is_found_by_the_call_that_all_compute():
    assert results(Changed(), check=(3,)) == EXPECTED

    def second(number, answer):
        other = {"check": hashlib.sha256(b"other").hexdigest(), "worker": "m3 process 9"}
        return answer | other if number == 1 else answer

    with pytest.raises(ExecutorError, match="the workers on m3 process 9 and on .* compute other bits"):
        results(Changed(second), check=(3,))


def test_a_block_without_an_answer_is_submitted_again_and_counts_once():
    lost = Changed(lambda number, answer: None if number == 1 else answer)
    assert results(lost, patience=0.05) == EXPECTED
    assert lost.blocks.count(1) == 2
    silent = Changed(lambda number, answer: None)
    with pytest.raises(ExecutorError, match=r"no answer to a block within 0.05 s, submitted 3 times"):
        results(silent, patience=0.05)


def test_a_late_answer_to_a_block_submitted_again_changes_nothing():
    class Slow(ThreadPoolExecutor):
        first = True

        def submit(self, function, /, *args):
            def late(*args):
                answer = function(*args)
                if answer["number"] == 0 and Slow.first:
                    Slow.first = False
                    time.sleep(0.3)
                return answer

            return super().submit(late, *args)

    assert results(Slow(2), patience=0.1) == EXPECTED


def test_blocks_are_as_long_as_the_overhead_asks():
    """A share of 5 %: with 1 ms of overhead and calls of 1 ms, blocks of 20 calls; short ones at the end."""
    queue = RemoteQueue(ThreadPoolExecutor(2), make_recipe(square, 0.5), 60.0)
    assert queue._size(10**6) == 1  # nothing was measured yet
    queue.overhead, queue.seconds_per_call = 1e-3, 1e-3
    assert queue._size(10**6) in (20, 21)
    assert queue._size(20) == 5  # two blocks for each of two workers
    queue.num_workers.count, queue.num_workers.counted = 100, float("inf")  # 100 blocks in the time of one
    assert queue._size(10**6) in (100, 101)
    queue.overhead = 10.0
    assert queue._size(10**9) == remote_blocks.MAX_CALLS
    queue.bytes_per_call = 16e6
    assert queue._size(10**9) == 4


def test_a_function_is_built_once_a_process(monkeypatch):
    built = []
    remote_blocks._programs.clear()
    monkeypatch.setattr(
        remote_blocks._BlockProgram, "__init__", _counting(remote_blocks._BlockProgram.__init__, built)
    )
    assert results(ThreadPoolExecutor(3), numbers=range(12))[:2] == [0.5, 1.5]
    assert len(built) == 1


def _counting(init, built):
    def counting(self, recipe):
        built.append(recipe.digest)
        init(self, recipe)

    return counting


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"executor": 3}, TypeError, "executor: expected a concurrent.futures.Executor, got int"),
        ({"patience": 1.0}, ValueError, "patience: expected None"),
        ({"executor": "threads", "patience": -1.0}, ValueError, "patience: expected a finite number > 0"),
        ({"executor": "threads", "devices": "all"}, ValueError, "devices: expected None"),
        ({"executor": "fork"}, ValueError, 'mp_context=multiprocessing.get_context\\("spawn"\\)'),
    ],
)
def test_settings_of_an_executor_are_checked(options, error, message):
    executors = {
        "threads": lambda: ThreadPoolExecutor(1),
        "fork": lambda: ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")),
    }
    options = {
        k: executors[v]() if v in executors else jax.devices() if v == "all" else v
        for k, v in options.items()
    }
    with pytest.raises(error, match=message):
        jc.Run(**options)


def test_a_client_of_dask_is_told_from_its_executor():
    class Client:
        def get_executor(self):
            raise AssertionError

    with pytest.raises(TypeError, match=r"got Client; a client of dask has .get_executor\(\)"):
        jc.Run(executor=Client())


def test_drivers_of_one_search_refuse_an_executor():
    run = jc.Run(executor=ThreadPoolExecutor(1))
    import optax

    with pytest.raises(ValueError, match="run.executor: expected None"):
        jc.optimize.trajectory(lambda z: jnp.sum(z**2), jnp.ones(2), optimizer=optax.adam(0.1), run=run)

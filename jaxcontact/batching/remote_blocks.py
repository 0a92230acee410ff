"""Blocks of work in other processes, on this machine or on others, with the bits of this process.

Owns `remote_queue` and `run_blocks`: a block carries a function and its numbers, a worker builds and compiles
it once, and its answer is checked for place and content. docs/understand/cluster.md has the page.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor
from typing import NamedTuple

from jaxcontact._pytree import PyTree
from jaxcontact.batching.environment import environment, settings_of_jax, with_settings
from jaxcontact.batching.run_settings import Run
from jaxcontact.batching.work_queue import in_order, threads

OVERHEAD_SHARE = 0.05  # of the time of a worker: blocks are so long that a message costs no more
PINGS = 3  # empty blocks that measure the overhead; the first may import JAX
MAX_ANSWER = 64e6  # bytes of an answer, of which the host holds some for each worker
MAX_CALLS = 4096  # in a block; bounds what is lost with a worker
BLOCKS_PER_WORKER = 2  # submitted ahead, so that a worker never waits for the host
UNKNOWN_WORKERS = 8  # number that is assumed of an executor which does not tell
MAX_RECIPES = 4  # functions that a worker keeps compiled
RECOUNT_SECONDS = 5.0  # between two counts of the workers, which may come and go
PATIENCE = 600.0  # s, wait for an answer if the caller sets none; compiling may take minutes


class ExecutorError(RuntimeError):
    """Error of the executor of a run: workers were lost, do not answer, or would compute other bits."""


class Recipe(NamedTuple):
    """Function for workers, as plain data: any version of this package can read its environment.

    Attributes:
        digest: SHA-256 of the data.
        data: pickle of (make, arguments, check); make(*arguments) is the function, and `check` a call whose
            result all workers must compute to the same bits, or None.
        environment: as `environment`, of the process that asks.
        settings: as `settings_of_jax`, of the process that asks.
    """

    digest: str
    data: bytes
    environment: Mapping[str, str]
    settings: Mapping[str, object]


class _Block(NamedTuple):
    """Block of calls as a pickle that computes itself when it is read.

    So the executor sends a function of Python's own, and a worker without this package says so by an error.
    """

    recipe: Recipe
    number: int
    calls: list[tuple[object, ...]]

    def __reduce__(self) -> tuple[PyTree, ...]:
        return compute_block, (tuple(self.recipe), self.number, self.calls)


class _BlockProgram:
    """Function of a recipe in this process; one thread runs it first, because it compiles.

    Attributes:
        check: SHA-256 of the result of the call that all workers compute; empty without one.
    """

    def __init__(self, recipe: Recipe) -> None:
        make, arguments, check = pickle.loads(recipe.data)
        self.function: Callable[..., object] = make(*arguments)
        self.is_compiled = check is not None
        self.check = ""
        if check is not None:
            self.check = hashlib.sha256(_dumps(self.function(*check))).hexdigest()
        self.lock = threading.Lock()

    def run(self, call: tuple[object, ...]) -> PyTree:
        if self.is_compiled:
            return self.function(*call)
        with self.lock:
            result = self.function(*call)
            self.is_compiled = True
        return result


_programs: collections.OrderedDict[str, _BlockProgram] = collections.OrderedDict()
_programs_lock = threading.Lock()


def make_recipe(
    make: Callable[..., Callable[..., object]], *arguments: object, check: tuple[object, ...] | None = None
) -> Recipe:
    """Pack the function make(*arguments) for workers, with the settings of this process.

    Raises:
        TypeError: a function or number cannot be sent.
    """
    data = _dumps((make, arguments, check))
    return Recipe(hashlib.sha256(data).hexdigest(), data, environment(), settings_of_jax())


def compute_block(
    recipe: tuple[PyTree, ...], number: int, calls: list[tuple[PyTree, ...]]
) -> dict[str, PyTree]:
    """Compute the function of a recipe for each call, in a worker; return the answer as plain data.

    A process with another environment returns its environment alone. "seconds" has the time of the calls
    without those that compile, and "timed" their number. An error of the function is part of "data".
    """
    recipe = Recipe(*recipe)
    answer: dict[str, PyTree] = {"worker": f"{socket.gethostname()} process {os.getpid()}", "number": number}
    with with_settings(recipe.settings):
        answer["environment"] = environment()
        if answer["environment"] != dict(recipe.environment):
            return answer
        results: list[PyTree] = []
        error, seconds = None, []
        if calls:
            try:
                program = _program(recipe)
            except Exception as failure:
                return answer | {"unreadable": f"{type(failure).__name__}: {failure}"}
            answer["check"] = program.check
            for call in calls:
                was_compiled, begin = program.is_compiled, time.perf_counter()
                try:
                    results.append(program.run(call))
                except Exception as failure:
                    error = failure
                    break
                seconds += [time.perf_counter() - begin] if was_compiled else []
        data = _dumps_result(results, error)
    digest = _digest(recipe.digest, number, data)
    return answer | {"seconds": sum(seconds), "timed": len(seconds), "data": data, "digest": digest}


def remote_queue(
    run: Run,
    make: Callable[..., Callable[..., object]],
    *arguments: object,
    check: tuple[object, ...] | None = None,
) -> RemoteQueue:
    """Prepare the function make(*arguments) for the workers of the executor of a run; see `make_recipe`."""
    assert run.executor is not None
    patience = PATIENCE if run.patience is None else run.patience
    return RemoteQueue(run.executor, make_recipe(make, *arguments, check=check), patience)


def run_blocks(
    run: Run,
    make: Callable[..., Callable[..., object]],
    arguments: tuple[object, ...],
    calls: Iterable[tuple[object, ...]],
    *,
    count: int,
    num_threads: int,
    compiles: bool = False,
    check: tuple[object, ...] | None = None,
) -> Generator[PyTree]:
    """Yield the results of `count` calls of make(*arguments), by threads or by the executor of a run.

    `compiles`: the threads wait for the first call, as in `in_order`; workers always do.
    """
    if run.executor is not None:
        yield from remote_queue(run, make, *arguments, check=check).results(calls, count)
        return
    function = make(*arguments)
    with threads(num_threads) as pool:
        yield from in_order(pool, function, calls, ahead=num_threads, compiles=compiles)


class RemoteQueue:
    """Function whose calls an executor computes in other processes.

    Attributes:
        overhead: s, time of an empty block, measured at the first use.
        seconds_per_call: s, time of a call in a worker, None before one was measured.
        bytes_per_call: bytes of the result of a call, in the last answer.
    """

    def __init__(self, executor: Executor, recipe: Recipe, patience: float) -> None:
        self.executor, self.recipe, self.patience = executor, recipe, patience
        self.overhead: float | None = None
        self.seconds_per_call: float | None = None
        self.bytes_per_call = 0.0
        self._first_check: tuple[str, str] | None = None
        self.num_workers = WorkerCount(executor)

    def results(self, calls: Iterable[tuple[object, ...]], count: int) -> Generator[PyTree]:
        """Yield the result of each of `count` calls, in their order.

        Raises:
            ExecutorError: workers were lost, do not answer, answer wrongly, or have another environment.
            Exception: raised by the function in the worker.
        """
        numbers: collections.deque[int] = collections.deque()
        try:
            if self.overhead is None:
                self.overhead = self._measure_overhead()
            answers = in_order(
                self.executor, pickle.loads, self._blocks(calls, count, numbers),
                ahead=lambda: BLOCKS_PER_WORKER * self.num_workers(), patience=self.patience,
            )  # fmt: skip
            for answer in answers:
                results, error = self._checked(answer, numbers.popleft())
                yield from results
                if error is not None:
                    break
            else:
                return
        except ExecutorError:
            raise
        except Exception as failure:
            raise ExecutorError(_explain(failure)) from failure
        assert error is not None
        raise error

    def _blocks(
        self, calls: Iterable[tuple[object, ...]], count: int, numbers: collections.deque[int]
    ) -> Iterator[tuple[bytes]]:
        """Group calls in blocks whose overhead is a small share, the last ones shorter to end together."""
        remaining, source, number = count, iter(calls), itertools.count()
        while block := list(itertools.islice(source, self._size(remaining))):
            remaining -= len(block)
            numbers.append(next(number))
            data = pickle.dumps(_Block(self.recipe, numbers[-1], block), protocol=5)
            yield (data,)

    def _size(self, remaining: int) -> int:
        """Choose the number of calls of the next block."""
        if not self.seconds_per_call:
            return 1
        workers = self.num_workers()
        # The host handles one block after the other: no more than one in the time of the overhead.
        seconds = (self.overhead or 0.0) * max(1.0 / OVERHEAD_SHARE, workers)
        size = int(seconds / self.seconds_per_call) + 1
        fair = remaining // (BLOCKS_PER_WORKER * workers)
        return max(1, min(size, fair, int(MAX_ANSWER / max(1.0, self.bytes_per_call)), MAX_CALLS))

    def _measure_overhead(self) -> float:
        """Time empty blocks; return the shortest time, s."""
        times = []
        for number in range(-PINGS, 0):
            begin = time.perf_counter()
            block = pickle.dumps(_Block(self.recipe, number, []), protocol=5)
            ping = in_order(self.executor, pickle.loads, [(block,)], ahead=0, patience=self.patience)
            self._checked(next(ping), number)
            ping.close()
            times.append(time.perf_counter() - begin)
        return min(times)

    def _checked(self, answer: Mapping[str, PyTree], number: int) -> tuple[list[PyTree], Exception | None]:
        """Check the worker, the place and the content of an answer; return the results and an error."""
        differing = [
            f"{name} ({answer['environment'].get(name)} there, {value} here)"
            for name, value in self.recipe.environment.items()
            if answer["environment"].get(name) != value
        ]
        if differing:
            raise ExecutorError(
                f"executor: the worker on {answer['worker']} would compute other bits; these differ: "
                + ", ".join(differing)
            )
        if "unreadable" in answer:
            raise ExecutorError(
                f"executor: the worker on {answer['worker']} cannot load the function: {answer['unreadable']}"
            )
        check, worker = answer.get("check"), answer["worker"]
        if check is not None:
            self._first_check = self._first_check or (check, worker)
            if check != self._first_check[0]:
                raise ExecutorError(
                    f"executor: the workers on {worker} and on {self._first_check[1]} compute other bits; "
                    "use machines of one kind, or XLA_FLAGS=--xla_cpu_max_isa=AVX2 in all processes"
                )
        if answer["number"] != number or answer["digest"] != _digest(
            self.recipe.digest, number, answer["data"]
        ):
            raise ExecutorError(f"executor: the worker on {answer['worker']} sent a damaged block {number}")
        if answer["timed"]:
            self.seconds_per_call = answer["seconds"] / answer["timed"]
        results, error = pickle.loads(answer["data"])
        self.bytes_per_call = len(answer["data"]) / max(1, len(results))
        return results, error


class WorkerCount:
    """Number of workers of an executor, at least 1, counted anew after some seconds."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.count = executor, 1
        self.counted = -RECOUNT_SECONDS

    def __call__(self) -> int:
        """Return the number."""
        now = time.monotonic()
        if now - self.counted >= RECOUNT_SECONDS:
            self.count, self.counted = max(1, count_workers(self.executor)), now
        return self.count


def count_workers(executor: Executor) -> int:
    """Count the blocks that an executor computes at a time; UNKNOWN_WORKERS if it does not tell."""
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "nthreads"):
        return sum(client.nthreads().values())
    for name in ("num_workers", "_max_workers"):
        if isinstance(number := getattr(executor, name, None), int):
            return number
    return UNKNOWN_WORKERS


def _program(recipe: Recipe) -> _BlockProgram:
    """Return the program of a recipe, built at its first use in this process."""
    with _programs_lock:
        if recipe.digest not in _programs:
            _programs[recipe.digest] = _BlockProgram(recipe)
            while len(_programs) > MAX_RECIPES:
                _programs.popitem(last=False)
        _programs.move_to_end(recipe.digest)
        return _programs[recipe.digest]


def _digest(recipe: str, number: int, data: bytes) -> str:
    """Compute the digest of an answer: of its function, its place and its content."""
    return hashlib.sha256(f"{recipe} {number} ".encode() + data).hexdigest()


def _dumps(value: object) -> bytes:
    """Pickle a value; functions defined inside of others need the package cloudpickle."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            import cloudpickle
        except ImportError:
            raise TypeError(
                f"executor: {error}; define the function at the top of a module, or install cloudpickle"
            ) from None
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data


def _dumps_result(results: list[object], error: Exception | None) -> bytes:
    """Pickle results and error; in place of what cannot be sent, an error that says so."""
    try:
        data = _dumps((results, error))
        if error is not None:
            pickle.loads(data)  # some errors can be sent, and not received
        return data
    except Exception as failure:
        cause = failure if error is None else error
        return _dumps(([], RuntimeError(f"{type(cause).__name__} in a worker: {cause}")))


def _explain(error: Exception) -> str:
    """Explain in one line the consequence of an error of the executor."""
    text = " ".join(str(error).split()) or "no further text"
    what = f"executor: {type(error).__name__}: {text}"
    if isinstance(error, ImportError | AttributeError):
        return f"{what}; is the same version of jaxcontact installed on every worker?"
    if isinstance(error, TimeoutError):
        return f"{what}; workers hang, or there are none; run.patience sets the wait"
    if isinstance(error, CancelledError):
        what = "executor: a block was cancelled, which happens when the scheduler is gone"
    return f"{what}; workers or the scheduler were lost; with a checkpoint the same call resumes"

"""`python -m benchmarks cluster`: 1, 2 and 4 worker processes of Dask, and what larger clusters would need.

Measures the share of the workers' time that is work, bytes and overhead of a block, and compiling. A
simulation of the queue with the recorded times is compared with the measured time. With --flat N it draws N
samples instead, and prints the memory of the host.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pickle
import resource
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report
from jaxcontact.batching.remote_blocks import BLOCKS_PER_WORKER, MAX_ANSWER, OVERHEAD_SHARE

WORKERS = (1, 2, 4)
MACHINES = (1, 10, 100, 1000)  # of the table on paper
CORES = 16  # of a machine on paper
NUM_MESSAGES = 200  # without work, to time the host and the scheduler alone
OUTCOMES, GRADIENTS = 10_000, 300  # of a robust step on paper
BANDWIDTH = 1e9  # bytes per second into the host: 10 Gbit/s, less protocol


class Recorded(NamedTuple):
    """Times of one block on the host's clock, its work in the worker, s, and bytes there and back."""

    submitted: float
    finished: float
    seconds: float
    sent: int
    received: int


class Recorder(Executor):
    """An executor that notes the times and bytes of every block of another one."""

    def __init__(self, executor: Executor) -> None:
        self._client = getattr(executor, "_client", None)
        self.executor, self.pings, self.blocks = executor, [], []

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future:
        """Submit a block, and note its answer."""
        begin = time.perf_counter()
        future = self.executor.submit(function, *args, **options)

        def note(done: Future) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            answer = done.result()
            entry = Recorded(begin, time.perf_counter(), answer["seconds"], len(args[0]), len(answer["data"]))
            (self.pings if answer["number"] < 0 else self.blocks).append(entry)

        future.add_done_callback(note)
        return future


def simulate_queue(
    seconds: Iterable[float],
    num_workers: int,
    *,
    latency: float,
    serial: float,
    ahead: int = BLOCKS_PER_WORKER,
) -> float:
    """Simulate the queue of `in_order`; return the time until the last result, s.

    Args:
        seconds: work of each block in a worker.
        num_workers: n.
        latency: s between a submission and the start of a free worker, and half of it back.
        serial: s of the host for each block: packing, checking, merging.
        ahead: blocks that are submitted ahead for each worker.
    """
    work = list(seconds)
    free = np.zeros(num_workers)
    host = 0.0
    arrives: list[float] = []
    taken = 0
    for number, duration in enumerate(work):
        if number - taken >= ahead * num_workers + 1:  # wait for the oldest result
            host = max(host, arrives[taken]) + serial / 2
            taken += 1
        host += serial / 2
        worker = int(np.argmin(free))
        begin = max(free[worker], host + latency / 2)
        free[worker] = begin + duration
        arrives.append(free[worker] + latency / 2)
    for arrival in arrives[taken:]:
        host = max(host, arrival) + serial / 2
    return host


def _sum(samples: Any) -> np.ndarray:
    return np.asarray(samples.v_plus).sum(axis=0)


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a + b


def _samples(executor: Executor, count: int, reduces: bool) -> None:
    """Draw outcomes of a compass gait's step."""
    model = jc.models.compass_gait()
    terms = jc.contact_terms(model, model.initial_state())
    law = jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps)
    reduce = jc.Reduction(_sum, _add) if reduces else (lambda total, chunk: (total or 0) + len(chunk.status))
    run = jc.Run(executor=executor)
    jc.impact.sample(terms, model.initial_state().v, law, num_samples=count, reduce=reduce, run=run)


def _worlds(executor: Executor, count: int) -> None:
    """Move worlds of a rocking block for 0.2 s in 20 steps, each with its impulse orders."""
    model = jc.models.rocking_block()
    law = jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps)
    jc.simulate.ensemble(
        model, model.initial_state(),
        jc.simulate.MotionSettings(stepper=jc.simulate.TimeStepping(impact=law), duration=0.2, dt=0.01),
        num_worlds=count, reduce=lambda total, chunk: (total or 0) + len(chunk.status),
        run=jc.Run(executor=executor),
    )  # fmt: skip


def _time_in_a_row(executor: Executor) -> float:
    """Time messages without work, all submitted at once; return s of one."""
    data = pickle.dumps(None)
    list(executor.map(pickle.loads, [data] * NUM_MESSAGES))
    begin = time.perf_counter()
    list(executor.map(pickle.loads, [data] * NUM_MESSAGES))
    return (time.perf_counter() - begin) / NUM_MESSAGES


def measure(name: str, run: Any, counts: tuple[int, int], num_workers: int) -> dict[str, Any]:
    """Run a job on a local cluster, once to compile and once for the times."""
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": "CRITICAL", "threads_per_worker": 1}
    with LocalCluster(n_workers=num_workers, **quiet) as cluster, Client(cluster) as client:
        begin, first = time.perf_counter(), 0.0
        for address in client.nthreads():  # each worker compiles, the first one for the cache of all
            run(client.get_executor(workers=[address]), counts[1])
            first = first or time.perf_counter() - begin
        serial = _time_in_a_row(client.get_executor())
        recorder = Recorder(client.get_executor())
        begin = time.perf_counter()
        run(recorder, counts[0])
        wall = time.perf_counter() - begin
    busy = np.array([block.seconds for block in recorder.blocks])
    latency = min(ping.finished - ping.submitted for ping in recorder.pings)
    begin = min(block.submitted for block in recorder.blocks)
    queued = max(block.finished for block in recorder.blocks) - begin
    return {
        "name": name,
        "workers": num_workers,
        "first": first,
        "wall": wall,
        "blocks": len(busy),
        "work": float(busy.sum()),
        "efficiency": float(busy.sum()) / (num_workers * queued),
        "latency": latency,
        "serial": serial,
        "sent": float(np.mean([block.sent for block in recorder.blocks])),
        "received": float(np.mean([block.received for block in recorder.blocks])),
        "queued": queued,
        "simulated": simulate_queue(busy, num_workers, latency=latency, serial=serial),
    }


def as_table(rows: Sequence[dict[str, Any]]) -> str:
    """Make a Markdown table of the measurements."""
    lines = [
        "| job | workers | first run, s | queue, s | simulated, s | blocks | work in workers, s "
        "| share of their time | alone, ms | in a row, ms | bytes sent, received |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            row["name"], row["workers"], f"{row['first']:.1f}", f"{row['queued']:.2f}",
            f"{row['simulated']:.2f}", row["blocks"], f"{row['work']:.2f}",
            f"{100 * row['efficiency']:.0f} %",
            f"{1e3 * row['latency']:.1f}", f"{1e3 * row['serial']:.1f}",
            f"{row['sent']:.0f}, {row['received']:.0f}",
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _gradient_of_mean(count: int) -> tuple[float, float]:
    """Time the gradient of the mean over sampled outcomes of a compass gait's step, by its state.

    Returns:
        Times of the first and of the fastest further gradient, s.
    """
    model = jc.models.compass_gait()
    law = jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps)

    def mean_rate(v: jax.Array) -> jax.Array:
        terms, key = jc.contact_terms(model, model.initial_state()), jax.random.key(0)
        v_plus, _ = jc.impact.sample_in_jit(terms, v, law, key, num_samples=count)
        return jnp.mean(v_plus @ terms.J_n[1])

    gradient, v, times = jax.jit(jax.grad(mean_rate)), jnp.asarray(model.initial_state().v), []
    for _ in range(5):
        begin = time.process_time()
        jax.block_until_ready(gradient(v))
        times.append(time.process_time() - begin)
    return times[0], min(times[1:])


def measure_memory(count: int, num_workers: int) -> str:
    """Draw outcomes of a point that strikes a floor, reduced by the workers; tell the memory of the host."""
    from distributed import Client, LocalCluster

    one, two = jnp.ones(1), jnp.eye(2)
    terms = jc.ContactTerms(
        M=two, J_n=two[1:], J_t=two[None, :1], phi=0.0 * one, mu=0.5 * one, active=one > 0.0
    )
    law, v = jc.impact.Routh(impulse_step=4.0, max_steps=2), jnp.array([1.0, -1.0])
    lines = ["| samples | s | peak memory of the host, MB | mean of v, m/s |", "|---|---|---|---|"]
    quiet = {"dashboard_address": ":0", "silence_logs": "CRITICAL", "threads_per_worker": 1}
    with LocalCluster(n_workers=num_workers, **quiet) as cluster, Client(cluster) as client:
        run = jc.Run(executor=client.get_executor())
        for part in (count // 100, count // 10, count):
            begin = time.perf_counter()
            total = jc.impact.sample(
                terms, v, law, num_samples=part, reduce=jc.Reduction(_sum, _add), run=run
            )
            spent, peak = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            mean = ", ".join(f"{x:.6f}" for x in np.asarray(total) / part)
            lines.append(f"| {part} | {spent:.0f} | {peak / 1e3:.0f} | {mean} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


class Job(NamedTuple):
    """Job on paper: items, s of a core for one, s of compiling in each worker, bytes back of one item.

    `cached` is `compiling` with a compile cache that the workers share; all workers wait for each other
    `meetings` times.
    """

    name: str
    items: float
    seconds: float
    compiling: float
    cached: float
    received: float
    meetings: int = 0


class Overhead(NamedTuple):
    """Time of a block without work, s: alone, and one of many in a row."""

    latency: float
    serial: float


def on_paper(job: Job, machines: int, overhead: Overhead, *, is_cached: bool) -> tuple[float, str]:
    """Compute the time of a job, s, and what limits it: work, compiling, messages or bytes.

    Blocks are as long as `remote_blocks` makes them; host and scheduler handle one message after the other.
    """
    workers = machines * CORES
    work = job.items * job.seconds / workers
    block = max(overhead.latency * max(1.0 / OVERHEAD_SHARE, workers), job.seconds)
    if job.received:
        block = min(block, MAX_ANSWER / job.received * job.seconds)
    blocks = max(1.0, job.items * job.seconds / block)
    parts = {
        "work": work,
        "compiling": job.cached if is_cached else job.compiling,
        "messages": job.meetings * overhead.latency if job.meetings else blocks * overhead.serial,
        "bytes": job.items * job.received / BANDWIDTH,
    }
    together = (parts["work"], parts["messages"], parts["bytes"])
    total = (sum(together) if job.meetings else max(together)) + parts["compiling"]
    return total, max(parts, key=lambda name: parts[name])


def paper_table(jobs: Sequence[Job], overhead: Overhead) -> str:
    """Make a Markdown table of what jobs take on 1 to 1000 machines."""
    lines = ["| job | core hours | " + " | ".join(f"{m} x {CORES} cores" for m in MACHINES) + " |"]
    lines.append("|---|---|" + "---|" * len(MACHINES))
    for job, cached in itertools.product(jobs, (False, True)):
        cells = []
        for machines in MACHINES:
            total, limit = on_paper(job, machines, overhead, is_cached=cached)
            cells.append(f"{_duration(total)}, {limit}")
        name = f"{job.name}{', shared compile cache' if cached else ''}"
        lines.append(f"| {name} | {job.items * job.seconds / 3600:.3g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def main(arguments: list[str]) -> int:
    """Measure, print and, with --put, store the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cluster", description=__doc__)
    parser.add_argument("--samples", type=int, default=2**19, help="of a compass gait's step [2^19]")
    parser.add_argument("--worlds", type=int, default=2048, help="of a rocking block [2048]")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--put", type=Path, metavar="PAGE", help="put the tables on a page, at their marks")
    parser.add_argument("--flat", type=int, metavar="N", help="draw N samples, and print the host's memory")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.flat:
        text = measure_memory(options.flat, max(options.workers))
        if options.put:
            report.put(options.put, "memory", text)
        return 0
    n, worlds = options.samples, options.worlds
    cases = {
        "samples, summed there": (lambda e, n: _samples(e, n, True), n, n // 16),
        "samples, sent here": (lambda e, n: _samples(e, n, False), n, n // 16),
        "worlds, sent here": (_worlds, worlds, min(worlds, 512)),
    }
    rows, jobs = [], []
    cache = tempfile.TemporaryDirectory()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name  # of the workers: the first one of a job compiles
    on_page = {"samples, summed there": 10, "samples, sent here": 10, "worlds, sent here": 6}  # powers of ten
    for name, (run, count, few) in cases.items():
        for workers in options.workers:
            rows.append(measure(name, run, (count, few), workers))
            print(as_table(rows[-1:]).splitlines()[-1], flush=True)
        first = rows[-len(options.workers)]
        cached = measure(name, run, (few, few), 1)["first"]  # the programs are in the cache now
        received = first["received"] * first["blocks"] / count
        seconds = first["work"] / count
        title, items = f"10^{on_page[name]} {name}", 10.0 ** on_page[name]
        jobs.append(Job(title, items, seconds, first["first"], cached, received))
    jax.config.update("jax_compilation_cache_dir", cache.name)
    once, again = _gradient_of_mean(OUTCOMES)
    cached = _gradient_of_mean(OUTCOMES)[0]
    title = f"robust step: {GRADIENTS} gradients of the mean over {OUTCOMES} outcomes"
    work = GRADIENTS * OUTCOMES
    jobs.append(Job(title, work, again / OUTCOMES, once - again, cached - again, 0.0, GRADIENTS))
    overhead = Overhead(*(min(row[key] for row in rows) for key in ("latency", "serial")))
    text = f"{as_table(rows)}\n\n{paper_table(jobs, overhead)}"
    print(text)
    if options.put:
        report.put(options.put, "cluster", text)
    return 0

"""The simulated queue against closed forms, and the time of a job on paper against its limits."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.cluster import BANDWIDTH, Job, Overhead, Recorder, on_paper, simulate_queue
from jaxcontact.batching.work_queue import in_order


@pytest.mark.parametrize(("blocks", "workers"), [(1, 1), (7, 2), (8, 4), (100, 16), (3, 8)])
def test_equal_blocks_without_overhead_take_whole_rounds(blocks, workers):
    simulated = simulate_queue([0.5] * blocks, workers, latency=0.0, serial=0.0)
    assert simulated == pytest.approx(0.5 * math.ceil(blocks / workers))


def test_one_block_waits_for_its_messages():
    assert simulate_queue([2.0], 3, latency=0.25, serial=0.125) == pytest.approx(2.0 + 0.25 + 0.125)


def test_short_blocks_are_limited_by_the_host():
    """1000 workers, blocks of 1 ms and 2 ms of the host each: 10 s for 5000 blocks, whatever the workers do."""
    assert simulate_queue([1e-3] * 5000, 1000, latency=1e-3, serial=2e-3) == pytest.approx(10.0, rel=1e-2)


def test_a_slow_block_at_the_head_stops_the_others_when_the_window_is_full():
    """Two workers, two blocks ahead of each: while the first takes 10 s the other computes four of 1 s."""
    work = [10.0] + [1.0] * 12
    assert simulate_queue(work, 2, latency=0.0, serial=0.0) == pytest.approx(10.0 + 4.0)
    assert simulate_queue(work, 2, latency=0.0, serial=0.0, ahead=100) == pytest.approx(11.0)


@pytest.mark.slow
def test_the_simulation_gives_the_time_of_the_queue_itself():
    """Blocks that sleep, on threads: the recorded order of events, without another process."""
    work = [0.05 + 0.04 * (k % 3) for k in range(24)]
    with ThreadPoolExecutor(3) as pool:
        begin = time.perf_counter()
        list(in_order(pool, time.sleep, ((w,) for w in work), ahead=6))
        measured = time.perf_counter() - begin
    assert measured == pytest.approx(simulate_queue(work, 3, latency=0.0, serial=0.0), rel=0.15)


@pytest.mark.parametrize(
    ("job", "limit"),
    [
        (Job("long", 1e9, 1e-5, 30.0, 3.0, 1e-3), "work"),
        (Job("short", 1e3, 1e-5, 30.0, 3.0, 1e-3), "compiling"),
        (Job("large", 1e9, 1e-8, 1.0, 0.1, 1e3), "bytes"),
        (Job("single answers that fill a message", 1e6, 1e-3, 1.0, 0.1, 32e3), "bytes"),
    ],
)
def test_the_limit_of_a_job_on_paper_is_named(job, limit):
    total, named = on_paper(job, 10, Overhead(latency=5e-3, serial=1e-3), is_cached=False)
    assert named == limit
    assert total > job.compiling
    assert total >= job.items * job.received / BANDWIDTH


def test_blocks_grow_with_the_workers_so_messages_are_no_limit():
    """Each worker asks for a block once in a block's time, and the host answers all of them."""
    job = Job("samples", 1e10, 1e-5, 0.0, 0.0, 0.0)
    overhead = Overhead(latency=5e-3, serial=1e-3)
    times = [on_paper(job, machines, overhead, is_cached=True)[0] for machines in (1, 10, 100, 10**4, 10**5)]
    assert times[0] == pytest.approx(10 * times[1]) == pytest.approx(100 * times[2])
    assert times[2] == pytest.approx(100 * times[3]) == pytest.approx(1000 * times[4])


def test_gradients_wait_for_each_other_one_by_one():
    """300 gradients of 1000 outcomes on 160 cores: the work, a message for each, and compiling."""
    job = Job("gradients", 3e5, 1e-3, 10.0, 1.0, 0.0, 300)
    total, _ = on_paper(job, 10, Overhead(latency=5e-3, serial=1e-3), is_cached=True)
    assert total == pytest.approx(3e5 * 1e-3 / 160 + 300 * 5e-3 + 1.0)


def test_a_recorder_notes_pings_and_blocks_apart():
    def answer(number):
        return {"number": number, "seconds": 0.5, "data": b"1234"}

    with ThreadPoolExecutor(1) as pool:
        recorder = Recorder(pool)
        for number, data in ((-1, b"12"), (0, b"123")):
            recorder.submit(lambda _, number=number: answer(number), data).result()
    assert [(b.sent, b.received, b.seconds) for b in recorder.blocks] == [(3, 4, 0.5)]
    assert len(recorder.pings) == 1

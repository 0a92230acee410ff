"""Many calls in one process: memory, threads and open files stay as they are, and nothing compiles again."""

import functools
import gc
import inspect
import os
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from inputs.test_poison import FUNCTIONS, PATHS
from inputs.valid_calls import arguments

import jaxcontact as jc

WARM, CALLS, FEW_CALLS = 20, 10_000, 500
GROWTH = 10.0  # MB in all calls, beside one of the collector

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")


def resources():
    """Resident memory in MB, threads, open files."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return megabytes, threading.active_count(), len(os.listdir("/proc/self/fd"))


def repeat(call, count):
    """Call again and again; return the growth of memory, and threads and files before and after."""
    for _ in range(WARM):
        call()
    before = resources()
    for _ in range(count):
        call()
    after = resources()
    return after[0] - before[0], before[1:], after[1:]


def ready(path):
    values = arguments(path, inspect.signature(FUNCTIONS[path]))
    return lambda: jax.block_until_ready(FUNCTIONS[path](**values))


def check(path, count):
    compiled = []

    def listen(event, *_, **__):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    call = ready(path)
    for _ in range(WARM):
        call()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        growth, before, after = repeat(call, count)
    finally:
        jax._src.monitoring.unregister_event_duration_listener(listen)
    assert growth < 1.0 + GROWTH * count / CALLS, f"{growth:.1f} MB in {count} calls"
    assert before == after and not compiled


@pytest.mark.slow_cases("simulate.rollout")
@pytest.mark.long
@pytest.mark.parametrize("path", ["solve_lcp", "impact.anitescu_potra", "ess.flow", "simulate.rollout"])
def test_calls_leave_nothing(path):
    check(path, FEW_CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_many_calls_leave_nothing(path):
    check(path, CALLS)


@pytest.mark.slow
def test_batches_of_new_sizes_leave_little():
    """`jc.simd` traces a batch of a new size, but has one machine code for all."""
    model = jc.models.compass_gait()
    terms, v = jc.contact_terms(model, model.initial_state()), model.initial_state().v
    run = jc.simd(lambda v: jc.impact.anitescu_potra(terms, v)[0])
    sizes = iter(range(8, 1000))

    def call():
        size = next(sizes)
        run(np.asarray(v) * (1.0 + np.arange(size)[:, None] / size))

    growth, *_ = repeat(functools.partial(call), 40)
    assert growth < 40 * 0.25, f"{growth / 40:.2f} MB a size"

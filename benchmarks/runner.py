"""Runs cases: trace, compile and run apart, medians with their spread, correctness beside each speed."""

from __future__ import annotations

import argparse
import dataclasses
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np

import jaxcontact as jc
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.cli.catalogue import UsageError
from jaxcontact.cli.cluster import check_cluster, executor_of

PATIENCE = 3600.0  # s, wait for a case that a worker measures


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One benchmark: `setup()` returns a function that does the work once, blocked on.

    Attributes:
        name: what `-k` matches.
        items: pieces of work in one run; times are given per item.
        setup: () -> run; run() -> figures of correctness, by name.
        repeats: timed runs after one that compiles.
    """

    name: str
    items: int
    setup: Callable[[], Callable[[], dict[str, Any]]]
    repeats: int = 5


_SPENT = {"trace": 0.0, "compile": 0.0}


def _listen(event: str, seconds: float, **_: Any) -> None:
    if event.endswith(("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration")):
        _SPENT["trace"] += seconds
    elif event.endswith("backend_compile_duration"):
        _SPENT["compile"] += seconds


jax.monitoring.register_event_duration_secs_listener(_listen)


def measure(case: Case) -> dict[str, Any]:
    """Time one case; seconds, and microseconds per item."""
    for key in _SPENT:
        _SPENT[key] = 0.0
    run = case.setup()
    begin, before = time.perf_counter(), time.process_time()
    figures = run()
    first_cpu = time.process_time() - before
    first = time.perf_counter() - begin
    trace, compiled = _SPENT["trace"], _SPENT["compile"]
    times, spent = [], []
    for _ in range(case.repeats):
        begin, before = time.perf_counter(), time.process_time()
        figures = run()
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - before)
    quartiles = np.percentile(times, [25, 50, 75]) * 1e6 / case.items
    return {
        "name": case.name,
        "items": case.items,
        "trace_s": trace,
        "compile_s": compiled,
        "first_s": first,
        "first_cpu_s": first_cpu,
        "us_per_item": float(quartiles[1]),
        "cpu_us_per_item": float(np.median(spent)) * 1e6 / case.items,
        "us_quartiles": [float(quartiles[0]), float(quartiles[2])],
        "repeats": case.repeats,
        **figures,
    }


def results_of(
    function: Callable[..., Any], cases: Sequence[tuple[Any, ...]], options: argparse.Namespace
) -> Iterator[Any]:
    """Yield function(*case) of every case, in order, here or by the workers of `--cluster`."""
    try:
        check_cluster(options)
        with executor_of(options) as executor:
            run = jc.Run(executor=executor, patience=PATIENCE if executor else None)
            yield from run_blocks(run, _itself, (function,), cases, count=len(cases), num_threads=1)
    except UsageError as error:
        raise SystemExit(f"error: {error}") from None


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def reason_to_skip(error: ImportError) -> str:
    """Say which package a case lacks, after a failed `import` or `from ... import`."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    absent = str(error).split("'")[1::2]
    module = f"{error.name}.{absent[0]}" if error.name and absent else str(error)
    return f"{module} is not installed"


def header() -> dict[str, str]:
    """Where and with what the figures were measured."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    dirty = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=False)
    packages = {}
    for name in ("jax", "jaxlib", "numpy", "drake", "mujoco", "mujoco-mjx"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    device = jax.devices()[0]
    cores = len(os_affinity())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": f"{device.device_kind} ({platform.machine()}, {cores} cores available)",
        "dtype": "float64" if jax.config.jax_enable_x64 else "float32",
        "commit": commit.stdout.strip() + (" with local changes" if dirty.stdout.strip() else ""),
        **packages,
    }


def os_affinity() -> set[int]:
    """The cores this process may use."""
    import os

    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def as_table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table of results."""
    lines = [
        "| case | us per item | quartiles | processor us | first call s | correctness |",
        "|---|---|---|---|---|---|",
    ]
    known = {"name", "items", "trace_s", "compile_s", "first_s", "us_per_item", "us_quartiles", "repeats"}
    known |= {"cpu_us_per_item", "first_cpu_s"}
    for row in rows:
        if "skipped" in row:
            lines.append(f"| {row['name']} | skipped: {row['skipped']} | | | | |")
            continue
        low, high = row["us_quartiles"]
        figures = ", ".join(
            f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if k not in known
        )
        lines.append(
            f"| {row['name']} | {row['us_per_item']:.3g} | {low:.3g} .. {high:.3g} "
            f"| {row['cpu_us_per_item']:.3g} | {row['first_s']:.1f} | {figures} |"
        )
    return "\n".join(lines)

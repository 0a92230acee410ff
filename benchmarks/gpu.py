"""`python -m benchmarks gpu`: steps and samples per second on an accelerator, in eight minutes.

Where there is none: FLOPs and bytes per item of the same programs, with the branches that they take on a GPU
but compiled for the CPU, and the most items per second that one H200 could do of them. A GPU fuses operations
otherwise than a CPU, so its bytes may be fewer; `program_cost` says how turns of loops count.

One line of JSON per case. A case that fails, or for which no time is left, has a line that says why. Each
precision has half of the time, and a process, which is ended with it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

import jaxcontact as jc
from benchmarks import ess, impact, program_cost, report, robots, runner
from jaxcontact.batching import platforms

DTYPES = ("float64", "float32")
BYTES_PER_S = 4.8e12  # memory of one H200, as published; so are FLOPs
FLOPS_PER_S = {"float64": 34e12, "float32": 67e12}
WORLDS = (4096, 32768, 131072)
START = 20.0  # s, for which a process may start and end
RUNS = 0.4  # share of the time that is left for running what is compiled
ROBOTS = ("box", "quadruped", "humanoid")
BAND, TOLERANCE = ess.BANDS[10], 1e-5  # of the plate on springs

# (result, status, turns of the loop that the data decide), the latter two of each world
Outcome = tuple[Any, jax.Array, jax.Array]
Work = Callable[..., Outcome]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A program over many worlds.

    Attributes:
        name: what `-k` matches.
        make: worlds -> a traceable function and its arguments.
        items: steps or samples of one world.
        worlds: how many are timed.
        few: how many are enough to count operations.
    """

    name: str
    make: Callable[[int], tuple[Work, tuple[jax.Array, ...]]]
    items: int = 1
    worlds: tuple[int, ...]
    few: int


def _samples(model: str, worlds: int) -> tuple[Work, tuple[jax.Array, ...]]:
    """Samples of an impact: a world is a sample, a turn a step of it."""
    outcomes, v = impact.outcomes_in_jit(model, worlds)

    def work(v: jax.Array, key: jax.Array) -> Outcome:
        v_plus, info = outcomes(v, key)
        return v_plus, info.status, info.num_iters

    return work, (v, jax.random.key(0))


def _steps(name: str, worlds: int) -> tuple[Work, tuple[jax.Array, ...]]:
    """Compliant steps of a robot: a turn is one of Newton's method."""
    robot = next(each for each in robots.ROBOTS if each.name == name)
    scene, steps = robots.scene_of(robot, worlds), robots.steps_of(robot)

    def work(q: jax.Array, v: jax.Array, dt: jax.Array) -> Outcome:
        states, info = jax.vmap(steps)(q, v, dt)
        return (states.q[:, -1], states.v[:, -1]), info.status, info.num_iters

    return work, (jnp.asarray(scene.q), jnp.asarray(scene.v), jnp.full(worlds, robots.DT))


def _plates(contacts: int, worlds: int) -> tuple[Work, tuple[jax.Array, ...]]:
    """A plate on springs for a second: a turn is a step or a crossing."""
    run = ess.solver(contacts, BAND, TOLERANCE)

    def work(x0: jax.Array) -> Outcome:
        end, info = jax.vmap(run)(x0)
        return end, info.status, info.num_iters

    return work, (jnp.asarray(ess.starts(worlds)),)


PROGRAMS = (
    *(
        Program(name=f"sample {name}", make=functools.partial(_samples, name), worlds=(2**22,), few=2**14)
        for name in impact.TWO_CONTACTS
    ),
    Program(
        name="sample disk_stack", make=functools.partial(_samples, "disk_stack"), worlds=(2**16,), few=2**10
    ),
    *(
        Program(
            name=f"steps {name}", make=functools.partial(_steps, name), items=robots.STEPS, worlds=WORLDS,
            few=16,
        )
        for name in ROBOTS
    ),
    Program(
        name=f"plate on {ess.PAPER} springs", make=functools.partial(_plates, ess.PAPER), worlds=(4096,),
        few=16,
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """A program in one precision with a number of worlds."""

    program: Program
    dtype: str
    worlds: int

    def line(self) -> dict[str, Any]:
        """What names the case in its line."""
        return {"name": self.program.name, "dtype": self.dtype, "worlds": self.worlds}


def cases_of(regex: str, worlds: list[int] | None, timed: bool, dtype: str) -> list[Case]:
    """The cases whose program's name matches, few worlds first; `worlds` instead of its own."""
    chosen = [each for each in PROGRAMS if re.search(regex, each.name)]
    sizes = {each: tuple(worlds or (each.worlds if timed else (each.few,))) for each in chosen}
    most = max((len(own) for own in sizes.values()), default=0)
    return [Case(each, dtype, sizes[each][k]) for k in range(most) for each in chosen if k < len(sizes[each])]


@dataclasses.dataclass(frozen=True)
class Ready:
    """A compiled case and the seconds that it took."""

    jaxpr: core.Jaxpr
    arguments: tuple[jax.Array, ...]
    compiled: Any
    trace_s: float
    compile_s: float


def _start(case: Case, pool: ThreadPoolExecutor) -> Future[Ready]:
    """Trace the case here, and compile it in the pool."""
    begin = time.perf_counter()
    work, arguments = case.program.make(case.worlds)
    traced = jax.jit(work).trace(*arguments)
    lowered = traced.lower()
    trace_s = time.perf_counter() - begin

    def compiled() -> Ready:
        begin = time.perf_counter()
        program = lowered.compile()
        return Ready(traced.jaxpr.jaxpr, arguments, program, trace_s, time.perf_counter() - begin)

    return pool.submit(compiled)


def _run(ready: Ready) -> dict[str, Any]:
    """Run it once: what converged and how many turns were taken."""
    _, status, turns = jax.block_until_ready(ready.compiled(*ready.arguments))
    return {
        "converged %": 100 * float(np.mean(~np.asarray(jc.Status.failed(status)))),
        "turns": float(np.mean(turns)),
        "most turns": int(np.max(turns)),
        "trace_s": ready.trace_s,
        "compile_s": ready.compile_s,
    }


def timed(case: Case, ready: Ready, repeats: int = 3) -> dict[str, Any]:
    """Items per second, the median of some runs after the first."""
    figures, seconds = _run(ready), []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(ready.compiled(*ready.arguments))
        seconds.append(time.perf_counter() - begin)
    items = case.worlds * case.program.items
    rates = {"items_per_s": items / float(np.median(seconds)), "slowest": items / max(seconds)}
    return {"items": items, **rates, **figures}


def counted(case: Case, ready: Ready) -> dict[str, Any]:
    """Bytes and FLOPs per item, and the most items per second that they allow."""
    figures, items = _run(ready), case.worlds * case.program.items
    whole = program_cost.all_turns(ready.jaxpr, ready.compiled, figures["turns"])
    each, once = whole * (1.0 / items), program_cost.bodies_once(ready.compiled) * (1.0 / items)
    by_bytes, by_flops = BYTES_PER_S / each.bytes, FLOPS_PER_S[case.dtype] / each.flops
    return {
        "items": items,
        "bytes": each.bytes,
        "flops": each.flops,
        "bytes, bodies of loops once": once.bytes,
        "flops, bodies of loops once": once.flops,
        "items_per_s by bytes": by_bytes,
        "items_per_s by flops": by_flops,
        "bound items_per_s": min(by_bytes, by_flops),
        **figures,
    }


Lines = Iterator[dict[str, Any]]


_head = functools.cache(runner.header)


def _line(start: dict[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The line of a case, which says so where it fails."""
    begin, line = time.perf_counter(), _head() | start
    try:
        line |= work()
    except TimeoutError:  # still compiling
        line |= _late()
    except Exception as error:  # out of memory, say; the others go on
        line["skipped"] = f"{type(error).__name__}: {error}"
    return line | {"whole_s": time.perf_counter() - begin}


def _late() -> dict[str, Any]:
    return {"skipped": "no time left"}


def measure(cases: list[Case], work: Callable[[Case, Ready], dict[str, Any]], until: float) -> Lines:
    """One line per case, until the time (`time.perf_counter`) is over; then lines that say so.

    Compiling takes most of the time. All cases are traced and then compiled side by side, for most of the
    time at longest, before the first one runs.
    """
    pool = ThreadPoolExecutor(len(runner.os_affinity()))
    waits = until - RUNS * (until - time.perf_counter())
    started: list[tuple[Case, Future[Ready]]] = []
    for case in cases:
        print(f"  {case.line()}: tracing", file=sys.stderr, flush=True)
        try:
            if time.perf_counter() < waits:
                started.append((case, _start(case, pool)))
                continue
            yield _line(case.line(), _late)
        except Exception as error:  # no such package, say
            failure = error
            yield _line(case.line(), functools.partial(_fail, failure))
    wait([future for _, future in started], max(0.0, waits - time.perf_counter()))
    started.sort(key=lambda each: not each[1].done())
    while started:
        case, future = started.pop(0)  # lets go of its memory afterwards
        if time.perf_counter() > until:
            yield _line(case.line(), _late)
        else:
            left = until - time.perf_counter()
            yield _line(case.line(), lambda: work(case, future.result(left)))  # noqa: B023
    pool.shutdown(wait=False, cancel_futures=True)


def _fail(error: Exception) -> dict[str, Any]:
    raise error


def measure_samplers(regex: str, samples: int, dtype: str, until: float) -> Lines:
    """Lines of `jc.impact.sample`, the driver on the host, which no single program is."""
    for model, selection in (*((name, "all") for name in impact.TWO_CONTACTS), ("disk_stack", "visited")):
        name = f"jc.impact.sample {model} {selection}"
        if not re.search(regex, name):
            continue
        late = time.perf_counter() > until
        case = impact.sampling_case(model, samples, selection, repeats=3)
        yield _line(
            {"name": name, "dtype": dtype, "worlds": samples},
            _late if late else functools.partial(_sampler, case),
        )


def _sampler(case: runner.Case) -> dict[str, Any]:
    row = runner.measure(case)
    rates = {"items_per_s": 1e6 / row["us_per_item"], "slowest": 1e6 / row["us_quartiles"][1]}
    named = {"converged %": row["terminated %"], "turns": row["LCPs per sample"]}
    return {key: row[key] for key in ("items", "trace_s", "compile_s")} | rates | named


def _one_precision(options: argparse.Namespace) -> Lines:
    """Lines of one precision, in this process."""
    until = time.perf_counter() + options.seconds
    jax.config.update("jax_enable_x64", options.dtype == "float64")
    on_cpu = jax.devices()[0].platform == "cpu"
    by_time = options.timed or not on_cpu
    cases = cases_of(options.k, options.worlds, by_time, options.dtype)
    with platforms.as_elsewhere() if on_cpu else contextlib.nullcontext():
        yield from measure(cases, timed if by_time else counted, until)
        if by_time:
            yield from measure_samplers(options.k, max(options.worlds or [2**20]), options.dtype, until)


def _both_precisions(options: argparse.Namespace) -> Lines:
    """Lines of a process for each precision, which ends in time. This one leaves the device to them."""
    until = time.perf_counter() + options.seconds
    given = ["-k", options.k, *["--timed"] * options.timed]
    given += ["--worlds", *map(str, options.worlds)] if options.worlds else []
    for k, dtype in enumerate(DTYPES):
        share = max(0.0, (until - time.perf_counter()) / (len(DTYPES) - k))
        command = [sys.executable, "-m", "benchmarks", "gpu", *given, "--dtype", dtype]
        command += ["--seconds", str(max(0.0, share - START))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            clock = threading.Timer(share, child.kill)
            clock.start()
            assert child.stdout is not None
            yield from map(json.loads, child.stdout)
            clock.cancel()
        if child.returncode:
            why = f"the process ended with {child.returncode}, no time left or a crash"
            yield {"name": "the rest", "dtype": dtype, "worlds": "", "skipped": why}


def main(arguments: list[str]) -> int:
    """Measure, or count where there is no accelerator; print a line per case, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only programs whose name matches")
    parser.add_argument("--seconds", type=float, default=480.0, help="what is left then is skipped")
    parser.add_argument("--worlds", type=int, nargs="+", help="numbers of worlds, instead of each one's own")
    parser.add_argument("--timed", action="store_true", help="measure times on a CPU, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the lines there, too")
    parser.add_argument("--results", type=Path, metavar="FILE", help="put the table into this Markdown file")
    parser.add_argument("--dtype", choices=DTYPES, help="only this one")
    options = parser.parse_args(arguments)
    lines = []
    for line in (_one_precision if options.dtype else _both_precisions)(options):
        lines.append(line)
        print(json.dumps(line), flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(line) + "\n")
    if options.results:
        by_time = any("items_per_s" in line for line in lines)
        name, table = ("gpu speeds", report.speeds) if by_time else ("gpu costs", report.costs)
        report.put(options.results, name, table(lines))
    return 0

"""`python -m benchmarks gpu`: steps and samples per second on an accelerator, in eight minutes.

Where there is none: FLOPs and bytes per item of the same programs, with the branches that they take on a GPU
but compiled for the CPU, and the most items per second that one H200 could do of them. A GPU fuses operations
otherwise than a CPU, so its bytes may be fewer; `program_cost` says how turns of loops count.

One line of JSON per case. A case that fails, or for which no time is left, has a line that says why. Nothing
can interrupt a compilation: one that has begun when time is over holds the end of the command back.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import re
import sys
import time
import warnings
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
        return v_plus, info.status, info.num_solves

    return work, (v, jax.random.key(0))


def _steps(name: str, worlds: int) -> tuple[Work, tuple[jax.Array, ...]]:
    """Compliant steps of a robot: a turn is one of Newton's method."""
    robot = next(each for each in robots.ROBOTS if each.name == name)
    scene, steps = robots.scene_of(robot, worlds), robots.steps_of(robot)

    def work(q: jax.Array, v: jax.Array, dt: jax.Array) -> Outcome:
        states, info = jax.vmap(steps)(q, v, dt)
        return (states.q[:, -1], states.v[:, -1]), info.status, info.iterations

    return work, (jnp.asarray(scene.q), jnp.asarray(scene.v), jnp.full(worlds, robots.DT))


def _plates(contacts: int, worlds: int) -> tuple[Work, tuple[jax.Array, ...]]:
    """A plate on springs for a second: a turn is a step or a crossing."""
    run = ess.solver(contacts, BAND, TOLERANCE)

    def work(x0: jax.Array) -> Outcome:
        end, info = jax.vmap(run)(x0)
        return end, info.status, info.num_steps

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


def cases_of(regex: str, worlds: list[int] | None, timed: bool) -> list[Case]:
    """The cases whose program's name matches, few worlds first; `worlds` instead of its own."""
    chosen = [each for each in PROGRAMS if re.search(regex, each.name)]
    sizes = {each: tuple(worlds or (each.worlds if timed else (each.few,))) for each in chosen}
    most = max((len(own) for own in sizes.values()), default=0)
    return [
        Case(each, dtype, sizes[each][k])
        for k in range(most)
        for dtype in DTYPES
        for each in chosen
        if k < len(sizes[each])
    ]


@contextlib.contextmanager
def both_precisions() -> Iterator[None]:
    """Inside, `_use` sets the precision; single precision warns of nothing."""
    before = "float64" if jax.config.jax_enable_x64 else "float32"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jc.PrecisionWarning)
            yield
    finally:
        _use(before)


def _use(dtype: str) -> None:
    """From now on numbers are of that type. What JAX keeps of tracing in the other does not serve it."""
    if jax.config.jax_enable_x64 != (dtype == "float64"):
        jax.clear_caches()
        jax.config.update("jax_enable_x64", dtype == "float64")


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
    _use(case.dtype)
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
    _use(case.dtype)
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


def _line(start: dict[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The line of a case, which says so where it fails."""
    head = {key: value for key, value in runner.header().items() if key != "dtype"}
    begin, line = time.perf_counter(), start | head
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


def measure_samplers(regex: str, samples: int, until: float) -> Lines:
    """Lines of `jc.impact.sample`, the driver on the host, which no single program is."""
    for model, selection in (*((name, "all") for name in impact.TWO_CONTACTS), ("disk_stack", "visited")):
        for dtype in DTYPES:
            name = f"jc.impact.sample {model} {selection}"
            if not re.search(regex, name):
                continue
            late = time.perf_counter() > until
            case = impact.sampling_case(model, samples, selection, repeats=3)
            yield _line(
                {"name": name, "dtype": dtype, "worlds": samples},
                _late if late else functools.partial(_sampler, case, dtype),
            )


def _sampler(case: runner.Case, dtype: str) -> dict[str, Any]:
    _use(dtype)
    row = runner.measure(case)
    rates = {"items_per_s": 1e6 / row["us_per_item"], "slowest": 1e6 / row["us_quartiles"][1]}
    named = {"converged %": row["terminated %"], "turns": row["LCPs per sample"]}
    return {key: row[key] for key in ("items", "trace_s", "compile_s")} | rates | named


def main(arguments: list[str]) -> int:
    """Measure, or count where there is no accelerator; print a line per case, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only programs whose name matches")
    parser.add_argument("--seconds", type=float, default=480.0, help="what is left then is skipped")
    parser.add_argument("--worlds", type=int, nargs="+", help="numbers of worlds, instead of each one's own")
    parser.add_argument("--timed", action="store_true", help="measure times on a CPU, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the lines there, too")
    parser.add_argument("--results", type=Path, metavar="FILE", help="put the table into this Markdown file")
    options = parser.parse_args(arguments)
    until = time.perf_counter() + options.seconds
    on_cpu = jax.devices()[0].platform == "cpu"
    by_time = options.timed or not on_cpu
    cases, lines = cases_of(options.k, options.worlds, by_time), []
    with both_precisions(), platforms.as_elsewhere() if on_cpu else contextlib.nullcontext():
        found = measure(cases, timed if by_time else counted, until)
        if by_time:
            found = itertools.chain(found, measure_samplers(options.k, max(options.worlds or [2**20]), until))
        for line in found:
            lines.append(line)
            print(json.dumps(line), flush=True)
    if options.json:
        with options.json.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    if options.results:
        name, table = ("gpu speeds", report.speeds) if by_time else ("gpu costs", report.costs)
        report.put(options.results, name, table(lines))
    return 0

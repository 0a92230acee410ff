"""The command `python -m benchmarks gpu` at tiny sizes: what it counts, what it times, what it skips."""

import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks import gpu, gpu_kernels, program_cost
from benchmarks.compiled_text import CompiledText

N = 64
PRODUCT = 2 * N**3  # FLOPs of a product of two matrices


def loops(x):
    """Three turns of five products each, then two more; and as many turns as the data want, of a product."""
    x = lax.scan(lambda c, _: (lax.fori_loop(0, 5, lambda _, y: y @ y, c), None), x, None, length=3)[0]
    x = jax.jit(lambda c: lax.scan(lambda c, _: (c @ c, None), c, None, length=2)[0])(x)
    return lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, c[1] @ c[1]), (0, x))


@pytest.mark.parametrize("turns", [1.0, 7.0])
def test_loops_count_with_all_their_turns(turns):
    traced = jax.jit(loops).trace(jnp.eye(N))
    compiled = traced.lower().compile()
    assert program_cost.bodies_once(compiled).flops == pytest.approx(3 * PRODUCT, rel=1e-3)
    cost = program_cost.all_turns(traced.jaxpr.jaxpr, compiled, turns)
    assert cost.flops == pytest.approx((17 + turns) * PRODUCT, rel=1e-3)
    assert 2 * 8 * N**2 * (17 + turns) <= cost.bytes <= 4 * 8 * N**2 * (17 + turns)


def missing(worlds):
    raise ImportError("the package robots is not installed")


@pytest.fixture
def programs(monkeypatch):
    """Impacts alone, and a robot whose package is not there."""
    sample = next(each for each in gpu.PROGRAMS if each.name == "sample box_and_wall")
    absent = dataclasses.replace(sample, name="steps nobody", make=missing)
    chosen = (absent, dataclasses.replace(sample, few=8))
    monkeypatch.setattr(gpu, "PROGRAMS", chosen)
    return chosen


def said(capsys, *options):
    """The lines that the command prints."""
    assert gpu.main(list(options)) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def page_of(folder, name):
    page = folder / "page.md"
    page.write_text(f"<!-- {name}: generated --><!-- {name}: end -->")
    return page


def check_table(page, lines):
    rows = page.read_text().splitlines()
    assert sum(row.count("|") == rows[4].count("|") for row in rows) == 2 + len(lines)


@pytest.mark.long
def test_without_an_accelerator_the_command_counts(programs, capsys, tmp_path):
    page, file = page_of(tmp_path, "gpu costs"), tmp_path / "lines.json"
    lines = said(capsys, "--dtype", "float64", "--results", str(page), "--json", str(file))
    assert [json.loads(line) for line in file.read_text().splitlines()] == lines
    absent, line = lines
    assert absent["name"] == "steps nobody" and "robots is not installed" in absent["skipped"]
    assert line["worlds"] == line["items"] == 8 and line["converged %"] == 100
    assert 1 <= line["turns"] <= line["most turns"] <= 5
    assert line["device"] and line["jax"] and line["dtype"] == "float64" and line["compile_s"] > 0
    bounds = 4.8e12 / line["bytes"], 34e12 / line["flops"]
    assert line["bound items_per_s"] == pytest.approx(min(bounds))
    check_table(page, lines)


@pytest.mark.slow
def test_with_one_it_times(programs, capsys, tmp_path):
    page = page_of(tmp_path, "gpu speeds")
    options = ("--timed", "--worlds", "8", "-k", "box_and_wall|nobody", "--dtype", "float64")
    absent, *lines = said(capsys, *options, "--results", str(page))
    assert "robots is not installed" in absent["skipped"]
    assert [line["name"] for line in lines] == ["sample box_and_wall", "jc.impact.sample box_and_wall all"]
    for line in lines:
        assert line["worlds"] == line["items"] == 8 and line["converged %"] == 100
        assert line["items_per_s"] >= line["slowest"] > 0
    check_table(page, [absent, *lines])


@pytest.mark.long
@pytest.mark.parametrize("timed", [[], ["--timed"]])
def test_what_no_time_is_left_for(programs, capsys, timed):
    lines = said(capsys, "--seconds", "0", "--dtype", "float64", *timed)
    assert len(lines) == (7 if timed else 2) and {line["skipped"] for line in lines} == {"no time left"}


def test_a_process_that_does_not_end_is_ended(capsys):
    lines = said(capsys, "--seconds", "0")
    assert [line["dtype"] for line in lines] == list(gpu.DTYPES)
    assert all("ended with -9" in line["skipped"] for line in lines)


def trivial(worlds):
    return (lambda x: (x, jnp.zeros(worlds, jnp.uint32), x)), (jnp.ones(worlds),)


def test_a_run_that_fails_does_not_end_the_others(monkeypatch):
    monkeypatch.setattr(gpu, "PROGRAMS", [dataclasses.replace(gpu.PROGRAMS[0], make=trivial)])

    def work(case, ready):
        if case.worlds == 8:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return {"items_per_s": 1.0}

    cases = gpu.cases_of("sample", [8, 16], True, "float64")
    lines = list(gpu.measure(cases, work, time.perf_counter() + 1e3))
    assert "out of memory" in lines[0]["skipped"] and lines[1]["items_per_s"] == 1.0


def test_few_worlds_come_first():
    cases = [
        case for case in gpu.cases_of("", None, True, "float32") if case.program.name.startswith("steps")
    ]
    assert [case.worlds for case in cases] == sorted(case.worlds for case in cases)
    assert len(cases) == len(gpu.ROBOTS) * len(gpu.WORLDS)
    assert {case.worlds for case in cases} == set(gpu.WORLDS)


@pytest.mark.slow
def test_robots_and_the_plate_are_counted_in_both_precisions(capsys):
    lines = said(capsys, "-k", "box$|plate", "--worlds", "4", "--seconds", "900")
    assert [(line["name"], line["dtype"]) for line in lines] == [
        (name, dtype) for dtype in gpu.DTYPES for name in ("steps box", "plate on 100 springs")
    ]
    box, plate, single_box, single_plate = lines
    for line in lines:
        assert line["flops"] > line["flops, bodies of loops once"]
    assert box["converged %"] == plate["converged %"] == single_plate["converged %"] == 100
    assert single_box["converged %"] >= 95  # stiff contacts stall in a few steps of single precision
    assert single_plate["bytes"] < 0.75 * plate["bytes"]


PROGRAM = """HloModule jit_work, is_scheduled=true

%body (p: (f64[4], s32[])) -> (f64[4], s32[]) {
  %p = (f64[4]{0}, s32[]) parameter(0)
  %x = f64[4]{0} get-tuple-element(%p), index=0
  %y = f64[4]{0} fusion(%x), kind=kLoop, calls=%f
  ROOT %pair = (f64[4]{0}, s32[]) tuple(%y, %y)
}

%branch (q: f64[4]) -> f64[4] {
  %q = f64[4]{0} parameter(0)
  %r = f64[4]{0} fusion(%q), kind=kLoop, calls=%g
  ROOT %s = f64[4]{0} fusion(%r, %q), kind=kLoop, calls=%g
}

%step (p.1: (f64[4], s32[])) -> (f64[4], s32[]) {
  %p.1 = (f64[4]{0}, s32[]) parameter(0)
  %loop = (f64[4]{0}, s32[]) while(%p.1), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %search = (f64[4]{0}, s32[]) while(%loop), condition=%c, body=%body
  %choice = f64[4]{0} conditional(%p.1, %loop, %loop), branch_computations={%body, %branch}
  ROOT %other = f64[4]{0} conditional(%p.1, %p.1), true_computation=%branch, false_computation=%body
}

ENTRY %main (a: (f64[4], s32[])) -> (f64[4], s32[]) {
  %a = (f64[4]{0}, s32[]) parameter(0)
  ROOT %steps = (f64[4]{0}, s32[]) while(%a), condition=%c, body=%step
}
"""


def test_kernels_of_a_step_count_with_loops_and_branches():
    """Five turns of one kernel, one of a search, the larger branches; the host waits for the last three."""
    program = CompiledText.read(PROGRAM)
    (step,) = program.loops(program.entry)
    assert gpu_kernels.count(program, step) == gpu_kernels.Count(
        kernels=10.0, waits=3.0, bytes=8 * 4 * (6 * 2 + 2 * (2 + 3))
    )

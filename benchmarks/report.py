"""Tables of RESULTS.md made from lines of JSON, each between two marks that name it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def put(page: Path, name: str, text: str) -> None:
    """Put the text between the marks of that name.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    before = page.read_text()
    if begin not in before or end not in before:
        raise ValueError(f"{page}: expected the marks {begin} and {end}")
    head, rest = before.split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


def robots(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks robots`: what was measured, on what, with what."""
    first = lines[0]
    rows = [
        "| robot | worlds | engine | wall us | processor us | error | converged % | first call s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        name = f"| {line['robot']} | {line['batch']} | {line['engine']} |"
        if "skipped" in line:
            rows.append(f"{name} {line['skipped'].splitlines()[0][:80]} | | | | |")
            continue
        rows.append(
            f"{name} {line['us_per_item']:.3g} | {line['cpu_us_per_item']:.3g} | {line['error']:.1e} | "
            f"{line['converged %']:.4g} | {line['first_s']:.1f} |"
        )
    packages = ", ".join(f"{key} {first[key]}" for key in ("jax", "mujoco", "mujoco-mjx"))
    head = f"Per step and world. {first['device']}, {first['dtype']}, {packages}; {first['date']}, commit "
    return head + f"{first['commit']}.\n\n" + "\n".join(rows)


ENGINES = {"jaxcontact": "#0072b2", "jaxcontact XLA": "#56b4e9", "MuJoCo": "#d55e00", "MJX": "#009e73"}


def draw_robots(path: Path, lines: list[dict[str, Any]]) -> None:
    """Draw a row for each robot: the processor time of a step in most worlds, a dot for each engine."""
    import matplotlib.pyplot as plt

    measured = [line for line in lines if "skipped" not in line]
    most: dict[str, int] = {}
    for line in measured:
        most[line["robot"]] = max(line["batch"], most.get(line["robot"], 0))
    times: dict[str, dict[str, float]] = {robot: {} for robot in most}
    for line in measured:
        engine = line["engine"].removesuffix(" singly")
        if engine in ENGINES and line["batch"] == most[line["robot"]]:
            times[line["robot"]][engine] = line["cpu_us_per_item"]
    rows = sorted(times, key=lambda robot: times[robot]["MuJoCo"], reverse=True)
    figure, axis = plt.subplots(figsize=(7.5, 0.32 * len(rows) + 1.3), layout="constrained")
    for height, robot in enumerate(rows):
        axis.plot(
            [min(times[robot].values()), max(times[robot].values())], [height] * 2, color="#dddddd", zorder=1
        )
    for engine, colour in ENGINES.items():
        points = [
            (times[robot][engine], height) for height, robot in enumerate(rows) if engine in times[robot]
        ]
        axis.plot(*zip(*points, strict=True), "o", color=colour, label=engine)
    labels = [f"{robot}, {most[robot]} world{'s' * (most[robot] > 1)}" for robot in rows]
    axis.set(
        xscale="log",
        xlabel="processor time of a step of one world (µs)",
        yticks=range(len(rows)),
        yticklabels=labels,
    )
    axis.xaxis.set_major_formatter("{x:g}")
    quicker = sum("jaxcontact" in row and row["jaxcontact"] < row["MuJoCo"] for row in times.values())
    figure.legend(loc="outside lower center", ncols=len(ENGINES), frameon=False)
    axis.set_title(f"{quicker} of {len(times)} models step quicker in jaxcontact than in MuJoCo")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def gradients(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks robots --gradient`: processor time of steps and of reverse mode."""
    rows = [
        "| robot | steps | us a step | and gradient | ratio | compile s | and gradient | MiB | finite |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {line['robot']} | {line['steps']} | {line['steps cpu_us_per_item']:.3g} "
        f"| {line['gradient cpu_us_per_item']:.3g} | {line['ratio']:.2f} | {line['steps compile_s']:.1f} "
        f"| {line['gradient compile_s']:.1f} | {line['gradient MiB']:.3g} | {line['gradient finite']} |"
        for line in lines
    ]
    return _head(lines) + "\n".join(rows)


def _head(lines: list[dict[str, Any]]) -> str:
    first = next(line for line in lines if "device" in line)
    return f"{first['device']}, jax {first['jax']}; {first['date']}, commit {first['commit']}.\n\n"


def _names(line: dict[str, Any], columns: int) -> str:
    """The first columns of a row, or the whole row of a case that was skipped."""
    name = f"| {line['name']} | {line['dtype']} | {line['worlds']} |"
    return f"{name} {line['skipped'].splitlines()[0][:80]} |" + " |" * columns if "skipped" in line else name


def _table(
    lines: list[dict[str, Any]], columns: list[str], cells: Callable[[dict[str, Any]], list[str]]
) -> str:
    """A table of programs with `columns`, whose rows are `cells`, or empty where a case was skipped."""
    names = ["program", "dtype", "worlds", *columns]
    rows = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for line in lines:
        row = _names(line, len(columns) - 1)
        rows.append(row if "skipped" in line else f"{row} {' | '.join(cells(line))} |")
    return _head(lines) + "\n".join(rows)


def costs(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks gpu` without an accelerator: what an item costs, and its bound."""
    columns = ["turns, at most", "bytes", "FLOPs", "bytes, loops once", "FLOPs, loops once"]
    columns += ["per s by bytes", "per s by FLOPs", "converged %", "compile s"]

    def cells(line: dict[str, Any]) -> list[str]:
        small = [line[key] for key in ("bytes", "flops")]
        small += [line[f"{what}, bodies of loops once"] for what in ("bytes", "flops")]
        small += [line[f"items_per_s by {what}"] for what in ("bytes", "flops")]
        last = [f"{line['converged %']:.4g}", f"{line['compile_s']:.1f}"]
        return [f"{line['turns']:.3g}, {line['most turns']}", *(f"{x:.2e}" for x in small), *last]

    return _table(lines, columns, cells)


def kernels(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks kernels`: what a step launches on an H100."""
    columns = ["kernels a step", "waits a step", "bytes of a world a step", "compile s"]

    def cells(line: dict[str, Any]) -> list[str]:
        seconds = f"{line['compile_s']:.1f}"
        return [f"{line['kernels']:.0f}", f"{line['waits']:.0f}", f"{line['bytes']:.2e}", seconds]

    return _table(lines, columns, cells)


def speeds(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks gpu` on an accelerator."""
    columns = ["per s", "slowest run", "turns", "converged %", "trace s", "compile s"]

    def cells(line: dict[str, Any]) -> list[str]:
        rates = [f"{line['items_per_s']:.3e}", f"{line['slowest']:.3e}", f"{line['turns']:.3g}"]
        seconds = [f"{line[key]:.1f}" for key in ("trace_s", "compile_s")]
        return [*rates, f"{line['converged %']:.4g}", *seconds]

    return _table(lines, columns, cells)

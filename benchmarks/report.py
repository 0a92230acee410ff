"""Tables of RESULTS.md made from lines of JSON, each between two marks that name it."""

from __future__ import annotations

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


def draw_robots(path: Path, lines: list[dict[str, Any]]) -> None:
    """Processor time of a step against worlds, contacts and velocities, one curve for each engine."""
    import matplotlib.pyplot as plt

    measured = [line for line in lines if "skipped" not in line]
    feet = {line["robot"]: int(line["robot"].split()[2]) for line in measured if "feet" in line["robot"]}
    most = {robot: max(x["batch"] for x in measured if x["robot"] == robot) for robot in _names_of(measured)}
    large = [line for line in measured if line["batch"] == most[line["robot"]]]
    panels = {
        "worlds (quadruped)": [(x["batch"], x) for x in measured if x["robot"] == "quadruped"],
        "feet of a body (256 worlds)": [(feet[x["robot"]], x) for x in large if x["robot"] in feet],
        "velocities of a robot (most worlds)": [(x["nv"], x) for x in large if x["robot"] not in feet],
    }
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    for axis, (title, points) in zip(axes, panels.items(), strict=True):
        for engine in ("jaxcontact", "jaxcontact XLA", "MuJoCo", "MJX singly", "MJX"):
            own = sorted((x, line["cpu_us_per_item"]) for x, line in points if line["engine"] == engine)
            style = "o-" if "velocities" not in title else "o"
            if own:
                axis.loglog(*zip(*own, strict=True), style, label=engine, markersize=5)
        axis.set(xlabel=title)
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="processor time per world and step, us")
    axes[2].set_ylim(bottom=1e-3)  # room for names
    for nv in sorted({line["nv"] for line in large if line["robot"] not in feet}):
        names = ", ".join(sorted({x["robot"] for x in large if x["nv"] == nv and x["robot"] not in feet}))
        axes[2].text(nv, 1.3e-3, names, rotation=90, fontsize=8, ha="center", va="bottom")
    axes[0].legend(frameon=False, fontsize=8)
    axes[2].legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _names_of(lines: list[dict[str, Any]]) -> set[str]:
    return {line["robot"] for line in lines}


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


def costs(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks gpu` without an accelerator: what an item costs, and its bound."""
    rows = [
        "| program | dtype | worlds | turns, at most | bytes | FLOPs | bytes, loops once | FLOPs, loops once "
        "| per s by bytes | per s by FLOPs | converged % | compile s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        row = _names(line, 8)
        if "skipped" not in line:
            once = (f"{line[f'{what}, bodies of loops once']:.2e}" for what in ("bytes", "flops"))
            row += (
                f" {line['turns']:.3g}, {line['most turns']} | {line['bytes']:.2e} | {line['flops']:.2e} | "
                f"{' | '.join(once)} | {line['items_per_s by bytes']:.2e} | "
                f"{line['items_per_s by flops']:.2e} | {line['converged %']:.4g} | {line['compile_s']:.1f} |"
            )
        rows.append(row)
    return _head(lines) + "\n".join(rows)


def speeds(lines: list[dict[str, Any]]) -> str:
    """The table of `python -m benchmarks gpu` on an accelerator."""
    rows = [
        "| program | dtype | worlds | per s | slowest run | turns | converged % | trace s | compile s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        row = _names(line, 5)
        if "skipped" not in line:
            row += (
                f" {line['items_per_s']:.3e} | {line['slowest']:.3e} | {line['turns']:.3g} | "
                f"{line['converged %']:.4g} | {line['trace_s']:.1f} | {line['compile_s']:.1f} |"
            )
        rows.append(row)
    return _head(lines) + "\n".join(rows)

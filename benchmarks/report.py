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
        "| robot | worlds | engine | wall us | processor us | error | converged % | trace s | compile s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        name = f"| {line['robot']} | {line['batch']} | {line['engine']} |"
        if "skipped" in line:
            rows.append(f"{name} {line['skipped'].splitlines()[0][:80]} | | | | | |")
            continue
        rows.append(
            f"{name} {line['us_per_item']:.3g} | {line['cpu_us_per_item']:.3g} | {line['error']:.1e} | "
            f"{line['converged %']:.4g} | {line['trace_s']:.1f} | {line['compile_s']:.1f} |"
        )
    packages = ", ".join(f"{key} {first[key]}" for key in ("jax", "mujoco", "mujoco-mjx"))
    head = f"Per step and world. {first['device']}, {first['dtype']}, {packages}; {first['date']}, commit "
    return head + f"{first['commit']}.\n\n" + "\n".join(rows)

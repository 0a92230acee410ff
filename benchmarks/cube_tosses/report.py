"""The figures as text: tables of means with their 95 % intervals, for a terminal and for RESULTS.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import put

BEGIN, END = "<!-- cube tosses: generated -->", "<!-- cube tosses: end -->"


def number(interval: list[float], digits: int = 4) -> str:
    """Mean and ends of an interval."""
    mean, low, high = interval
    return f"{mean:.{digits}f} ({low:.{digits}f} .. {high:.{digits}f})"


def text(head: dict[str, str], found: dict[str, Any]) -> str:
    """All tables as Markdown."""
    return "\n\n".join(
        [
            f"Scored: {head['scored']}. {head['date']}, commit {head['commit']}, {head['device']}, "
            f"jax {head['jax']}, mujoco {head['mujoco']}.",
            _impacts(found),
            _scores(found),
            _differences(found),
            _sets(found),
            _parameters(found),
            _motions(found),
        ]
    )


def _impacts(found: dict[str, Any]) -> str:
    clean = ", ".join(f"{count} of {kind}" for kind, count in found["impacts"].items())
    left = ", ".join(f"{reason} {count}" for reason, count in found["left out"].items())
    return f"Clean impacts scored: {clean}. Ends of flights left out of the file: {left}."


def _scores(found: dict[str, Any]) -> str:
    rows = ["| law | one corner | two corners |", "|---|---|---|"]
    rows += [
        f"| {name} | {number(of['one corner'])} | {number(of['two corners'])} |"
        for name, of in found["score"].items()
    ]
    return "\n".join(
        [
            "Energy score (of a single outcome its error), |v - v_measured|_M / |v_minus|_M, least is best:",
            "",
            *rows,
        ]
    )


def _differences(found: dict[str, Any]) -> str:
    rows = ["| two corners, below 0 the first is better | difference |", "|---|---|"]
    rows += [f"| {name} | {number(of)} |" for name, of in found["difference on two corners"].items()]
    return "\n".join([*rows, "", f"Best single law on two corners: {found['best single law']}."])


def _sets(found: dict[str, Any]) -> str:
    rows = ["| two corners | inside at 95 % | size | ranks of the truth, fifths |", "|---|---|---|---|"]
    rows += [
        f"| {name} | {of['inside']:.3f} | {of['size']:.4f} | {' '.join(map(str, of['ranks']))} |"
        for name, of in found["inside"].items()
    ]
    return "\n".join(rows)


def _parameters(found: dict[str, Any]) -> str:
    rows = ["| part | fitted | parameter | value |", "|---|---|---|---|"]
    for i, part in enumerate(found["parameters"]):
        for law, values in part.items():
            rows += [f"| {i + 1} | {law} | {key} | {number(of, 5)} |" for key, of in values.items()]
        if found["MuJoCo"][i]:
            rows += [f"| {i + 1} | MuJoCo | {key} | {of:.4g} |" for key, of in found["MuJoCo"][i].items()]
    return "\n".join(rows)


def _motions(found: dict[str, Any]) -> str:
    rows = [
        "| whole toss | log score of the face | energy score of the place, m | inside 50 % | inside 90 % |",
        "|---|---|---|---|---|",
    ]
    keys = ("log_score", "energy", "inside_50", "inside_90")
    rows += [
        f"| {name} | " + " | ".join(number(of[key], 3) for key in keys) + " |"
        for name, of in found["whole toss"].items()
    ]
    return "\n".join([*rows, "", "Six faces of equal probability score 1.792."])


def replace_section(page: Path, section: str) -> None:
    """Put the text between the marks of a page.

    Raises:
        ValueError: the page lacks the marks.
    """
    put(page, "cube tosses", section)

"""The report on a run of the sampler: its numbers ready for JSON, and as text."""

from __future__ import annotations

import math
import time
from typing import Any

from jaxcontact.impact.analysis.coverage import Coverage
from jaxcontact.impact.sampling.outcomes import contact_names, named_shares
from jaxcontact.impact.sampling.summary_statistics import Tally
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms


class Laps(dict[str, float]):
    """The seconds that each part of a command took, by name."""

    def __init__(self, begin: float) -> None:
        super().__init__()
        self._last = begin

    def end(self, part: str) -> None:
        """End a part, which began at the end of the one before."""
        now = time.perf_counter()
        self[part], self._last = now - self._last, now


def summarise(
    name: str,
    terms: ContactTerms,
    tally: Tally,
    settings: dict[str, Any],
    complete: bool,
    laps: Laps,
    stored: int,
) -> dict[str, Any]:
    """The numbers of a run, ready for JSON.

    Args:
        name: of the mechanism.
        tally: of all samples.
        settings: of `sample`.
        complete: whether all solutions of every step were candidates.
        laps: the run took "sample", and where that was apart "compile".
        stored: how many samples were there before.
    """
    contacts = {}
    for i, contact in enumerate(contact_names(terms.phi.shape[0])):
        if bool(terms.active[i]) and tally.terminated:
            axes = ("normal", "tangential", "tangential2")[: tally.low.shape[1]]
            contacts[contact] = {
                axis: [float(tally.low[i, k]), float(tally.high[i, k])] for k, axis in enumerate(axes)
            }
    computed = tally.number - stored
    return {
        "model": name,
        "samples": tally.number,
        **settings,
        "complete": complete,
        "outcomes": dict(named_shares(tally.kinds, terms)),
        "contact_velocity": contacts,
        "energy_ratio": list(tally.energy) if tally.terminated else [],
        "terminated": tally.terminated / tally.number,
        "failures": Status.describe(tally.status & ~int(Status.UNTERMINATED)),
        "lcps_per_sample": tally.steps / tally.number,
        "worst_residual": tally.worst_residual,
        "compile_seconds": laps.get("compile"),
        "seconds": laps["sample"],
        "microseconds_per_sample": 1e6 * laps["sample"] / computed if computed else 0.0,
    }


def as_text(summary: dict[str, Any]) -> str:
    """The summary for a person; `files` and `seconds_spent` have been added to it."""
    exhaustive = "every solution of every step" if summary["complete"] else "not exhaustive"
    lines = [
        f"{summary['model']}: {summary['samples']} samples, steps of at most {summary['step']:g} N s, "
        f"at most {summary['max_steps']} of them",
        f"  selection        {summary['selection']} ({exhaustive})",
        *([f"  restitution      {summary['restitution']}"] if "restitution" in summary else []),
        "  outcomes         share of the terminated samples",
    ]
    shares = list(summary["outcomes"].items())
    lines += [f"    {100 * share:6.2f} %       {label}" for label, share in shares[:8]]
    if len(shares) > 8:
        rest = 100 * sum(share for _, share in shares[8:])
        lines.append(f"    {rest:6.2f} %       {len(shares) - 8} other kinds")
    lines.append("  contact velocities after the impact, m/s")
    for contact, ranges in summary["contact_velocity"].items():
        parts = [f"{key} {_tidy(low):8.4f} .. {_tidy(high):7.4f}" for key, (low, high) in ranges.items()]
        lines.append(f"    {contact}              " + "   ".join(parts))
    low, high = summary["energy_ratio"] or (float("nan"), float("nan"))
    lines += [
        f"  kinetic energy   {100 * low:.2f} .. {100 * high:.2f} % of that before",
        f"  terminated       {100 * summary['terminated']:.2f} %"
        + ("" if summary["terminated"] else "; no outcome to draw: raise --step or --max-steps"),
        f"  LCPs per sample  {summary['lcps_per_sample']:.3f}",
        f"  worst residual   {summary['worst_residual']:.1e}",
        f"  time             {_times(summary)}",
        *_coverage_lines(summary),
        *(f"  wrote            {path}" for path in summary["files"]),
    ]
    return "\n".join(lines)


def _times(summary: dict[str, Any]) -> str:
    """Where the time of the command went."""
    parts = []
    for part, seconds in summary["seconds_spent"].items():
        if part != "sample":
            parts.append(f"{seconds:.1f} s to {'state the coverage' if part == 'coverage' else part}")
            continue
        with_compiling = " and compile" if summary["compile_seconds"] is None else ""
        each = summary["microseconds_per_sample"]
        parts.append(f"{seconds:.2f} s to sample{with_compiling} ({each:.2f} us per sample)")
    return ", ".join(parts)


def coverage_summary(coverage: Coverage) -> dict[str, Any]:
    """What a coverage statement says about its largest set; distances in kg^(1/2) m/s."""
    return {
        "samples": int(coverage.num_set[-1]),
        "confidence": coverage.confidence,
        "at_most": [float(share) for share in coverage.shares],
        "farther_than": [float(r) if math.isfinite(r) else None for r in coverage.radius[-1]],
    }


def _coverage_lines(summary: dict[str, Any]) -> list[str]:
    if "coverage" not in summary:
        return []
    said = summary["coverage"]
    lines = [
        f"  coverage         of {said['samples']} samples, {100 * said['confidence']:g} % confidence each"
    ]
    for share, r in zip(said["at_most"], said["farther_than"], strict=True):
        share_text = f"    at most {100 * share:6.2f} % of the outcomes are farther than "
        lines.append(share_text + ("?: too few samples" if r is None else f"{r:.2e} kg^(1/2) m/s"))
    return lines


def _tidy(value: float) -> float:
    """No minus sign on what prints as zero."""
    return 0.0 if abs(value) < 5e-5 else value

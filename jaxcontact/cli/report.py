"""The report on a run of the sampler: a summary ready for JSON (`summarise`), and its text (`as_text`)."""

from __future__ import annotations

import math
import time

import numpy as np

from jaxcontact.cli.catalogue import Summary
from jaxcontact.cli.sensitivity import format_sensitivity
from jaxcontact.impact.analysis.coverage import Coverage
from jaxcontact.impact.sampling.binomial_bounds import bound_misses
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.impact.sampling.outcomes import contact_names, named_shares
from jaxcontact.impact.sampling.summary_statistics import Tally
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

FEW_CONTACTS = 4  # of which an outcome names each
NOT_EXHAUSTIVE = {
    "all": "all but some corners of a continuum",
    "visited": "a few solutions may be missing",
    "lemke": "one solution per step: outcomes are missing, shares are biased",
}


class Laps(dict[str, float]):
    """The duration of each part of a command in seconds, by name."""

    def __init__(self, begin: float) -> None:
        super().__init__()
        self._last = begin

    def end(self, part: str) -> None:
        """End a part and store its duration; it began when the part before ended."""
        time_now = time.perf_counter()
        self[part], self._last = time_now - self._last, time_now


def summarise(
    name: str,
    terms: ContactTerms,
    tally: Tally,
    settings: dict[str, object],
    samples: ImpactSamples,
    laps: Laps,
    stored: int,
) -> Summary:
    """Collect the numbers of a run, ready for JSON.

    Args:
        name: of the mechanism.
        tally: of all samples.
        settings: of the law, and the seed.
        samples: the ones that are shown.
        laps: durations; "sample" is that of the run, "compile" that of compiling if it was separate.
        stored: number of samples that the checkpoint held before the run.
    """
    contacts, active = {}, np.asarray(terms.active)
    for i, contact in enumerate(contact_names(terms.phi.shape[0])):
        if active[i] and tally.terminated:
            axes = ("normal", "tangential", "tangential2")[: tally.low.shape[1]]
            contacts[contact] = {
                axis: [float(tally.low[i, k]), float(tally.high[i, k])] for k, axis in enumerate(axes)
            }
    computed = tally.number - stored
    return {
        "model": name,
        "samples": tally.number,
        **settings,
        "complete": samples.complete,
        "miss_bound": bound_misses(tally.missed, tally.searched_again),
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


def as_text(summary: Summary) -> str:
    """Format the summary as text for a reader; it must also have `files` and `seconds_spent`."""
    exhaustive = (
        "every solution of every step" if summary["complete"] else NOT_EXHAUSTIVE[summary["selection"]]
    )
    if summary.get("miss_bound") is not None:
        exhaustive = f"searched: at most {100 * summary['miss_bound']:.0f} % of the steps miss an outcome"
    lines = [
        f"{summary['model']}: {summary['samples']} samples, "
        f"steps of at most {summary['impulse_step']:g} N s, at most {summary['max_steps']} of them",
        f"  selection        {summary['selection']} ({exhaustive})",
        *([f"  restitution      {summary['restitution']}"] if "restitution" in summary else []),
        *_contact_lines(summary),
        "  outcomes         share of the terminated samples",
    ]
    shares = [(_short(label), share) for label, share in summary["outcomes"].items()]
    lines += [f"    {100 * share:6.2f} %       {label}" for label, share in shares[:8]]
    if len(shares) > 8:
        remaining_share = 100 * sum(share for _, share in shares[8:])
        lines.append(f"    {remaining_share:6.2f} %       {len(shares) - 8} other kinds")
    lines.append("  contact velocities after the impact, m/s")
    lines += _velocity_lines(summary["contact_velocity"])
    low, high = summary["energy_ratio"] or (float("nan"), float("nan"))
    highest = summary.get("highest_energy_ratio")
    searched = "" if highest is None else f", {100 * max(highest, high):.2f} % the highest found by search"
    lines += [
        f"  kinetic energy   {100 * low:.2f} .. {100 * high:.2f} % of that before{searched}",
        f"  terminated       {100 * summary['terminated']:.2f} %"
        + ("" if summary["terminated"] else "; no outcome to draw: raise --impulse-step or --max-steps"),
        f"  LCPs per sample  {summary['lcps_per_sample']:.3f}",
        f"  worst residual   {summary['worst_residual']:.1e}",
        *(
            format_sensitivity(summary["sensitivity"], summary.get("derivative"))
            if "sensitivity" in summary
            else []
        ),
        f"  time             {_times(summary)}",
        *_coverage_lines(summary),
        *(f"  wrote            {path}" for path in summary["files"]),
    ]
    return "\n".join(lines)


def _velocity_lines(velocities: dict[str, dict[str, list[float]]]) -> list[str]:
    """Format the ranges of contact velocities, in one line for contacts with the same."""
    alike: dict[str, list[str]] = {}
    for contact, ranges in velocities.items():
        text = "   ".join(
            f"{key} {_tidy(low):8.4f} .. {_tidy(high):7.4f}" for key, (low, high) in ranges.items()
        )
        alike.setdefault(text, []).append(contact)
    lines = []
    for text, contacts in alike.items():
        name = contacts[0]
        if len(contacts) > 1:
            name = f"{contacts[0]} .. {contacts[-1]} ({len(contacts)})"
        lines.append(f"    {name:14} {text}")
    return lines


def _short(label: str) -> str:
    """Shorten an outcome of many contacts: "all 28 stick", "A B lift, C D E F stick"."""
    by_end: dict[str, list[str]] = {}
    for part in label.split(", "):
        name, _, end = part.rpartition(" ")
        by_end.setdefault(end, []).append(name)
    number = label.count(",") + 1
    if number <= FEW_CONTACTS:
        return label
    if len(by_end) == 1:
        return f"all {number} {_plural(*by_end)}"
    return ", ".join(
        f"{' '.join(names)} {end if len(names) == 1 else _plural(end)}" for end, names in by_end.items()
    )


def _plural(end: str) -> str:
    return end.removesuffix("es") if end.endswith("ches") else end.removesuffix("s")


def _contact_lines(summary: Summary) -> list[str]:
    """List the contacts of each body of a robot."""
    by_body: dict[str, list[str]] = {}
    for contact, body in summary.get("contacts", {}).items():
        by_body.setdefault(body, []).append(contact)
    heads = ["contacts", *[""] * len(by_body)]
    bodies = by_body.items()
    return [f"  {head:16} {' '.join(letters)} of {body}" for head, (body, letters) in zip(heads, bodies)]


def _times(summary: Summary) -> str:
    """Format the durations of the parts of the command as text."""
    laps_text = []
    for part, seconds in summary["seconds_spent"].items():
        if part != "sample":
            laps_text.append(f"{seconds:.1f} s to {'state the coverage' if part == 'coverage' else part}")
            continue
        with_compiling = " and compile" if summary["compile_seconds"] is None else ""
        per_sample = summary["microseconds_per_sample"]
        laps_text.append(f"{seconds:.2f} s to sample{with_compiling} ({per_sample:.2f} us per sample)")
    return ", ".join(laps_text)


def coverage_summary(coverage: Coverage) -> dict[str, object]:
    """Collect the coverage statement about the largest set; distances in kg^(1/2) m/s."""
    return {
        "samples": int(coverage.num_set[-1]),
        "confidence": coverage.confidence,
        "at_most": [float(share) for share in coverage.shares],
        "farther_than": [float(r) if math.isfinite(r) else None for r in coverage.radius[-1]],
    }


def _coverage_lines(summary: Summary) -> list[str]:
    if "coverage" not in summary:
        return []
    coverage = summary["coverage"]
    lines = [
        f"  coverage         of {coverage['samples']} samples, "
        f"{100 * coverage['confidence']:g} % confidence each"
    ]
    for share, r in zip(coverage["at_most"], coverage["farther_than"], strict=True):
        share_text = f"    at most {100 * share:6.2f} % of the outcomes are farther than "
        lines.append(share_text + ("?: too few samples" if r is None else f"{r:.2e} kg^(1/2) m/s"))
    return lines


def _tidy(value: float) -> float:
    """Return the value, or 0 if it would print as -0."""
    return 0.0 if abs(value) < 5e-5 else value

"""`jaxcontact impact MODEL`: samples the outcomes of a simultaneous impact and reports on them."""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxcontact import impact, propagative_command
from jaxcontact.catalogue import UsageError, find_model, with_impacts
from jaxcontact.impact.checkpoint import num_finished
from jaxcontact.impact.sampling import SELECTIONS, Progress
from jaxcontact.impact.tally import Tally, tally
from jaxcontact.impact_files import MANY_MODES, write
from jaxcontact.report import as_text, coverage_summary, summarise
from jaxcontact.solvers.modes import MAX_ENUMERATED
from jaxcontact.status import Status
from jaxcontact.system import Model, System
from jaxcontact.terms import ContactTerms, contact_terms

SHOWN = 2**18  # samples of a checkpoint that its picture shows

Parts = tuple[Tally, list[impact.ImpactSamples]]


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    run = commands.add_parser(
        "impact",
        help="sample the outcomes of a simultaneous impact",
        description="Sample the outcomes of a simultaneous impact over random impulse orders, print a "
        "summary, and write a picture and an .npz file. Defaults are the settings of Halm & Posa.",
        epilog="example: jaxcontact impact compass_gait --samples 2^18 --out results. A long run: jaxcontact "
        "impact disk_stack --samples 2^24 --checkpoint run; interrupted, the same command goes on.",
    )
    run.add_argument("model", metavar="MODEL", help="a mechanism; `jaxcontact models` lists them")
    run.add_argument(
        "--law",
        choices=("set-valued", "propagative"),
        default="set-valued",
        help="set-valued: samples with friction; propagative: every outcome of single elastic impacts, one "
        "after the other, without friction, and the order that leads there, of the other options only --json "
        "[set-valued]",
    )
    run.add_argument("--samples", type=_count, default=2**14, metavar="N", help="how many, e.g. 2^20 [2^14]")
    run.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws [0]")
    run.add_argument(
        "--step", type=float, metavar="H", help="largest normal impulse of a step, N s [the model's]"
    )
    run.add_argument("--max-steps", type=_count, metavar="N", help="largest number of steps [the model's]")
    run.add_argument(
        "--selection",
        choices=SELECTIONS,
        help="solutions of a step: all of them, those among the contact modes met so far, or the one that "
        "Lemke's method finds [all; visited from four contacts on]",
    )
    run.add_argument(
        "--mu",
        type=float,
        nargs="+",
        metavar="MU",
        help="friction, one number or one per contact [the model's]",
    )
    run.add_argument(
        "--restitution",
        type=float,
        nargs="+",
        metavar="E",
        help="Stronge's coefficient of restitution, one number or one per contact, 0..1; --max-steps is "
        "then four times the model's, unless given [0]",
    )
    run.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to [out]")
    run.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="keep the samples in DIR as they come, in bounded memory, instead of an .npz file at the end; a "
        "run that was interrupted, at any moment, goes on and ends with the same bits",
    )
    run.add_argument(
        "--coverage",
        action="store_true",
        help="also draw as many independent samples, say with 99 %% confidence how near they come to how "
        "many of the outcomes, and draw how that depends on their number",
    )
    run.add_argument("--json", action="store_true", help="print the summary as JSON")
    run.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """Run it; 0 good, 1 failed samples, 2 wrong usage or files that cannot be used."""
    try:
        return _impact(options)
    except UsageError as error:
        print(f"jaxcontact: {error}", file=sys.stderr)
        return 2


def _count(text: str) -> int:
    """A whole number, also as a power such as 2^14."""
    try:
        base, _, power = text.replace("**", "^").partition("^")
        value = int(base) ** int(power) if power else int(base)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a whole number such as 5000 or 2^14, got {text!r}"
        ) from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text}")
    return value


def _mechanism(options: argparse.Namespace) -> Model:
    """The model, if it has contacts."""
    model = find_model(options.model)
    if not isinstance(model.system, System):
        raise UsageError(f"{options.model} is not a mechanism: it has no impact")
    if model.system.structure.num_contacts == 0:
        raise UsageError(f"{options.model} has no contacts, so no impact; {with_impacts()}")
    return model


def _propagative(options: argparse.Namespace) -> int:
    """Every outcome of single impacts; 1 if some may be missing."""
    for name in ("restitution", "mu", "checkpoint"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name}: not with --law propagative")
    model = _mechanism(options)
    terms = contact_terms(model.system, model.params, model.state)
    summary = propagative_command.summarise(options.model, terms, model.state.v)
    print(json.dumps(summary, indent=2) if options.json else propagative_command.as_text(summary))
    return 0 if summary["status"] == "SUCCESS" else 1


def _impact_model(options: argparse.Namespace) -> Model:
    """The model, with the friction asked for, if it can have an impact."""
    model = _mechanism(options)
    num_contacts = model.system.structure.num_contacts
    if None in (options.step or model.step, options.max_steps or model.max_steps):
        raise UsageError(
            f"{options.model} is an example of motion in time, not set up for an impact; give --step and "
            f"--max-steps, or {with_impacts()}"
        )
    if options.mu is None:
        return model
    if len(options.mu) not in (1, num_contacts):
        raise UsageError(f"--mu: expected 1 or {num_contacts} numbers, got {len(options.mu)}")
    mu = jax.numpy.broadcast_to(jax.numpy.array(options.mu), (num_contacts,))
    return model.replace(params=model.params.replace(mu=mu))


def _impact(options: argparse.Namespace) -> int:
    if options.law == "propagative":
        return _propagative(options)
    model = _impact_model(options)
    terms = contact_terms(model.system, model.params, model.state)
    settings = {
        "step": model.step if options.step is None else options.step,
        "max_steps": _max_steps(options, model),
        "selection": _default_selection(model) if options.selection is None else options.selection,
        "seed": options.seed,
    }
    if options.restitution is not None:
        one = len(options.restitution) == 1
        settings["restitution"] = options.restitution[0] if one else options.restitution
    stored = num_finished(options.checkpoint) if options.checkpoint else 0
    if stored:
        print(f"  {options.checkpoint} holds {stored} samples", file=sys.stderr)
    run = {"terms": terms, "v": model.state.v, **settings}
    full = run | {"num_samples": options.samples, "progress": _reporter(stored)}
    compiled = None
    try:
        begin = time.perf_counter()
        if options.checkpoint:
            about = {"model": options.model, "system": model.system.fingerprint}
            reduce = functools.partial(_gathered, terms)
            found, parts = impact.sample(**full, checkpoint=options.checkpoint, about=about, reduce=reduce)
            samples = _joined(parts)
        else:
            warm = 1 if settings["selection"] != "visited" else min(512, options.samples)
            impact.sample(**run, num_samples=warm)
            compiled = time.perf_counter() - begin
            begin = time.perf_counter()
            samples = jax.block_until_ready(impact.sample(**full))
            found = tally(samples, terms)
        seconds = time.perf_counter() - begin
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from None
    summary = summarise(options.model, terms, found, settings, samples.complete, compiled, seconds, stored)
    found_coverage = None
    if options.coverage:
        found_coverage = _coverage(options, model, terms, settings)
        summary["coverage"] = coverage_summary(found_coverage)
    summary["files"] = [str(path) for path in write(options, model, terms, samples, settings, found_coverage)]
    print(json.dumps(summary, indent=2) if options.json else as_text(summary))
    return _exit_status(found)


def _max_steps(options: argparse.Namespace, model: Model) -> int:
    if options.max_steps is not None:
        return int(options.max_steps)
    assert model.max_steps is not None
    return 4 * model.max_steps if options.restitution and any(options.restitution) else model.max_steps


def _default_selection(model: Model) -> str:
    contacts = model.system.structure.num_contacts
    if contacts > MAX_ENUMERATED or model.system.structure.dim == 3:
        return "lemke"
    return "all" if contacts < MANY_MODES else "visited"


def _coverage(
    options: argparse.Namespace, model: Model, terms: ContactTerms, settings: dict[str, Any]
) -> impact.Coverage:
    # "visited" lets a sample depend on earlier ones.
    selection = "all" if settings["selection"] == "visited" else settings["selection"]
    key = jax.random.key(options.seed)
    independent = settings | {"selection": selection, "num_samples": options.samples, "key": key}
    try:
        return impact.coverage(impact.sample(terms, model.state.v, **independent), terms=terms)
    except ValueError as error:
        raise UsageError(f"--coverage: {error}") from None


def _gathered(terms: ContactTerms, before: Parts | None, samples: impact.ImpactSamples) -> Parts:
    """The tally of a long run, and the first samples of it, for the picture."""
    part = tally(samples, terms)
    if before is None:
        return part, [samples]
    found, first = before
    return found + part, first + ([samples] if found.number < SHOWN else [])


def _joined(parts: list[impact.ImpactSamples]) -> impact.ImpactSamples:
    bare = [part.replace(v_minus=None) for part in parts]
    joined: impact.ImpactSamples = jax.tree.map(lambda *leaves: np.concatenate(leaves), *bare)
    return joined.replace(v_minus=parts[0].v_minus)


def _reporter(stored: int, wait: float = 2.0, every: float = 1.0) -> Progress:
    """Progress on standard error once a run takes longer than `wait` seconds.

    Rate and time left are those of the chunks behind `stored` samples and the first one, which compiles.
    """
    begin = shown = time.perf_counter()
    start: tuple[float, int] | None = None

    def report(done: int, total: int) -> None:
        nonlocal shown, start
        now = time.perf_counter()
        if start is None and done > stored:
            start = now, done
        if now - begin < wait or (now - shown < every and done < total):
            return
        shown = now
        text = f"{done:>9} of {total} samples"
        if start is not None and done > start[1]:
            rate = (done - start[1]) / (now - start[0])
            text += f", {rate:,.0f} per second, {(total - done) / rate:.0f} s left"
        print(f"\r  {text:<70}", end="", file=sys.stderr, flush=True)
        if done == total:
            print(file=sys.stderr)

    return report


def _exit_status(found: Tally) -> int:
    """1, and a line on standard error, if a sample failed otherwise than by running out of steps."""
    if found.first_failed is None:
        return 0
    number, step = found.first_failed
    print(
        f"jaxcontact: {found.failed} samples failed with "
        f"{Status.describe(found.status & int(Status.FAILURES & ~Status.UNTERMINATED))}, the first is "
        f"sample {number} in step {step}",
        file=sys.stderr,
    )
    return 1

"""`jaxcontact impact MODEL|FILE`: samples the outcomes of a simultaneous impact and reports statistics."""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from typing import Any

import jax
import numpy as np

from jaxcontact import impact
from jaxcontact.batching.run_settings import Run
from jaxcontact.cli import progress, propagative, robot_file, sensitivity
from jaxcontact.cli.catalogue import Summary, UsageError
from jaxcontact.cli.cluster import count_of, executor_of
from jaxcontact.cli.impact_files import (
    MANY_MODES,
    SIDES,
    bodies_that_touch,
    is_listed,
    is_robot,
    law_of,
    touching,
    write,
)
from jaxcontact.cli.report import Laps, as_text, coverage_summary, summarise
from jaxcontact.impact.analysis.order_search import highest_energy
from jaxcontact.impact.laws.routh_law import stopping_impulse
from jaxcontact.impact.sampling import lemke_on_host
from jaxcontact.impact.sampling.outcomes import contact_names
from jaxcontact.impact.sampling.summary_statistics import Tally, tally
from jaxcontact.io.run_store import num_finished
from jaxcontact.mechanics.system import Model
from jaxcontact.solvers.contact_modes import MAX_ENUMERATED
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms, contact_terms
from jaxcontact.terms.near_pairs import only_near

NEAR_DISTANCE = 1e-3  # m; farther shapes take no part, and contacts touch within 1e-6 m
SHOWN = 2**18  # number of samples of a checkpoint that its picture shows
STEPS_PER_CONTACT = 16  # largest number of steps per touching contact, for models without their own
FEW_SAMPLES = 2**14  # of a run by default; the largest number that also keeps velocities through the impact
NUM_BY_LEMKE = 2**11  # of a run by default
NUM_OF_MANY = 2**8  # of a run by Lemke's method by default, with more contacts than MANY_CONTACTS
NUM_TRIED, NUM_TRIED_OF_MANY = 64, 4  # orders of each round of the search for the highest energy
MANY_CONTACTS = 12  # a sample takes about the cube of their number

Parts = tuple[Tally, list[impact.ImpactSamples]]


def _propagative(options: argparse.Namespace) -> int:
    """Run the propagative law and print all outcomes; return 0 for success, else 1."""
    model, terms = _mechanism(options)
    summary = propagative.summarise(options.name, terms, model.initial_state().v)
    print(json.dumps(summary, indent=2) if options.json else propagative.as_text(summary))
    return 0 if summary["status"] == "SUCCESS" else 1


def _mechanism(options: argparse.Namespace) -> tuple[Model, ContactTerms]:
    """Load the mechanism where it lands; return it and its terms.

    The terms of a file, or of a model with --fall, are those of the contacts that touch. `options.drawn` gets
    their numbers among all contacts.

    Raises:
        UsageError: it cannot be loaded, has another number of contacts, or nothing collides.
    """
    model = robot_file.ready(options.model, options)
    count = model.structure.num_contacts
    if not count:
        raise UsageError(f"{options.name} has no contacts, so no impact")
    if options.restitution is not None and len(options.restitution) not in (1, count):
        raise UsageError(f"--restitution: expected 1 or {count} numbers, got {len(options.restitution)}")
    try:
        if is_robot(options) and (options.restitution is None or len(options.restitution) == 1):
            model = only_near(
                model, model.initial_state().q, NEAR_DISTANCE
            )  # the others would only be compiled
        terms = contact_terms(model, model.initial_state()) if model.structure.pairs else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    touches = np.zeros(0, int) if terms is None else np.flatnonzero(terms.active)
    if terms is None or not np.any(_approach(terms, model)[touches] > 0.0):
        raise UsageError(
            f"{options.name}: no contact touches and approaches in this state; name a --keyframe in which "
            "one does, or let the robot --fall"
        )
    options.drawn = np.arange(model.structure.num_contacts)
    # Most candidates of a robot do not touch, and they take no part.
    if is_robot(options):
        options.drawn, terms = touches, terms.take(touches)
        if options.restitution is not None and len(options.restitution) > 1:
            options.restitution = [options.restitution[i] for i in touches]
    return model, terms


def _approach(terms: ContactTerms, model: Model) -> np.ndarray:
    """Compute the speeds (nc,) at which contacts close, m/s."""
    return -np.asarray(terms.J_n) @ np.asarray(model.initial_state().v)


def command(options: argparse.Namespace) -> int:
    """Run the command with options that `check_impact` accepted; return 0, or 1 if samples failed.

    Raises:
        UsageError: settings or files that cannot be used.
    """
    laps = Laps(options.begin)
    if options.law == "propagative":
        return _propagative(options)
    model, terms = _mechanism(options)
    settings = {
        "impulse_step": _impulse_step(options, model, terms),
        "max_steps": _max_steps(options, model, terms),
        "selection": options.selection or _default_selection(options, terms, model.initial_state().v),
        "seed": options.seed,
    }
    if options.samples is None:
        has_many = int(np.sum(terms.active)) > MANY_CONTACTS
        by_lemke = NUM_OF_MANY if has_many else NUM_BY_LEMKE
        options.samples = by_lemke if _is_by_steps(settings, terms) else FEW_SAMPLES
    _tell_of_machine_code(settings["selection"], model.initial_state().v)
    if model.structure.dim == 3 and settings["selection"] != "lemke":
        settings["num_directions"] = SIDES
    if options.restitution is not None:
        single_number = len(options.restitution) == 1
        settings["restitution"] = options.restitution[0] if single_number else options.restitution
    stored = num_finished(options.checkpoint) if options.checkpoint else 0
    if stored:
        print(f"  {options.checkpoint} holds {stored} samples", file=sys.stderr)
    laps.end("load")
    try:
        samples, statistics = _sampled(options, model, terms, settings, stored, laps)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from None
    summary = summarise(options.name, terms, statistics, settings, samples, laps, stored)
    if is_robot(options):
        bodies = bodies_that_touch(options, model)
        summary["contacts"] = dict(zip(contact_names(len(bodies)), bodies, strict=True))
        if model.structure.tree is not None and _is_quick(settings, model):
            summary |= _decisions(options, model, terms, settings, bodies)
            laps.end("vary")
    measured = None
    if options.coverage:
        measured = _measure_coverage(options, model, terms, settings)
        summary["coverage"] = coverage_summary(measured)
        laps.end("coverage")
    summary["files"] = [str(path) for path in write(options, model, terms, samples, settings, measured)]
    laps.end("draw")
    summary["seconds_spent"] = dict(laps)
    print(json.dumps(summary, indent=2) if options.json else as_text(summary))
    return _exit_status(statistics)


def _tell_of_machine_code(selection: str, v: jax.Array) -> None:
    """Say that samples by Lemke's method are slow here, and what makes them quick."""
    if selection == "lemke" and not lemke_on_host.is_offered(v):
        hint = "jaxcontact: samples by Lemke's method are slow without numba in double precision; "
        print(hint + "pip install jaxcontact[friction]", file=sys.stderr)


def _sampled(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    settings: dict[str, object],
    stored: int,
    laps: Laps,
) -> tuple[impact.ImpactSamples, Tally]:
    """Draw the samples; return them, of a checkpoint only the first, and the statistics of all."""
    draw: Any = functools.partial(  # an overload for each kind of result
        impact.sample, terms, model.initial_state().v, law_of(settings), seed=options.seed
    )
    with executor_of(options) as executor:
        show = progress.rate_of_samples(stored, also=count_of(executor))
        if options.checkpoint:
            labels = {"model": options.name, "system": model.system.fingerprint}
            reduce = functools.partial(_add_chunk, terms)
            run = Run(checkpoint=options.checkpoint, about=labels, progress=show, executor=executor)
            statistics, shown_chunks = draw(num_samples=options.samples, reduce=reduce, run=run)
            samples = _join_chunks(shown_chunks)
        else:
            visited = settings["selection"] == "visited"
            # A small run keeps the paths that the picture shows; else another program would compute them.
            keep_path = not visited and options.samples <= FEW_SAMPLES and not is_robot(options)
            draw = functools.partial(draw, keep_path=keep_path)
            if executor is None:
                draw(num_samples=min(512, options.samples) if visited else 1)
                laps.end("compile")
            run = Run(progress=show, executor=executor)
            samples = jax.block_until_ready(draw(num_samples=options.samples, run=run))
            statistics = tally(samples, terms)
    laps.end("sample")
    return samples, statistics


def _is_quick(settings: dict[str, object], model: Model) -> bool:
    """Tell whether further samples take little time: by machine code, or by tabulated modes."""
    if settings["selection"] != "lemke":
        return True
    return "restitution" not in settings and lemke_on_host.is_offered(model.initial_state().v)


def _decisions(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    settings: dict[str, object],
    bodies: list[str],
) -> dict[str, object]:
    """Measure which numbers of the robot decide the outcome, and search for the highest energy."""
    law, has_many = law_of(settings), touching(terms) > MANY_CONTACTS
    num_orders = sensitivity.NUM_OF_MANY if has_many else sensitivity.NUM_ORDERS
    found: Summary = {
        "sensitivity": sensitivity.measure(model, terms, options.drawn, bodies, law, options.seed, num_orders)
    }
    if _is_by_steps(settings, terms):
        num_starts = NUM_TRIED_OF_MANY if has_many else NUM_TRIED
        pivoting = law.replace(selection="lemke")
        highest = highest_energy(terms, model.initial_state().v, pivoting, num_starts, options.seed)
        found["highest_energy_ratio"] = highest if math.isfinite(highest) else None
    elif model.structure.dim == 2:  # in space all modes make a large program
        every = law.replace(selection="all")
        found["derivative"] = sensitivity.differentiate(
            model, terms, options.drawn, bodies, every, options.seed
        )
    return found


def _impulse_step(options: argparse.Namespace, model: Model, terms: ContactTerms) -> float:
    """Choose the option's step, the model's, or that of `Routh`, N s."""
    impulse_step = model.impulse_step if options.impulse_step is None else options.impulse_step
    return float(stopping_impulse(terms, model.initial_state().v) if impulse_step is None else impulse_step)


def _max_steps(options: argparse.Namespace, model: Model, terms: ContactTerms) -> int:
    if options.max_steps is not None:
        return int(options.max_steps)
    steps = STEPS_PER_CONTACT * touching(terms) if model.max_steps is None else model.max_steps
    return 4 * steps if options.restitution and any(options.restitution) else steps


def _default_selection(options: argparse.Namespace, terms: ContactTerms, v: jax.Array) -> str:
    contacts, nt = touching(terms), terms.J_t.shape[1]
    if nt == 2 and not is_listed(terms):
        is_inelastic = not (options.restitution and any(options.restitution))
        has_code = lemke_on_host.is_offered(v) and jax.default_backend() == "cpu"
        return "visited" if contacts <= MANY_CONTACTS and is_inelastic and has_code else "lemke"
    if contacts > MAX_ENUMERATED or nt == 2:
        return "lemke"
    return "all" if contacts < MANY_MODES else "visited"


def _is_by_steps(settings: Summary, terms: ContactTerms) -> bool:
    """Tell whether each step is solved by pivoting, once or several times, and not by listed modes."""
    return settings["selection"] == "lemke" or not is_listed(terms)


def _measure_coverage(
    options: argparse.Namespace, model: Model, terms: ContactTerms, settings: dict[str, object]
) -> impact.Coverage:
    # With "visited" a sample depends on earlier samples, and coverage needs independent samples.
    is_visited = settings["selection"] == "visited" and is_listed(terms)
    selection = "all" if is_visited else settings["selection"]
    key = jax.random.key(options.seed)
    law = law_of(settings | {"selection": selection})
    try:
        samples = impact.sample(terms, model.initial_state().v, law, num_samples=options.samples, seed=key)
        return impact.coverage(samples, terms=terms)
    except ValueError as error:
        raise UsageError(f"--coverage: {error}") from None


def _add_chunk(terms: ContactTerms, earlier: Parts | None, samples: impact.ImpactSamples) -> Parts:
    """Add a chunk to the statistics of a long run and to its first samples, which the picture shows."""
    chunk_tally = tally(samples, terms)
    if earlier is None:
        return chunk_tally, [samples]
    earlier_tally, shown_chunks = earlier
    return earlier_tally + chunk_tally, shown_chunks + ([samples] if earlier_tally.number < SHOWN else [])


def _join_chunks(chunks: list[impact.ImpactSamples]) -> impact.ImpactSamples:
    without_v_minus = [chunk.replace(v_minus=None) for chunk in chunks]
    joined: impact.ImpactSamples = jax.tree.map(lambda *leaves: np.concatenate(leaves), *without_v_minus)
    return joined.replace(v_minus=chunks[0].v_minus)


def _exit_status(tally: Tally) -> int:
    """Return 0; or 1 after a line on standard error, if a sample failed other than by the limit of steps."""
    if tally.first_failed is None:
        return 0
    number, step = tally.first_failed
    print(
        f"jaxcontact: {tally.failed} samples failed with "
        f"{Status.describe(tally.status & int(Status.FAILURES & ~Status.UNTERMINATED))}, the first is "
        f"sample {number} in step {step}",
        file=sys.stderr,
    )
    return 1

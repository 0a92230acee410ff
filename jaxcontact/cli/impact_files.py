"""The files of `jaxcontact impact`: pictures of the set, the mechanism and the coverage, and the samples.

The entry function is `write`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact import impact, viz
from jaxcontact._pytree import PyTree
from jaxcontact.cli.catalogue import Summary, UsageError
from jaxcontact.cli.file_options import is_file
from jaxcontact.impact.laws.contact_enumeration import enumerable
from jaxcontact.impact.sampling.outcomes import contact_names, outcome_counts
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.mechanics.system import Model
from jaxcontact.models import robots
from jaxcontact.peers.mujoco import MODELS as MUJOCO_MODELS
from jaxcontact.peers.mujoco import mujoco_outcome, outcome_of_file
from jaxcontact.terms import ContactTerms
from jaxcontact.terms.contact_list import contacts
from jaxcontact.viz.impact_curves import sequences_of_two, simultaneous_outcomes
from jaxcontact.viz.outcome_panels import body_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_IN_SET = 2  # contacts whose velocities fit in one picture; of more the kinds of outcomes are drawn
MOST_PANELS = 8  # contacts; above, a panel for each would hide what happens
SIDES = 4  # of the friction cone of spatial contacts; modes of all sides are enumerated
MANY_MODES = 4  # smallest number of contacts for which samples over all modes (7^4) are expensive


def write(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: dict[str, object],
    covered: impact.Coverage | None,
) -> list[Path]:
    """Write pictures, and the samples unless a checkpoint has them; return the paths.

    Raises:
        UsageError: the folder cannot be written to.
    """
    folder, name = options.out, options.name
    pictures = {}
    succeeded = bool(np.any(np.asarray(samples.status) == 0))
    peer = _peer(options, model, terms) if succeeded else None
    robot = is_robot(options)
    if succeeded and (robot or touching(terms) > MOST_IN_SET):
        title = _outcomes_title(options, terms, samples)
        names = None if robot else contact_names(terms.phi.shape[0])
        pictures["outcomes.png"] = viz.plot_outcomes(
            model, model.initial_state(), samples, terms, names=names, mujoco=peer, title=title
        )
    if touching(terms) <= MOST_PANELS:
        pictures |= _contact_pictures(options, model, terms, samples, settings, peer)
    if covered is not None:
        pictures["coverage.png"] = viz.plot_coverage(covered, title=_title(name))
    files = [folder / f"{name}_{kind}" for kind in pictures]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, picture in zip(files, pictures.values(), strict=True):
            picture.savefig(path, dpi=150, bbox_inches="tight")
        if options.checkpoint:
            return [*files, options.checkpoint]
        arrays = {
            key: np.asarray(getattr(samples, key))
            for key in ("v_minus", "v_plus", "impulse", "status", "num_iters", "energy_ratio", "residual")
        }
        arrays |= {key: np.asarray(getattr(terms, key)) for key in ("M", "J_n", "J_t", "phi", "mu", "active")}
        arrays |= {"model": np.array(name), "settings": np.array(json.dumps(settings))}
        files.append(folder / f"{name}_impact.npz")
        np.savez_compressed(files[-1], allow_pickle=False, **arrays)
    except OSError as error:
        raise UsageError(f"--out: cannot write to {folder}: {error.strerror or error}") from None
    return files


def is_robot(options: argparse.Namespace) -> bool:
    """Tell whether the mechanism is of a file, or a model that falls: contacts that touch take part alone."""
    return is_file(options.model) or options.fall is not None


def bodies_that_touch(options: argparse.Namespace, model: Model) -> list[str]:
    """List the first moving body of each contact that takes part."""
    return body_names(contacts(model, model.initial_state()), options.drawn)


def _contact_pictures(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: dict[str, object],
    peer: np.ndarray | None,
) -> dict[str, Figure]:
    """Draw the mechanism with the velocities of its contacts; of a model with two also the set of these."""
    state = model.initial_state()
    names = [""] * model.structure.num_contacts
    for place, label in zip(options.drawn, contact_names(len(options.drawn)), strict=True):
        names[place] = label
    if is_robot(options):  # outcomes.png has what comes after
        title = f"{_title(options.name)} before its impact"
        return {"mechanism.png": viz.plot_mechanism(model, state, names=names, title=title)}
    simultaneous = simultaneous_outcomes(terms, state.v)
    if not len(simultaneous):
        print("jaxcontact: the simultaneous law found no outcome, so none is drawn", file=sys.stderr)
    other_laws = (simultaneous, sequences_of_two(terms, state.v, contact_names(terms.phi.shape[0])))
    ends = _ends(*other_laws)
    title = f"{_title(options.name)} before its impact, and after it by laws that return one outcome"
    pictures = {"mechanism.png": viz.plot_mechanism(model, state, v=ends, names=names, title=title)}
    if touching(terms) <= MOST_IN_SET and np.any(np.asarray(samples.status) == 0):
        pictures["impact.png"] = _set_picture(options, model, terms, samples, settings, *other_laws, peer)
    return pictures


def _set_picture(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: Summary,
    simultaneous: np.ndarray,
    sequences: dict[str, np.ndarray],
    peer: np.ndarray | None,
) -> Figure:
    title = f"{_heading(options, samples)}: dark dots are the outcomes of its impact"
    if samples.path is None:
        samples = samples.replace(path=_paths(model, terms, settings))
    if np.any(settings.get("restitution", 0.0)):  # the outcomes of other laws are inelastic
        beside = viz.OtherOutcomes(simultaneous=(), sequences={})
    else:
        beside = viz.OtherOutcomes(simultaneous=simultaneous, sequences=sequences, mujoco=peer)
    return viz.plot_impact_set(samples, terms, beside=beside, title=title)


def _outcomes_title(options: argparse.Namespace, terms: ContactTerms, samples: impact.ImpactSamples) -> str:
    """Say whether the impulse orders end in one kind of outcome or in several."""
    name, number = _heading(options, samples), f"{samples.status.size:,}"
    if len(outcome_counts(samples, terms)) == 1:
        return f"{name}: one kind of outcome in all {number} impulse orders"
    return f"{name}: one impact, many outcomes. Shares of {number} impulse orders"


def _heading(options: argparse.Namespace, samples: impact.ImpactSamples) -> str:
    """Name the mechanism, its restitution, and how many of the samples of a long run are shown."""
    parts, number = [_title(options.name)], samples.status.size
    if np.any(options.restitution or 0.0):
        parts.append(f"restitution {' '.join(f'{e:g}' for e in options.restitution)}")
    if number < options.samples:
        parts.append(f"the first {number:,} of {options.samples:,} samples")
    return ", ".join(parts)


def _peer(options: argparse.Namespace, model: Model, terms: ContactTerms) -> np.ndarray | None:
    """Compute MuJoCo's outcome, or None for a model or an option that it lacks, such as restitution."""
    if np.any(options.restitution or 0.0):
        return None
    if options.name in MUJOCO_MODELS and not is_file(options.model):
        try:
            return mujoco_outcome(options.name, friction=np.asarray(terms.mu))
        except ImportError as error:
            print(f"jaxcontact: {error}; its outcome is not drawn", file=sys.stderr)
            return None
    of_package = options.name in robots.NAMES
    if not (is_file(options.model) or of_package) or options.mu is not None:  # a file has its own friction
        return None
    if options.contacts != "all":  # MuJoCo would have more contacts
        return None
    source = options.model if is_file(options.model) else robots.file_of(options.name)
    try:
        return outcome_of_file(compile_source(source, options.floating, options.floor).mj, model)
    except RuntimeError as error:
        print(f"jaxcontact: {error}; it is not drawn", file=sys.stderr)
        return None


def _paths(model: Model, terms: ContactTerms, settings: Summary) -> PyTree:
    """Sample the velocities through the impact, for a few samples."""
    num_paths = 256 if touching(terms) < MANY_MODES else 64
    is_visited = settings["selection"] == "visited" and is_listed(terms)
    selection = "all" if is_visited else settings["selection"]
    law = law_of(settings | {"selection": selection})
    v = model.initial_state().v
    return impact.sample(terms, v, law, num_samples=num_paths, seed=settings["seed"], keep_path=True).path


def law_of(settings: Summary) -> impact.Routh:
    """Make the law with these settings except `seed`."""
    numbers = {name: value for name, value in settings.items() if name != "seed"}
    if "restitution" in numbers:
        numbers["restitution"] = np.asarray(numbers["restitution"], float)
    return impact.Routh(**numbers)


def touching(terms: ContactTerms) -> int:
    """Count the contacts that touch, of all candidates."""
    return int(np.count_nonzero(terms.active))


def is_listed(terms: ContactTerms) -> bool:
    """Tell whether the modes of the contacts that touch can be listed, in space with `SIDES`."""
    return enumerable(touching(terms), terms.J_t.shape[1], SIDES)


def _ends(simultaneous: np.ndarray, sequences: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Collect the outcomes of other laws by short labels: "simultaneous 1", "A first"."""
    numbers = [f" {i + 1}" for i in range(len(simultaneous))] if len(simultaneous) > 1 else [""]
    ends = {f"simultaneous{number}": outcome for number, outcome in zip(numbers, simultaneous)}
    return ends | {label.rpartition(", ")[2]: path[-1] for label, path in sequences.items()}


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()

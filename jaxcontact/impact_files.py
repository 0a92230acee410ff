"""What `jaxcontact impact` writes: pictures of set, mechanism and coverage, and the samples."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxcontact import impact, viz
from jaxcontact.catalogue import UsageError
from jaxcontact.peers.mujoco import MODELS as MUJOCO_MODELS
from jaxcontact.peers.mujoco import mujoco_outcome
from jaxcontact.solvers.modes import MAX_ENUMERATED
from jaxcontact.status import Status
from jaxcontact.system import Model
from jaxcontact.terms import ContactTerms

MANY_MODES = 4  # contacts from which samples are dear: 7^4 modes cost a while


def write(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: dict[str, Any],
    covered: impact.Coverage | None,
) -> list[Path]:
    """Write pictures, and the samples unless a checkpoint has them; returns the paths.

    Raises:
        UsageError: the folder cannot be written to.
    """
    folder, name = options.out, options.model
    pictures = {}
    if np.any(np.asarray(samples.status) == 0):
        pictures["impact.png"] = _set_picture(options, model, terms, samples, settings)
    outcomes = _classical_outcomes(terms, model.state.v)
    pictures["mechanism.png"] = viz.plot_mechanism(
        model.system, model.params, model.state, v=outcomes, title=_title(name)
    )
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
            for key in ("v_minus", "v_plus", "impulse", "status", "num_solves", "energy_ratio", "residual")
        }
        arrays |= {key: np.asarray(getattr(terms, key)) for key in ("M", "J_n", "J_t", "phi", "mu", "active")}
        arrays |= {"model": np.array(name), "settings": np.array(json.dumps(settings))}
        files.append(folder / f"{name}_impact.npz")
        np.savez_compressed(files[-1], allow_pickle=False, **arrays)
    except OSError as error:
        raise UsageError(f"--out: cannot write to {folder}: {error.strerror or error}") from None
    return files


def _set_picture(
    options: argparse.Namespace,
    model: Model,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: dict[str, Any],
) -> Any:
    name, number = options.model, samples.status.size
    few = 256 if terms.phi.shape[0] < MANY_MODES else 64
    path_settings = settings | {"num_samples": few, "keep_path": True}
    if settings["selection"] == "visited":
        path_settings["selection"] = "all"
    through = impact.sample(terms, model.state.v, **path_settings)
    samples = samples.replace(path=through.path)
    if np.any(settings.get("restitution", 0.0)):  # the outcomes of other laws are inelastic
        title = f"{_title(name)}, restitution {' '.join(f'{e:g}' for e in options.restitution)}"
        return viz.plot_impact_set(samples, terms, simultaneous=(), sequences={}, title=title)
    peer = mujoco_outcome(name, friction=np.asarray(terms.mu)) if name in MUJOCO_MODELS else None
    title = _title(name)
    if number < options.samples:
        title += f", the first {number:,} of {options.samples:,} samples"
    return viz.plot_impact_set(samples, terms, mujoco=peer, title=title)


def _classical_outcomes(terms: ContactTerms, v: jax.Array) -> dict[str, np.ndarray]:
    """Simultaneous solutions (one where they are not enumerated) and both orders of two contacts."""
    if terms.J_t.shape[1] > 1 or terms.phi.shape[0] > MAX_ENUMERATED:
        return {"simultaneous": np.asarray(impact.anitescu_potra(terms, v)[0])}
    velocities, valid, info = impact.anitescu_potra_all(terms, v, with_info=True)
    solutions = np.asarray(velocities)[np.asarray(valid)]
    if len(solutions) == 0:
        name = Status.describe(info.status)
        print(f"jaxcontact: the simultaneous law found no outcome ({name}), none is drawn", file=sys.stderr)
    numbers = [""] if len(solutions) == 1 else [f" {i + 1}" for i in range(len(solutions))]
    found = {f"simultaneous{number}": each for number, each in zip(numbers, solutions, strict=True)}
    if terms.phi.shape[0] == 2:
        for label, order in (("A first", (0, 1)), ("B first", (1, 0))):
            found[label] = np.asarray(impact.sequential(terms, v, order, max_impacts=10)[0])
    return found


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()

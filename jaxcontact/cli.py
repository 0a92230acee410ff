"""The command line: `jaxcontact impact MODEL` and `jaxcontact models`."""

from __future__ import annotations

import argparse
import difflib
import inspect
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxcontact import impact, models, viz
from jaxcontact.impact.outcomes import contact_names, outcome_shares
from jaxcontact.impact.sampling import SELECTIONS, Progress
from jaxcontact.peers.mujoco import MODELS as MUJOCO_MODELS
from jaxcontact.peers.mujoco import mujoco_outcome
from jaxcontact.solvers.modes import MAX_ENUMERATED
from jaxcontact.status import Status
from jaxcontact.system import Model, System
from jaxcontact.terms import ContactTerms, contact_terms

MANY_MODES = 4  # contacts from which "visited" is the default: 7^4 modes cost a while


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 good, 1 failed samples, 2 wrong usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    try:
        return int(options.run(options))
    except _UsageError as error:
        print(f"jaxcontact: {error}", file=sys.stderr)
        return 2


class _UsageError(Exception):
    """A mistake in the arguments, told in one line."""


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxcontact",
        description="Which outcomes can an impact on several contacts have? Draws them, with pictures.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("models", help="list the ready mechanisms")
    listing.set_defaults(run=_models)

    run = commands.add_parser(
        "impact",
        help="sample the outcomes of a simultaneous impact",
        description="Sample the outcomes of a simultaneous impact over random impulse orders, print a "
        "summary, and write a picture and an .npz file. Defaults are the settings of Halm & Posa.",
        epilog="example: jaxcontact impact compass_gait --samples 2^18 --out results",
    )
    run.add_argument("model", metavar="MODEL", help="a mechanism; `jaxcontact models` lists them")
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
    run.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to [out]")
    run.add_argument("--json", action="store_true", help="print the summary as JSON")
    run.set_defaults(run=_impact)
    return parser


def _catalogue() -> dict[str, Any]:
    return {name: f for name, f in sorted(vars(models).items()) if inspect.isfunction(f)}


def _models(_: argparse.Namespace) -> int:
    catalogue = _catalogue()
    width = max(map(len, catalogue))
    for name, factory in catalogue.items():
        print(f"{name:{width}}  {(factory.__doc__ or '').splitlines()[0]}")
    return 0


def _impacts() -> str:
    names = [name for name, factory in _catalogue().items() if factory().step is not None]
    return f"models of impacts: {', '.join(names)}"


def _find_model(name: str) -> Model:
    catalogue = _catalogue()
    if name not in catalogue:
        near = difflib.get_close_matches(name, catalogue, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"models: {', '.join(catalogue)}"
        raise _UsageError(f"no model {name!r}; {hint}")
    model: Model = catalogue[name]()
    return model


def _reporter(wait: float = 2.0, every: float = 1.0) -> Progress:
    """Progress on standard error once a run takes longer than `wait` seconds."""
    start = shown = time.perf_counter()

    def report(done: int, total: int) -> None:
        nonlocal shown
        now = time.perf_counter()
        if now - start < wait or (now - shown < every and done < total):
            return
        shown = now
        left = (now - start) * (total - done) / done
        print(f"\r  {done:>9} of {total} samples, {left:.0f} s left ", end="", file=sys.stderr, flush=True)
        if done == total:
            print(file=sys.stderr)

    return report


def _impact(options: argparse.Namespace) -> int:
    model = _find_model(options.model)
    if not isinstance(model.system, System):
        raise _UsageError(f"{options.model} is not a mechanism: it has no impact")
    params = model.params
    num_contacts = model.system.structure.num_contacts
    if num_contacts == 0:
        raise _UsageError(f"{options.model} has no contacts, so no impact; {_impacts()}")
    if None in (options.step or model.step, options.max_steps or model.max_steps):
        raise _UsageError(
            f"{options.model} is an example of motion in time, not set up for an impact; give --step and "
            f"--max-steps, or {_impacts()}"
        )
    if options.mu is not None:
        if len(options.mu) not in (1, num_contacts):
            raise _UsageError(f"--mu: expected 1 or {num_contacts} numbers, got {len(options.mu)}")
        params = params.replace(mu=jax.numpy.broadcast_to(jax.numpy.array(options.mu), (num_contacts,)))
    terms = contact_terms(model.system, params, model.state)
    default = "all" if num_contacts < MANY_MODES else "visited"
    if num_contacts > MAX_ENUMERATED or model.system.structure.dim == 3:
        default = "lemke"
    settings = {
        "step": model.step if options.step is None else options.step,
        "max_steps": model.max_steps if options.max_steps is None else options.max_steps,
        "selection": default if options.selection is None else options.selection,
        "seed": options.seed,
    }
    v = model.state.v
    try:
        begin = time.perf_counter()
        warm = 1 if settings["selection"] != "visited" else min(512, options.samples)
        impact.sample(terms, v, num_samples=warm, **settings)
        compiled = time.perf_counter() - begin
        begin = time.perf_counter()
        samples = impact.sample(terms, v, num_samples=options.samples, progress=_reporter(), **settings)
        jax.block_until_ready(samples.v_plus)
        seconds = time.perf_counter() - begin
    except ValueError as error:
        raise _UsageError(str(error)) from None
    summary = _summary(options.model, terms, samples, settings, compiled, seconds)
    paths = _write(options.out, options.model, model.replace(params=params), terms, samples, settings)
    summary["files"] = [str(path) for path in paths]
    print(json.dumps(summary, indent=2) if options.json else _text(summary))
    return _exit_status(samples)


def _summary(
    name: str,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: dict[str, Any],
    compiled: float,
    seconds: float,
) -> dict[str, Any]:
    status = np.asarray(samples.status)
    number = status.size
    v_plus = np.asarray(samples.v_plus)
    normal = v_plus @ np.asarray(terms.J_n).T
    sliding = np.einsum("ctv,nv->nct", np.asarray(terms.J_t), v_plus)
    ended = status & np.uint32(int(Status.UNTERMINATED)) == 0
    contacts = {}
    for i, contact in enumerate(contact_names(terms.phi.shape[0])):
        if not bool(terms.active[i]) or not np.any(ended):
            continue
        rows = {"normal": normal[ended, i]}
        rows |= {f"tangential{k + 1 if k else ''}": sliding[ended, i, k] for k in range(sliding.shape[2])}
        contacts[contact] = {key: [float(x.min()), float(x.max())] for key, x in rows.items()}
    energy = np.asarray(samples.energy_ratio)[ended]
    return {
        "model": name,
        "samples": number,
        **settings,
        "complete": samples.complete,
        "outcomes": dict(outcome_shares(samples, terms)),
        "contact_velocity": contacts,
        "energy_ratio": [float(energy.min()), float(energy.max())] if energy.size else [],
        "terminated": float(np.mean(ended)),
        "failures": Status.describe(status & ~np.uint32(int(Status.UNTERMINATED))),
        "lcps_per_sample": float(np.mean(np.asarray(samples.num_solves))),
        "worst_residual": float(np.max(np.asarray(samples.residual))),
        "compile_seconds": compiled,
        "seconds": seconds,
        "microseconds_per_sample": 1e6 * seconds / number,
    }


def _text(summary: dict[str, Any]) -> str:
    exhaustive = "every solution of every step" if summary["complete"] else "not exhaustive"
    lines = [
        f"{summary['model']}: {summary['samples']} samples, steps of at most {summary['step']:g} N s, "
        f"at most {summary['max_steps']} of them",
        f"  selection        {summary['selection']} ({exhaustive})",
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
        f"  time             {summary['compile_seconds']:.1f} s to compile, then "
        f"{summary['microseconds_per_sample']:.2f} us per sample ({summary['seconds']:.2f} s)",
        *(f"  wrote            {path}" for path in summary["files"]),
    ]
    return "\n".join(lines)


def _tidy(value: float) -> float:
    """No minus sign on what prints as zero."""
    return 0.0 if abs(value) < 5e-5 else value


def _write(
    folder: Path,
    name: str,
    model: Model,
    terms: ContactTerms,
    samples: impact.ImpactSamples,
    settings: dict[str, Any],
) -> list[Path]:
    pictures = {}
    if np.any(np.asarray(samples.status) == 0):
        pictures["impact.png"] = _set_picture(name, model, terms, samples, settings)
    if model.system.structure.dim == 2:
        outcomes = _classical_outcomes(terms, model.state.v)
        pictures["mechanism.png"] = viz.plot_mechanism(
            model.system, model.params, model.state, v=outcomes, title=_title(name)
        )
    files = [folder / f"{name}_{kind}" for kind in (*pictures, "impact.npz")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, picture in zip(files, pictures.values(), strict=False):
            picture.savefig(path, dpi=150, bbox_inches="tight")
        arrays = {
            key: np.asarray(getattr(samples, key))
            for key in ("v_minus", "v_plus", "impulse", "status", "num_solves", "energy_ratio", "residual")
        }
        arrays |= {key: np.asarray(getattr(terms, key)) for key in ("M", "J_n", "J_t", "phi", "mu", "active")}
        arrays |= {"model": np.array(name), "settings": np.array(json.dumps(settings))}
        np.savez_compressed(files[-1], allow_pickle=False, **arrays)
    except OSError as error:
        raise _UsageError(f"--out: cannot write to {folder}: {error.strerror or error}") from None
    return files


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _set_picture(
    name: str, model: Model, terms: ContactTerms, samples: impact.ImpactSamples, settings: dict[str, Any]
) -> Any:
    few = 256 if terms.phi.shape[0] < MANY_MODES else 64
    path_settings = settings | {"num_samples": few, "keep_path": True}
    if settings["selection"] == "visited":
        path_settings["selection"] = "all"
    through = impact.sample(terms, model.state.v, **path_settings)
    peer = mujoco_outcome(name, friction=np.asarray(terms.mu)) if name in MUJOCO_MODELS else None
    return viz.plot_impact_set(samples.replace(path=through.path), terms, mujoco=peer, title=_title(name))


def _classical_outcomes(terms: ContactTerms, v: jax.Array) -> dict[str, np.ndarray]:
    """Simultaneous solutions, and both orders of two contacts, by label."""
    velocities, valid = impact.anitescu_potra_all(terms, v)
    solutions = np.asarray(velocities)[np.asarray(valid)]
    numbers = [f" {i + 1}" for i in range(len(solutions))] if len(solutions) > 1 else [""]
    found = {f"simultaneous{number}": each for number, each in zip(numbers, solutions, strict=True)}
    if terms.phi.shape[0] == 2:
        for label, order in (("A first", (0, 1)), ("B first", (1, 0))):
            found[label] = np.asarray(impact.sequential(terms, v, order, max_impacts=10)[0])
    return found


def _exit_status(samples: impact.ImpactSamples) -> int:
    """1, and a line on standard error, if a sample failed otherwise than by running out of steps."""
    failed = np.asarray(samples.status) & np.uint32(int(Status.FAILURES & ~Status.UNTERMINATED))
    if not np.any(failed):
        return 0
    first = int(np.flatnonzero(failed)[0])
    print(
        f"jaxcontact: {np.count_nonzero(failed)} samples failed with {Status.describe(failed)}, the first is "
        f"sample {first} in step {int(samples.num_solves[first])}",
        file=sys.stderr,
    )
    return 1

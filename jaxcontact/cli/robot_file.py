"""Robots of files for the commands: loaded, and placed where they land; the entry function is `ready`."""

from __future__ import annotations

import argparse
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import models
from jaxcontact.cli.catalogue import UsageError
from jaxcontact.cli.file_options import DEFAULTS, is_file
from jaxcontact.io.mjcf import IgnoredOptionWarning, load_mjcf
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model
from jaxcontact.terms import contact_terms
from jaxcontact.terms.contacts import body_motion
from jaxcontact.terms.near_pairs import only_pairs

LOWERINGS = 50  # iterations; a robot over a plane needs one or two, over other shapes each one comes nearer
TOUCHES = 1e-9  # m, largest distance left to fall at which the robot touches
FLAGS = {
    "unsupported='skip'": "--unsupported skip",
    "contacts='world'": "--contacts world",
    "contacts=[pairs]": "--contacts A:B",
    "floating=True": "--floating",
    "(keyframe=)": "(--keyframe)",
}


def ready(source: str, options: argparse.Namespace) -> Model:
    """Load the ready model of a name, or the robot of a file, with friction and a fall if asked.

    Notes on parts of a file that are left out or unusual go to standard error.

    Raises:
        UsageError: it cannot be loaded, has another number of contacts, or cannot fall.
    """
    try:
        model = load(source, options) if is_file(source) else getattr(models, source)()
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise UsageError(as_flags(str(error))) from None
    for note in model.notes:
        if not note.startswith("ignored: "):  # `jaxcontact inspect` lists those
            print(f"jaxcontact: {source}: {as_flags(note)}", file=sys.stderr)
    if options.mu is not None:
        model = with_friction(model, options.mu)
    return model if options.fall is None else fallen(model, options.fall)


def with_friction(model: Model, mu: list[float]) -> Model:
    """Replace the friction of the contacts by one number, or by one per contact; return the model.

    Raises:
        UsageError: the model has another number of contacts.
    """
    count = model.structure.num_contacts
    if len(mu) not in (1, count) or not count:
        raise UsageError(f"--mu: expected {f'1 or {count} numbers' if count else 'contacts'}, got {len(mu)}")
    numbers = jnp.asarray(np.broadcast_to(mu, (count,)), model.params.mu.dtype)
    return model.replace(params=model.params.replace(mu=numbers))


def load(source: str, options: argparse.Namespace) -> Model:
    """Load the robot of a file, with the errors of `load_mjcf` but no warning; its `notes` have all notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        return load_mjcf(source, **{name: getattr(options, name) for name in DEFAULTS})


def as_flags(message: str) -> str:
    """Replace options of `load_mjcf` in a message by the flags of a command; return the message."""
    for text, flag in FLAGS.items():
        message = message.replace(text, flag)
    return message


def fallen(model: Model, speed: float) -> Model:
    """Move a robot along gravity to its first touch, with all of it falling at `speed`; return the model.

    Raises:
        UsageError: there is no gravity, something holds the robot, or nothing is below it.
    """
    state = model.initial_state()
    strength = float(np.linalg.norm(model.params.gravity))
    if strength == 0.0:
        raise UsageError("--fall: the robot has no gravity")

    def speeds(v: jax.Array) -> jax.Array:
        rates = body_motion(model, state.q, v)
        return jnp.concatenate([rates.velocity.ravel(), rates.turning.ravel()])

    rows = np.asarray(jax.jit(jax.jacfwd(speeds))(jnp.zeros_like(state.v)))
    bodies, dim = len(model.structure.bodies), model.structure.dim
    falling = np.zeros(len(rows))
    falling[: bodies * dim] = np.tile(np.asarray(model.params.gravity) / strength, bodies)
    down = np.linalg.lstsq(rows, falling, rcond=None)[0]
    if np.max(np.abs(rows @ down - falling)) > 1e-6:
        raise UsageError("--fall: the robot cannot fall freely; its joints hold it")
    fixed = {shape.name for shape in model.structure.shapes if getattr(shape, "body", None) is None}
    are_fixed = np.array([not fixed.isdisjoint(pair) for pair in model.structure.pairs], bool)
    beneath = only_pairs(model, are_fixed)  # parts of a robot that falls as one come no nearer to each other
    if not beneath.structure.pairs:
        raise UsageError("--fall: nothing is below the robot; --floor 0 adds a floor")
    for _ in range(LOWERINGS):
        terms = contact_terms(beneath, state)
        gaps, rates = np.asarray(terms.phi), np.asarray(terms.J_n @ down)
        approaching = rates < -1e-9
        if not approaching.any():
            raise UsageError("--fall: nothing is below the robot; --floor 0 adds a floor")
        height = float(np.min(gaps[approaching] / -rates[approaching]))
        if abs(height) < TOUCHES:
            break
        state = state.replace(q=retract(model.system, state.q, jnp.asarray(height * down)))
    return model.replace(initial=state.replace(v=jnp.asarray(speed * down)))

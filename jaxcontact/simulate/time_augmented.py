"""Motion over the accumulated normal impulse and time: impacts take a length of s while time stands still.

Owns the continuous model of Halm & Posa, Section 4: the order of the pieces. Entry: `time_augmented`.
Page: docs/papers/halm_posa.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import (
    check_array,
    check_count,
    check_number,
    check_positive,
    check_positive_or_inf,
    check_rows,
    is_concrete,
)
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.mechanics.surfaces import refuse_surfaces
from jaxcontact.mechanics.system import Model, State, System, check_mechanism
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.precision import warn_if_single
from jaxcontact.simulate.augmented.path import AugmentedInfo, AugmentedPath
from jaxcontact.simulate.augmented.path_pieces import PathNumbers, run_pieces
from jaxcontact.solvers import contact_modes
from jaxcontact.terms import contact_terms

if TYPE_CHECKING:
    from jaxtyping import Float


@checked(length=POSITIVE, max_pieces=check_rows, longest=check_positive_or_inf, rtol=POSITIVE)
def time_augmented(
    model: Model,
    state: State,
    *,
    length: float | jax.Array,
    rates: Float[jax.Array, " nc"] | None = None,
    key: jax.Array | None = None,
    max_pieces: int = 256,
    longest: float | Float[jax.Array, ""] = np.inf,
    rtol: float | jax.Array = 1e-10,
) -> tuple[AugmentedPath, AugmentedInfo]:
    """Move by the continuous model of Halm & Posa, eqs (43)-(53), in the plane: q, v, t, impulses over s.

    Without a contact force, dt = ds; in an impact, dv/ds in M^-1 conv F_i(q, v, 1) with q and t constant; in
    sustained contact, dt/ds = 1 / (1 + |lam_n|_1). Impacts follow the path of `jc.impact.routh_path`, with s
    the sum of the normal impulses. A step of Dormand & Prince ends where a contact closes, opens, begins to
    slide or to stick. Infinitely many impacts in finite s end when contacts leave at less than 1e-8 m/s
    (float32: 1e-5), and the motion continues.

    If finite forces do not determine the motion (`jc.impact.paradox`), the first solution in a fixed order is
    taken, an impact without a collision only if there is no other; with a key any of them, including the
    impact. A choice lasts until a contact changes its mode.

    Args:
        model: the mechanism and its numbers, planar, of at most five candidate contacts.
        state: the start; gaps not below -1e-6 m.
        length: end of s, which starts at zero.
        rates: (nc,) relative rates of normal impulse in impacts, > 0. None is equal rates without a key, and
            with one random rates in each impact.
        key: of the choices and the rates.
        max_pieces: K, rows of the path.
        longest: longest step in time, s; for pictures, and for forces that a long step would overlook.
        rtol: relative error allowed per step.

    Returns:
        AugmentedPath and AugmentedInfo.

    Raises:
        TypeError, ValueError: arguments in another order or of other shapes, a system in space, without
            contacts, or with more than five; a length or rates not positive; known numbers that are not
            finite; a start in penetration.
        NotImplementedError: it is differentiated.

    Status: MAX_ITERS if `max_pieces` do not reach `length`; STALLED if no mode continues the path or no step
        is small enough; UNTERMINATED for an impact in which no velocity reaches zero; ZENO as above;
        NONFINITE, INVALID, PENETRATION for bad numbers, with a path that stays at the start.

    Derivative: none; differentiate `routh_path`, or `variational`.
    """
    _check_arguments(model, state, length, rates, max_pieces, longest, rtol)
    warn_if_single(state.q.dtype, "`time_augmented`")
    if rates is None and key is None:
        rates = jnp.ones(model.structure.num_contacts, state.q.dtype)
    length, longest, rtol = (jnp.asarray(x, state.q.dtype) for x in (length, longest, rtol))
    return _path(
        model.system, int(max_pieces), PathNumbers(model.params, state, length, rates, key, longest, rtol)
    )


def _check_arguments(
    model: Model,
    state: State,
    length: jax.typing.ArrayLike,
    rates: PyTree,
    max_pieces: jax.typing.ArrayLike,
    longest: jax.typing.ArrayLike,
    rtol: jax.typing.ArrayLike,
) -> None:
    """Raise ValueError for a mechanism that `time_augmented` cannot move, or for bad numbers."""
    check_mechanism(model, state)
    structure = model.structure
    nc = structure.num_contacts
    if structure.dim != 2 or not 1 <= nc <= contact_modes.MAX_ENUMERATED:
        raise ValueError(
            f"system: time_augmented takes planar systems of 1 to {contact_modes.MAX_ENUMERATED} candidate "
            f"contacts, got dim {structure.dim} and {nc} contacts"
        )
    if model.system.constraints is not None:
        raise ValueError("system: time_augmented takes no `constraints`; use generalized coordinates")
    check_no_held_joints(model.system, "time_augmented")
    refuse_surfaces(model.params)
    check_count("max_pieces", max_pieces)
    for name, value in (("length", length), ("rtol", rtol)):
        check_positive(name, value)
    if is_concrete(longest) and not np.all(np.asarray(longest) > 0):
        raise ValueError(f"longest: expected a number > 0, got {longest!r}")
    if rates is not None:
        check_array("rates", rates, (nc,))
        check_positive("rates", rates)
    for name, value in (("state.q", state.q), ("state.v", state.v), ("params.gravity", model.params.gravity)):
        check_array(name, value)
        check_number(name, value)
    if is_concrete(model.params, state):
        with jax.ensure_compile_time_eval():
            inputs.check_values(contact_terms(model, state), state.v)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _path(system: System, max_pieces: int, numbers: PathNumbers) -> tuple[AugmentedPath, AugmentedInfo]:
    return run_pieces(system, max_pieces, numbers)


@_path.defjvp
def _no_derivative(*_: object) -> PyTree:
    raise NotImplementedError("time_augmented has no derivative; differentiate routh_path or variational")

"""`variational`: motion by a momentum-keeping integrator, with impacts at their time.

Owns the public call and its checks; the step is in `discrete_mechanics`, the loop over time in `event_loop`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import check_number, check_rows
from jaxcontact.costs import bytes_of, count_steps
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact.inputs import is_concrete
from jaxcontact.impact.laws.callable_laws import law_as_pytree
from jaxcontact.mechanics.motion_equations import mass_matrix
from jaxcontact.mechanics.numbers import is_inertia
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import warn_if_single
from jaxcontact.simulate.stepper import of_contacts
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.simulate.variational.contact_state import count_rows
from jaxcontact.simulate.variational.event_loop import MotionChoice, MotionMemory, MotionNumbers
from jaxcontact.simulate.variational.replay import motion


@checked(dt=POSITIVE, duration=POSITIVE, restitution=(" | nc", check_number), max_impacts=check_rows)
def variational(
    model: Model,
    state: State,
    *,
    dt: Any,
    duration: float,
    restitution: Any = 1.0,
    order: str | tuple[int, ...] = "most_violated",
    law: Any = None,
    zeno: Any = None,
    key: jax.Array | None = None,
    max_impacts: int = 1024,
) -> Trajectory:
    """Move a mechanism by midpoint discrete mechanics, with impacts at their time; return the trajectory.

    Seghete & Murphey, VI. Between impacts the motion obeys the discrete Euler-Lagrange equations (29) of
    L_d = h L((q_0 + q_1) / 2, (q_1 - q_0) / h), with gravity in L, `forces` and `drive` at the midpoint;
    momentum maps are kept, and the energy error is of second order, also while contacts stick. A step in
    which a gap closes, even one that opens again, or a dry joint comes to rest, is shortened to end there;
    the impact law (30) changes the momentum, and the motion continues to the next multiple of dt. Loops, and
    contacts that touch without approaching, stay closed: impulses at both ends of a step (RATTLE) keep the
    gap, never pull but in loops, and hold the material points in contact in their place over the step, or
    slide with the friction `params.mu` that dissipates most; dry joints likewise. A gap that round-off leaves
    is closed without momentum. Impacts have no friction unless `law` has.

    An impact of a contact less than `zeno` after its last one is plastic for all contacts that touch, with
    the friction `params.mu` if there is a `law` (bit ZENO): a chatter that is faster than the steps is cut
    short, and the contact stays closed until its impulse would pull. A step in which a pushing contact comes
    to need a pull is shortened to end when it lets go. If sliding contacts jam (Painleve's paradox), the
    record has an impact without a collision in place of the step that would hide it: inelastic, with
    friction, for every law.

    Args:
        model: the mechanism and its numbers; limits of joints are contacts without friction.
        state: the start. Contacts closer than 1e-9 m that approach faster than 1e-8 m/s have an impact at
            once, at the start and later; those that leave more slowly than 4e-6 m/s stay closed.
        dt: step, s.
        duration: s, rounded to a number of steps; a Python number.
        restitution: R in 0..1: of the energy that a plastic impact would lose, the fraction R^2 comes back
            (16); the outcome is that mixture of the elastic and of the unilateral plastic one. No meaning
            with `law`.
        order: of the single elastic impacts: "most_violated" or "least_violated", by approach speed in the
            metric of the kinetic energy, or contact indices as a cycle that skips contacts not approaching.
            No meaning with `law`.
        law: (terms, v, key) -> (v_plus, info) in place of these impacts, info having `status` and `impulse`:
            a record such as `jc.impact.AnitescuPotra()`, or a module-level function.
        zeno: shortest time between two impacts of a contact, s; default dt, 0 for never.
        key: passed to `law`, folded with the number of the impact.
        max_impacts: number of impacts that are recorded, and that a derivative includes.

    Returns:
        Trajectory.

    Raises:
        ValueError: dt or duration not positive, an unknown order, shapes that do not fit; known numbers that
            are not finite, masses, inertias, friction or `zeno` below zero, masses that leave a coordinate
            without inertia, a restitution outside 0..1.

    Status: of each step. ZENO; SIMULTANEOUS for an impact with more than one contact closed; PENETRATION
        of the start, also for loops that are open by 1e-6 m or rad, set in the first step; STALLED if
        Newton's method or the search for modes of contact fails; MAX_ITERS after 1000 trial steps and impacts
        within a step; UNTERMINATED after 64 single impacts of one impact; ENERGY if a move gains more than
        the work of forces and its terms of second order (`energy.move_gains`), or an impact gains any;
        NONFINITE and INVALID for traced numbers as above; those of `law`, called only for worlds in impact.

    Derivative: first order, forward and reverse, by state, params and restitution, including that of the
        times of impact. The order of impacts and the modes of contact are piecewise constant. NaN if there
        are more than `max_impacts` impacts, because the log then lacks pieces.
    """
    if not is_concrete(dt):
        raise ValueError("dt: expected a number that is known, for it sets the number of steps")
    wait = dt if zeno is None else zeno
    check_motion(model, state, order, restitution, wait)
    choice = MotionChoice(order, count_steps(duration, dt, num_bytes=bytes_of(state)), int(max_impacts))
    as_pytree = None if law is None else law_as_pytree(law)
    h, elastic, wait = (jnp.asarray(x, state.q.dtype) for x in (dt, restitution, wait))
    numbers = MotionNumbers(model.params, state, h, elastic, wait, as_pytree, None)
    trajectory, _ = motion(model.system, choice, numbers, no_memory(model, state, key))
    info = of_contacts(trajectory.info, model.structure.num_contacts)
    return trajectory.replace(info=info, impulse=info.impulse)


def check_motion(
    model: Model, state: State, order: str | tuple[int, ...], restitution: Any, zeno: Any
) -> None:
    """Check the arguments of a motion: raise ValueError if one is bad, and warn of single precision."""
    count = count_rows(model, state)
    if np.ndim(restitution) and count != model.structure.num_contacts:
        raise ValueError(
            f"restitution: expected one number for a mechanism with limits, got {np.size(restitution)}"
        )
    _check_order(order, count)
    _check_numbers(model, state, restitution, zeno)
    warn_if_single(state.q.dtype, "`variational`")


def no_memory(model: Model, state: State, key: jax.Array | None) -> MotionMemory:
    """Make the memory that a motion has before its first impact."""
    never = jnp.full(count_rows(model, state), -jnp.inf, state.q.dtype)
    return MotionMemory(key=key, last=never, number=jnp.int32(0))


def _check_numbers(model: Model, state: State, restitution: Any, zeno: Any) -> None:
    """Raise ValueError for known numbers that are out of range; traced ones set bits."""
    for name, value in (("state.q", state.q), ("state.v", state.v), ("params.gravity", model.params.gravity)):
        if is_concrete(value):
            check_number(name, value)
    inertia = model.params.inertia
    if is_concrete(inertia):
        check_number("params.inertia", inertia)
        with jax.ensure_compile_time_eval():
            usable = bool(is_inertia(jnp.asarray(inertia)))
        if not usable:
            raise ValueError(f"params.inertia: expected no negative eigenvalue, got {np.asarray(inertia)}")
    nonnegative = {"params.mass": model.params.mass, "params.mu": model.params.mu}
    for name, value in {**nonnegative, "restitution": restitution, "zeno": zeno}.items():
        if is_concrete(value):
            check_number(name, value, 0.0)
    if is_concrete(restitution) and np.any(np.asarray(restitution) > 1):
        raise ValueError(f"restitution: expected a number in 0..1, got {restitution}")
    if is_concrete(model.params, state.q) and not np.all(np.asarray(model.params.mass) > 0):
        with jax.ensure_compile_time_eval():
            mass = np.asarray(mass_matrix(model, state.q))
        if np.linalg.eigvalsh(mass)[0] <= 0:
            raise ValueError(
                "params.mass: expected masses that every coordinate moves, got "
                f"{np.asarray(model.params.mass)}"
            )


def _check_order(order: str | tuple[int, ...], nc: int) -> None:
    names = ("most_violated", "least_violated")
    good = order in names if isinstance(order, str) else order and all(0 <= k < nc for k in order)
    if not good:
        raise ValueError(
            f"order: expected {names[0]!r}, {names[1]!r} or indices in 0..{nc - 1}, got {order!r}"
        )

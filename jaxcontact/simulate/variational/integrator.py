"""`variational`: motion by a momentum-keeping integrator, with impacts at their time.

Owns the public call and its checks; the step is in `discrete_mechanics`, the loop over time in `event_loop`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.costs import bytes_of, count_steps
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact.inputs import is_concrete
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.stepper import of_contacts
from jaxcontact.simulate.steppers.variational import Variational
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.simulate.variational.inputs import check_motion, no_memory
from jaxcontact.simulate.variational.motion_records import MotionChoice, MotionNumbers
from jaxcontact.simulate.variational.replay import compute_motion

MAX_IMPACTS = 1024  # recorded by default; they set the memory of a motion
DEFAULT_STEPPER = Variational()


@checked(dt=POSITIVE, duration=POSITIVE)
def variational(
    model: Model,
    state: State,
    stepper: Variational = DEFAULT_STEPPER,
    *,
    dt: float | jax.Array,
    duration: float,
    key: jax.Array | None = None,
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
    is closed without momentum. Impacts have no friction unless `stepper.impact` has.

    An impact of a contact less than `stepper.zeno` after its last one is plastic for all contacts that touch,
    with the friction `params.mu` if there is a law (bit ZENO): a chatter that is faster than the steps is cut
    short, and the contact stays closed until its impulse would pull. A step in which a pushing contact comes
    to need a pull is shortened to end when it lets go. If sliding contacts jam (Painleve's paradox), the
    record has an impact without a collision in place of the step that would hide it: inelastic, with
    friction, for every law.

    Args:
        model: the mechanism and its numbers; limits of joints are contacts without friction.
        state: the start. Contacts closer than 1e-9 m that approach faster than 1e-8 m/s have an impact at
            once, at the start and later; those that leave more slowly than 4e-6 m/s stay closed.
        stepper: the impacts: their law, or restitution and order; how many are recorded.
        dt: step, s.
        duration: s, rounded to a number of steps; a Python number.
        key: passed to the law, folded with the number of the impact.

    Returns:
        Trajectory.

    Raises:
        ValueError: dt or duration not positive, an unknown order, shapes that do not fit; known numbers that
            are not finite, masses, inertias or friction below zero, masses that leave a coordinate
            without inertia.

    Status: of each step. ZENO; SIMULTANEOUS for an impact with more than one contact closed; PENETRATION
        of the start, also for loops that are open by 1e-6 m or rad, set in the first step; STALLED if
        Newton's method or the search for modes of contact fails; MAX_ITERS after 1000 trial steps and impacts
        within a step; UNTERMINATED after 64 single impacts of one impact; ENERGY if a move gains more than
        the work of forces and its terms of second order (`energy.move_gains`), or an impact gains any;
        NONFINITE and INVALID for traced numbers as above; those of the law, called only for worlds in impact.

    Derivative: first order, forward and reverse, by state, params and restitution, including that of the
        times of impact. The order of impacts and the modes of contact are piecewise constant. NaN if there
        are more than `stepper.max_impacts` impacts, because the log then lacks pieces.
    """
    if not is_concrete(dt):
        raise ValueError("dt: expected a number that is known, for it sets the number of steps")
    wait = dt if stepper.zeno is None else stepper.zeno
    check_motion(model, state, stepper.order, stepper.restitution, wait)
    max_impacts = MAX_IMPACTS if stepper.max_impacts is None else stepper.max_impacts
    choice = MotionChoice(stepper.order, count_steps(duration, dt, num_bytes=bytes_of(state)), max_impacts)
    h, elastic, wait = (jnp.asarray(x, state.q.dtype) for x in (dt, stepper.restitution, wait))
    numbers = MotionNumbers(model.params, state, h, elastic, wait, stepper.impact, None)
    trajectory, _ = compute_motion(model.system, choice, numbers, no_memory(model, state, key))
    info = of_contacts(trajectory.info, model.structure.num_contacts)
    return trajectory.replace(info=info, impulse=info.impulse)

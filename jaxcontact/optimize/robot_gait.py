"""Periodic gaits of planar robots from files, through contact, at a fixed speed: entry `robot_gait`.

Owns the search: a guess, a plan of which foot stands when, then the law of contact itself. Page:
docs/methods/planning.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_whole
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.batching.simd import simd
from jaxcontact.compliant.step import rollout, step
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io import fingerprint
from jaxcontact.mechanics.scaled_springs import ScaledSprings
from jaxcontact.mechanics.system import Model
from jaxcontact.optimize import sequential_quadratic, stride_guess
from jaxcontact.optimize.multiple_shooting import SIZES, Joining, Pieces, control_sizes
from jaxcontact.optimize.phased_search import Phase, PhasedSearch
from jaxcontact.precision import jit
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.status import Status
from jaxcontact.terms import contact_terms

NUM_STEPS = 8  # of a piece
WORK = 0.3  # weight of the cost of transport beside the mean square of the controls in parts of their range
SMALL_WORK = 0.1  # J; below it the size of a work is rounded off
CLEAR = 0.015  # m, height of feet that swing, in the plan
SHARE_AT_JOINTS = 1e-3  # of `tol`, scaled; over a walker's stride errors of joints grow 200 times
PRESSED = 1.0  # N; contacts under less force are left out of the account of friction
CLEARING = 300.0  # 1/m^2, weight of what they lack of it
PLAN_STEPS = 40  # of the plan, at most
PLAN_CHANGE = 1e-2  # of a scaled variable in the next step, at which the plan ends
LAST_CHANGE = 1e-3  # as `PLAN_CHANGE`, of the gait
BENDS = (0.2, 0.4, 0.7)  # rad, of joints in the guesses, which are tried in turn
LONGEST_SHARE = (0.5, 1.8)  # of the duration that the search starts from; the shortest and the longest


class GaitInfo(Record):
    """How a search for a gait ended.

    Attributes:
        cost_of_transport: mechanical work of the actuators, by size in each piece, over weight times way.
        effort: mean over time of the sum of squares of the controls in parts of their range.
        periodicity: largest error of a stride simulated in one piece, m, rad, m/s, rad/s.
        residual: largest error of a joint of pieces, scaled.
        speed: way over duration, m/s.
        largest_control: in parts of the range.
        friction: largest tangential force over mu times normal force of a contact under 1 N or more.
        dt: step of time, s.
        is_mirrored: whether the stride is half of one, that goes on with both legs exchanged.
        evaluations: motions computed, with the derivatives of all their pieces.
        seconds: wall time, with compiling, of all parts of a run that was resumed.
        status: bits of the steps; UNTERMINATED if no periodic stride was found; MAX_ITERS if the cost may
            still fall; NONFINITE if the motion fails from every guess.
    """

    cost_of_transport: float
    effort: float
    periodicity: float
    residual: float
    speed: float
    largest_control: float
    friction: float
    dt: float
    is_mirrored: bool
    evaluations: int
    seconds: float
    status: np.uint32


@checked(speed=POSITIVE, duration=POSITIVE, num_pieces=check_whole, num_steps=check_whole, tol=POSITIVE)
def robot_gait(
    model: Model,
    *,
    speed: float,
    duration: float = 0.5,
    num_pieces: int = 12,
    num_steps: int = 150,
    tol: float = 1e-9,
    run: Run = DEFAULT_RUN,
) -> tuple[Pieces, GaitInfo]:
    """Find a periodic gait of low cost at a fixed speed: controls, stride and its duration.

    Pieces of the stride have states of their own, which must join (multiple shooting); their derivatives
    through contact are exact. First a plan: feet stand and swing at set times, which leaves no kinks; two
    equal legs walk, others hop. Then all contacts act, and the search goes on with the law itself.

    Args:
        model: a planar robot, such as `load_mjcf(file, planar=True, contacts="world")`.
        speed: m/s, along x.
        duration: s, of the stride that the search starts from, half a stride of one that walks.
        num_pieces: of the stride, of eight time steps each.
        num_steps: of the search with the law, at most; a guess that leads nowhere is followed by another one.
        tol: largest error of a periodic stride, m, rad, m/s, rad/s.
        run: checkpoint, progress, about. The checkpoint is a file, written after every step and phase: an
            interrupted run, called again alike, resumes and finds the same bits. A finished one is read.
            `progress(step, largest number of steps, Progress)` is called after every
            step; the slope is that of the cost along the constraints, of scaled variables.

    Returns:
        The stride as `Pieces`, and `GaitInfo`.

    Raises:
        ValueError: no planar robot with actuators, feet and the springs of a file; numbers not positive; a
            checkpoint of another run, with the names of what differs, or a damaged one.

    Status: see `GaitInfo`.

    Derivative: none; a host driver.
    """
    begin = time.perf_counter()
    _check_robot(model)
    check_run(run, unused=("chunk", "devices", "executor"))
    legs = stride_guess.find_legs(model)
    schedule = stride_guess.plan_stances(legs, num_pieces)

    def guess(bend: float) -> Pieces:
        return stride_guess.guess_stride(model, legs, schedule, speed, duration, bend)

    first = guess(BENDS[0])
    order = legs.mirror if legs.mirror is not None else np.arange(first.v.shape[1])
    cost = _make_cost(model, speed, _mark_swings(model, legs, schedule))
    problem = Joining(model, first, NUM_STEPS, cost, _make_end_residuals(order, speed))
    bounds = problem.bounds(*_make_bounds(model, first))
    law = np.ones_like(problem.pushes)
    planned = _planned_pushes(law, model.structure.num_contacts, legs, schedule)
    phases = Phase("plan", planned, PLAN_STEPS, PLAN_CHANGE), Phase("gait", law, num_steps, LAST_CHANGE)
    about = _describe(model, run, (speed, duration, num_pieces, num_steps))
    guesses = [lambda bend=bend: problem.flat(guess(bend)) for bend in BENDS]
    found = PhasedSearch(problem, guesses, phases, bounds, about, run).run()
    best = int(np.argmin(np.nan_to_num(found.violations, nan=np.inf)))
    problem.pushes = law
    joined = problem.evaluate(found.ends[best])
    point = sequential_quadratic.restore(problem.evaluate, joined, bounds, SHARE_AT_JOINTS * tol)
    pieces = jax.tree.map(jnp.asarray, problem.pieces(point.s))
    info = _account_for_stride(model, pieces, order, speed)
    status = int(info.status)
    status |= 0 if info.periodicity <= max(tol, 1e-8) else int(Status.UNTERMINATED)
    status |= 0 if point.is_finite else int(Status.NONFINITE)
    status |= 0 if found.changes[best] <= LAST_CHANGE else int(Status.MAX_ITERS)
    return pieces, info.replace(
        residual=float(np.max(np.abs(point.residuals))), evaluations=problem.evaluations,
        seconds=found.seconds + time.perf_counter() - begin, is_mirrored=legs.mirror is not None,
        status=np.uint32(status),
    )  # fmt: skip


def _describe(model: Model, run: Run, numbers: tuple[float, float, int, int]) -> dict[str, object]:
    """Collect by name what determines a search: its arguments, and the program of a step with its numbers."""
    if run.checkpoint is None:
        return {}
    state, controls = model.initial_state(), jnp.zeros(model.num_controls)

    def advance(q: jax.Array, v: jax.Array, controls: jax.Array, dt: jax.Array) -> PyTree:
        return step(model, state.replace(q=q, v=v), controls, dt=dt)[0]

    return {
        "about": run.about,
        **dict(zip(("speed", "duration", "num_pieces", "num_steps"), numbers, strict=True)),
        **fingerprint.versions(),
        "platform": jax.default_backend(),
        "model": fingerprint.of_numbers(model.params),
        "step": fingerprint.of_program(jit(advance).trace(state.q, state.v, controls, jnp.zeros(()))),
    }


def _planned_pushes(
    law: np.ndarray, num_contacts: int, legs: stride_guess.Legs, schedule: stride_guess.StanceSchedule
) -> np.ndarray:
    """Mark the rows that push in a plan: all of the law, of the contacts those of feet that stand."""
    plan = law.copy()
    plan[:, -num_contacts:] = 0.0
    for k, contacts in enumerate(legs.contacts):
        plan[:, -num_contacts + contacts] = schedule.stands[:, k : k + 1]
    return plan


def _check_robot(model: Model) -> None:
    """Raise ValueError for a model without the material of a file or without actuators."""
    if not isinstance(getattr(model.params.material, "stiffness", None), ScaledSprings):
        raise ValueError(
            "model: expected the material of a file, as load_mjcf gives; "
            "jc.optimize.gait takes a stride by equations of your own"
        )
    if not model.structure.tree or not model.structure.tree.actuators:
        raise ValueError("model: expected actuators, got none")


def _make_end_residuals(order: np.ndarray, speed: float) -> Callable[[Pieces], jax.Array]:
    """Make the residuals of a stride that repeats, with legs in another order, one way farther on."""

    def ends(pieces: Pieces) -> jax.Array:
        way = jnp.zeros(order.size).at[0].set(speed * pieces.duration)
        places = (pieces.q[-1][order] - pieces.q[0] - way) / SIZES[0]
        rates = (pieces.v[-1][order] - pieces.v[0]) / SIZES[1]
        return jnp.concatenate([places, rates, pieces.q[0, :1]])

    return ends


def _mark_swings(model: Model, legs: stride_guess.Legs, schedule: stride_guess.StanceSchedule) -> np.ndarray:
    """Return a mask (N - 1, contacts) of those in the air on both sides of an inner end of a piece."""
    swings = np.ones((len(schedule.stands) - 1, model.structure.num_contacts))
    for k, contacts in enumerate(legs.contacts):
        in_air = ~schedule.stands[1:, k] & ~schedule.stands[:-1, k]
        swings[:, contacts] = in_air[:, None]
    return swings


def _motor_work(model: Model, pieces: Pieces) -> jax.Array:
    """Compute the work (N, nu) of motors in each piece, J."""
    moment = jnp.asarray(model.params.tree.gain)[:, None] * jnp.asarray(model.params.tree.moment)
    return jnp.asarray(pieces.controls) * (jnp.diff(pieces.q, axis=0) @ moment.T)


def _make_cost(model: Model, speed: float, swings: np.ndarray) -> Callable[[Pieces], jax.Array]:
    """Make the cost of a stride: effort, work over weight times way, what swinging feet lack in height."""
    weight = float(jnp.sum(model.params.mass) * jnp.linalg.norm(model.params.gravity))
    sizes, state = control_sizes(model)[None], model.initial_state()

    def cost(pieces: Pieces) -> jax.Array:
        gaps = jax.vmap(lambda q: contact_terms(model, state.replace(q=q)).phi)(pieces.q[1:-1])
        effort = jnp.mean(jnp.sum((pieces.controls / sizes) ** 2, axis=1))
        work = jnp.sum(jnp.sqrt(_motor_work(model, pieces) ** 2 + SMALL_WORK**2) - SMALL_WORK)
        lacking = jnp.sum(swings * jax.nn.relu(CLEAR - gaps) ** 2)
        return effort + WORK * work / (weight * speed * pieces.duration) + CLEARING * lacking

    return cost


def _make_bounds(model: Model, guess: Pieces) -> tuple[Pieces, Pieces]:
    """Make bounds of controls and duration, none of states."""
    ranges = np.asarray(model.params.tree.control_range)
    ends = []
    for side, share in enumerate(LONGEST_SHARE):
        far = np.full_like(np.asarray(guess.q), np.inf if side else -np.inf)
        controls = np.broadcast_to(ranges[:, side], guess.controls.shape)
        ends.append(Pieces(q=far, v=far, controls=controls, duration=np.asarray(guess.duration) * share))
    return ends[0], ends[1]


def simulate_stride(model: Model, pieces: Pieces) -> Trajectory:
    """Simulate a stride in one go by compliant steps, from its start and its controls alone."""
    dt = float(pieces.duration) / (len(pieces.controls) * NUM_STEPS)
    controls = jnp.repeat(pieces.controls, NUM_STEPS, axis=0)
    state, num_contacts = model.initial_state(), model.structure.num_contacts

    def run(q: jax.Array, v: jax.Array, controls: jax.Array, dt: jax.Array) -> tuple[jax.Array, ...]:
        states, info = rollout(model, state.replace(q=q, v=v), controls, dt=dt)
        return states.q, states.v, info.lam[:, -2 * num_contacts :], info.status

    ran = simd(run, nan=False)(pieces.q[:1], pieces.v[:1], controls[None], np.array([dt]))
    q, v, forces, status = (np.asarray(x)[0] for x in ran)
    pairs = forces.reshape(len(forces), num_contacts, 2)
    touches = np.concatenate([pairs[:1, :, 0] > 0, pairs[:, :, 0] > 0])
    states = state.replace(
        q=jnp.concatenate([pieces.q[:1], q]), v=jnp.concatenate([pieces.v[:1], v]),
        t=dt * jnp.arange(len(q) + 1.0),
    )  # fmt: skip
    return Trajectory(
        states=states, contacts=jnp.asarray(touches), impulse=jnp.asarray(dt * pairs), impacts=None,
        status=jnp.asarray(status), inputs=controls,
    )  # fmt: skip


def _account_for_stride(model: Model, pieces: Pieces, order: np.ndarray, speed: float) -> GaitInfo:
    """Simulate the stride in one go, and measure it."""
    stride = simulate_stride(model, pieces)
    dt, duration = float(stride.states.t[1]), float(pieces.duration)
    q_error = np.asarray(stride.states.q[-1])[order] - np.asarray(pieces.q[0])
    way, q_error[0] = float(q_error[0]), q_error[0] - speed * duration
    v_error = np.asarray(stride.states.v[-1])[order] - np.asarray(pieces.v[0])
    forces = np.asarray(stride.impulse) / dt
    mu = np.broadcast_to(np.asarray(model.params.mu), forces.shape[1:2])
    pressed = forces[:, :, 0] > PRESSED
    ratios = np.abs(forces[:, :, 1]) / np.where(pressed, mu * forces[:, :, 0], np.inf)
    weight = float(jnp.sum(model.params.mass) * jnp.linalg.norm(model.params.gravity))
    return GaitInfo(
        cost_of_transport=float(jnp.sum(jnp.abs(_motor_work(model, pieces)))) / (weight * way),
        effort=float(jnp.mean(jnp.sum((pieces.controls / control_sizes(model)[None]) ** 2, axis=1))),
        periodicity=float(max(np.max(np.abs(q_error)), np.max(np.abs(v_error)))),
        residual=np.nan, speed=way / duration,
        largest_control=float(jnp.max(jnp.abs(pieces.controls / control_sizes(model)[None]))),
        friction=float(np.max(ratios)), dt=dt, is_mirrored=False, evaluations=0, seconds=0.0,
        status=np.uint32(np.bitwise_or.reduce(np.asarray(stride.status))),
    )  # fmt: skip

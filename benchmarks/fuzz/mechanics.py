"""Checks of mechanisms: trees against MuJoCo, contact rows against differences, motions with closed forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz.from_tests import from_tests
from benchmarks.fuzz.tally import Tally
from jaxcontact import geometry

TREES = (  # joints of each body from the root outwards
    (("free",), ("hinge",), ("ball",)),
    (("hinge", "hinge"), ("slide",), ("hinge",)),
    (("ball",), ("slide", "hinge"), ("ball",)),
)
AGREES = 1e-9  # relative difference of two programs in double precision
SHAPES = ("sphere", "capsule", "box", "cylinder", "ellipsoid")
STEP, SLOPE = 1e-6, 1e-6  # s of the differences; relative error of a rate
GRAVITY = 9.81


def _vector(rng: np.random.Generator, size: int = 3, scale: float = 1.0) -> str:
    return " ".join(f"{x:.17g}" for x in scale * rng.normal(size=size))


def _tree_text(rng: np.random.Generator, bodies: tuple[tuple[str, ...], ...]) -> str:
    """MJCF of a chain with random numbers."""
    text = ""
    for number, joints in reversed(list(enumerate(bodies))):
        lines = ""
        for kind in joints:
            if kind == "free":
                lines += "<freejoint/>"
                continue
            axis = "" if kind == "ball" else f' axis="{_vector(rng)}"'
            lines += (
                f'<joint type="{kind}" pos="{_vector(rng, scale=0.2)}"{axis} '
                f'damping="{rng.uniform():.17g}" armature="{0.1 * rng.uniform():.17g}"/>'
            )
        moments = 1.0 + rng.uniform(0.0, 0.9, 3)  # of a body: none exceeds the sum of the others
        inertia = " ".join(f"{x:.17g}" for x in moments)
        lines += (
            f'<inertial pos="{_vector(rng, scale=0.3)}" quat="{_vector(rng, 4)}" '
            f'mass="{rng.uniform(0.5, 2.0):.17g}" diaginertia="{inertia}"/>'
        )
        place = f'pos="{_vector(rng, scale=0.5)}" quat="{_vector(rng, 4)}"'
        text = f'<body name="b{number}" {place}>{lines}{text}</body>'
    return f'<mujoco><compiler angle="radian"/><worldbody>{text}</worldbody></mujoco>'


@functools.cache
def _everything() -> Callable[..., Any]:
    return jax.jit(from_tests("oracles.mujoco_mechanics").everything)


def trees(seed: int) -> Tally:
    """Poses, mass matrix, bias, point Jacobians and energies of a chain, against MuJoCo."""
    import mujoco

    oracle = from_tests("oracles.mujoco_mechanics")
    rng = np.random.default_rng(seed)
    text = _tree_text(rng, TREES[seed % len(TREES)])
    model, mj = jc.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    mj.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    tally = Tally()
    at = np.array([0.1, -0.2, 0.3])
    for _ in range(2):
        data = oracle.random_data(rng, mj)
        state, controls = oracle.state_of(data), jnp.zeros(model.num_controls)
        expected = oracle.mujoco_everything(mj, data, at)
        found = _everything()(model, state, controls, jnp.asarray(at))
        tally.problems += 1
        for name in ("frames", "M", "bias", "passive", "jacobians", "kinetic", "potential"):
            errors = jax.tree.leaves(jax.tree.map(oracle.relative_error, found[name], expected[name]))
            tally.judge(f"{name} by MuJoCo", max(errors), AGREES)
    return tally


@functools.cache
def _balance(name: str) -> Callable[..., Any]:
    """Power of the bias at rest, rise of potential energy, and both forms of the kinetic energy."""

    def compute(model: jc.Model, q: jax.Array, v: jax.Array) -> Any:
        state = model.initial_state().replace(q=q, v=v)
        rest = state.replace(v=jnp.zeros_like(v))
        ends = [rest.replace(q=jc.retract(model, q, k * STEP * v)) for k in (-1.0, 1.0)]
        rise = [jc.potential_energy(model, end) for end in ends]
        kinetic = jc.kinetic_energy(model, state), 0.5 * v @ jc.mass_matrix(model, q) @ v
        return jc.bias(model, rest) @ v, (rise[1] - rise[0]) / (2.0 * STEP), *kinetic

    return jax.jit(compute)


BY_POSES = ("compass_gait", "rocking_block", "hopper_1d")


def energies(seed: int) -> Tally:
    """Work of the weight, and kinetic energy, of mechanisms that are functions of their poses."""
    rng = np.random.default_rng(seed)
    name = BY_POSES[seed % len(BY_POSES)]
    model = getattr(jc.models, name)()
    start = model.initial_state()
    q = start.q + jnp.asarray(0.3 * rng.normal(size=start.q.size))
    v = jnp.asarray(rng.normal(size=start.v.size))
    power, rise, kinetic, by_matrix = (float(x) for x in _balance(name)(model, q, v))
    tally = Tally(problems=1)
    tally.judge("power of the weight", abs(power - rise) / (abs(power) + 1.0), SLOPE, note=name)
    tally.judge("kinetic energy", abs(kinetic - by_matrix) / by_matrix, AGREES, note=name)
    return tally


@functools.cache
def _touching(kind: str) -> Callable[..., Any]:
    """Rows at a state; points, gaps and frames of bodies at a configuration and after small moves."""

    def places(model: jc.Model, q: jax.Array) -> Any:
        structure = model.structure
        frames = jc.forward_kinematics(model, q)
        return frames, geometry.candidates(
            structure.dim, structure.bodies, structure.shape_table, structure.pairs, *frames,
            model.params.constants,
        )  # fmt: skip

    def compute(model: jc.Model, state: jc.State) -> Any:
        terms = jc.contact_terms(model, state)
        ends = [jc.retract(model, state.q, k * STEP * state.v) for k in (-1.0, 1.0)]
        return terms, places(model, state.q), [places(model, q) for q in ends]

    return jax.jit(compute)


def _body(rng: np.random.Generator, kind: str, name: str) -> str:
    size = " ".join(f"{x:.17g}" for x in rng.uniform(0.1, 0.3, 3))
    place = f'pos="{_vector(rng, scale=0.1)}"' + ("" if kind == "sphere" else f' quat="{_vector(rng, 4)}"')
    return f'<body name="{name}"><freejoint/><geom type="{kind}" size="{size}" {place}/></body>'


def rows(seed: int) -> Tally:
    """J_n v is the rate of the gap, J v that of the material points; two bodies and a tilted plane."""
    rng = np.random.default_rng(seed)
    kind = SHAPES[seed % len(SHAPES)]
    plane = '<geom type="plane" size="5 5 1" quat="0.9 0.3 -0.2 0.1"/>'
    text = (
        f"<mujoco><worldbody>{plane}{_body(rng, kind, 'a')}{_body(rng, 'sphere', 'b')}</worldbody></mujoco>"
    )
    model = jc.load_mjcf(text)
    q = rng.normal(size=14)
    q[[2, 9]] += 2.0
    state = jc.State(q=jnp.asarray(q), v=jnp.asarray(rng.normal(size=12)), t=jnp.array(0.0))
    terms, (frames, found), ends = _touching(kind)(model, state)
    structure = model.structure
    owners = geometry.contact_bodies(structure.dim, structure.bodies, structure.shape_table, structure.pairs)
    rate = (np.asarray(ends[1][1].phi) - np.asarray(ends[0][1].phi)) / (2.0 * STEP)
    speed = 1.0 + np.abs(state.v).max()
    tally = Tally(problems=len(rate))
    tally.judge("rate of gaps", np.abs(np.asarray(terms.J_n @ state.v) - rate) / speed, SLOPE, note=kind)

    def velocity(owner: Any, points: Any) -> np.ndarray:
        """Differences of the places of points that bodies carry along."""
        carried = []
        for (positions, turns), _ in ends:
            moved = np.array(points)
            for k, body in enumerate(np.asarray(owner)):
                if body >= 0:
                    local = np.asarray(frames[1][body]).T @ (points[k] - np.asarray(frames[0][body]))
                    moved[k] = np.asarray(positions[body]) + np.asarray(turns[body]) @ local
            carried.append(moved)
        return (carried[1] - carried[0]) / (2.0 * STEP)

    slip = velocity(owners[0], np.asarray(found.point)) - velocity(owners[1], np.asarray(found.point_b))
    normal = np.asarray(found.normal)
    along = np.einsum("ci,ci->c", normal, slip)
    tally.judge("normal velocity", np.abs(np.asarray(terms.J_n @ state.v) - along) / speed, SLOPE, note=kind)
    sideways = np.linalg.norm(slip - along[:, None] * normal, axis=1)
    expected = np.linalg.norm(np.asarray(terms.J_t @ state.v), axis=1)
    tally.judge("sliding velocity", np.abs(expected - sideways) / speed, SLOPE, note=kind)
    return tally


def _disc(rng: np.random.Generator, slides: bool) -> tuple[jc.Model, float, float]:
    """A disc that does not roll, its friction and its radius."""
    disc = from_tests("helpers.sliding_disc")
    mu, radius = float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.05, 0.3))
    params = disc.PARAMS.replace(
        mu=jnp.array(mu if slides else 0.0), mass=jnp.array([rng.uniform(0.5, 3.0)]),
        inertia=jnp.array([1e12 if slides else 0.01]), constants={"radius": jnp.array(radius)},
    )  # fmt: skip
    return jc.Model(system=disc.SYSTEM, params=params), mu, radius


@functools.cache
def _motion(name: str, slides: bool) -> Callable[..., Any]:
    """A jitted motion (model, state, dt, restitution) -> x or height, and time, of all rows, status."""

    def run(model: jc.Model, state: jc.State, dt: jax.Array, restitution: jax.Array) -> Any:
        if name == "time augmented":
            length = STEPS * dt * (1.0 + GRAVITY * model.params.mass[0])
            path, info = jc.simulate.time_augmented(model, state, length=length, max_pieces=64)
            return path.q[:, 0], path.t, info.status
        by_name = {
            "event driven": lambda: jc.simulate.EventDriven(impact=jc.impact.Newton(restitution=restitution)),
            "time stepping": lambda: jc.simulate.TimeStepping(),
            "compliant": lambda: jc.simulate.Compliant(),
            "variational": lambda: jc.simulate.Variational(restitution=restitution),
        }
        controls = jnp.zeros((STEPS, 3))
        motion = jc.simulate.rollout(model, state, controls, stepper=by_name[name](), dt=dt)
        return motion.states.q[:, 0 if slides else 1], motion.states.t, motion.status

    return jax.jit(run)


STEPS = 40
SLIDING = {
    "event driven": 1e-9,
    "time stepping": 1.1,
    "compliant": 1.1,
}  # errors of the path until the end, of methods of first order times the number of steps
BOUNCING = {"event driven": 1e-9, "variational": 1e-6}


def motions(seed: int) -> Tally:
    """A disc that slides to rest by mu g, and one that bounces by e: closed forms of place and time."""
    rng = np.random.default_rng(seed)
    slides = seed % 2 == 0
    model, mu, radius = _disc(rng, slides)
    dt = float(rng.uniform(0.005, 0.015))
    tally = Tally()
    names = sorted(SLIDING if slides else BOUNCING)
    name, limits = names[seed // 2 % len(names)], SLIDING if slides else BOUNCING
    if slides:
        start, height = float(rng.uniform(0.3, 1.5) * mu * GRAVITY * STEPS * dt), 0.0
        restitution = 0.0
    else:
        start, height = float(rng.normal()), float(rng.uniform(0.02, 0.3))
        restitution = float(rng.uniform(0.3, 0.9))
    state = jc.State(
        q=jnp.array([0.0, radius + height, 0.0]), v=jnp.array([start, 0.0, 0.0]), t=jnp.array(0.0)
    )
    place, time, status = _motion(name, slides)(model, state, jnp.asarray(dt), jnp.asarray(restitution))
    good = tally.count(np.bitwise_or.reduce(np.atleast_1d(status)))
    place, end = (float(np.asarray(x)[np.flatnonzero(np.isfinite(x))[-1]]) for x in (place, time))
    note = f"{name}, dt {dt:.3g}"
    if slides:
        until = min(end, start / (mu * GRAVITY))
        expected = start * until - 0.5 * mu * GRAVITY * until**2
        off = abs(place - expected) / expected
        steps = 1.0 if name == "event driven" else until / dt
        tally.judge(f"path of a slide, {name}", off * steps, limits[name], good, note)
    else:
        expected = _bounced(height, restitution, end)
        off = abs(place - radius - expected) / height
        tally.judge(f"height of a bounce, {name}", off, limits[name], good, note)
    return tally


def _bounced(height: float, restitution: float, end: float) -> float:
    """Height of a ball at a time after it was let go."""
    fall = math.sqrt(2.0 * height / GRAVITY)
    if end <= fall:
        return height - 0.5 * GRAVITY * end**2
    t, speed = fall, restitution * GRAVITY * fall
    while speed > 1e-12 and t + 2.0 * speed / GRAVITY < end:
        t, speed = t + 2.0 * speed / GRAVITY, restitution * speed
    since = end - t
    return max(speed * since - 0.5 * GRAVITY * since**2, 0.0)

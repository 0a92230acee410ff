"""Runs the ensembles of docs/understand/ensembles.md and draws them.

    python -m benchmarks.figures.ensembles [gait] [pillar] [robots] [--worlds N]

Every world draws its own impulse order in every impact. Numbers go to the terminal, pictures to docs/.
"""

import argparse
import dataclasses
import os
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxcontact as jc
from jaxcontact._pytree import Record
from jaxcontact.geometry import HalfSpace, Point
from jaxcontact.mechanics.motion_equations import energies
from jaxcontact.terms import contact_gaps

G = 9.81


def ensemble(model, law, worlds, *, dt, duration, state=None, stepper=None, controls=None, **options):
    """All worlds of a model, with what they cost; failed ones are named."""
    begin = time.process_time()
    stepper = jc.simulate.TimeStepping(impact=law) if stepper is None else stepper
    state = model.initial_state() if state is None else state
    motion = jc.simulate.MotionSettings(stepper=stepper, dt=dt, duration=duration, controls=controls)
    found = jc.simulate.ensemble(model, state, motion, num_worlds=worlds, **options)
    print(f"  {found.summary}; {(time.process_time() - begin):.0f} s of one core with compiling")
    return found


# A compass gait with a mass at its hip walks down a slope.

SLOPE, HIP = np.radians(3.0), 2.0  # rad, kg; legs of 1 m have 1 kg at their middle
AHEAD, ABOVE, DRAWN_UP = 0.15, 1e-3, 0.1  # m


def _walker_poses(structure, q, params):
    hip, pitch = q[:2], q[2:]
    along = jnp.stack([jnp.sin(pitch), -jnp.cos(pitch)], axis=-1)
    legs = hip[None] + params.constants["hip_to_mass"] * along
    return jnp.concatenate([legs, hip[None]]), jnp.append(pitch, 0.0)


WALKER = jc.System(
    jc.Structure(
        dim=2, bodies=("stance", "swing", "hip"), num_positions=4,
        shapes=(
            Point(name="stance_foot", body="stance", at="stance_to_foot"),
            Point(name="swing_foot", body="swing", at="swing_to_foot"),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("stance_foot", "floor"), ("swing_foot", "floor")),
    ),
    _walker_poses,
)  # fmt: skip
FEET = ("stance_to_foot", "swing_to_foot")


def walker():
    """The gait of Goswami, Espiau & Keramane (1996) at its fixed point: gravity turned, x along the slope.

    q = (hip x, hip y, pitch of the leg that stands first, of the other), counter-clockwise from hanging.
    """
    swing, stance, swing_rate, stance_rate = -0.32339, 0.21867, -0.37737, -1.09238
    a, b = stance + SLOPE, swing + SLOPE
    foot = jnp.array([0.0, -0.5])
    return jc.Model(
        system=WALKER,
        params=jc.Params(
            mass=jnp.array([1.0, 1.0, HIP]), inertia=jnp.zeros(3), mu=jnp.full(2, 0.8),
            gravity=G * jnp.array([np.sin(SLOPE), -np.cos(SLOPE)]),
            constants={"hip_to_mass": jnp.array(0.5), **dict.fromkeys(FEET, foot)},
        ),
        initial=jc.State(
            q=jnp.array([-np.sin(a), np.cos(a), a, b]),
            v=jnp.array([-np.cos(a) * stance_rate, -np.sin(a) * stance_rate, stance_rate, swing_rate]),
            t=jnp.array(0.0),
        ),
    )  # fmt: skip


def feet_x(q):
    """Where both feet are along the slope, (..., 2) m."""
    return q[..., :1] + jnp.sin(q[..., 2:])


class DrawnUpFeet(Record):
    """Legs without knees: the foot that swings is drawn up by 10 cm until it is ahead and above the floor.

    It has no mass. Without that it would scuff where the legs pass each other.
    """

    inner: jc.simulate.TimeStepping

    def init(self, model, state, key=None):
        """What the inner stepper remembers, and which feet are down."""
        return self.inner.init(model, state, key), jnp.array([True, False])

    def closed(self, model, state):
        """As the inner stepper."""
        return self.inner.closed(model, state)

    def step(self, model, state, tau, memory, *, dt):
        """A step of the inner one, with the feet that are not down drawn up."""
        inner, down = memory
        gaps, x = contact_gaps(model, state.q), feet_x(state.q)
        down = (down & (gaps <= ABOVE)) | ((x - x[::-1] > AHEAD) & (gaps > ABOVE))
        up = jnp.where(down, 0.0, DRAWN_UP)
        lengths = {foot: model.params.constants[foot].at[1].add(up[k]) for k, foot in enumerate(FEET)}
        drawn = model.params.replace(constants={**model.params.constants, **lengths})
        then, inner, info = self.inner.step(model.replace(params=drawn), state, tau, inner, dt=dt)
        return then, (inner, down), info


def landings(q):
    """Of each world the numbers of the states in which a foot that swung has landed."""
    x, height = np.asarray(feet_x(q)), np.asarray(q[..., 1:2] - np.cos(q[..., 2:]))
    ahead = x - x[..., ::-1] > AHEAD
    lands = np.any(ahead[..., 1:, :] & (height[..., 1:, :] <= ABOVE) & (height[..., :-1, :] > ABOVE), axis=-1)
    return [np.flatnonzero(row) + 1 for row in lands]


def gait(worlds=256, steps=20, dt=0.005):
    """Time of every landing and length of every step."""
    law = jc.impact.Routh(impulse_step=0.5, max_steps=40)
    stepper = DrawnUpFeet(inner=jc.simulate.TimeStepping(impact=law))
    found = ensemble(
        walker(), law, worlds, stepper=stepper, dt=dt, duration=0.78 * (steps + 1), keep_path=True
    )
    q = np.asarray(found.path.q)
    landed = [row[:steps] for row in landings(q)]
    walks = np.array([k for k, row in enumerate(landed) if len(row) == steps])
    print(f"  {len(walks)} of {worlds} worlds walk {steps} steps")
    at = np.stack([landed[k] for k in walks])
    times = dt * at
    lengths = np.abs(np.diff(feet_x(q[walks[:, None], at])))[..., 0]
    print("  time of a landing, std in ms:", np.round(1e3 * times.std(axis=0), 1))
    print("  length of a step, std in mm:", np.round(1e3 * lengths.std(axis=0), 1))
    draw_gait(times, lengths, "docs/_static/ensemble_gait.png")


def draw_gait(times, lengths, path):
    """Draws by how much walks differ at every landing, in its time (s) and in the length of its step (m)."""
    number = np.arange(1, times.shape[1] + 1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    late = 1e3 * times.std(axis=0)
    left.plot(number, late, "o", color="tab:blue")
    left.plot(number, late[1] * np.sqrt(number - 1), color="0.5")
    law = "grey: a random walk,\nroot of the number of steps"
    left.text(20, 0.55 * late[-1], law, color="0.4", ha="right")
    left.set(ylabel="standard deviation of the time (ms)", ylim=(0, 35))
    left.set_title(f"The time of a landing drifts:\n{late[-1]:.0f} ms after {number[-1]} steps")
    uneven = 1e3 * lengths.std(axis=0)
    right.plot(number, uneven, "o", color="tab:blue")
    right.set(ylabel="standard deviation of the length (mm)", ylim=(0, 35))
    settled, mean = np.median(uneven), 100 * lengths.mean()
    right.set_title(f"The length of a step does not:\n{settled:.0f} mm about {mean:.0f} cm")
    for axes in (left, right):
        axes.set(xlabel="number of the landing", xticks=range(0, number[-1] + 1, 5))
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{len(times)} walks that differ by the order of impulses alone", fontsize=10, color="0.3"
    )
    figure.savefig(path, dpi=110)


# A pillar falls flat on its four corners and bounces.

PILLAR, BOUNCE, FALL = np.array([0.5, 0.5, 2.0]), 0.6, 1.0  # m, coefficient of restitution, m
MARGIN = 0.02  # J; a step of 10 ms raises the energy by 0.002 J at most
LANES, PIECE = 256, 10  # worlds at a time on a core, and steps between two looks at them


def falling_pillar():
    """The model at the moment of its first impact; a kilogram."""
    model = jc.models.box_drop_3d(all_corners=True)
    square = PILLAR**2
    params = model.params.replace(
        inertia=jnp.asarray((square.sum() - square) / 12.0)[None], constants={"size": jnp.asarray(PILLAR)}
    )
    start = model.initial_state().replace(v=jnp.zeros(6).at[2].set(-np.sqrt(2.0 * G * FALL)))
    system = dataclasses.replace(model.system, poses=jc.free_poses)
    return model.replace(system=system, params=params, initial=start)


def face_below(model, state):
    """The face in whose valley of potential energy it is, 2 axis + whether it points up; whether final.

    The centre must rise to sqrt(a_i^2 + a_j^2) over an edge, with half lengths a. Energy never rises, so a
    pillar with less than the lowest edge of its face takes never leaves that face.
    """
    half = jnp.asarray(PILLAR / 2.0)
    w, x, y, z = state.q[3:]
    up = jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])  # in body axes
    axis = jnp.argmax(jnp.abs(up) / half)
    others = jnp.arange(3) != axis
    edge = jnp.sqrt(half[axis] ** 2 + jnp.min(jnp.where(others, half, jnp.inf)) ** 2)
    kinetic, potential = energies(model, state.q, state.v)
    return 2 * axis + (up[axis] > 0), kinetic + potential + MARGIN < model.params.mass[0] * G * edge


def until_final(model, stepper, numbers, dt, most):
    """Face, number of steps, status, velocity behind the first impact of worlds until their face is final.

    A world that is done leaves its lane to the next one, so that all lanes work.
    """

    def piece(state, number, turn):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), number), turn)
        path = jc.simulate.rollout(model, state, jnp.zeros((PIECE, 6)), stepper=stepper, dt=dt, key=key)
        end = jax.tree.map(lambda rows: rows[-1], path.states)
        return end, *face_below(model, end), jnp.bitwise_or.reduce(path.status), path.states.v[1]

    fresh = jax.tree.map(np.asarray, model.initial_state())
    many = jax.tree.map(lambda leaf: np.repeat(leaf[None], LANES, axis=0), fresh)
    no_turns = np.zeros(LANES, np.uint32)
    program = jax.jit(jax.vmap(piece)).lower(many, no_turns, no_turns).compile()

    def share(numbers):
        told = {k: [] for k in ("number", "face", "steps", "status", "first")}
        left, number = iter(numbers[LANES:]), np.full(LANES, -1)
        number[: len(numbers)] = numbers[:LANES]
        state, turn, first = jax.tree.map(np.array, many), no_turns.copy(), np.zeros((LANES, 6))
        while np.any(number >= 0):
            moved = jax.device_get(program(state, number.astype(np.uint32), turn))
            state = jax.tree.map(np.array, moved[0])
            face, final, status, behind = moved[1:]
            first = np.where(turn[:, None] == 0, behind, first)
            turn = turn + 1
            failed = jc.Status.failed(status)
            for k in np.flatnonzero((number >= 0) & (final | failed | (turn * PIECE >= most))):
                ends_on = face[k] if final[k] and not failed[k] else -1
                row = (number[k], ends_on, turn[k] * PIECE, status[k], first[k])
                for name, value in zip(told, row, strict=True):
                    told[name].append(value)
                number[k], turn[k] = next(left, -1), 0
                for whole, start in zip(jax.tree.leaves(state), jax.tree.leaves(fresh), strict=True):
                    whole[k] = start
        return {name: np.array(values) for name, values in told.items()}

    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:
        shares = list(pool.map(share, [numbers[k::cores] for k in range(cores)]))
    told = {name: np.concatenate([each[name] for each in shares]) for name in shares[0]}
    order = np.argsort(told["number"])
    return {name: values[order] for name, values in told.items()}


def pillar(worlds=512, dt=0.01, duration=6.0, bounce=BOUNCE):
    """Its angular velocity behind the first impact, and the face that it ends on."""
    model, begin = falling_pillar(), time.process_time()
    law = jc.impact.Routh(impulse_step=0.5, max_steps=60, restitution=bounce, num_directions=4)
    stepper = jc.simulate.TimeStepping(impact=law)
    told = until_final(model, stepper, np.arange(worlds), dt, round(duration / dt))
    failed = np.flatnonzero(jc.Status.failed(told["status"]))
    print(f"  {len(failed)} of {worlds} worlds failed; {time.process_time() - begin:.0f} s of one core")
    for k in failed:
        print(f"  world {k} by step {told['steps'][k]}: {jc.Status.describe(told['status'][k])}")
    final = told["face"] >= 0
    open_ones = np.flatnonzero(~final & ~jc.Status.failed(told["status"]))
    print(f"  open after {duration:g} s: {len(open_ones)}; steps until final: {told['steps'].mean():.0f}")
    names = ("+x", "-x", "+y", "-y", "top", "foot")  # the face that is below
    counts = np.bincount(told["face"][final], minlength=6)
    print("  ends on", dict(zip(names, counts.tolist(), strict=True)))
    for name, k in zip(names, counts, strict=True):
        low, high = binomial(k, counts.sum())
        print(f"    {name}: {100 * k / counts.sum():.2f} %, {100 * low:.2f} to {100 * high:.2f} %")
    turns = told["first"][:, 3:5]
    quadrants = np.bincount(2 * (turns[:, 0] > 0) + (turns[:, 1] > 0), minlength=4)
    print("  first impact, signs of (w_x, w_y):", quadrants.tolist(), chi_square(quadrants))
    print("  the four sides:", counts[:4].tolist(), chi_square(counts[:4]))
    draw_pillar(counts, "docs/_static/ensemble_pillar.png")


def draw_pillar(counts, path):
    """Draws how many pillars end on each face: +x, -x, +y, -y, top, foot."""
    names, order = ("+x", "-x", "+y", "-y"), (5, 0, 1, 2, 3)
    shares, bounds = 100 * counts / counts.sum(), 100 * np.array([binomial(k, counts.sum()) for k in counts])
    labels = ["stands", *(f"lies on its side {names[k]}" for k in order[1:])]
    figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
    axes.barh(labels, shares[list(order)], color=["tab:green", *["tab:orange"] * 4])
    for row, k in enumerate(order):
        axes.plot(bounds[k], [row, row], color="0.2")
        axes.text(bounds[k, 1] + 0.5, row, f"{shares[k]:.1f} %", va="center")
    axes.invert_yaxis()
    axes.set_title("A third of the pillars stand; the others fall to all four sides alike")
    axes.set(xlabel=f"share of {counts.sum()} worlds (%), with 95 % bounds", xlim=(0, 1.15 * bounds.max()))
    figure.savefig(path, dpi=110)


def chi_square(counts):
    """Whether equal shares explain counts of a few."""
    from scipy.stats import chisquare

    value, chance = chisquare(counts)
    return f"chi-square {value:.2f} of {len(counts) - 1} degrees of freedom, p = {chance:.2f}"


def binomial(k, n):
    """The 95 % bounds of Clopper and Pearson on a share."""
    from scipy.stats import beta

    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    return low, beta.ppf(0.975, k + 1, n - k) if k < n else 1.0


# Robots land: RAMone on a foot, a walker on both flat feet, a dog on four.


def holds(model, state, t, memory, key):
    """The motors of the walker hold the pose that it lands in."""
    pose = jnp.array([0.55, -0.3, -0.25, -0.25, -0.3, 0.55])
    gear = jnp.array([60.0, 60.0, 30.0, 60.0, 60.0, 30.0])
    return jnp.clip((300.0 * (pose - state.q[3:]) - 15.0 * state.v[3:]) / gear, -1.0, 1.0), memory


def robots(worlds=64, dt=0.005):
    """How far worlds drift apart; the apex of a dog's rebound and where it comes to stand."""
    dog = jc.models.quadruped()
    fall = 0.2  # m
    lifted = dog.replace(initial=dog.initial_state().replace(q=dog.initial_state().q.at[2].add(fall)))
    stance = jnp.tile(dog.initial_state().q[7:], (round(0.8 / dt), 1))
    cases = {
        "RAMone": (jc.models.ramone(), jc.impact.Routh(impulse_step=1.0, max_steps=20), None, 0.25),
        "walker": (jc.models.planar_walker(), jc.impact.Routh(impulse_step=0.5, max_steps=60), holds, 0.8),
        "dog": (lifted, jc.impact.Routh(impulse_step=0.3, max_steps=80), stance, 0.8),
    }
    spreads = {}
    for name, (model, law, control, duration) in cases.items():
        print(name)
        found = ensemble(model, law, worlds, dt=dt, duration=duration, keep_path=True, controls=control)
        q = np.asarray(found.path.q)[np.asarray(found.failed_step) < 0]
        base = q[:, :, : 3 if model is lifted else 2]
        spreads[name] = np.sqrt(np.sum(base.var(axis=0), axis=-1))
        closed = np.bincount(found.closings)
        print(f"  the trunk is apart by {1e3 * spreads[name][-1]:.2g} mm, contacts closed: {closed}")
    landed = np.argmin(base[:, :, 2], axis=1)
    apex = np.array([row[k:, 2].max() for row, k in zip(base, landed, strict=True)])
    ends = {"apex of the rebound": apex, "x where it stands": base[:, -1, 0], "y": base[:, -1, 1]}
    for name, values in ends.items():
        print(f"  dog, {name}: {values.mean():.4f} m, std {1e3 * values.std():.3f} mm")
    draw_robots(spreads, worlds, dt, "docs/_static/ensemble_robots.png")


CURVES = {  # colour; what the robot does; where that is written, s and mm
    "walker": ("tab:orange", "a walker lands on both flat feet", (0.8, 1.5)),
    "dog": ("tab:green", "a dog falls 20 cm and\nlands on four feet at 0.2 s", (0.8, 0.05)),
    "RAMone": (
        "tab:blue",
        "RAMone strikes with one foot; the curve ends\nwhen its trunk would reach the floor",
        (0.27, 1e-3),
    ),
}


def draw_robots(spreads, worlds, dt, path):
    """Draws over time by how much worlds differ in where the trunk is, m, one curve per robot."""
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for name, spread in spreads.items():
        colour, words, place = CURVES[name]
        axes.semilogy(dt * np.arange(len(spread)), np.maximum(1e3 * spread, 1e-7), color=colour)
        axes.text(*place, words, color=colour, ha="right" if place[0] > 0.5 else "left", va="center")
    axes.axhline(1.0, color="0.5", linestyle=":")
    axes.set(xlabel="time after the start (s)", xlim=(0.0, 0.82), ylim=(1e-5, 10.0))
    axes.set(ylabel=f"standard deviation of the trunk's position\nover {worlds} impulse orders (mm)")
    axes.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0])
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("The impulse order moves the trunk of a landing robot\nby less than a millimetre")
    figure.savefig(path, dpi=110)


PICTURES = {"gait": gait, "pillar": pillar, "robots": robots}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(PICTURES))
    parser.add_argument("--worlds", type=int)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in options.names or PICTURES:
        print(name)
        PICTURES[name](**({} if options.worlds is None else {"worlds": options.worlds}))

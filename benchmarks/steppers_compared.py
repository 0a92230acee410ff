"""`python -m benchmarks steppers_compared [--put PAGE]`: every stepper moves the same mechanisms.

Where the outcome is unique, how far each ends from the motion from event to event, and that one from closed
forms. Where it is not, whether the velocity behind the impact is one of the set-valued law. Compiling is
nearly all of the time; XLA_FLAGS=--xla_backend_optimization_level=0 makes it shorter.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report, runner

STEPS = 320  # of every motion, one program per mechanism and stepper; a coarse one is read before its end
COARSE, MIDDLE, FINE = 80, 160, 320  # steps per duration
# Critical for 1 kg: what slides in the convex cone of `Compliant` floats by mu |v_t| damping / stiffness.
SOFT, STIFF = (jc.compliant.Material(stiffness=k, damping=2.0 * math.sqrt(k)) for k in (1e6, 1e10))
GRAVITY, RADIUS, HALF_ROD, SAMPLES = 9.81, 0.1, 0.7, 2**14
NEAR = 0.02  # of the speed before: what counts as in the set; samples of five contacts lie 0.01 apart

DISC = jc.System(
    jc.Structure(
        dim=2,
        bodies=("ball",),
        num_positions=3,
        shapes=(
            jc.Disc(name="rim", body="ball", radius="radius"),
            jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("rim", "floor"),),
    ),
    jc.free_poses,
)


@dataclasses.dataclass(frozen=True)
class Case:
    """What moves, for how long, and how far the motion from event to event is from a closed form.

    Where the outcome is not unique, `landed` is where the impact is and `orders` the law of its outcomes.
    """

    name: str
    model: jc.Model
    state: jc.State
    duration: float
    exact: Callable[[jc.simulate.Trajectory], float] = lambda _: 0.0
    landed: jax.Array | None = None
    orders: jc.impact.Routh | None = None

    def end(self, stepper: Any, steps: int, law: jc.compliant.Material = STIFF, key: Any = None) -> Any:
        """The motion with so many steps per duration, and its row at the end of it."""
        motion = jc.simulate.rollout(
            self.model.replace(params=self.model.params.replace(material=law)), self.state,
            jnp.zeros((STEPS, self.state.v.size)), stepper=stepper,
            dt=jnp.asarray(self.duration / steps), key=key,
        )  # fmt: skip
        status = np.asarray(motion.status)[:steps]
        if np.any(jc.Status.failed(status)):
            raise RuntimeError(f"{self.name}: {type(stepper).__name__} failed, {jc.Status.describe(status)}")
        return motion, jax.tree.map(lambda rows: np.asarray(rows[steps]), motion.states)

    def apart(self, one: np.ndarray, other: np.ndarray) -> float:
        """Distance of two configurations, m: of the centre, and of the angle by the radius of gyration."""
        if one.size != 3:  # the walker: its hip, and the ends of its legs of 1 m
            return float(np.linalg.norm(one - other))
        gyration = self.model.params.inertia[0] / self.model.params.mass[0]
        return float(np.sqrt((one - other) ** 2 @ np.array([1.0, 1.0, float(gyration)])))


def ball() -> Case:
    """It is thrown, lands without a bounce, and rolls at once with 2/3 of its speed."""
    fall, duration = math.sqrt(0.6 / GRAVITY), 0.6
    rolled = 2.0 / 3.0 * (duration - fall)
    exact = np.array([fall + rolled, RADIUS, -rolled / RADIUS])
    params = jc.Params(
        mass=jnp.array([2.0]), inertia=jnp.array([RADIUS**2]), mu=jnp.array(0.3),
        gravity=jnp.array([0.0, -GRAVITY]), constants={"radius": jnp.array(RADIUS)},
    )  # fmt: skip
    state = jc.State(q=jnp.array([0.0, 0.4, 0.0]), v=jnp.array([1.0, 0.0, 0.0]), t=jnp.array(0.0))

    def off(motion: jc.simulate.Trajectory) -> float:
        return float(np.max(np.abs(np.asarray(motion.states.q)[COARSE] - exact)))

    return Case("ball that lands and rolls", jc.Model(system=DISC, params=params), state, duration, off)


def rocking_block() -> Case:
    """Tilted on a corner: it falls onto the other one, which leaves 0.7 of its angular velocity (Housner)."""
    model, tilt = jc.models.rocking_block(), 0.2
    height = 0.5 * math.sin(tilt) + math.cos(tilt)
    state = model.initial_state().replace(q=jnp.array([0.0, height, tilt]), v=jnp.zeros(3))
    about_corner = model.params.inertia[0] + 0.5**2 + 1.0**2
    spin = -0.7 * math.sqrt(2.0 * GRAVITY * (height - 1.0) / float(about_corner))

    def off(motion: jc.simulate.Trajectory) -> float:
        return abs(float(motion.impacts.v_plus[0, 2]) - spin)

    return Case("block that rocks", model, state, 0.8, off)


def rod(name: str, friction: float, duration: float, exact: Callable[..., float]) -> Case:
    """A slender rod, a block without height; its left end slides to the left at 1 m/s."""
    model, angle = jc.models.rocking_block(), 1.0
    params = model.params.replace(
        inertia=jnp.array([HALF_ROD**2 / 3.0]),
        mu=jnp.array([friction, friction]),
        constants={"size": jnp.array([2.0 * HALF_ROD, 0.0])},
    )
    q = jnp.array([0.0, HALF_ROD * math.sin(angle), angle])
    state = model.initial_state().replace(q=q, v=jnp.array([-1.0, 0.0, 0.0]))
    return Case(name, model.replace(params=params), state, duration, exact)


def sliding_rod() -> Case:
    """What friction adds to v_x is mu times what the normal force adds to v_y + g t."""
    friction, duration = 0.5, 0.1

    def off(motion: jc.simulate.Trajectory) -> float:
        v = np.asarray(motion.states.v)[COARSE]
        return abs(float(v[0] + 1.0 - friction * (v[1] + GRAVITY * duration)))

    return rod("rod that slides", friction, duration, off)


def jamming_rod() -> Case:
    """No finite force lets it slide on: its end stops at once (Painleve)."""

    def off(motion: jc.simulate.Trajectory) -> float:
        c, s = HALF_ROD * math.cos(1.0), HALF_ROD * math.sin(1.0)
        rows, inverse = np.array([[0.0, 1.0, -c], [1.0, 0.0, s]]), np.diag([1.0, 1.0, 3.0 / HALF_ROD**2])
        before = np.array([-1.0, 0.0, 0.0])
        after = before - inverse @ rows.T @ np.linalg.solve(rows @ inverse @ rows.T, rows @ before)
        return float(np.max(np.abs(np.asarray(motion.impacts.v_plus)[0] - after)))

    return rod("rod that jams", 3.0, 0.02, off)


def walker() -> Case:
    """A compass gait's heel strikes; its other foot stood until then, and leaves."""
    model, back, rate = jc.models.compass_gait(), 0.3, 1.0
    q = jnp.array([-math.sin(back), math.cos(back), -0.32, back])
    state = model.initial_state().replace(
        q=q, v=rate * jnp.array([-math.cos(back), -math.sin(back), 0.2, 1.0])
    )

    def off(motion: jc.simulate.Trajectory) -> float:
        before, after = np.asarray(motion.impacts.v_minus)[0], np.asarray(motion.impacts.v_plus)[0]
        pitch = math.atan2(-before[1], -before[0])  # the hip turns about the foot that stands
        legs = [np.eye(2, 4) + np.outer([math.cos(pitch), side * math.sin(pitch)], np.eye(4)[2 + k])
                for k, side in enumerate((-1.0, 1.0))]  # fmt: skip
        masses = [np.eye(2, 4) + (foot - np.eye(2, 4)) / 2.0 for foot in legs]
        inverse, rows = np.linalg.inv(sum(rows.T @ rows for rows in masses)), legs[0]
        stopped = np.linalg.solve(rows @ inverse @ rows.T, rows @ before)
        return float(np.max(np.abs(after - before + inverse @ rows.T @ stopped)))

    return Case("walker that steps", model, state, 0.1, off)


def many_outcomes(name: str, model: jc.Model, height: int, above: float, duration: float = 0.02) -> Case:
    """An impact without gravity, and a moment after it. One coordinate starts above the impact."""
    return Case(
        name,
        model.replace(params=model.params.replace(gravity=jnp.zeros(2))),
        model.initial_state().replace(q=model.initial_state().q.at[height].add(above)),
        duration,
        landed=model.initial_state().q,
        orders=jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
    )


def flat_block() -> Case:
    """It lands on two corners."""
    return many_outcomes("block that lands flat", jc.models.rocking_block(), 1, 0.002)


def wide_step() -> Case:
    """A compass gait's heel strikes with its legs 156 degrees apart; it moves on: one looks at once."""
    return many_outcomes("walker, wide step", jc.models.compass_gait(), 1, 0.0, 0.003)


def disk_stack() -> Case:
    """A disk lands on two that lie on the floor side by side: five contacts."""
    return many_outcomes("stack of disks", jc.models.disk_stack(), 7, 0.002)


UNIQUE = (ball, rocking_block, sliding_rod, jamming_rod, walker)
MANY = (flat_block, wide_step, disk_stack)


def steppers(law: Any) -> dict[str, tuple[Any, int, jc.compliant.Material]]:
    """What moves the mechanisms: stepper, steps per duration, springs of its contacts."""
    stepping, variational = jc.simulate.TimeStepping(impact=law), jc.simulate.Variational(impact=law)
    return {
        "EventDriven": (jc.simulate.EventDriven(impact=law), COARSE, STIFF),
        "TimeStepping, T/80": (stepping, COARSE, STIFF),
        "T/160": (stepping, MIDDLE, STIFF),
        "T/320": (stepping, FINE, STIFF),
        "Variational, T/80": (variational, COARSE, STIFF),
        "T/160 ": (variational, MIDDLE, STIFF),
        "Compliant, 1e6 N/m": (jc.simulate.Compliant(), FINE, SOFT),
        "1e10 N/m": (jc.simulate.Compliant(), FINE, STIFF),
    }


def compare(case: Case) -> dict[str, float]:
    """How far each stepper ends from the first one, from event to event, and that one from a closed form."""
    found: dict[str, float] = {}
    for name, (stepper, steps, law) in steppers(jc.impact.AnitescuPotra()).items():
        motion, end = case.end(stepper, steps, law)
        if not found:
            reference = end.q
            found[name] = case.exact(motion)
        else:
            found[name] = case.apart(end.q, reference)
    return found


def judge(case: Case, law: Any, key: Any) -> dict[str, str]:
    """Whether the velocity of each stepper behind the impact is one of the set-valued law; how far off."""
    terms = jc.contact_terms(case.model, case.state.replace(q=case.landed))
    samples = jc.impact.sample(
        terms,
        case.state.v,
        jc.impact.Routh(impulse_step=case.orders.impulse_step, max_steps=case.orders.max_steps),
        num_samples=SAMPLES,
    )
    speed = float(jnp.sqrt(case.state.v @ terms.M @ case.state.v))
    verdicts = {}
    for name, (stepper, steps, springs) in steppers(law).items():
        if isinstance(stepper, jc.simulate.Compliant) and key is not None:
            verdicts[name] = ""  # no law, no order
            continue
        _, end = case.end(stepper, steps, springs, key)
        said = jc.impact.contains(samples, end.v, terms=terms, tolerance=NEAR * speed)
        verdicts[name] = f"{'in' if said.inside else 'out'} ({100.0 * float(said.distance) / speed:.3f} %)"
    return verdicts


def table() -> str:
    """Both tables with what they were made with."""
    head, names = runner.header(), list(steppers(jc.impact.AnitescuPotra()))
    rule = "|---" * (len(names) + 1) + "|"
    rows = [f"| {case.name} | " + " | ".join(f"{x:.1e}" for x in compare(case).values()) + " |"
            for case in (make() for make in UNIQUE)]  # fmt: skip
    judged = []
    for case in (make() for make in MANY):
        laws = [("all contacts at once", jc.impact.AnitescuPotra(), None)]
        laws += [(f"impulse order {k}", case.orders, jax.random.key(k)) for k in (1, 2)]
        judged += [f"| {case.name}, {name} | " + " | ".join(judge(case, law, key).values()) + " |"
                   for name, law, key in laws]  # fmt: skip
    return "\n".join(
        [
            f"{head['dtype']}, jax {head['jax']}; {head['date']}, commit {head['commit']}.",
            "",
            f"| the outcome is unique | {' | '.join(name.strip() for name in names)} |",
            rule,
            *rows,
            "",
            f"| there are many outcomes | {' | '.join(name.strip() for name in names)} |",
            rule,
            *judged,
        ]
    )


def main(arguments: list[str]) -> int:
    """Print the tables; also put them on a page, where asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks steppers_compared", description=__doc__)
    parser.add_argument("--put", type=Path, metavar="PAGE", help="also put the tables there, at their marks")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    text = table()
    print(text)
    if options.put:
        report.put(options.put, "steppers", text)
    return 0

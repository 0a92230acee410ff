"""Bodies in the sagittal plane on springy massless legs: a hexapod with two tripods, and a hopper."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model

GRAVITY = 9.81  # m/s^2


def _legs(x: jax.Array, params: PyTree) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Compute hips (n, 2) relative to the body, hips, vectors from feet to hips, lengths (n,) and rates."""
    along = jnp.stack([jnp.cos(x[2]), jnp.sin(x[2])])
    arms = params["hips"][:, None] * along[None, :]
    hips = x[None, :2] + arms
    speed = x[None, 3:5] + x[5] * jnp.stack([-arms[:, 1], arms[:, 0]], axis=-1)
    feet = x[7:]
    # A leg in the air has no direction; its length is not used, but must not be zero.
    reach = jnp.stack([hips[:, 0] - feet, hips[:, 1]], axis=-1)
    length = jnp.sqrt(jnp.sum(reach**2, axis=-1) + 1e-12)
    rate = jnp.sum(reach * speed, axis=-1) / length
    return arms, hips, reach, length, rate


def _field(t: jax.Array, x: jax.Array, signs: jax.Array, control: PyTree, params: PyTree) -> jax.Array:
    arms, _, reach, length, rate = _legs(x, params)
    n = length.shape[0]
    down, turned, up = jnp.split(signs > 0, 3)
    push = params["stiffness"] * (params["length"] - length) + params["preload"]
    push = push + jnp.where(turned, control["thrust"], -params["damping"] * rate)
    force = jnp.where(down & ~up, push, 0.0)[:, None] * reach / length[:, None]
    total = jnp.sum(force, axis=0)
    turn = jnp.sum(arms[:, 0] * force[:, 1] - arms[:, 1] * force[:, 0])
    power = jnp.sum(jnp.where(down & ~up & turned, control["thrust"] * rate, 0.0))
    return jnp.concatenate(
        [
            x[3:6],
            jnp.stack(
                [
                    total[0] / params["mass"],
                    total[1] / params["mass"] - params["gravity"],
                    turn / params["inertia"],
                    power,
                ]
            ),
            jnp.zeros(n, x.dtype),
        ]
    )


def _guards(x: jax.Array, params: PyTree) -> jax.Array:
    """Compute the guards of touch-down, m, turn (the rate of the leg), m/s, and lift-off, m, of all legs."""
    _, hips, _, length, rate = _legs(x, params)
    down = params["length"] * jnp.cos(params["angle"]) - hips[:, 1]
    return jnp.concatenate([down, rate, length - params["length"]])


def _jump(x: jax.Array, k: jax.Array, params: PyTree) -> jax.Array:
    """Set the foot that touches down at the end of its leg; other crossings change nothing."""
    _, hips, _, _, _ = _legs(x, params)
    spots = hips[:, 0] + params["length"] * jnp.sin(params["angle"])
    hit = jnp.arange(spots.shape[0]) == k
    return jnp.concatenate([x[:7], jnp.where(hit, spots, x[7:])])


def _resets(partners: tuple[int, ...]) -> np.ndarray:
    """Make `rearm`: touch-down arms the leg's turn and lift-off, lift-off arms its partner's touch-down."""
    n = len(partners)
    rearm = np.zeros((3 * n, 3 * n), bool)
    for leg, partner in enumerate(partners):
        rearm[leg, n + leg] = rearm[leg, 2 * n + leg] = True
        rearm[2 * n + leg, partner] = True
    return rearm


HEXAPOD = EventSystem(_field, _guards, rearm=_resets((3, 4, 5, 0, 1, 2)), jump=_jump)
HOPPER = EventSystem(_field, _guards, rearm=_resets((0,)), jump=_jump)


def _make_params(
    hips: list[float], angle: float, *, mass: float, inertia: float, stiffness: float
) -> dict[str, jax.Array]:
    n = len(hips)
    return {
        "hips": jnp.array(hips),
        "angle": jnp.full(n, angle),
        "length": jnp.array(0.2),
        "stiffness": jnp.full(n, stiffness),
        "preload": jnp.full(n, 30.0 / min(n, 3)),
        "damping": jnp.full(n, 60.0 / min(n, 3)),
        "mass": jnp.array(mass),
        "inertia": jnp.array(inertia),
        "gravity": jnp.array(GRAVITY),
    }


def spring_legged_hexapod() -> Model:
    """Make a hexapod of 8 kg running on two tripods of springy massless legs, at an apex.

    `system` is an EventSystem. Its state is (x, z, pitch, vx, vz, pitch rate, work, feet (6,)), SI
    units: body, work of the actuators so far, position of each foot. Legs 0..2 (front, middle, rear) are
    one tripod, 3..5 the other; their hips lie on the body's axis. Guards, six each: touch-down, when a
    foot held at `angle` (rad, forward of the vertical) reaches the ground; turn, when a loaded leg begins
    to lengthen; lift-off, at full length. Lift-off of a leg arms the touch-down of its partner, three places
    further, so that the tripods alternate.

    A leg is a spring, preloaded at full length, so that it pushes from its landing on (as the robot of
    Anderson & Revzen's figure 1), a damper while it shortens, and an actuator that adds `control["thrust"]`
    (n,), N, while it lengthens. The field jumps at touch-down, and three legs at the same angle under a level
    body touch down together: a corner. Sizes are near those of RHex.
    """
    params = _make_params([0.2, 0.0, -0.2] * 2, 0.3, mass=8.0, inertia=0.17, stiffness=2000.0)
    return Model(system=HEXAPOD, params=params, initial=_apex(6))


def spring_legged_hopper() -> Model:
    """Make a hopper of 8 kg on one springy massless leg under its centre of mass, at an apex.

    As the hexapod: the spring-loaded inverted pendulum with preload, one-way damper and thrust; the state
    is (x, z, pitch, vx, vz, pitch rate, work, foot), and guards are touch-down, turn and lift-off.
    """
    params = _make_params([0.0], 0.3, mass=8.0, inertia=0.17, stiffness=6000.0)
    return Model(system=HOPPER, params=params, initial=_apex(1))


def _apex(legs: int) -> jax.Array:
    return jnp.concatenate([jnp.array([0.0, 0.205, 0.0, 1.0, 0.0, 0.0, 0.0]), jnp.zeros(legs)])

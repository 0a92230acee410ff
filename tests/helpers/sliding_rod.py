"""A slender rod whose left end slides on a floor: Painleve's example.

Half length l, mass m, inertia m l^2 / 3 about its centre, which is at l (cos, sin) of the end at angle theta. Of
the end, J_n = (0, 1, -l cos), J_t = (1, 0, l sin): D_nn = (1 + 3 cos^2) / m, D_nt = -3 sin cos / m. Where the end
slides to the left, u_t < 0, friction points to the right, f_t = mu f_n, and the end accelerates by
a_n = b + A f_n along the normal,

    A = (1 + 3 cos^2 - 3 mu sin cos) / m,    b = l omega^2 sin - g.

A < 0 is indeterminate with b > 0 (it leaves, or slides with f_n = -b / A) and inconsistent with b < 0. Sliding to
the right there is no paradox: then A = (1 + 3 cos^2 + 3 mu sin cos) / m.
"""

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc

GRAVITY, HALF = 9.81, 0.7
SYSTEM = jc.System(
    jc.Structure(
        dim=2,
        bodies=("rod",),
        num_positions=3,
        shapes=(
            jc.Points(name="ends", body="rod", at="ends", count=2),
            jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("ends", "floor"),),
    ),
    jc.free_poses,
)


def params(mu, mass=1.0):
    return jc.Params(
        mass=jnp.array([mass]),
        inertia=jnp.array([mass * HALF**2 / 3.0]),
        mu=jnp.full(2, mu),
        gravity=jnp.array([0.0, -GRAVITY]),
        constants={"ends": jnp.array([[-HALF, 0.0], [HALF, 0.0]])},
    )


def model(mu, mass=1.0):
    return jc.Model(system=SYSTEM, params=params(mu, mass))


def state(theta, speed, omega):
    """The left end touches the floor and slides with `speed`."""
    x, y = HALF * jnp.cos(theta), HALF * jnp.sin(theta)
    return jc.State(
        q=jnp.stack([0.0 * theta, y, theta]),
        v=jnp.stack([speed - omega * y, omega * x, omega + 0.0 * theta]),
        t=jnp.array(0.0),
    )


def slope(theta, mu, mass=1.0):
    """A."""
    return (1 + 3 * np.cos(theta) ** 2 - 3 * mu * np.sin(theta) * np.cos(theta)) / mass


def free(theta, omega):
    """b."""
    return HALF * omega**2 * np.sin(theta) - GRAVITY

"""Velocities from poses: free flight fitted to a window of rows, with its covariance.

In flight the centre is a parabola and a body of isotropic inertia turns at a constant rate in its own axes,

    p(t) = p0 + v t + g t^2 / 2,        R(t) = R0 exp(w t),

so a window of rows is one least-squares problem with twelve unknowns, not a chain of differences. Noise of
poses is measured where nothing touches.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cube_tosses.tosses import DT, GRAVITY
from jaxcontact.algebra import rotations

NEWTON_STEPS = 4
FALL = np.array([0.0, 0.0, -GRAVITY])


class Flight(NamedTuple):
    """Poses and velocities at the time zero of their windows; axis 0 is the window.

    position (n, 3), quaternion (n, 4), v (n, 6) = velocity in the world and rate in body axes; covariance
    (n, 12, 12) of (position, turn in body axes, v) at unit noise of (position, turn) given to `fit`;
    misfit (n,) sum of squares of the residuals in units of the noise, freedom (n,) its degrees of freedom.
    """

    position: np.ndarray
    quaternion: np.ndarray
    v: np.ndarray
    covariance: np.ndarray
    misfit: np.ndarray
    freedom: np.ndarray


def second_differences(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the poses (T, 7) of a toss: (T - 2, 3) m without gravity, and (T - 2, 3) rad of the turns."""
    bend = q[2:, :3] - 2 * q[1:-1, :3] + q[:-2, :3] - FALL * DT**2
    turns = np.asarray(_turns(jnp.asarray(q[:, 3:])))
    return bend, turns[1:] - turns[:-1]


@jax.jit
@jax.vmap
def _turn(before: jax.Array, after: jax.Array) -> jax.Array:
    conjugate = rotations.quaternion_conjugate(before)
    return rotations.quaternion_log(rotations.quaternion_product(conjugate, after))


def _turns(quaternion: jax.Array) -> jax.Array:
    """Turns (T - 1, 3) in body axes from row to row."""
    return _turn(quaternion[:-1], quaternion[1:])


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, 0, 0, None))
def _fit(q: jax.Array, time: jax.Array, used: jax.Array, noise: jax.Array) -> tuple[jax.Array, ...]:
    """Flight through the poses q (K, 7) at `time` (K,), of which those `used` (K,) count."""
    first = jnp.argmax(used)
    start = jnp.concatenate([jnp.zeros(3), _slope(q[:, 3:], time, used, first)])
    guess = jnp.concatenate([q[first, :3], jnp.zeros(3), start])
    reference = rotations.quaternion_product(q[first, 3:], rotations.quaternion_exp(-start[3:] * time[first]))

    def residual(x: jax.Array) -> jax.Array:
        def row(q: jax.Array, t: jax.Array, used: jax.Array) -> jax.Array:
            place = x[:3] + x[6:9] * t + 0.5 * jnp.asarray(FALL) * t**2
            turned = rotations.quaternion_product(reference, rotations.quaternion_exp(x[3:6]))
            turned = rotations.quaternion_product(turned, rotations.quaternion_exp(x[9:] * t))
            off = rotations.quaternion_product(rotations.quaternion_conjugate(turned), q[3:])
            apart = jnp.concatenate([q[:3] - place, rotations.quaternion_log(off)])
            return jnp.where(used, apart / noise, 0.0)

        return jax.vmap(row)(q, time, used).ravel()

    def newton(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        jacobian = jax.jacfwd(residual)(x)
        scaled = jacobian * scale
        step = scale * jnp.linalg.solve(scaled.T @ scaled, -scaled.T @ residual(x))
        return x + step, None

    scale = jnp.concatenate([noise, noise / DT])  # of the unknowns, so that the normal equations are balanced
    x, _ = jax.lax.scan(newton, guess, None, length=NEWTON_STEPS)
    scaled = jax.jacfwd(residual)(x) * scale
    covariance = scale[:, None] * jnp.linalg.inv(scaled.T @ scaled) * scale
    quaternion = rotations.quaternion_product(reference, rotations.quaternion_exp(x[3:6]))
    return x[:3], quaternion, x[6:], covariance, jnp.sum(residual(x) ** 2), 6 * jnp.sum(used) - 12


def _slope(quaternion: jax.Array, time: jax.Array, used: jax.Array, first: jax.Array) -> jax.Array:
    """A rate (3,) to start from: the turn of two neighbouring rows."""
    pair = jax.lax.dynamic_slice_in_dim(quaternion, first, 2)
    off = rotations.quaternion_product(rotations.quaternion_conjugate(pair[0]), pair[1])
    return rotations.quaternion_log(off) / DT


def fit(q: np.ndarray, time: np.ndarray, used: np.ndarray, noise: np.ndarray) -> Flight:
    """Flights through windows of rows.

    Args:
        q: (n, K, 7) poses.
        time: (n, K) s; what is returned holds at time 0.
        used: (n, K) bool, the rows that count, at least three that follow one another.
        noise: (6,) standard deviations of a pose: m and rad in body axes.
    """
    found = _fit(jnp.asarray(q), jnp.asarray(time), jnp.asarray(used), jnp.asarray(noise))
    return Flight(*(np.asarray(leaf) for leaf in found))


def moved(flight: Flight, time: np.ndarray) -> Flight:
    """The flights at other times (n,) s after their own, with their covariance there."""
    t = np.asarray(time)[:, None]
    turn = turned(flight.quaternion, flight.v[:, 3:] * t)
    carry, n = np.tile(np.eye(12), (len(t), 1, 1)), np.arange(3)
    back = np.asarray(_matrix(jnp.asarray(-flight.v[:, 3:] * t)))
    inner = np.asarray(_exp_jacobian(jnp.asarray(flight.v[:, 3:] * t)))
    carry[:, n, 6 + n] = t
    carry[:, 3:6, 3:6] = back
    carry[:, 3:6, 9:] = inner * t[:, :, None]
    return flight._replace(
        position=flight.position + flight.v[:, :3] * t + 0.5 * FALL * t**2,
        quaternion=turn,
        v=flight.v + np.concatenate([FALL, np.zeros(3)]) * t,
        covariance=carry @ flight.covariance @ np.swapaxes(carry, 1, 2),
    )


def turned(quaternion: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Quaternions (n, 4) turned by (n, 3) rad about axes of the body."""
    return np.asarray(_turned(jnp.asarray(quaternion), jnp.asarray(turn)))


@jax.jit
@jax.vmap
def _turned(quaternion: jax.Array, turn: jax.Array) -> jax.Array:
    return rotations.quaternion_product(quaternion, rotations.quaternion_exp(turn))


@jax.jit
@jax.vmap
def _matrix(turn: jax.Array) -> jax.Array:
    return rotations.quaternion_matrix(rotations.quaternion_exp(turn))


_exp_jacobian = jax.jit(jax.vmap(rotations.exp_jacobian))


def turn_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Turns (n, 3) in the axes of a from the quaternions a to b (n, 4)."""
    return np.asarray(_turn(jnp.asarray(a), jnp.asarray(b)))

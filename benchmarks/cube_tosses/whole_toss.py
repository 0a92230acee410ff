"""A whole toss from its first rows: ensembles over what these rows leave open, against what the cube did.

Starts are drawn from the flight fitted to the first rows and its covariance. The compliant steps and MuJoCo
have the same starts, the same steps in time and the parameters fitted to single impacts of other tosses.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cube_tosses import laws, peers, smoother
from benchmarks.cube_tosses.geometry import Geometry, above_board
from benchmarks.cube_tosses.laws import PER_ROW
from benchmarks.cube_tosses.tosses import DT, Tosses

FIRST = 6  # rows that are given
ROWS = 120  # that are predicted at most
WORLDS = 16
BLOCK = 256  # worlds of one call


def starts(tosses: Tosses, which: np.ndarray, noise: np.ndarray, geometry: Geometry, seed: int) -> tuple:
    """Poses (n, N, 7) above the board and velocities (n, N, 6) at the last of the first rows."""
    row = tosses.start[which][:, None] + np.arange(FIRST)
    time = np.tile((np.arange(FIRST) - FIRST + 1) * DT, (len(which), 1))
    flight = smoother.fit(tosses.q[row], time, np.ones(time.shape, bool), noise)
    root = np.linalg.cholesky(flight.covariance)
    off = np.einsum(
        "nij,nkj->nki", root, np.random.default_rng(seed).normal(size=(len(which), WORLDS, 12))
    ).reshape(-1, 12)
    place = np.repeat(flight.position, WORLDS, axis=0) + off[:, :3]
    turned = smoother.turned(np.repeat(flight.quaternion, WORLDS, axis=0), off[:, 3:6])
    q = np.asarray(above_board(jnp.asarray(np.concatenate([place, turned], axis=1)), geometry))
    v = np.repeat(flight.v, WORLDS, axis=0) + off[:, 6:]
    return q.reshape(-1, WORLDS, 7), v.reshape(-1, WORLDS, 6)


@functools.partial(jax.jit, static_argnums=3)
def _march(params: Any, q: jax.Array, v: jax.Array, rows: int) -> jax.Array:
    def one(q: jax.Array, v: jax.Array) -> jax.Array:
        return laws.fall(params, q, v, rows * PER_ROW).q[PER_ROW - 1 :: PER_ROW]

    return jax.vmap(one)(q, v)


def compliant(params: Any, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Poses (n, N, ROWS, 7) of compliant steps."""
    flat_q, flat_v = q.reshape(-1, 7), v.reshape(-1, 6)
    found = []
    for begin in range(0, len(flat_q), BLOCK):
        index = np.resize(np.arange(begin, min(begin + BLOCK, len(flat_q))), BLOCK)
        found.append(np.asarray(_march(params, jnp.asarray(flat_q[index]), jnp.asarray(flat_v[index]), ROWS)))
    return np.concatenate(found)[: len(flat_q)].reshape(*q.shape[:2], ROWS, 7)


def mujoco(params: dict, side: float, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Poses (n, N, ROWS, 7) of MuJoCo."""
    compiled = peers.model(side, params["mu"], params["time"], params["ratio"])
    found = peers.motions(compiled, q.reshape(-1, 7), v.reshape(-1, 6), ROWS, PER_ROW)
    return found.reshape(*q.shape[:2], ROWS, 7)


def top_face(quaternion: np.ndarray) -> np.ndarray:
    """Which of the six faces (...) is on top: the body axis nearest to the world's z, and its sign."""
    w, x, y, z = np.moveaxis(quaternion, -1, 0)
    up = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=-1)
    axis = np.argmax(np.abs(up), axis=-1)
    sign = np.take_along_axis(up, axis[..., None], axis=-1)[..., 0] > 0
    return 2 * axis + sign


def judge(tosses: Tosses, which: np.ndarray, worlds: np.ndarray) -> dict[str, np.ndarray]:
    """Scores by toss of the poses (n, N, ROWS, 7) of an ensemble.

    log_score: minus the logarithm of the probability given to the face on top, (share + 1/6) / (1 + 1/N) of
    counts with one more in all; energy: score (m) of where the centre rests; inside_50, inside_90: whether it
    lies as near to the mean as so many of the worlds; over_time (n, ROWS): distance (m) of the mean, NaN
    where the toss is over.
    """
    scores: dict[str, list] = {
        name: [] for name in ("log_score", "energy", "inside_50", "inside_90", "over_time")
    }
    for toss, cloud in zip(which, worlds, strict=True):
        truth = tosses.rows(toss)[FIRST:][:ROWS]
        cloud = cloud[:, : len(truth)]
        face, faces = top_face(truth[-1, 3:]), top_face(cloud[:, -1, 3:])
        scores["log_score"].append(-np.log((np.sum(faces == face) + 1 / 6) / (len(faces) + 1)))
        place, end = truth[-1, :2], cloud[:, -1, :2]
        away = np.linalg.norm(end - place, axis=1)
        between = np.linalg.norm(end[:, None] - end[None], axis=-1)
        scores["energy"].append(away.mean() - 0.5 * between.sum() / (len(end) * (len(end) - 1)))
        centre = end.mean(axis=0)
        rank = np.mean(np.linalg.norm(end - centre, axis=1) < np.linalg.norm(place - centre))
        scores["inside_50"].append(rank < 0.5)
        scores["inside_90"].append(rank < 0.9)
        error = np.full(ROWS, np.nan)
        error[: len(truth)] = np.linalg.norm(cloud[:, :, :2].mean(axis=0) - truth[:, :2], axis=1)
        scores["over_time"].append(error)
    return {name: np.array(values, float) for name, values in scores.items()}

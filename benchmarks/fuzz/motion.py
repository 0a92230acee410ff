"""Checks of `simulate.variational`: blocks that tip, bounce and rock; energy and stiction in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz.rounds import DTYPES
from benchmarks.fuzz.tally import Tally

SIZE, STEPS, GRAVITY = 4, 500, 9.81
ENERGY = {np.float32: 2e-2, np.float64: 2e-3}  # of the largest kinetic energy, that may come from nothing
CREEP = {np.float32: 1e-3, np.float64: 1e-7}  # m of one step, where a contact sticks


def _poses(structure: Any, q: Any, params: Any) -> tuple[Any, Any]:
    return q[None, :2], q[2:3]


BLOCK = jc.System(
    jc.Structure(
        dim=2, bodies=("block",), num_positions=3,
        shapes=(
            jc.Box(name="corners", body="block", size="size"),
            jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("corners", "floor"),),
    ),
    _poses,
)  # fmt: skip
NC = 4


def _corners(size: np.ndarray, q: np.ndarray) -> np.ndarray:
    """World places (..., 4, 2) of the corners, in any order."""
    local = np.array([[x, y] for y in (-0.5, 0.5) for x in (-0.5, 0.5)]) * size
    c, s = np.cos(q[..., 2, None]), np.sin(q[..., 2, None])
    x = q[..., 0, None] + c * local[:, 0] - s * local[:, 1]
    return np.stack([x, q[..., 1, None] + s * local[:, 0] + c * local[:, 1]], axis=-1)


def _draw(rng: np.random.Generator) -> dict[str, Any]:
    """A block tilted by up to 0.5 rad: let go above the floor, or rocking on one corner."""
    size = np.array([rng.uniform(0.6, 1.2), rng.uniform(1.2, 2.2)])
    tilt = rng.uniform(0.1, 0.5) * rng.choice([-1, 1])
    q = np.array([0.0, 0.0, tilt])
    lowest = _corners(size, q)[..., 1].min()
    rocks = rng.random() < 0.5
    q[1] = -lowest + (0.0 if rocks else rng.uniform(0.0, 0.4))
    v = np.zeros(3) if rocks else np.array([rng.normal() * 0.3, 0.0, rng.normal() * 0.5])
    return {"size": size, "q": q, "v": v, "mu": rng.uniform(0.3, 2.0)}


def variational(seed: int) -> Tally:
    """Energy never rises, and what sticks does not creep, in both precisions."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[int(rng.integers(2))]
    bits = "f32" if dtype is np.float32 else "f64"
    tally = Tally()
    dt = float(rng.choice([0.005, 0.008]))
    restitution = float(rng.choice([0.0, 0.3, 0.7]))
    drawn = [_draw(rng) for _ in range(SIZE)]
    sizes, q, v, mu = (np.stack([d[name] for d in drawn]) for name in ("size", "q", "v", "mu"))
    sizes, q, v, mu = (np.asarray(np.asarray(a, dtype), float) for a in (sizes, q, v, mu))
    inertia = np.sum(sizes**2, axis=1) / 12.0

    motions = []
    for k in range(SIZE):  # one after the other: in a batch every branch runs in every lane
        params = jc.Params(
            mass=jnp.ones(1, dtype), inertia=jnp.asarray(inertia[k : k + 1], dtype),
            mu=jnp.full(NC, mu[k], dtype), constants={"size": jnp.asarray(sizes[k], dtype)},
            gravity=jnp.array([0.0, -GRAVITY], dtype),
        )  # fmt: skip
        state = jc.State(q=jnp.asarray(q[k], dtype), v=jnp.asarray(v[k], dtype), t=jnp.zeros((), dtype))
        motions.append(
            jc.simulate.variational(
                jc.Model(system=BLOCK, params=params),
                state,
                jc.simulate.Variational(restitution=restitution, max_impacts=64),
                dt=dt,
                duration=dt * STEPS,
            )
        )
    motion = jax.tree.map(lambda *a: np.stack([np.asarray(x) for x in a]), *motions)
    status = np.bitwise_or.reduce(np.asarray(motion.status), axis=1)
    good = tally.count(status)
    path, speeds = np.asarray(motion.states.q, float), np.asarray(motion.states.v, float)
    mass = np.stack([np.ones(SIZE), np.ones(SIZE), inertia], axis=1)[:, None]
    kinetic = 0.5 * np.sum(mass * speeds**2, axis=2)
    energy = kinetic + GRAVITY * path[:, :, 1]
    least = np.minimum.accumulate(energy, axis=1)
    rise = np.max(energy - least, axis=1) / (kinetic.max(axis=1) + 0.1 * GRAVITY)
    note = f"dt {dt:g}, restitution {restitution:g}"
    tally.judge(f"energy {bits}", rise, ENERGY[dtype], good, note)
    deepest = np.stack([_corners(s, p)[..., 1].min(axis=-1) for s, p in zip(sizes, path)]).min(axis=1)
    tally.judge(f"penetration {bits}", -deepest, 1e-3 if dtype is np.float32 else 1e-6, good, note)
    impulse = np.asarray(motion.impulse, float)
    shut, hits = np.asarray(motion.contacts), np.asarray(motion.impacts.t, float)
    held = np.abs(impulse[..., 1]) < 0.9 * mu[:, None, None] * impulse[..., 0]
    struck = np.stack([np.histogram(t[np.isfinite(t)], np.arange(STEPS + 1) * dt)[0] > 0 for t in hits])
    struck |= np.asarray(motion.status) != 0  # chatters beyond the impacts on record, too
    sticks = shut[:, 1:] & shut[:, :-1] & held & ~struck[..., None]
    # A step between two that stick; those at its ends may have slid for a part of their time.
    sticks[:, 1:-1] &= sticks[:, :-2] & sticks[:, 2:]
    sticks[:, [0, -1]] = False
    slid = np.abs(np.diff(np.stack([_corners(s, p)[..., 0] for s, p in zip(sizes, path)]), axis=1))
    creep = np.where(sticks, slid, 0.0).max(axis=(1, 2))
    tally.judge(f"creep {bits}", creep, CREEP[dtype], good, note)
    return tally

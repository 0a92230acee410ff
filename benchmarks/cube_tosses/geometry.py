"""The cube and the board as the tracker sees them: side, height and tilt, fitted to where impacts happen.

At an impact the lowest corner is at the board. Corners of the real cube are rounded, contacts yield, and the
tracker's filter delays: so `side` is that of a cube with the same corners, and `delay` says how much deeper a
faster corner is seen. The gap is that of the library's own contact geometry, and so is its derivative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.cube_tosses.tosses import GRAVITY, INERTIA, MASS, SIDE

CUBE = jc.models.tossed_cube()
CORNERS = np.array([[i, j, k] for k in (-1, 1) for j in (-1, 1) for i in (-1, 1)], float)
SCALE, TAIL = 3e-4, 3.0  # m, and degrees of freedom of Student's t: some impacts are of two corners in turn


class Geometry(NamedTuple):
    """Side (m), height of the board (m), its slopes along x and y, delay (s)."""

    side: float = SIDE
    height: float = -0.0012
    slope_x: float = 0.0
    slope_y: float = 0.0
    delay: float = 0.0


def cube(side: Any, mu: Any = 0.2) -> jc.Params:
    """The numbers of the cube of a side, with the published mass and inertia."""
    return CUBE.params.replace(
        mass=jnp.array([MASS]), inertia=jnp.full((1, 3), INERTIA), mu=jnp.full(8, mu),
        gravity=jnp.array([0.0, 0.0, -GRAVITY]), constants={"size": jnp.full(3, side)},
    )  # fmt: skip


def above_board(q: Any, geometry: Any) -> Any:
    """Poses (n, 7) with z counted from the board below the centre."""
    board = geometry.height + geometry.slope_x * q[:, 0] + geometry.slope_y * q[:, 1]
    return jnp.concatenate([q[:, :2], (q[:, 2] - board)[:, None], q[:, 3:]], axis=1)


@jax.jit
def contact_terms(q: jax.Array, geometry: Geometry) -> jc.ContactTerms:
    """Terms of all eight corners at the poses (n, 7)."""

    def one(q: jax.Array) -> jc.ContactTerms:
        state = jc.State(q=q, v=jnp.zeros(6), t=jnp.zeros(()))
        return jc.contact_terms(CUBE.replace(params=cube(geometry.side)), state)

    return jax.vmap(one)(above_board(q, geometry))


def corner_gaps(q: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Gaps (n, 8) of the corners at the poses (n, 7), m."""
    return corner_heights(q, geometry.side) - (
        geometry.height + geometry.slope_x * q[:, :1] + geometry.slope_y * q[:, 1:2]
    )


def corner_heights(q: np.ndarray, side: float = SIDE) -> np.ndarray:
    """Heights (n, 8) of the corners."""
    return q[:, 2:3] + 0.5 * side * _down(q) @ CORNERS.T


def corner_speeds(q: np.ndarray, v: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Upward velocities (n, 8) of the corners, m/s."""
    rate = np.cross(v[:, None, 3:], 0.5 * geometry.side * CORNERS[None])
    return v[:, 2:3] + np.einsum("nj,nkj->nk", _down(q), rate)


def _down(q: np.ndarray) -> np.ndarray:
    """The world's z in body axes (n, 3)."""
    w, x, y, z = q[:, 3:].T
    return np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1)


def _score(params: dict[str, jax.Array], data: dict[str, jax.Array]) -> jax.Array:
    """Minus the log likelihood of the lowest gaps, up to a constant."""
    geometry = Geometry(**params)
    gaps = contact_terms(data["q"], geometry).phi
    # The derivative of `min` looks for the least number again, and is NaN where XLA rounds it otherwise.
    lowest = jnp.take_along_axis(gaps, jnp.argmin(gaps, axis=1)[:, None], axis=1)[:, 0]
    gap = lowest + geometry.delay * data["speed"]
    return 0.5 * (TAIL + 1.0) * jnp.log1p((gap / SCALE) ** 2 / TAIL)


def fit(q: np.ndarray, speed: np.ndarray, toss: np.ndarray) -> tuple[Geometry, Any]:
    """Geometry from the poses (n, 7) at impacts, the approach speeds (n,) of their lowest corners.

    Returns the geometry and what `jc.optimize.identify` says of it, with intervals by toss.
    """
    start = Geometry(side=0.097, height=0.002, slope_x=1e-3, slope_y=1e-3, delay=1e-3)
    bounds = Geometry((0.08, 0.12), (-0.01, 0.01), (-0.02, 0.02), (-0.02, 0.02), (-5e-3, 5e-3))
    data = {"q": jnp.asarray(q), "speed": jnp.asarray(speed)}
    found, info = jc.optimize.identify(
        _score,
        start._asdict(),
        data,
        bounds=bounds._asdict(),
        groups=toss,
        search=jc.optimize.SearchSettings(max_steps=200),
    )
    return Geometry(**{name: float(value) for name, value in found.items()}), info

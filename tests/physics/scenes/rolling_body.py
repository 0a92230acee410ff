"""A body of revolution that rolls on the floor without slipping, integrated on its own.

About the mass centre, r(n) being the point in contact and n the axis: v = -w x r, so the force is
F = m (a + g z) with a = -w' x r - w x r', and the spin obeys I w' + w x I w = r x F.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

from .scene import G

CLOSE = {"rtol": 1e-9, "atol": 1e-11}  # of all integrations here
UP = np.array([0.0, 0.0, 1.0])


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Return the matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion_rate(q: np.ndarray, spin: np.ndarray) -> np.ndarray:
    """Return dq/dt under a spin (3,) in world axes."""
    (w, axis), s = (q[0], q[1:]), spin
    return 0.5 * np.concatenate([[-s @ axis], w * s + np.cross(s, axis)])


@dataclasses.dataclass(frozen=True)
class RollingBody:
    """A body of revolution about its z axis.

    Attributes:
        mass: kg.
        lateral, axial: moments of inertia about the mass centre, kg m^2.
        touch: n -> r(n), from the mass centre to the contact; of real or complex n.
    """

    mass: float
    lateral: float
    axial: float
    touch: Callable[[np.ndarray], np.ndarray]

    def start(self, tilt: float, spin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return q (7,) and v (6,) of a free joint: the axis leans by `tilt` towards x, spin (3,) in the world."""
        turn = np.array([np.cos(tilt / 2), 0.0, np.sin(tilt / 2), 0.0])
        R = rotation(turn)
        r = self.touch(R[:, 2])
        q = np.concatenate([[0.0, 0.0, -r[2]], turn])
        return q, np.concatenate([-np.cross(spin, r), R.T @ spin])

    def _forces(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return v, w' and the force of the contact."""
        quaternion, w = y[3:7] / np.linalg.norm(y[3:7]), y[7:]
        n = rotation(quaternion)[:, 2]
        r, r_rate = self.touch(n), self.touch(n + 1e-30j * np.cross(w, n)).imag / 1e-30
        inertia = self.lateral * np.eye(3) + (self.axial - self.lateral) * np.outer(n, n)
        other = -np.cross(w, r_rate)
        torque = np.cross(r, self.mass * (other + G * UP)) - np.cross(w, inertia @ w)
        w_rate = np.linalg.solve(inertia + self.mass * (r @ r * np.eye(3) - np.outer(r, r)), torque)
        force = self.mass * (other - np.cross(w_rate, r) + G * UP)
        return -np.cross(w, r), w_rate, force

    def roll(
        self, tilt: float, spin: np.ndarray, duration: float, mu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Integrate; return the position and the axis at the end.

        Raises:
            AssertionError: the contact would slip or lift.
        """

        def rate(t: float, y: np.ndarray) -> np.ndarray:
            v, w_rate, _ = self._forces(y)
            return np.concatenate([v, quaternion_rate(y[3:7], y[7:]), w_rate])

        q, _ = self.start(tilt, spin)
        path = solve_ivp(rate, (0, duration), np.concatenate([q, spin]), method="DOP853", **CLOSE).y
        for y in path.T:
            force = self._forces(y)[2]
            assert force[2] > 0 and np.hypot(*force[:2]) < mu * force[2]
        return path[:3, -1], rotation(path[3:7, -1] / np.linalg.norm(path[3:7, -1]))[:, 2]


def coin(mass: float, radius: float, half_height: float) -> RollingBody:
    """Make a disc that rolls on the edge of its lower face."""

    def touch(n: np.ndarray) -> np.ndarray:
        up_slope = UP - n[2] * n
        return -half_height * n * np.sign(n[2].real) - radius * up_slope / np.sqrt(up_slope @ up_slope)

    lateral = mass * (radius**2 / 4 + half_height**2 / 3)
    return RollingBody(mass, lateral, mass * radius**2 / 2, touch)


def top(mass: float, lateral: float, axial: float, length: float, tip: float) -> RollingBody:
    """Make a top that stands on a ball of radius `tip`, whose centre is `length` below the mass centre."""
    return RollingBody(mass, lateral, axial, lambda n: -length * n - tip * UP)

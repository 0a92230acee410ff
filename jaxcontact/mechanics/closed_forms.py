"""Closed forms of a kind of mechanism, such as trees of joints, in place of derivatives of its poses.

`robot.TREE` is the instance for trees; a `System` without closed forms derives all of it from `poses`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax

from jaxcontact._pytree import PyTree

if TYPE_CHECKING:
    from jaxcontact.mechanics.system import Params, Structure


class FrameMotion(NamedTuple):
    """Positions (nb, dim) and rotations (nb, dim, dim) of body frames in world axes, and their rates."""

    position: jax.Array
    rotation: jax.Array
    velocity: jax.Array
    turning: jax.Array


@dataclasses.dataclass(frozen=True)
class Mechanics:
    """Closed forms for a kind of mechanism, which replace derivatives of its poses; module-level functions.

    Attributes:
        kinematics: (structure, q, params) -> data that the functions below share at one configuration.
        mass_matrix: (structure, kinematics, params) -> (nv, nv).
        bias: (structure, kinematics, v, params) -> Coriolis, gyroscopic and gravity force (nv,).
        momentum_and_pull: (structure, kinematics, v, params, lever) -> M v (nv,) without rotors, and the
            derivative (nv,) of kinetic minus gravity energy along the tangents of q at constant v.
        rotor_momentum: (structure, v, params) -> M v (nv,) of rotors.
        momentum_rate: (structure, kinematics, v) -> derivative (nv, nv) of M v along the tangents of q.
        gravity_energy: (structure, kinematics, params) -> potential energy of gravity, J.
        motion: (structure, kinematics, v) -> `FrameMotion`, and its rate at constant v.
        point_jacobians: (structure, kinematics, bodies, points (nc, dim), axes (nc, k, dim)) -> velocities
            (nc, k, nv) of world points along axes.
        spring_energy: (structure, q, params) -> potential energy of the springs of joints, J.
        drive: (structure, q, v, params, controls (nu,)) -> generalized forces (nv,) of actuators.
        drive_slopes: (structure, q, v, params, controls) -> minus the derivatives (nv, nv) of `drive`.
        yielding: (structure, q, v, params, controls) -> minus the derivatives (nv, nv) by q and by v of the
            part of all springs, dampers and actuators that a step takes implicitly; positive semidefinite.
        num_controls: (structure) -> nu.
        wrenches: (structure, kinematics, params) -> generalized forces (nv,) of `Params.applied`.
        closures: (structure, positions, rotations, params) -> deviations (nb,) of loops between bodies, which
            come before those of `System.constraints`.
        dry_friction: (structure, params) -> sliding Jacobian (nd, nv), and the largest friction (nd,).
    """

    kinematics: Callable[[Structure, jax.Array, Params], PyTree]
    mass_matrix: Callable[..., jax.Array]
    bias: Callable[..., jax.Array]
    momentum_and_pull: Callable[..., tuple[jax.Array, jax.Array]]
    rotor_momentum: Callable[..., jax.Array]
    momentum_rate: Callable[..., jax.Array]
    gravity_energy: Callable[..., jax.Array]
    motion: Callable[..., tuple[FrameMotion, FrameMotion]]
    point_jacobians: Callable[..., jax.Array]
    spring_energy: Callable[..., jax.Array]
    drive: Callable[..., jax.Array]
    drive_slopes: Callable[..., tuple[jax.Array, jax.Array]]
    yielding: Callable[..., tuple[jax.Array, jax.Array]]
    num_controls: Callable[[Structure], int]
    wrenches: Callable[..., jax.Array]
    closures: Callable[..., jax.Array]
    dry_friction: Callable[..., tuple[jax.Array, jax.Array]]

"""Mechanics: a mechanism as data plus pure functions; mass matrix, bias and N(q) follow by autodiff.

A `System` is static (hashable): a `Structure` of bodies, shapes and candidate pairs, a function `poses`
that places the bodies, and optionally `forces` for springs, dampers and torques. All numbers live in
`Params`, all motion in `State`, so M, bias, gaps and Jacobians can be differentiated by any of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.algebra import rotations
from jaxcontact.arguments import check_array, check_count, check_type, is_concrete
from jaxcontact.geometry import Shape, check_pair, check_shape, num_contacts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """What a mechanism is made of, without its numbers; hashable, compared by value.

    Attributes:
        dim: 2 for the plane, 3 for space.
        bodies: names of the bodies.
        num_positions: nq, length of q.
        quaternions: index in q of each quaternion (w, x, y, z); its three velocities are the angular
            velocity in body axes, every other coordinate has its own time derivative as velocity.
        shapes: contact geometry.
        pairs: names (a, b) of the shapes that may touch; b may be a half-space. Points meet what has a
            surface.
        tree: topology of a tree of bodies, a `mechanics.Tree`, for mechanisms that are one; else None.

    Raises:
        ValueError: names that differ where they must agree, or agree where they must differ; shapes that do
            not fit the dimension; a pair that would pass through each other.
    """

    dim: int
    bodies: tuple[str, ...]
    num_positions: int
    quaternions: tuple[int, ...] = ()
    shapes: tuple[Shape, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    tree: Any = None

    def __post_init__(self) -> None:
        if self.dim not in (2, 3):
            raise ValueError(f"dim: expected 2 (plane) or 3 (space), got {self.dim!r}")
        check_count("num_positions", self.num_positions)
        if isinstance(self.bodies, str):
            raise ValueError(f"bodies: expected a tuple of names, got {self.bodies!r}")
        names = [shape.name for shape in self.shapes]
        for kind, values in (("bodies", list(self.bodies)), ("shapes", names)):
            if len(set(values)) != len(values):
                raise ValueError(f"{kind}: names must differ, got {values}")
        for shape in self.shapes:
            body = getattr(shape, "body", None)
            if body is not None and body not in self.bodies:
                raise ValueError(f"shapes: {shape.name!r} is on body {body!r}; bodies are {self.bodies}")
            check_shape(self.dim, shape)
        for pair in self.pairs:
            for name in pair:
                if name not in names:
                    raise ValueError(f"pairs: no shape {name!r}; shapes are {names}")
            check_pair(*(self.shape(name) for name in pair))
        starts = sorted(self.quaternions)
        if any(b - a < 4 for a, b in itertools.pairwise(starts)):
            raise ValueError(f"quaternions: indices {starts} overlap; each takes four numbers of q")
        for start in self.quaternions:
            if not 0 <= start <= self.num_positions - 4:
                raise ValueError(f"quaternions: index {start} leaves no room for four numbers in q")

    def shape(self, name: str) -> Shape:
        """The shape of that name."""
        return next(shape for shape in self.shapes if shape.name == name)

    @property
    def shape_table(self) -> dict[str, Shape]:
        """Shapes by name."""
        return {shape.name: shape for shape in self.shapes}

    @property
    def num_velocities(self) -> int:
        """nv, length of v."""
        return self.num_positions - len(self.quaternions)

    @property
    def num_contacts(self) -> int:
        """nc, number of candidate contacts."""
        return num_contacts(self.dim, self.shape_table, self.pairs)


class Params(Record):
    """The numbers of a mechanism; any leaf may be differentiated by.

    Attributes:
        mass: (nb,) kg.
        inertia: about the centre of mass, kg m^2: (nb,) in the plane, (nb, 3) principal in space; of a tree
            in space (nb, 3, 3) tensors in body axes.
        mu: friction coefficient, a number or (nc,).
        gravity: (dim,) m/s^2.
        constants: named numbers that shapes, poses and forces read: lengths, stiffnesses, ...
        law: how constraints yield, a `compliant.Law`; None where nothing reads it.
        tree: frames, axes, springs, actuators of a tree, a `mechanics.TreeParams`; None for other mechanisms.
    """

    mass: jax.Array
    inertia: jax.Array
    mu: jax.Array
    gravity: jax.Array
    constants: Mapping[str, Any]
    law: Any = None
    tree: Any = None


class State(Record):
    """Configuration q (nq,), velocity v (nv,) and time t (s)."""

    q: jax.Array
    v: jax.Array
    t: jax.Array


# poses(structure, q, params) -> (positions (nb, dim), angles (nb,) or rotation matrices (nb, 3, 3))
Poses = Callable[[Structure, jax.Array, Params], tuple[jax.Array, jax.Array]]
# forces(structure, q, v, params) -> generalized forces (nv,), beside gravity and contact
Forces = Callable[[Structure, jax.Array, jax.Array, Params], jax.Array]
# drive(structure, state, params) -> generalized forces (nv,) that also depend on time
Drive = Callable[[Structure, State, Params], jax.Array]
# constraints(structure, q, params) -> (deviations (nb,) that joints hold at 0, limits (nl,) kept >= 0)
Constraints = Callable[[Structure, jax.Array, Params], tuple[jax.Array, jax.Array]]


class Motion(NamedTuple):
    """Frames (nb, dim), (nb, dim, dim) of bodies in world axes, and the rates of both."""

    position: jax.Array
    rotation: jax.Array
    velocity: jax.Array
    turning: jax.Array


@dataclasses.dataclass(frozen=True)
class Mechanics:
    """Closed forms of a kind of mechanism, in place of derivatives of its poses; module-level functions.

    Attributes:
        mass_matrix: (structure, q, params) -> (nv, nv).
        bias: (structure, q, v, params) -> Coriolis, gyroscopic and gravity force (nv,).
        gravity_energy: (structure, q, params) -> potential energy of gravity, J.
        spring_energy: (structure, q, params) -> potential energy of the springs of joints, J.
        motion: (structure, q, v, params) -> `Motion`, and its rate while v stays as it is.
        point_jacobians: (structure, q, params, bodies, points (nc, dim)) -> (nc, dim, nv) of world points.
        drive: (structure, q, v, params, controls (nu,)) -> generalized forces (nv,) of actuators.
        yielding: (structure, q, v, params, controls) -> minus the derivatives (nv, nv) by q and by v of the
            part of all springs, dampers and actuators that a step takes implicitly; positive semidefinite.
        num_controls: (structure) -> nu.
        closures: (structure, positions, rotations, params) -> deviations (nb,) of loops between bodies, which
            come before those of `System.constraints`.
        dry_friction: (structure, params) -> sliding (nd, nv) by velocities, and the most of friction (nd,).
    """

    mass_matrix: Callable[..., jax.Array]
    bias: Callable[..., jax.Array]
    gravity_energy: Callable[..., jax.Array]
    spring_energy: Callable[..., jax.Array]
    motion: Callable[..., tuple[Motion, Motion]]
    point_jacobians: Callable[..., jax.Array]
    drive: Callable[..., jax.Array]
    yielding: Callable[..., tuple[jax.Array, jax.Array]]
    num_controls: Callable[[Structure], int]
    closures: Callable[..., jax.Array]
    dry_friction: Callable[..., tuple[jax.Array, jax.Array]]


@dataclasses.dataclass(frozen=True)
class System:
    """A mechanism: its structure and pure functions of (structure, q, params).

    Write them as module-level functions: two systems built from the same ones are
    equal and compile once, while a fresh closure would compile again at every call.

    Attributes:
        structure: bodies, shapes and pairs.
        poses: (structure, q, params) -> positions (nb, dim) of the centres of mass (of a tree: of the
            origins of its bodies), and angles (nb,) in the plane or body-to-world rotation matrices
            (nb, 3, 3) in space.
        forces: (structure, q, v, params) -> generalized forces (nv,) of springs, dampers, motors.
        constraints: (structure, q, params) -> deviations (nb,) of joints, zero where they hold, and limits
            (nl,), not negative where they are kept; for compliant methods. `jc.joints` has the usual ones.
        drive: (structure, state, params) -> generalized forces (nv,) that depend on time as well.
        mechanics: closed forms for a mechanism of a known kind; None derives everything from `poses`.
    """

    structure: Structure
    poses: Poses
    forces: Forces | None = None
    constraints: Constraints | None = None
    drive: Drive | None = None
    mechanics: Mechanics | None = None

    @property
    def num_controls(self) -> int:
        """Length of the controls of a step: nu of a mechanism with actuators, else nv."""
        own = 0 if self.mechanics is None else self.mechanics.num_controls(self.structure)
        return own or self.structure.num_velocities

    @property
    def fingerprint(self) -> str:
        """A hash of structure and function names that is the same in every process."""
        names = [f"{f.__module__}.{f.__qualname__}" for f in (self.poses, self.forces) if f is not None]
        later = {"constraints": self.constraints, "drive": self.drive}
        names += [f"{key}={f.__module__}.{f.__qualname__}" for key, f in later.items() if f is not None]
        return hashlib.sha256(repr((self.structure, names)).encode()).hexdigest()[:16]


class Symmetry(Record):
    """A mirror under which a mechanism at one configuration looks the same.

    Attributes:
        velocity: S (nv, nv): v goes to S v.
        contacts: contact i goes to contact contacts[i].
    """

    velocity: jax.Array
    contacts: tuple[int, ...] = static()


class Model(Record):
    """A ready mechanism at the state its example starts from, with the example's settings.

    Attributes:
        system: a mechanism; or an event-selected system, with its own pytree of `params` and the vector
            that it starts from as `state`.
        step: largest normal impulse of one step of the impact law, N s.
        max_steps: largest number of steps of the impact law.
        dt: time step of an example in time, s.
        symmetry: a mirror image that the state and its impact are of themselves, or None.
    """

    system: Any = static()
    params: Any
    state: Any
    step: float | None = static(default=None)
    max_steps: int | None = static(default=None)
    dt: float | None = static(default=None)
    symmetry: Symmetry | None = None

    def body(self, name: str) -> Place:
        """Where a body is: its index, and its own joints in q and v.

        Raises:
            ValueError: no such body.
        """
        structure = self.system.structure
        index = _index_of("body", name, structure.bodies)
        if structure.tree is None:
            return Place(index, slice(0, 0), slice(0, 0))
        return Place(index, *structure.tree.body_slices(index))

    def joint(self, name: str) -> Place:
        """Where a joint of a robot is: its index, and its positions in q and velocities in v.

        Raises:
            ValueError: no such joint.
        """
        tree = self.system.structure.tree
        index = _index_of("joint", name, () if tree is None else tuple(joint.name for joint in tree.joints))
        return Place(index, *tree.joint_slices(index))


@dataclasses.dataclass(frozen=True)
class Place:
    """The index of a body or joint, and where it is in q and v."""

    index: int
    q: slice
    v: slice


def _index_of(kind: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise ValueError(f"{kind}: expected one of {', '.join(names) or 'none'}, got {name!r}")
    return names.index(name)


def check_mechanism(system: System, params: Params, state: State) -> None:
    """Raise TypeError where these are in another order, or a Model stands for one of them."""
    hint = "; expected (system, params, state), which a Model has as .system, .params and .state"
    check_type("system", system, System, hint)
    check_type("params", params, Params, hint)
    check_type("state", state, State, hint)


def velocity_map(system: System, q: jax.Array) -> jax.Array:
    """N(q) (nq, nv) with qdot = N(q) v."""
    structure = system.structure
    blocks, index = [], 0
    while index < structure.num_positions:
        if index in structure.quaternions:
            blocks.append(rotations.quaternion_rate_map(q[index : index + 4]))
            index += 4
        else:
            blocks.append(jnp.ones((1, 1), q.dtype))
            index += 1
    return jax.scipy.linalg.block_diag(*blocks)


def position_rate(system: System, q: jax.Array, v: jax.Array) -> jax.Array:
    """Qdot = N(q) v (nq,), without forming N."""
    return _by_quaternion(
        system.structure, q, v, lambda _, speed: speed, lambda x, w: rotations.quaternion_rate_map(x) @ w
    )


def retract(system: System, q: jax.Array, delta: jax.Array) -> jax.Array:
    """The configuration (nq,) reached from q along the tangent step `delta` = v dt (nv,).

    Quaternions need not be of length one; they are afterwards. One of length zero is no pose: it gives NaN,
    as does one whose squares leave the range of floats, for there is no status to say so.

    Raises:
        TypeError, ValueError: arrays of another shape or dtype; outside of jit, a quaternion of length zero.

    Derivative: exact, any order.
    """
    _check_tangent(system.structure, q, delta)

    def turn(quaternion: jax.Array, angle: jax.Array) -> jax.Array:
        turned = rotations.quaternion_product(quaternion, rotations.quaternion_exp(angle))
        square = jnp.sum(turned**2)
        return turned / jnp.sqrt(jnp.where((square > 0) & jnp.isfinite(square), square, jnp.nan))

    return _by_quaternion(system.structure, q, delta, jnp.add, turn)


def _check_tangent(structure: Structure, q: jax.Array, delta: jax.Array) -> None:
    check_array("q", q, (structure.num_positions,))
    check_array("delta", delta, (structure.num_velocities,))
    for start in structure.quaternions if is_concrete(q) else ():
        if not np.any(np.asarray(q)[start : start + 4]):
            raise ValueError(f"q: expected a quaternion at index {start}, got four zeros")


def _by_quaternion(
    structure: Structure,
    q: jax.Array,
    delta: jax.Array,
    plain: Callable[[jax.Array, jax.Array], jax.Array],
    turn: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """(nq,): `turn`(quaternion (4,), its delta (3,)) for quaternions, `plain`(q, delta) for the rest."""
    starts = sorted(structure.quaternions)
    if not starts:
        return plain(q, delta)
    period = structure.num_positions // len(starts)
    if starts == list(range(starts[0], structure.num_positions, period)) and starts[0] + 4 <= period:
        # Every body alike, one row each: a hundred of them compile like one.
        x, d, i = q.reshape(-1, period), delta.reshape(-1, period - 1), starts[0]
        turned = jax.vmap(turn)(x[:, i : i + 4], d[:, i : i + 3])
        parts = [plain(x[:, :i], d[:, :i]), turned, plain(x[:, i + 4 :], d[:, i + 3 :])]
        return jnp.concatenate(parts, axis=1).ravel()
    pieces, i, j = [], 0, 0
    for k, start in enumerate(starts):  # each quaternion makes delta one shorter than q
        pieces.append(plain(q[i:start], delta[j : start - k]))
        pieces.append(turn(q[start : start + 4], delta[start - k : start - k + 3]))
        i, j = start + 4, start - k + 3
    return jnp.concatenate([*pieces, plain(q[i:], delta[j:])])


def free_poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Poses of bodies that move freely: q is (x, y, theta) or (x, y, z, qw, qx, qy, qz) of each in turn.

    Give it as `poses` of a `System`; the structure then needs the quaternions 3, 10, 17, ...
    """
    if structure.dim == 2:
        bodies = q.reshape(-1, 3)
        return bodies[:, :2], bodies[:, 2]
    bodies = q.reshape(-1, 7)
    return bodies[:, :3], jax.vmap(rotations.quaternion_matrix)(bodies[:, 3:])


def body_frames(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """World positions (nb, dim) and rotation matrices (nb, dim, dim) of the frames of bodies."""
    positions, turned = system.poses(system.structure, q, params)
    return positions, rotations.planar_matrix(turned) if system.structure.dim == 2 else turned


def tangent_jacobian(system: System, function: Callable[[jax.Array], jax.Array], q: jax.Array) -> jax.Array:
    """(df/dq) N(q): the derivative of `function(q)` by tangent directions, last axis (nv,)."""

    def along(v: jax.Array) -> jax.Array:
        return jax.jvp(function, (q,), (position_rate(system, q, v),))[1]

    return jax.vmap(along, out_axes=-1)(jnp.eye(system.structure.num_velocities, dtype=q.dtype))


def _body_jacobians(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Linear (nb, dim, nv) world and angular (nb, 1 or 3, nv) body-axis velocity Jacobians."""
    structure = system.structure
    linear = tangent_jacobian(system, lambda x: system.poses(structure, x, params)[0], q)
    angular = tangent_jacobian(system, lambda x: system.poses(structure, x, params)[1], q)
    if structure.dim == 2:
        return linear, angular[:, None, :]
    rotation = system.poses(structure, q, params)[1]
    skew = jnp.einsum("bji,bjkv->bvik", rotation, angular)
    return linear, jnp.moveaxis(jax.vmap(jax.vmap(rotations.vee))(skew), 1, 2)


def _inertia(system: System, params: Params) -> jax.Array:
    return params.inertia[:, None] if system.structure.dim == 2 else params.inertia


def mass_matrix(system: System, params: Params, q: jax.Array) -> jax.Array:
    """M(q) (nv, nv): sum over bodies of m J_p^T J_p + J_r^T I J_r.

    Derivative: exact, any order, by q and params.
    """
    check_type("system", system, System)
    check_type("params", params, Params)
    if system.mechanics is not None:
        return system.mechanics.mass_matrix(system.structure, q, params)
    if system.poses is free_poses:
        return jnp.diag(free_masses(system, params).ravel())
    linear, angular = _body_jacobians(system, params, q)
    inertia = _inertia(system, params)
    return jnp.einsum("b,bdi,bdj->ij", params.mass, linear, linear) + jnp.einsum(
        "br,bri,brj->ij", inertia, angular, angular
    )


def bias(system: System, params: Params, state: State) -> jax.Array:
    """The force b(q, v) (nv,) in M vdot + b = tau + J^T lam: Coriolis, gyroscopic, gravity, `forces`.

    By Kane's equations: b = sum J_p^T m (Jdot_p v - g) + J_r^T (I Jdot_r v + w x I w) - forces - drive.

    Derivative: exact, any order, by q, v and params.
    """
    check_mechanism(system, params, state)
    q, v = state.q, state.v
    total = _inertial_bias(system, params, q, v)
    if system.forces is not None:
        total = total - system.forces(system.structure, q, v, params)
    if system.drive is not None:
        total = total - system.drive(system.structure, state, params)
    return total


def _inertial_bias(system: System, params: Params, q: jax.Array, v: jax.Array) -> jax.Array:
    """Coriolis, gyroscopic and gravity force (nv,)."""
    if system.mechanics is not None:
        return system.mechanics.bias(system.structure, q, v, params)
    if system.poses is free_poses:
        return _free_bias(system, params, v)
    linear, angular = _body_jacobians(system, params, q)

    def velocities(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        j_p, j_r = _body_jacobians(system, params, x)
        return j_p @ v, j_r @ v

    _, (acceleration, spin_rate) = jax.jvp(velocities, (q,), (velocity_map(system, q) @ v,))
    inertia = _inertia(system, params)
    torque = inertia * spin_rate
    if system.structure.dim == 3:
        spin = angular @ v
        torque = torque + jnp.cross(spin, inertia * spin)
    force = params.mass[:, None] * (acceleration - params.gravity[None, :])
    return jnp.einsum("bd,bdi->i", force, linear) + jnp.einsum("br,bri->i", torque, angular)


def free_masses(system: System, params: Params) -> jax.Array:
    """Mass and inertia (nb, 3 or 6) along each velocity of free bodies."""
    dim = system.structure.dim
    mass = jnp.broadcast_to(params.mass[:, None], (*params.mass.shape, dim))
    return jnp.concatenate([mass, _inertia(system, params)], axis=1)


def free_rates(system: System, orientations: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rates of the positions (nb, dim) and of the rotation matrices (nb, dim, dim) of free bodies.

    R' = R [w]x with w in body axes; without the derivative of the poses, which is dear to derive again.
    """
    dim = system.structure.dim
    bodies = v.reshape(orientations.shape[0], -1)
    spin = bodies[:, None, dim:]
    if dim == 3:
        return bodies[:, :dim], jnp.cross(orientations, spin)
    return bodies[:, :dim], spin * jnp.stack([orientations[:, :, 1], -orientations[:, :, 0]], axis=2)


def _free_bias(system: System, params: Params, v: jax.Array) -> jax.Array:
    """Gravity and w x I w of free bodies (nv,)."""
    dim = system.structure.dim
    force = -params.mass[:, None] * params.gravity[None, :]
    spin = v.reshape(force.shape[0], -1)[:, dim:]
    torque = jnp.cross(spin, params.inertia * spin) if dim == 3 else jnp.zeros_like(spin)
    return jnp.concatenate([force, torque], axis=1).ravel()

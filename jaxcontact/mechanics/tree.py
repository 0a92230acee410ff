"""A tree of bodies as data: its static topology (`Tree`) and its numbers (`TreeParams`, in `Params.tree`).

Bodies, joints, positions and velocities have the order of MuJoCo: a body comes after its parent, the joints
of a body count from its parent outwards. In q a free joint has (x, y, z, qw, qx, qy, qz), a ball a
quaternion, a hinge an angle, a slide a length. Velocities are linear in the world and angular in body axes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_choice
from jaxcontact.front_door import checked

WORLD = -1  # index of the world as a parent or as a partner in a loop
# numbers of each kind of joint in q and in v
POSITIONS = {"free": 7, "ball": 4, "hinge": 1, "slide": 1}
VELOCITIES = {"free": 6, "ball": 3, "hinge": 1, "slide": 1}


@checked(kind=check_choice(*POSITIONS))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Joint:
    """A joint between a body and its parent: `kind` is free, ball, hinge or slide; `limited` has bounds."""

    name: str
    kind: str
    body: int
    limited: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """A constraint that ties two parts of a tree together; its numbers are in `TreeParams`.

    A loop of `kind` connect or weld ties two bodies. A loop of `kind` joint or tendon makes the first joint
    or tendon follow the second. `first` and `second` are indices. `second` = -1 is the world for bodies; a
    joint or tendon then stays at a constant.
    """

    kind: str
    first: int
    second: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tendon:
    """A tendon, whose length is a sum of joint positions, or of the distances of points along its `path`.

    A path lists the bodies of the points, -1 for the world; without one the tendon is fixed. It may be
    `limited` by bounds, `dry` by friction, `heavy` by an inertia that moves with its length.
    """

    name: str
    limited: bool = False
    dry: bool = False
    heavy: bool = False
    path: tuple[int, ...] = ()


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    """The topology of a tree, bodies and the joints to their parents; hashable, compared by value.

    Attributes:
        parents: parent of each body, a smaller index, or -1 for the world.
        joints: in the order of q: those of the first body, from its parent outwards, then those of the next.
        actuators: names of the actuators.
        springs: whether a ball or free joint has a spring; hinges and slides always have one.
        dry: indices of the velocities with dry friction, ascending.
        loops: constraints that close loops or couple joints.
        tendons: fixed tendons, then those with paths.
        rotors: whether an actuator has an inertia of its own.
        lifted: whether the weight of a body is compensated.
        drags: whether a fluid resists the motion of bodies.
        mocap: bodies on the world, ascending, that given poses may move; neither they nor the bodies that
            they carry have joints.
    """

    parents: tuple[int, ...]
    joints: tuple[Joint, ...]
    actuators: tuple[str, ...] = ()
    springs: bool = False
    dry: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()
    tendons: tuple[Tendon, ...] = ()
    rotors: bool = False
    lifted: bool = False
    drags: bool = False
    mocap: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(not WORLD <= parent < body for body, parent in enumerate(self.parents)):
            raise ValueError(f"parents: expected -1 or an earlier body for each, got {self.parents}")
        bodies = [joint.body for joint in self.joints]
        if not bodies:
            raise ValueError("joints: expected at least one; a tree without joints cannot move")
        if bodies != sorted(bodies) or any(not 0 <= body < len(self.parents) for body in bodies):
            raise ValueError(f"joints: expected bodies 0..{len(self.parents) - 1} in order, got {bodies}")
        for joint in self.joints:
            if joint.kind not in POSITIONS:
                raise ValueError(
                    f"joints: {joint.name!r} is {joint.kind!r}; kinds are {', '.join(POSITIONS)}"
                )
            only_joint_on_world = bodies.count(joint.body) == 1 and self.parents[joint.body] == WORLD
            if joint.kind == "free" and not only_joint_on_world:
                raise ValueError(
                    f"joints: {joint.name!r} is free; it must be the only joint of a body on the world"
                )

    @property
    def closes(self) -> bool:
        """Tell whether loops are closed between bodies."""
        return any(loop.kind in ("connect", "weld") for loop in self.loops)

    @property
    def rubs(self) -> bool:
        """Tell whether a joint or a tendon has dry friction."""
        return bool(self.dry) or any(tendon.dry for tendon in self.tendons)

    @property
    def limits_apart(self) -> bool:
        """Tell whether every bound is that of a hinge or slide, which moves one velocity alone."""
        limited = [joint.kind for joint in self.joints if joint.limited]
        return "ball" not in limited and not any(tendon.limited for tendon in self.tendons)

    @property
    def num_positions(self) -> int:
        """nq, length of q."""
        return sum(POSITIONS[joint.kind] for joint in self.joints)

    @property
    def num_velocities(self) -> int:
        """nv, length of v."""
        return sum(VELOCITIES[joint.kind] for joint in self.joints)

    @property
    def quaternions(self) -> tuple[int, ...]:
        """Index in q of each quaternion."""
        starts = zip(self.joints, self.position_starts, strict=True)
        shift = {"free": 3, "ball": 0}
        return tuple(start + shift[joint.kind] for joint, start in starts if joint.kind in shift)

    @property
    def position_starts(self) -> tuple[int, ...]:
        """Index in q of the first number of each joint."""
        return _starts(self.joints, POSITIONS)

    @property
    def velocity_starts(self) -> tuple[int, ...]:
        """Index in v of the first number of each joint."""
        return _starts(self.joints, VELOCITIES)

    def joint_slices(self, joint: int) -> tuple[slice, slice]:
        """Return the slices of a joint in q and v."""
        kind, at_q, at_v = self.joints[joint].kind, self.position_starts[joint], self.velocity_starts[joint]
        return slice(at_q, at_q + POSITIONS[kind]), slice(at_v, at_v + VELOCITIES[kind])

    def body_slices(self, body: int) -> tuple[slice, slice]:
        """Return the slices of the joints of a body in q and v; empty if it has none."""
        slices = [self.joint_slices(j) for j, joint in enumerate(self.joints) if joint.body == body]
        if not slices:
            return slice(0, 0), slice(0, 0)
        (q, v), (last_q, last_v) = slices[0], slices[-1]
        return slice(q.start, last_q.stop), slice(v.start, last_v.stop)


class TreeParams(Record):
    """The numbers of a tree; any leaf may be differentiated by. Masses and inertias are in `Params`.

    Attributes:
        position: (nb, 3) origin of each body in its parent's axes, with its joints at `reference`, m.
        orientation: (nb, 4) quaternion of each body in its parent's axes there, of any length.
        com: (nb, 3) centre of mass in body axes, m.
        anchor: (nj, 3) a point of each joint in body axes, m.
        axis: (nj, 3) axis of hinges and slides in body axes, of any length.
        reference: (nq,) position at which a hinge or slide leaves its body in place, rad or m.
        armature: (nv,) inertia of the rotor of each joint, added to the diagonal of M, kg m^2 or kg.
        damping: (nv,) N m s/rad or N s/m.
        stiffness: (nj,) spring of each joint, N m/rad or N/m.
        rest: (nq,) position at which springs are relaxed, rad or m.
        limits: (nj, 2) bounds of joints that are limited; of a ball the second bounds its angle; rad or m.
        moment: (nu, nv) generalized force of each actuator per unit of its own force: its gears.
        gain: (nu,) force of each actuator per unit of its control.
        bias: (nu, 3) force of each actuator that is constant, per length and per velocity.
        control_range: (nu, 2) bounds of the controls, infinite for controls without bounds.
        force_range: (nu, 2) bounds of the forces of actuators, N or N m.
        joint_force_range: (nv, 2) bounds of the sum of all actuators at a joint.
        dry_friction: (nv,) largest dry friction along each velocity, N m or N.
        loop_anchor: (ne, 2, 3) the points of both bodies that a loop makes coincide, in body axes, m.
        loop_turn: (ne, 4) quaternion of the second body of a weld in the axes of the first.
        loop_polynomial: (ne, 5) coefficients of a loop of joints or tendons, by ascending power: the position
            of the first as a polynomial of that of the second, both counted from the reference.
        tendon_moment: (nt, nv) length of each fixed tendon per position of each joint, else zero.
        tendon_points: (np, 3) points of all paths in the axes of their bodies, m.
        tendon_stiffness, tendon_damping, tendon_dry_friction: (nt,) as of joints, per length.
        tendon_rest: (nt, 2) interval of lengths in which the spring is relaxed.
        tendon_limits: (nt, 2) bounds of lengths that are limited.
        tendon_armature: (nt,) inertia that moves with the length of each tendon, kg m^2 or kg.
        actuator_armature: (nu,) inertia of each actuator before its gears, kg m^2 or kg.
        gravcomp: (nb,) compensated fraction of the weight of each body.
        drag: (nb, 4, 3) resistance of a fluid along the axes of each body: force at the centre of mass per
            velocity and per its square, torque per angular velocity and per its square.
        drag_axes: (nb, 3, 3) these axes in body axes, as columns.
        wind: (3,) velocity of the fluid, m/s.
    """

    position: jax.Array
    orientation: jax.Array
    com: jax.Array
    anchor: jax.Array
    axis: jax.Array
    reference: jax.Array
    armature: jax.Array
    damping: jax.Array
    stiffness: jax.Array
    rest: jax.Array
    limits: jax.Array
    moment: jax.Array
    gain: jax.Array
    bias: jax.Array
    control_range: jax.Array
    force_range: jax.Array
    joint_force_range: jax.Array
    dry_friction: jax.Array
    loop_anchor: jax.Array
    loop_turn: jax.Array
    loop_polynomial: jax.Array
    tendon_moment: jax.Array
    tendon_points: jax.Array
    tendon_stiffness: jax.Array
    tendon_damping: jax.Array
    tendon_dry_friction: jax.Array
    tendon_rest: jax.Array
    tendon_limits: jax.Array
    tendon_armature: jax.Array
    actuator_armature: jax.Array
    gravcomp: jax.Array
    drag: jax.Array
    drag_axes: jax.Array
    wind: jax.Array


class Nodes(NamedTuple):
    """The frames that make up the poses: one after each joint, and one for each body without joints."""

    body: np.ndarray  # (n,)
    joint: np.ndarray  # (n,) -1 if a body has none
    first: np.ndarray  # (n,) bool, the first of its body
    jumps: tuple[np.ndarray, ...]  # for each round of composition the ancestor (n,), n for the world
    of_body: np.ndarray  # (nb,) last node of each body


class Dofs(NamedTuple):
    """Joint, axis and body of each velocity, and constant masks that make sums along the tree products."""

    joint: np.ndarray  # (nv,)
    node: np.ndarray  # (nv,)
    axis: np.ndarray  # (nv,) axis of a ball or free joint, -1 for hinges and slides
    turns: np.ndarray  # (nv,) bool
    in_world: np.ndarray  # (nv,) bool, direction along a world axis
    body: np.ndarray  # (nv,)
    moves: np.ndarray  # (nb, nv) 1 if the velocity moves the body
    before: np.ndarray  # (nv, nv) 1 if the second one moves the frame that the first one's screw is fixed in
    above: np.ndarray  # (nv, nv) 1 if the first one moves the body of the second and comes earlier in v


def _starts(joints: tuple[Joint, ...], counts: dict[str, int]) -> tuple[int, ...]:
    return tuple(itertools.accumulate((counts[joint.kind] for joint in joints), initial=0))[:-1]


def of_kind(tree: Tree, *kinds: str) -> np.ndarray:
    """Return the indices of the joints of the given kinds."""
    return np.array([j for j, joint in enumerate(tree.joints) if joint.kind in kinds], int)


def scalar_places(tree: Tree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the joint, the index in q and the index in v of every hinge and slide."""
    joints = of_kind(tree, "hinge", "slide")
    return joints, np.array(tree.position_starts, int)[joints], np.array(tree.velocity_starts, int)[joints]


@functools.cache
def nodes(tree: Tree) -> Nodes:
    """Enumerate the nodes of a tree, with the ancestors that each round of composition uses.

    Each round doubles the distance to the ancestor, so log2 of the depth suffice.
    """
    body: list[int] = []
    joint: list[int] = []
    first: list[bool] = []
    parent: list[int] = []
    last_node: list[int] = []
    for b, carrier in enumerate(tree.parents):
        joints_of_body = [j for j, other in enumerate(tree.joints) if other.body == b] or [-1]
        for rank, j in enumerate(joints_of_body):
            parent.append(len(body) - 1 if rank else (last_node[carrier] if carrier >= 0 else WORLD))
            body.append(b)
            joint.append(j)
            first.append(rank == 0)
        last_node.append(len(body) - 1)
    world = len(body)
    ancestor = np.array([*(p if p >= 0 else world for p in parent), world])
    jumps = []
    while np.any(ancestor != world):
        jumps.append(ancestor[:-1])
        ancestor = ancestor[ancestor]
    return Nodes(
        np.array(body, int),
        np.array(joint, int),
        np.array(first, bool),
        tuple(jumps),
        np.array(last_node, int),
    )


def lineage(tree: Tree) -> np.ndarray:
    """Return a mask (nb, nb) bool, True if the second body equals the first or carries it."""
    carried = np.zeros((len(tree.parents),) * 2, bool)
    for b, above in enumerate(tree.parents):
        if above >= 0:
            carried[b] = carried[above]
        carried[b, b] = True
    return carried


def roots(tree: Tree) -> np.ndarray:
    """Return the root (nb,) of each body: the body on the world that carries it."""
    return np.array([int(np.argmax(row)) for row in lineage(tree)], int)


@functools.cache
def dofs(tree: Tree) -> Dofs:
    """Tabulate the velocities of a tree: their joints, axes, bodies and masks.

    A free joint counts as three slides along the world's axes and then a ball. The velocities of one ball, or
    of the three slides, do not come `before` each other, because none of them moves the frame of another's
    screw.
    """
    at_node = {int(j): n for n, j in enumerate(nodes(tree).joint)}
    rows: list[tuple[int, int, int, bool, bool, int]] = []  # joint, node, axis, turns, in the world, rank
    for j, joint in enumerate(tree.joints):
        axes = {"free": range(6), "ball": range(3, 6)}.get(joint.kind, range(1))
        for k in axes:
            scalar = len(axes) == 1
            turns = joint.kind == "hinge" if scalar else k >= 3
            in_world = not scalar and k < 3
            rows.append((j, at_node[j], -1 if scalar else k % 3, turns, in_world, 2 * j + turns))
    table = [np.array(column) for column in zip(*rows, strict=True)]
    joint_of, rank = table[0], table[5]
    body = np.array([tree.joints[j].body for j in joint_of])
    moves = lineage(tree)[:, body]
    carries = moves[body]  # [i, j]: velocity j moves the body of velocity i
    number = np.arange(len(rows))
    return Dofs(
        joint=joint_of,
        node=table[1],
        axis=table[2],
        turns=table[3].astype(bool),
        in_world=table[4].astype(bool),
        body=body,
        moves=moves.astype(float),
        before=(carries & (rank[None, :] < rank[:, None])).astype(float),
        above=(carries.T & (number[:, None] < number[None, :])).astype(float),
    )

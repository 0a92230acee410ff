"""A mechanism as data plus pure functions; `motion_equations` derives mass matrix and bias from it.

A `System` is static (hashable): a `Structure` of bodies, shapes and candidate pairs, a function `poses`
that places the bodies, and optionally `forces` for springs, dampers and torques. All numbers live in
`Params`, all motion in `State`, so M, bias, gaps and Jacobians can be differentiated by any of them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from jaxcontact import shape_rules
from jaxcontact._pytree import FixedArrays, PyTree, Record, static
from jaxcontact.algebra import rotations
from jaxcontact.arguments import check_count, check_mapping, check_type
from jaxcontact.front_door import checked
from jaxcontact.geometry import Shape, check_pair, check_shape, num_contacts
from jaxcontact.mechanics.closed_forms import Mechanics
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.numbers import check_leaf, check_mirror, check_part
from jaxcontact.mechanics.tree import Tree, TreeParams

if TYPE_CHECKING:
    from jaxtyping import Float

Absent = Any  # None, or of another kind of mechanism; readers know that theirs has this part


@checked(num_positions=check_count, tree=check_part(Tree))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """Return the bodies, shapes and pairs of a mechanism without its numbers; hashable, compared by value.

    Attributes:
        dim: 2 for the plane, 3 for space.
        bodies: names of the bodies.
        num_positions: nq, length of q.
        quaternions: index in q of each quaternion (w, x, y, z); its three velocities are the angular
            velocity in body axes, every other coordinate has its own time derivative as velocity.
        shapes: contact geometry.
        pairs: names (a, b) of the shapes that may touch; b may be a half-space. A point needs a partner with
            a surface.
        tree: topology of a tree of bodies, a `mechanics.Tree`; None for a mechanism that is no tree.

    Raises:
        ValueError: two bodies or two shapes have one name; a shape or pair names an unknown body or shape; a
            shape does not fit the dimension; the package has no contacts for a pair; quaternions overlap.
    """

    dim: int
    bodies: tuple[str, ...]
    num_positions: int
    quaternions: tuple[int, ...] = ()
    shapes: tuple[Shape, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    tree: Tree | Absent = None

    def __post_init__(self) -> None:
        if self.dim not in (2, 3):
            raise ValueError(f"dim: expected 2 (plane) or 3 (space), got {self.dim!r}")
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

    def _argument_sizes(self, name: str) -> dict[str, int]:
        """Return the sizes of a structure, by the letters that shapes of arguments use."""
        return {
            "nq": self.num_positions,
            "nv": self.num_velocities,
            "nc": self.num_contacts,
            "ns": len(self.shapes),
            "nb": len(self.bodies),
            "dim": self.dim,
        }

    def shape(self, name: str) -> Shape:
        """Return the shape with a name."""
        return next(shape for shape in self.shapes if shape.name == name)

    @property
    def shape_table(self) -> dict[str, Shape]:
        """Shapes by name."""
        return {shape.name: shape for shape in self.shapes}

    @property
    def num_velocities(self) -> int:
        """nv, length of v."""
        return self.num_positions - len(self.quaternions)

    @functools.cached_property
    def num_contacts(self) -> int:
        """nc, number of candidate contacts."""
        return num_contacts(self.dim, self.shape_table, self.pairs)


@checked(
    mass=check_leaf,
    material=check_part(Material),
    tree=check_part(TreeParams),
    inertia=check_leaf,
    mu=check_leaf,
    gravity=check_leaf,
    margin=check_leaf,
    surface_velocity=check_leaf,
    mocap_velocity=check_leaf,
    mocap_path=check_leaf,
    mocap_start=check_leaf,
    constants=check_mapping,
)
class Params(Record):
    """The numbers of a mechanism; any leaf may be differentiated by.

    Attributes:
        mass: (nb,) kg.
        inertia: about the centre of mass, kg m^2: (nb,) in the plane, (nb, 3) principal in space; of a tree
            in space (nb, 3, 3) tensors in body axes.
        mu: friction coefficient, a number or (nc,).
        gravity: (dim,) m/s^2.
        constants: named numbers that shapes, poses and forces read: lengths, stiffnesses, ...
        material: of the compliant constraints, a `Material`; None for methods that need no material.
        tree: frames, axes, springs, actuators of a tree, a `mechanics.TreeParams`; None for other mechanisms.
        margin: (nc,) distance of the two shapes at which a contact has the gap 0, m; None is zero.
        applied: (nb, 6), in the plane (nb, 3): world force at each mass centre, N, and torque, N m.
        spin_friction: (nc, 1) in space, torsional friction over mu, m; (nc, 3) rolling friction, too; None.
        surface_velocity: (ns, 6), in the plane (ns, 3): twist of each shape's surface relative to its body,
            in the axes of the body at its origin, m/s and rad/s; see `move_surfaces`. None is zero.
        mocap_velocity: (2, nm, 6), in the plane (2, nm, 3): twist of each mocap body at its origin in world
            axes, before a step and in it, and (3, nm, ...) with its rate; steps set it from given poses. None
            is zero.
        mocap_path: (6, nm, 6), in the plane (6, nm, 3): coefficients of the powers of t - `mocap_start` of
            the shift and the rotation vector of each mocap body in a step, in the world. None is no motion.
        mocap_start: s, the time at the start of that step.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "mass": "nb", "mu": " | nc", "gravity": "dim", "margin": "nc", "spin_friction": "nc 1 | nc 3",
        "surface_velocity": "ns 6 | ns 3", "mocap_velocity": "2 nm 6 | 2 nm 3 | 3 nm 6 | 3 nm 3",
        "mocap_path": "6 nm 6 | 6 nm 3", "mocap_start": "",
    }  # fmt: skip

    mass: jax.Array
    inertia: jax.Array
    mu: jax.Array
    gravity: jax.Array
    constants: Mapping[str, PyTree]
    material: Material | Absent = None
    tree: TreeParams | Absent = None
    margin: jax.Array | None = None
    applied: jax.Array | None = None
    spin_friction: jax.Array | None = None
    surface_velocity: jax.Array | None = None
    mocap_velocity: jax.Array | None = None
    mocap_path: jax.Array | None = None
    mocap_start: jax.Array | None = None


class State(Record):
    """Configuration q (nq,), velocity v (nv,) and time t (s)."""

    SHAPES: ClassVar[dict[str, str]] = {"q": "nq", "v": "nv", "t": ""}
    ARGUMENT_HINT: ClassVar[str] = "; expected (model, state)"

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


@checked()
@dataclasses.dataclass(frozen=True)
class System:
    """A mechanism: its structure and pure functions of (structure, q, params).

    Write module-level functions: two systems built from the same functions are equal and compile once, but a
    fresh closure compiles again at every call.

    Attributes:
        structure: bodies, shapes and pairs.
        poses: (structure, q, params) -> positions (nb, dim) of the centres of mass (of a tree: of the
            origins of its bodies), and angles (nb,) in the plane or body-to-world rotation matrices
            (nb, 3, 3) in space.
        forces: (structure, q, v, params) -> generalized forces (nv,) of springs, dampers, motors.
            Compliant steps take the springs and dampers of a robot's joints at the end of the step: other
            forces should contain them, or `params.tree` have none.
        constraints: (structure, q, params) -> deviations (nb,) of joints, zero if they hold, and limits
            (nl,), not negative if they are kept; for compliant methods. `jc.joints` has the usual joints.
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
        num_actuators = 0 if self.mechanics is None else self.mechanics.num_controls(self.structure)
        return num_actuators or self.structure.num_velocities

    @property
    def fingerprint(self) -> str:
        """Compute a hash of structure and function names that is the same in every process."""
        names = [f"{f.__module__}.{f.__qualname__}" for f in (self.poses, self.forces) if f is not None]
        later = {"constraints": self.constraints, "drive": self.drive}
        names += [f"{key}={f.__module__}.{f.__qualname__}" for key, f in later.items() if f is not None]
        return hashlib.sha256(repr((self.structure, names)).encode()).hexdigest()[:16]


@checked(velocity=check_mirror)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Symmetry:
    """A mirror symmetry of a mechanism at one configuration; static data.

    Attributes:
        velocity: matrix S (nv, nv) as rows of numbers; the mirror image of v is S v.
        contacts: the mirror image of contact i is contact contacts[i].
    """

    velocity: PyTree
    contacts: tuple[int, ...]

    def __post_init__(self) -> None:
        rows = tuple(tuple(float(x) for x in row) for row in np.asarray(self.velocity))
        object.__setattr__(self, "velocity", rows)


class Model(Record):
    """A mechanism and its numbers: a pytree whose only leaves are `params`.

    `model.replace(params=...)` is the same mechanism with other numbers.

    Attributes:
        system: a mechanism; or an event-selected system, with its own pytree of `params`.
        params: its numbers; any leaf may be differentiated by.
        initial: the state that `initial_state` returns, of an event-selected system a vector.
        impulse_step: largest normal impulse of one step of the impact law, N s.
        max_steps: largest number of steps of the impact law.
        dt: time step of an example in time, s.
        max_contacts: so many contacts a compliant step sees by default, those of least gap; None is all.
        symmetry: mirror symmetry of the state and its impact, or None.
        notes: parts of a robot's file that are ignored, left out or unusual.
    """

    ARGUMENT_HINT: ClassVar[str] = "; make one of a System by Model(system=..., params=...)"

    system: System | Absent = static()
    params: Params | Absent
    initial: FixedArrays | Absent = static(default=None)
    impulse_step: float | None = static(default=None)
    max_steps: int | None = static(default=None)
    dt: float | None = static(default=None)
    max_contacts: int | None = static(default=None)
    symmetry: Symmetry | None = static(default=None)
    notes: tuple[str, ...] = static(default=())

    def __post_init__(self) -> None:
        if self.initial is not None and not isinstance(self.initial, FixedArrays):
            object.__setattr__(self, "initial", FixedArrays(self.initial))

    def _argument_sizes(self, name: str) -> dict[str, int]:
        """Check the parts of a model that is the argument `name`; return its sizes by their letters.

        An event-selected system has no sizes, and params of its own.

        Raises:
            TypeError: the parts are no mechanism and its `Params`.
            ValueError: numbers of another size than the structure has.
        """
        if not isinstance(self.system, System):
            return {}
        structure = self.system.structure
        sizes = structure._argument_sizes(name) | {"nu": self.system.num_controls}
        if self.params is None:  # what depends on coordinates alone
            return sizes
        check_type(f"{name}.params", self.params, Params)
        shape_rules.check_record(f"{name}.params", self.params, "", sizes)
        inertia = "nb" if structure.dim == 2 else "nb 3" if structure.tree is None else "nb 3 3"
        shape_rules.check_shape(f"{name}.params.inertia", self.params.inertia, inertia, sizes)
        return sizes

    def initial_state(self) -> State | Absent:
        """Return the state that the model starts from.

        Raises:
            ValueError: the model was made without one, or inside of `jit`.
        """
        if self.initial is None:
            raise ValueError("initial: the model has no initial state; give Model(..., initial=state)")
        return self.initial.unfreeze()

    @property
    def structure(self) -> Structure:
        """The bodies, shapes and pairs of the mechanism."""
        return self.system.structure

    @property
    def num_controls(self) -> int:
        """Length of the controls of a step: nu of a mechanism with actuators, else nv."""
        return self.system.num_controls

    def body(self, name: str) -> Place:
        """Return the index of a body, and the slices of its own joints in q and v.

        Raises:
            ValueError: no such body.
        """
        structure = self.structure
        index = _index_of("body", name, structure.bodies)
        if structure.tree is None:
            return Place(index, slice(0, 0), slice(0, 0))
        return Place(index, *structure.tree.body_slices(index))

    def joint(self, name: str) -> Place:
        """Return the index of a joint of a robot, and the slices of its numbers in q and v.

        Raises:
            ValueError: no such joint.
        """
        tree = self.structure.tree
        index = _index_of("joint", name, () if tree is None else tuple(joint.name for joint in tree.joints))
        return Place(index, *tree.joint_slices(index))


@dataclasses.dataclass(frozen=True)
class Place:
    """The index of a body or joint, and its slices in q and v."""

    index: int
    q: slice
    v: slice


def _index_of(kind: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise ValueError(f"{kind}: expected one of {', '.join(names) or 'none'}, got {name!r}")
    return names.index(name)


def check_model(model: Model) -> None:
    """Raise TypeError if `model` is no Model of a mechanism with its Params."""
    check_type("model", model, Model, "; make one of a System by Model(system=..., params=...)")
    check_type("model.system", model.system, System)
    check_type("model.params", model.params, Params)


def check_mechanism(model: Model, state: State) -> None:
    """Raise TypeError if the arguments are not a Model of a mechanism and a State, in this order."""
    check_model(model)
    check_type("state", state, State, "; expected (model, state)")


@checked()
def free_poses(
    structure: Structure, q: Float[jax.Array, " nq"], params: Params
) -> tuple[jax.Array, jax.Array]:
    """Compute the poses of free bodies: q is (x, y, theta) or (x, y, z, qw, qx, qy, qz) of each in order.

    Pass it as `poses` of a `System`; in space the structure then needs the quaternions 3, 10, 17, ...
    """
    bodies = q.reshape(-1, 3 if structure.dim == 2 else 7)
    if structure.dim == 2:
        return bodies[:, :2], bodies[:, 2]
    return bodies[:, :3], jax.vmap(rotations.quaternion_matrix)(bodies[:, 3:])

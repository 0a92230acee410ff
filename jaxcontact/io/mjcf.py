"""Robots from MJCF or URDF files: MuJoCo compiles a file, `load_mjcf` makes a tree of bodies from it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_integer
from jaxcontact.front_door import anything, checked
from jaxcontact.io.mjcf_hulls import FEWEST_CORNERS
from jaxcontact.io.mjcf_loops import stiffen_loops
from jaxcontact.io.mjcf_shapes import (
    ACROSS,
    ZERO_COMPONENT,
    FileFrames,
    Geometry,
    geometry_of,
    suggested_contacts,
)
from jaxcontact.io.mjcf_softness import scaled_springs
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.io.mjcf_support import (
    bad_numbers,
    default_law,
    ignored,
    refused,
    unusual,
)
from jaxcontact.io.mjcf_tree import body_names, inertia_tensors, tree_numbers, tree_of
from jaxcontact.io.mujoco_package import is_disabled, mujoco_package
from jaxcontact.mechanics.material import Material, friction_damping_of
from jaxcontact.mechanics.robot import tree_system
from jaxcontact.mechanics.system import Model, Params, State, Structure
from jaxcontact.mechanics.tree import Tree

if TYPE_CHECKING:
    import mujoco


class IgnoredOptionWarning(UserWarning):
    """One warning for a file about ignored settings, elements left out, and an unusual start or shape."""


@checked(keyframe=anything, contacts=anything, floating=anything, floor=anything)
@jax.ensure_compile_time_eval()  # numbers of a file are numbers inside of jit, too
def load_mjcf(
    source: Any,  # a path, XML text, or an object of MuJoCo, which is optional
    *,
    keyframe: str | int | None = None,
    planar: bool = False,
    contacts: str | Sequence[tuple[str, str]] = "all",
    unsupported: str = "error",
    floating: bool | None = None,
    floor: float | None = None,
    max_hull_vertices: int | None = None,
) -> Model:
    """Make a `Model` of a robot: mechanics of its tree, actuators, joint limits, contacts between its geoms.

    MuJoCo reads the file; positions, velocities and controls have the order of MuJoCo. `model.body(name)` and
    `model.joint(name)` return the indices of a body or joint in q and v. `model.params` holds all numbers,
    and each is differentiable: masses, inertia tensors (nb, 3, 3) in body axes, friction of every candidate
    contact, and in `params.tree` frames, axes, springs, limits, actuators. Limits and contacts
    are as soft as in the file (solref, solimp); loops and couplings are stiffer. `model.notes` lists the
    parts of the file that are ignored or left out.

    Args:
        source: path of an MJCF or URDF file, XML text, a mujoco.MjSpec or a mujoco.MjModel. Meshes
            "package://name/rest" are looked for in a folder `name` above the file or beside one above it.
            Visual meshes may be missing.
        keyframe: name or number of the keyframe that gives the state; None is the reference, at rest.
        planar: make a planar mechanism of a robot that moves in x and z only. q and v stay the same, and x-z
            becomes x-y; a contact in the plane has fewer rows.
        contacts: "all" pairs that the file lets touch; "world", those with the floor and geoms fixed to the
            world; or pairs of names of geoms or bodies, such as [("left_foot", "floor")].
        unsupported: "error" refuses a file with an element that moves or touches and that the package lacks;
            "skip" leaves this out. An actuator left out keeps its control, without effect; one with a filter
            acts at once.
        floating: True puts a free joint under the base of every robot that stands on the world without one,
            False takes it away; None leaves the base as it is in the file. The root of a URDF is fixed.
        floor: height in m of a plane to add, with MuJoCo's default friction.
        max_hull_vertices: largest number of corners of the hull of a mesh, at least 4. `model.notes` has the
            displacement of the surface.

    Raises:
        ImportError: the package mujoco is not installed.
        FileNotFoundError: no such file.
        TypeError: an argument of another type.
        ValueError: MuJoCo cannot read the source; a number is NaN, infinite, or negative but must not be;
            the robot has an element or a pair of shapes that the package lacks (the message names it); no
            such keyframe; with `planar`, a part that moves out of the plane.

    Warns:
        IgnoredOptionWarning: lists the lines of `model.notes`, once.
    """
    _check_options(unsupported, max_hull_vertices)
    mj, changes = compile_source(source, floating, floor)
    _check_file(mj)
    tree = tree_of(mj)
    frames = _reference_frames(mj, planar)
    params = _bodies_params(mj, tree, frames)
    geometry = geometry_of(mj, frames, contacts, max_hull_vertices)
    left_out = [*refused(mj), *geometry.left_out]
    if left_out and unsupported == "error":
        raise ValueError(_refusal(left_out, bool(geometry.left_out)))
    structure, params = _add_contacts(mj, tree, params, geometry, planar)
    state = _read_state(mj, keyframe)
    _check_numbers(params, state)
    springs = scaled_springs(mj, tree, geometry.counted, default_law(mj))
    material = Material(stiffness=springs, friction_damping=friction_damping_of(np.sum(mj.body_mass)))
    params = params.replace(material=material)
    notes = _Notes(
        ignored=ignored(mj, planar),
        left_out=[*changes, *left_out],
        unusual=[*geometry.notes, *unusual(mj, np.asarray(state.q), has_keyframe=keyframe is not None)],
    )
    if notes.lines:
        warnings.warn(f"load_mjcf {notes.sentence}", IgnoredOptionWarning, stacklevel=2)
    model = Model(
        system=tree_system(structure), params=params, initial=state, dt=float(mj.opt.timestep),
        max_contacts=suggested_contacts(structure), notes=notes.lines,
    )  # fmt: skip
    return stiffen_loops(model) if tree.loops else model


def _check_options(unsupported: str, max_hull_vertices: int | None) -> None:
    """Raise ValueError if an option of `load_mjcf` is out of range."""
    if unsupported not in ("error", "skip"):
        raise ValueError(f"unsupported: expected 'error' or 'skip', got {unsupported!r}")
    if max_hull_vertices is not None:
        check_integer("max_hull_vertices", max_hull_vertices, FEWEST_CORNERS)


def _bodies_params(mj: mujoco.MjModel, tree: Tree, frames: FileFrames) -> Params:
    """Collect the numbers of bodies and joints."""
    # `device_put`, for `asarray` would compile a program for each shape of these numbers.
    params = Params(
        mass=jax.device_put(np.array(mj.body_mass[1:])),
        inertia=jax.device_put(inertia_tensors(mj)),
        mu=jax.device_put(np.zeros(0)),
        gravity=jax.device_put(_gravity(mj)),
        constants={},
        tree=tree_numbers(mj),
    )
    return _in_plane(tree, params, frames.turns[1:]) if frames.planar else params


def _add_contacts(
    mj: mujoco.MjModel, tree: Tree, params: Params, geometry: Geometry, planar: bool
) -> tuple[Structure, Params]:
    """Make the structure with its shapes and pairs, and add their numbers to those of the bodies."""
    structure = Structure(
        dim=2 if planar else 3,
        bodies=body_names(mj),
        num_positions=tree.num_positions,
        quaternions=tree.quaternions,
        shapes=geometry.shapes,
        pairs=geometry.pairs,
        tree=tree,
    )
    margin = None if geometry.margin is None else jax.device_put(geometry.margin)
    mu = jax.device_put(geometry.mu)
    spins = None if geometry.spins is None else jax.device_put(geometry.spins)
    surfaces = None if geometry.surfaces is None else jax.device_put(geometry.surfaces)
    params = params.replace(mu=mu, margin=margin, spin_friction=spins, surface_velocity=surfaces)
    return structure, params.replace(constants=geometry.constants)


class _Notes(NamedTuple):
    """Parts of a file that are ignored, left out or unusual."""

    ignored: list[str]
    left_out: list[str]
    unusual: list[str]

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines of `Model.notes`."""
        lines = [f"ignored: {text}" for text in self.ignored]
        return (*lines, *(f"left out: {text}" for text in self.left_out), *self.unusual)

    @property
    def sentence(self) -> str:
        """Return the text after the name `load_mjcf` in a warning."""
        verbs = {"ignores": self.ignored, "leaves out": self.left_out, "notes": self.unusual}
        return ". It ".join(f"{verb} {'; '.join(texts)}" for verb, texts in verbs.items() if texts)


def _check_file(mj: mujoco.MjModel) -> None:
    """Raise ValueError if nothing moves, or a number is infinite or negative but must not be."""
    bad = bad_numbers(mj)
    if bad:
        raise ValueError(f"source: {'; '.join(bad)}")
    if not mj.njnt:
        raise ValueError("source: no joints: nothing moves; floating=True lets the body on the world move")


def _refusal(left_out: list[str], contacts_too: bool) -> str:
    """Return a message that names the unsupported elements, and the options that leave them out."""
    options = ["unsupported='skip'", *(["contacts='world'", "contacts=[pairs]"] if contacts_too else [])]
    return f"source: not supported: {'; '.join(left_out)}; {' or '.join(options)} leaves this out"


def _check_numbers(params: Params, state: State) -> None:
    """Raise ValueError if numbers are NaN, and name them; MuJoCo only warns of them, if at all."""
    numbers = jax.tree_util.tree_leaves_with_path({"params": params, "state": state})
    bad = [jax.tree_util.keystr(path) for path, leaf in numbers if np.any(np.isnan(leaf))]
    if bad:
        raise ValueError(f"source: numbers of the file are NaN, in {', '.join(bad)}")


def _reference_frames(mj: mujoco.MjModel, planar: bool) -> FileFrames:
    """Compute the frames of the world and all bodies at the reference."""
    mujoco = mujoco_package("load_mjcf")
    data = mujoco.MjData(mj)
    data.qpos[:] = mj.qpos0
    mujoco.mj_kinematics(mj, data)
    return FileFrames(np.array(data.xmat).reshape(-1, 3, 3), np.array(data.xpos), planar)


def _gravity(mj: mujoco.MjModel) -> np.ndarray:
    return np.zeros(3) if is_disabled(mj, "gravity") else np.array(mj.opt.gravity)


def _read_state(mj: mujoco.MjModel, keyframe: str | int | None) -> State:
    if keyframe is None:
        q, v, t = mj.qpos0, np.zeros(mj.nv), 0.0
    else:
        names = [mj.key(k).name for k in range(mj.nkey)]
        number = isinstance(keyframe, int | np.integer) and not isinstance(keyframe, bool)
        if keyframe not in (range(mj.nkey) if number else [name for name in names if name]):
            choices = f"one of {names} or its number" if names else "None, for the file has no keyframes"
            raise ValueError(f"keyframe: expected {choices}, got {keyframe!r}")
        k = names.index(keyframe) if isinstance(keyframe, str) else keyframe
        q, v, t = mj.key_qpos[k], mj.key_qvel[k], float(mj.key_time[k])
    return State(q=jax.device_put(np.array(q)), v=jax.device_put(np.array(v)), t=jax.device_put(np.array(t)))


def _in_plane(tree: PyTree, params: Params, turns: np.ndarray) -> Params:
    """Return the numbers of the planar robot, with body axes parallel to the world's at the reference."""
    numbers = params.tree
    owners = [joint.body for joint in tree.joints]
    axis = np.einsum("jab,jb->ja", turns[owners], numbers.axis)
    for joint, direction in zip(tree.joints, axis, strict=True):
        out_of_plane = (
            np.linalg.norm(np.cross(direction, ACROSS)) if joint.kind == "hinge" else direction @ ACROSS
        )
        if joint.kind in ("free", "ball") or abs(out_of_plane) > ZERO_COMPONENT:
            raise ValueError(f"planar: joint {joint.name!r} ({joint.kind}) leaves the x-z plane")
    if abs(params.gravity[1]) > 0.0:
        raise ValueError(f"planar: gravity leaves the x-z plane, got {np.asarray(params.gravity)}")
    if tree.drags and abs(numbers.wind[1]) > 0.0:
        raise ValueError(f"planar: the wind leaves the x-z plane, got {np.asarray(numbers.wind)}")
    if any(loop.kind == "weld" for loop in tree.loops):
        raise ValueError("planar: a weld (equality) is not supported in the plane; load the robot in space")
    parent_turns = np.array([turns[parent] if parent >= 0 else np.eye(3) for parent in tree.parents])

    def in_new_axes(rotations: np.ndarray, x: PyTree) -> PyTree:
        return jax.device_put(np.einsum("nab,nb->na", rotations, x))

    tensors = np.einsum("nab,nbc,ndc->nad", turns, params.inertia, turns)
    return dataclasses.replace(
        params,
        inertia=jax.device_put(tensors[:, 1, 1]),
        gravity=params.gravity[::2],
        tree=numbers.replace(
            position=in_new_axes(parent_turns, numbers.position),
            orientation=jax.device_put(np.tile([1.0, 0.0, 0.0, 0.0], (len(turns), 1))),
            com=in_new_axes(turns, numbers.com),
            drag_axes=jax.device_put(turns @ np.asarray(numbers.drag_axes)),
            anchor=in_new_axes(turns[owners], numbers.anchor),
            tendon_points=in_new_axes(_tendon_turns(tree, turns), numbers.tendon_points),
            loop_anchor=_anchors_in_plane(tree, numbers, turns),
            axis=jax.device_put(np.where(np.abs(axis) < ZERO_COMPONENT, 0.0, axis)),
        ),
    )


def _tendon_turns(tree: Tree, turns: np.ndarray) -> np.ndarray:
    """Return the turn (np, 3, 3) of the body of each point of a tendon's path."""
    bodies = np.array([body for tendon in tree.tendons for body in tendon.path], int)
    return np.concatenate([turns, np.eye(3)[None]])[bodies]


def _anchors_in_plane(tree: PyTree, numbers: PyTree, turns: np.ndarray) -> PyTree:
    """Return the points that loops make coincide, in the body axes of the planar robot."""
    anchors = np.array(numbers.loop_anchor)
    for k, loop in enumerate(tree.loops):
        for side, body in enumerate((loop.first, loop.second)):
            if loop.kind == "connect" and body >= 0:
                anchors[k, side] = turns[body] @ anchors[k, side]
    return jax.device_put(anchors)

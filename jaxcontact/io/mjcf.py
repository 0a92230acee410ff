"""Robots from MJCF or URDF files: MuJoCo compiles a file, `load_mjcf` makes a tree of bodies of it."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxcontact.io.mjcf_shapes import ACROSS, EXACT, geometry_of
from jaxcontact.io.mjcf_support import default_law, ignored, refused
from jaxcontact.io.mjcf_tree import body_names, inertia_tensors, transmission, tree_numbers, tree_of
from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.robot import tree_system
from jaxcontact.mechanics.system import Model, Params, State, Structure


class IgnoredOptionWarning(UserWarning):
    """Warns of settings in a file that are ignored; they do not change which motions are possible."""


def load_mjcf(source: Any, *, keyframe: str | int | None = None, planar: bool = False) -> Model:
    """A robot as a `Model`: mechanics of its tree, actuators, joint limits, contacts between its geoms.

    MuJoCo reads the file; positions, velocities and controls have the order of MuJoCo. `model.body(name)` and
    `model.joint(name)` tell the indices of a body or joint in q and v. `model.params` holds all numbers, and
    each is differentiable: masses, inertia tensors (nb, 3, 3) in body axes, friction of every candidate
    contact, and in `params.tree` frames, axes, springs, limits, actuators. The default material is so stiff
    that one contact carries the weight of the robot at a depth of 1 mm.

    Args:
        source: path of an MJCF or URDF file, XML text, a mujoco.MjSpec or a mujoco.MjModel. Meshes
            "package://name/rest" of a .urdf file or a MjSpec are looked for in a folder `name` above the file
            or beside one above it. The root of a URDF is fixed, unless a joint is `floating`.
        keyframe: name or number of the keyframe that gives the state; None is the reference, at rest.
        planar: make a planar mechanism of a robot that moves in x and z only. q and v stay the same, and x-z
            becomes x-y; a contact in the plane has fewer rows.

    Raises:
        ImportError: the package mujoco is not installed.
        FileNotFoundError: no such file.
        ValueError: MuJoCo cannot read the source; a number is NaN; the robot has an element that the
            mechanics lacks (the message names it), or a pair of shapes without contacts here; no such
            keyframe; with `planar`, a part that moves out of the plane.

    Warns:
        IgnoredOptionWarning: lists, once, the ignored settings of MuJoCo's own contacts and solver.
    """
    mj = compiled(source)
    lacking = refused(mj)
    if lacking:
        raise ValueError(f"source: not supported: {'; '.join(lacking)}")
    left_out = ignored(mj)
    if left_out:
        warnings.warn(f"load_mjcf ignores {'; '.join(left_out)}", IgnoredOptionWarning, stacklevel=2)
    tree = tree_of(mj)
    reference = _reference_frames(mj)
    turns = reference[0] if planar else np.broadcast_to(np.eye(3), reference[0].shape)
    # `device_put`, for `asarray` would compile a program for each shape of these numbers.
    params = Params(
        mass=jax.device_put(np.array(mj.body_mass[1:])),
        inertia=jax.device_put(inertia_tensors(mj)),
        mu=jax.device_put(np.zeros(0)),
        gravity=jax.device_put(np.array(_gravity(mj))),
        constants={},
        law=_law(mj),
        tree=tree_numbers(mj, transmission(mj)),
    )
    if planar:
        params = _in_plane(tree, params, turns[1:])
    geometry = geometry_of(mj, turns, reference[1], planar)
    structure = Structure(
        dim=2 if planar else 3,
        bodies=body_names(mj),
        num_positions=tree.num_positions,
        quaternions=tree.quaternions,
        shapes=geometry.shapes,
        pairs=geometry.pairs,
        tree=tree,
    )
    params = params.replace(mu=jax.device_put(geometry.mu), constants=geometry.constants)
    state = _state(mj, keyframe)
    _check_numbers(params, state)
    return Model(system=tree_system(structure), params=params, initial=state, dt=float(mj.opt.timestep))


def _check_numbers(params: Params, state: State) -> None:
    """Raise ValueError that names the numbers that are NaN, of which MuJoCo warns at most."""
    numbers = jax.tree_util.tree_leaves_with_path({"params": params, "state": state})
    bad = [jax.tree_util.keystr(path) for path, leaf in numbers if np.any(np.isnan(leaf))]
    if bad:
        raise ValueError(f"source: numbers of the file are NaN, in {', '.join(bad)}")


def compiled(source: Any) -> Any:
    """The mujoco.MjModel of a source, with errors as in `load_mjcf`."""
    mujoco = mujoco_package("load_mjcf")
    if isinstance(source, mujoco.MjModel):
        return source
    if isinstance(source, mujoco.MjSpec):
        return _read("the MjSpec", lambda: _compiled_spec(source))
    if not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise TypeError(f"source: expected a path, XML text, a MjSpec or a MjModel, got {kind}")
    text = os.fspath(source)
    if text.lstrip().startswith("<"):
        return _read("the text", lambda: mujoco.MjModel.from_xml_string(text))
    if not os.path.isfile(text):
        raise FileNotFoundError(f"source: no file {text!r}")
    if Path(text).suffix == ".urdf":
        return _read(repr(text), lambda: _compiled_spec(mujoco.MjSpec.from_file(text)))
    return _read(repr(text), lambda: mujoco.MjModel.from_xml_path(text))


def _read(origin: str, compile_source: Callable[[], Any]) -> Any:
    try:
        return compile_source()
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"source: MuJoCo cannot read {origin}: {reason}") from None


def _compiled_spec(spec: Any) -> Any:
    for mesh in spec.meshes:
        mesh.file = _in_its_package(mesh.file, Path(spec.modelfiledir))
    return spec.compile()


def _in_its_package(file: str, start: Path) -> str:
    """The path of "package://name/rest", as in URDF files, in a folder `name` above `start` or beside one.

    Any other name, and one that is not found, stays as it is.
    """
    package = re.fullmatch(r"package:/+([^/]+)/(.+)", file)
    if package is None:
        return file
    name, rest = package.groups()
    for folder in (start.resolve(), *start.resolve().parents):
        for root in (folder, folder / name) if folder.name == name else (folder / name,):
            if (root / rest).is_file():
                return str(root / rest)
    return file


def _reference_frames(mj: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (nbody, 3, 3) and positions (nbody, 3) of the world and all bodies at the reference."""
    mujoco = mujoco_package("load_mjcf")
    data = mujoco.MjData(mj)
    data.qpos[:] = mj.qpos0
    mujoco.mj_kinematics(mj, data)
    return np.array(data.xmat).reshape(-1, 3, 3), np.array(data.xpos)


def _gravity(mj: Any) -> np.ndarray:
    disabled = mj.opt.disableflags & int(mujoco_package("load_mjcf").mjtDisableBit.mjDSBL_GRAVITY)
    return np.zeros(3) if disabled else np.array(mj.opt.gravity)


def _law(mj: Any) -> Material:
    stiffness, damping = default_law(mj)
    return Material(stiffness=jax.device_put(np.array(stiffness)), damping=jax.device_put(np.array(damping)))


def _state(mj: Any, keyframe: str | int | None) -> State:
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


def _in_plane(tree: Any, params: Params, turns: np.ndarray) -> Params:
    """The numbers of the robot in the plane; at the reference its body axes are parallel to the world's."""
    numbers = params.tree
    owners = [joint.body for joint in tree.joints]
    axis = np.einsum("jab,jb->ja", turns[owners], numbers.axis)
    for joint, direction in zip(tree.joints, axis, strict=True):
        out_of_plane = (
            np.linalg.norm(np.cross(direction, ACROSS)) if joint.kind == "hinge" else direction @ ACROSS
        )
        if joint.kind in ("free", "ball") or abs(out_of_plane) > EXACT:
            raise ValueError(f"planar: joint {joint.name!r} ({joint.kind}) leaves the x-z plane")
    if abs(params.gravity[1]) > 0.0:
        raise ValueError(f"planar: gravity leaves the x-z plane, got {np.asarray(params.gravity)}")
    if any(loop.kind == "weld" for loop in tree.loops):
        raise ValueError("planar: a weld (equality) is not supported in the plane; load the robot in space")
    parent_turns = np.array([turns[parent] if parent >= 0 else np.eye(3) for parent in tree.parents])

    def in_new_axes(rotations: np.ndarray, x: Any) -> Any:
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
            anchor=in_new_axes(turns[owners], numbers.anchor),
            loop_anchor=_anchors_in_plane(tree, numbers, turns),
            axis=jax.device_put(np.where(np.abs(axis) < EXACT, 0.0, axis)),
        ),
    )


def _anchors_in_plane(tree: Any, numbers: Any, turns: np.ndarray) -> Any:
    """The points that loops make coincide, in the body axes of the planar robot."""
    anchors = np.array(numbers.loop_anchor)
    for k, loop in enumerate(tree.loops):
        for side, body in enumerate((loop.first, loop.second)):
            if loop.kind == "connect" and body >= 0:
                anchors[k, side] = turns[body] @ anchors[k, side]
    return jax.device_put(anchors)

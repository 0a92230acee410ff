"""Sources of robots: `compile_source` turns a file, XML text, MjSpec or MjModel into a mujoco.MjModel."""

from __future__ import annotations

import math
import os
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jaxcontact._pytree import PyTree
from jaxcontact.io.mujoco_package import mujoco_package

if TYPE_CHECKING:
    import mujoco

MOST_COPIES = 10_000  # elements that a file repeats; MuJoCo needs minutes for more, and the square of them


class Compiled(NamedTuple):
    """A mujoco.MjModel, and notes on parts that were changed or left out to make it."""

    mj: mujoco.MjModel
    notes: tuple[str, ...] = ()


def compile_source(source: object, floating: bool | None = None, floor: float | None = None) -> Compiled:
    """Compile a source, with the arguments and errors of `load_mjcf`."""
    mujoco = mujoco_package("load_mjcf")
    if isinstance(source, mujoco.MjModel):
        for name, value in (("floating", floating), ("floor", floor)):
            if value is not None:
                raise ValueError(
                    f"{name}: a compiled MjModel cannot be changed; give its file, its text or a MjSpec"
                )
        return Compiled(source)
    spec, origin = _parse(source)
    notes = []
    if floating is not None and _set_floating(spec, floating):
        notes += ["keyframes, for a base that `floating` changed has another number of coordinates"]
    if floor is not None:
        _add_floor(spec, floor)
    try:
        return Compiled(_compile(spec.copy()), tuple(notes))
    except ValueError as error:
        without, names = _copy_without_visuals(spec)
        if not names:
            raise _make_read_error(origin, error) from None
        try:
            mj = _compile(without)
        except ValueError:
            raise _make_read_error(origin, error) from None
        return Compiled(mj, (*notes, f"what is only seen ({len(names)} geoms), for {_one_line(error)}"))


def _parse(source: object) -> tuple[mujoco.MjSpec, str]:
    """Parse a source; return a new MjSpec, and the name of the source for messages."""
    mujoco = mujoco_package("load_mjcf")
    if isinstance(source, mujoco.MjSpec):
        return source.copy(), "the MjSpec"
    if not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise TypeError(f"source: expected a path, XML text, a MjSpec or a MjModel, got {kind}")
    text = os.fspath(source)
    is_text = text.lstrip().startswith("<")
    if not is_text and not os.path.isfile(text):
        raise FileNotFoundError(f"source: no file {text!r}")
    origin = "the text" if is_text else repr(text)
    if not _is_unicode(text):
        raise ValueError(f"source: expected a name or text in Unicode, got {text[:200]!a}")
    if Path(text).suffix.lower() == ".sdf" if not is_text else re.search(r"<sdf[\s>]", text):
        raise ValueError(f"source: {origin} is an SDF, which MuJoCo cannot read; expected MJCF or URDF")
    _check_copies(text if is_text else Path(text).read_text(errors="replace"))
    parse = mujoco.MjSpec.from_string if is_text else mujoco.MjSpec.from_file
    try:
        spec = _rewrite_warnings(lambda: parse(text))
    except ValueError as error:
        raise _make_read_error(origin, error) from None
    start = Path(spec.modelfiledir) if not is_text else Path.cwd()
    for mesh in spec.meshes:
        mesh.file = _resolve_package(mesh.file, start)
    return spec, origin


def _check_copies(text: str) -> None:
    """Raise ValueError if <replicate> and its like ask for more copies than can be read in minutes."""

    def copies(element: ElementTree.Element) -> int:
        counts = [int(number) for number in re.findall(r"\d+", element.get("count", ""))]
        repeats = element.tag in ("replicate", "composite", "flexcomp")
        return (math.prod(counts) if repeats else 1) * max(1, sum(map(copies, element)))

    try:
        number = copies(ElementTree.fromstring(text))
    except (ElementTree.ParseError, RecursionError):  # which MuJoCo explains
        return
    if number > MOST_COPIES:
        raise ValueError(f"source: expected at most {MOST_COPIES} elements and copies of them, got {number}")


def _is_unicode(text: str) -> bool:
    """Tell whether a text has an encoding; a file name of other bytes, or under the locale C, has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _compile(spec: mujoco.MjSpec) -> mujoco.MjModel:
    return _rewrite_warnings(spec.compile)


def _rewrite_warnings(call: Callable[[], PyTree]) -> PyTree:
    """Call MuJoCo and return its result; its warnings become warnings of `load_mjcf` in one line each.

    Those that MuJoCo only prints, and writes into a file in the working folder, are among them.
    """
    mujoco = mujoco_package("load_mjcf")
    printed: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(printed.append)
    try:
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            result = call()
    finally:
        mujoco.set_mju_user_warning(before)
    said: list[tuple[str, type[Warning]]] = [(str(message.message), message.category) for message in messages]
    said += [(text, UserWarning) for text in printed]
    for text, category in said:
        warnings.warn(f"load_mjcf: MuJoCo warns: {' '.join(text.split())}", category, stacklevel=5)
    return result


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _make_read_error(origin: str, error: Exception) -> ValueError:
    """Make the error of a source that MuJoCo cannot read."""
    return ValueError(f"source: MuJoCo cannot read {origin}: {_one_line(error)}")


def _resolve_package(file: str, start: Path) -> str:
    """Return the path of a URDF's "package://name/rest" in a folder `name` above `start` or beside one.

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


def _set_floating(spec: mujoco.MjSpec, floating: bool) -> bool:
    """Free the bases of robots, or fix them to the world; return whether this drops keyframes.

    A base is a body on the world, with joints on it or on bodies that it carries. If there are no joints at
    all, every body on the world is a base.

    Raises:
        TypeError: `floating` is no bool.
        ValueError: a base that should float has joints of its own.
    """
    mujoco = mujoco_package("load_mjcf")
    if not isinstance(floating, bool):
        raise TypeError(f"floating: expected True, False or None, got {floating!r}")
    free = mujoco.mjtJoint.mjJNT_FREE
    on_world = list(spec.worldbody.bodies)
    bases = [body for body in on_world if _carries_joints(body)] or on_world
    changed = False
    for base in bases:
        joints = list(base.joints)
        if floating and not joints:
            base.add_freejoint()
            changed = True
        elif floating and any(joint.type != free for joint in joints):
            raise ValueError(f"floating: {base.name!r} is on joint {joints[0].name!r}; expected a fixed base")
        elif not floating and joints and joints[0].type == free:
            spec.delete(joints[0])
            changed = True
    keys = list(spec.keys) if changed else []
    for key in keys:
        spec.delete(key)
    return bool(keys)


def _carries_joints(body: mujoco.MjsBody) -> bool:
    """Test whether a body, or one that it carries, has joints."""
    return bool(list(body.joints)) or any(_carries_joints(child) for child in body.bodies)


def _add_floor(spec: mujoco.MjSpec, height: float) -> None:
    """Add a plane at a height, m, across z."""
    mujoco = mujoco_package("load_mjcf")
    if isinstance(height, bool) or not isinstance(height, int | float) or not abs(height) < float("inf"):
        raise TypeError(f"floor: expected a height in m or None, got {height!r}")
    names = {geom.name for geom in spec.geoms}
    name = next(name for name in ("floor", "floor_", "floor__") if name not in names)
    spec.worldbody.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0], pos=[0.0, 0.0, float(height)]
    )


def _copy_without_visuals(spec: mujoco.MjSpec) -> tuple[mujoco.MjSpec, list[str]]:
    """Copy a spec without its purely visual elements; return the copy and the names of the geoms left out.

    A mesh that touches nothing is left out if its body has an inertia of its own, or the geom has no mass.
    """
    mujoco = mujoco_package("load_mjcf")
    spec = spec.copy()
    in_pairs = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2) if name}
    from_geoms = spec.compiler.inertiafromgeom == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    seen = [
        geom
        for geom in spec.geoms
        if not geom.contype
        and not geom.conaffinity
        and geom.name not in in_pairs
        and geom.type == mujoco.mjtGeom.mjGEOM_MESH
        and ((geom.parent.explicitinertial and not from_geoms) or geom.mass == 0.0 or geom.density == 0.0)
    ]
    names = [geom.name or geom.meshname for geom in seen]
    for geom in seen:
        spec.delete(geom)
    meshes = {geom.meshname for geom in spec.geoms}
    for element in [*spec.geoms, *spec.sites, *spec.tendons]:
        element.material = ""
    unused = [mesh for mesh in spec.meshes if mesh.name not in meshes]
    for element in [*unused, *spec.sensors, *spec.textures, *spec.materials, *spec.skins]:
        spec.delete(element)
    return spec, names

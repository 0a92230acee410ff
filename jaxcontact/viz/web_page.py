"""A film as one page for a browser: numbers rounded to 16 bits, in the text of `templates/viewer.html`.

Owns the encoding that the page reads; the entry is `web_page`. Planar parts become upright slabs, seen from
the front.
"""

from __future__ import annotations

import base64
import html
import itertools
import json
from importlib import resources

import numpy as np

from jaxcontact.viz.film import Film
from jaxcontact.viz.palette import ARROW, BODIES, GROUND, PUSH
from jaxcontact.viz.scene import Frames, Part
from jaxcontact.viz.solids import CREASE, Mesh, Plane, Solid, mesh_of, outline

SLAB = 0.06  # thickness of planar parts, relative to the size of the mechanism
FRONT, CORNER = (-90.0, 4.0), (-55.0, 16.0)  # azimuth and elevation at the start, degrees
DATA = '"$DATA"'  # placeholder of the data in the template


def web_page(film: Film, *, title: str, slower: float) -> str:
    """Write the text of the page."""
    template = (resources.files("jaxcontact.viz") / "templates" / "viewer.html").read_text("utf-8")
    data = json.dumps(_collect_data(film, slower), separators=(",", ":"))
    return template.replace("$TITLE", html.escape(title)).replace(DATA, data)


def _collect_data(film: Film, slower: float) -> dict[str, object]:
    scene = film.scene
    low, high = _upright(film.low), _upright(film.high)
    reach = max(float(np.max(np.abs(film.impulse), initial=0.0)), 1e-300)
    span = np.stack([low - 0.1 * film.size, high + 0.1 * film.size])
    # Places of bodies and contacts are within twice the box of all that moves.
    origin, step = span[0] - (span[1] - span[0]), 3.0 * (span[1] - span[0]).max() / 65535.0
    return {
        "t": np.round(film.t - film.t[0], 6).tolist(),
        "slower": slower,
        "size": film.size,
        "low": low.tolist(),
        "high": high.tolist(),
        "eye": FRONT if scene.dim == 2 else CORNER,
        "flat": scene.dim == 2,
        "origin": origin.tolist(),
        "step": step,
        "bodies": len(scene.bodies),
        "parts": [surface for k, part in enumerate(scene.parts) for surface in _surfaces(film, part, k)]
        + ([_ground(film, plane) for plane in scene.planes] if scene.dim == 2 else []),
        "planes": [
            {"normal": normal.tolist(), "offset": offset} for normal, offset in scene.planes if scene.dim == 3
        ],
        "ground": GROUND,
        "push": PUSH,
        "poses": _poses(film.frames, origin, step),
        "contacts": scene.num_contacts,
        "touching": _base64(film.touching.astype(np.uint8)),
        "places": _base64(_rounded(_upright(film.frames.contacts), origin, step)),
        "impulse": _base64(np.round(_upright(film.impulse) / reach * 32767.0).astype("<i2")),
        "reach": reach,
        "full": film.full,
        "arrow": ARROW * film.size,
        **_collect_ghosts(film, origin, step),
    }


def _collect_ghosts(film: Film, origin: np.ndarray, step: float) -> dict[str, object]:
    if film.ghosts is None or not film.ghosts.groups:
        failed = 0 if film.ghosts is None else film.ghosts.num_failed
        return {"ghosts": "", "groups": [], "shares": False, "failed": failed}
    groups = [
        {"label": group.label, "colour": group.colour, "worlds": group.worlds.tolist()}
        for group in film.ghosts.groups
    ]
    poses = _poses(film.ghosts.frames, origin, step)
    failed = film.ghosts.num_failed
    return {"ghosts": poses, "groups": groups, "shares": film.ghosts.has_shares, "failed": failed}


def _upright(vectors: np.ndarray) -> np.ndarray:
    """Convert vectors to space (..., 3); those of the plane stand upright, (x, y) as (x, 0, y)."""
    if vectors.shape[-1] == 3:
        return np.asarray(vectors, float)
    return np.stack([vectors[..., 0], np.zeros(vectors.shape[:-1]), vectors[..., 1]], axis=-1)


def _poses(frames: Frames, origin: np.ndarray, step: float) -> str:
    """Encode places (..., nb, 3) and quaternions x, y, z, w (..., nb, 4) of bodies, in 14 bytes each."""
    places = _rounded(_upright(frames.positions), origin, step).view("<i2")
    turns = np.round(_to_quaternions(frames.rotations) * 32767.0).astype("<i2")
    return _base64(np.concatenate([places, turns], axis=-1))


def _to_quaternions(turns: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    if turns.shape[-1] == 3:
        return Rotation.from_matrix(turns.reshape(-1, 3, 3)).as_quat().reshape(*turns.shape[:-2], 4)
    half = 0.5 * np.arctan2(turns[..., 1, 0], turns[..., 0, 0])  # about -y, from x to z
    zero = np.zeros_like(half)
    return np.stack([zero, -np.sin(half), zero, np.cos(half)], axis=-1)


def _rounded(points: np.ndarray, origin: np.ndarray, step: float) -> np.ndarray:
    """Round to multiples of `step` from the origin; points beyond, such as a far contact, go to the edge."""
    return np.clip(np.round((points - origin) / step), 0, 65535).astype("<u2")


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _surfaces(film: Film, part: Part, index: int) -> list[dict[str, object]]:
    """Make the triangles of a part; none of a point."""
    solid = part.solid if film.scene.dim == 3 else _slab(film, part, index)
    mesh = None if solid is None else mesh_of(solid)
    if mesh is None:
        return []
    about = {"ball": len(part.solid.points) == 1, "centre": _upright(part.solid.points.mean(axis=0)).tolist()}
    return [{"body": part.body, "colour": BODIES[part.body % len(BODIES)], **about, **_encode_mesh(mesh)}]


def _ground(film: Film, plane: Plane) -> dict[str, object]:
    """Make a half-plane an upright slab below its edge, wide enough that bodies stand on its middle."""
    along, middle = np.array([plane.normal[1], -plane.normal[0]]), (film.low + film.high) / 2.0
    foot = middle + (plane.offset - plane.normal @ middle) * plane.normal
    reach = 4.0 * film.size + float(np.max(film.high - film.low))
    ends = np.stack([foot - reach * along, foot + reach * along])
    corners = _upright(np.concatenate([ends, ends - 0.1 * film.size * plane.normal]))
    side = np.array([0.0, 0.25 * film.size, 0.0])
    mesh = mesh_of(Solid(np.concatenate([corners - side, corners + side]), 0.0))
    assert mesh is not None  # a box
    return {"body": -1, "colour": GROUND, "ball": False, "centre": [0.0, 0.0, 0.0], **_encode_mesh(mesh)}


def _encode_mesh(mesh: Mesh) -> dict[str, str]:
    triangles, normals = _triangles(mesh)
    return {
        "corners": _base64(triangles.astype("<f4")),
        "normals": _base64(np.round(normals * 127.0).astype("i1")),
    }


def _slab(film: Film, part: Part, index: int) -> Solid | None:
    """Make a planar solid an upright slab, slightly before the slab of the previous one; None for a point."""
    points, radius, thickness = part.solid.points, part.solid.radius, SLAB * film.size
    if len(points) == 1 and radius == 0.0:
        return None
    edge = _upright(outline(points, radius))
    depth = thickness * (0.0 if part.is_link else -0.15) - 0.02 * thickness * index
    sides = [edge + np.array([0.0, depth + side * thickness / 2.0, 0.0]) for side in (-1.0, 1.0)]
    return Solid(np.concatenate(sides), 0.0)


def _triangles(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """List corners (k, 3, 3) of triangles and the normals there, smooth across edges that are no creases."""
    around: dict[int, list[int]] = {}
    for k, face in enumerate(mesh.faces):
        for corner in face:
            around.setdefault(int(corner), []).append(k)
    corners, normals = [], []
    for k, face in enumerate(mesh.faces):
        face_normal = mesh.normals[k]
        smooth = {}
        for corner in face:
            near = mesh.normals[around[int(corner)]]
            total = near[near @ face_normal > CREASE].sum(axis=0)
            smooth[int(corner)] = total / np.linalg.norm(total)
        for a, b in itertools.pairwise(face[1:]):
            corners.append(mesh.corners[[face[0], a, b]])
            normals.append([smooth[int(c)] for c in (face[0], a, b)])
    return np.array(corners), np.array(normals)

"""Gaps between shapes against brute force over directions, MuJoCo and Coal."""

import numpy as np
import pytest
from oracles import shape_cases as cases

from jaxcontact import geometry

SPATIAL = (
    *((kind, "plane") for kind in ("sphere", "capsule", "box", "cylinder", "ellipsoid", "mesh")),
    ("sphere", "sphere"), ("sphere", "capsule"), ("sphere", "box"), ("box", "sphere"), ("point", "box"),
    ("capsule", "capsule"), ("capsule", "box"), ("box", "capsule"), ("box", "box"),
    ("sphere", "cylinder"), ("ellipsoid", "sphere"), ("sphere", "mesh"),
    ("capsule", "cylinder"), ("cylinder", "capsule"), ("capsule", "ellipsoid"), ("mesh", "capsule"),
)  # fmt: skip
PLANAR = (
    ("capsule", "plane"), ("polygon", "plane"), ("box", "plane"),
    ("disc", "capsule"), ("disc", "polygon"), ("box", "disc"), ("point", "polygon"),
    ("capsule", "capsule"), ("capsule", "polygon"), ("polygon", "box"), ("polygon", "polygon"),
)  # fmt: skip
# Gaps of balls are those of the shape even where it is deep; two polytopes that overlap have the depth among
# their contacts; a capsule whose axis enters a smooth body has the depth of balls about the axis.
EXACT_WHEN_DEEP = {"point", "sphere", "disc", "plane"}
SLOW = {
    ("box", "capsule"),
    ("cylinder", "capsule"),
    ("box", "sphere"),
    ("capsule", "polygon"),
    ("box", "disc"),
}
ALL = [
    pytest.param(dim, a, b, id=f"{dim}d-{a}-{b}", marks=[pytest.mark.slow] if (a, b) in SLOW else [])
    for dim, pairs in ((2, PLANAR), (3, SPATIAL))
    for a, b in pairs
]


@pytest.mark.long
@pytest.mark.slow_cases("3d-capsule-ellipsoid")
@pytest.mark.parametrize(("dim", "kind_a", "kind_b"), ALL)
def test_gaps_against_brute_force(dim, kind_a, kind_b):
    a, b = cases.make(kind_a, dim, "a"), cases.make(kind_b, dim, "b")
    count = 12
    reach = (0.3, 2.0)  # some deep, some far
    positions, turns, constants = cases.samples(dim, a, b, count, 7, reach)
    point, point_b, phi, normal = cases.contacts(dim, a.shape, b.shape, positions, turns, constants)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=-1), 1.0, rtol=1e-12)
    for k in range(count):
        numbers = {key: value[k] for key, value in constants.items()}
        searched = cases.signed_distance(a, b, numbers, positions[k], turns[k])
        if searched > 0.0 or {kind_a, kind_b} & EXACT_WHEN_DEEP:
            nearest = np.argmin(phi[k])
        elif {kind_a, kind_b} <= {"capsule", "box", "polygon"}:
            nearest = np.argmin(np.abs(phi[k] - searched))
        else:
            continue
        # A lower bound, the separation along the normal, meets the gap; no other direction separates more.
        along = cases.separation(a, b, numbers, positions[k], turns[k], normal[k, nearest][None])[0]
        if kind_b != "plane":
            assert abs(along - phi[k, nearest]) < 1e-9, (k, searched)
        assert -1e-9 < phi[k, nearest] - searched < 1e-3, (k, searched)
        real = np.abs(np.einsum("cd,cd->c", point[k] - point_b[k], normal[k]) - phi[k]) < 1e-12
        assert real[nearest]  # the points of a contact are its gap apart
        np.testing.assert_allclose(
            (point[k] - point_b[k])[real], (phi[k][:, None] * normal[k])[real], atol=1e-12
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind_a", "kind_b"), [("sphere", "box"), ("capsule", "capsule"), ("capsule", "sphere")]
)
def test_gaps_against_mujoco(kind_a, kind_b):
    mujoco = pytest.importorskip("mujoco")
    a, b = (cases.make(kind, 3, name, posed=False) for kind, name in ((kind_a, "a"), (kind_b, "b")))
    positions, turns, constants = cases.samples(3, a, b, 20, 3, (0.6, 2.0))
    for name in ("a", "b"):
        constants.pop(f"{name}_at", None)
    a, b = (
        case._replace(shape=type(case.shape)(**{**vars(case.shape), "at": None}))
        if hasattr(case.shape, "at")
        else case
        for case in (a, b)
    )
    _, _, phi, _ = cases.contacts(3, a.shape, b.shape, positions, turns, constants)
    for k in range(20):
        numbers = {key: value[k] for key, value in constants.items()}
        geoms = "".join(
            f'<body pos="{text(position)}" quat="{text(quaternion(turn))}"><freejoint/>{geom(case.shape, numbers)}</body>'
            for case, position, turn in zip((a, b), positions[k], turns[k], strict=True)
        )
        model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        expected = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None)
        assert abs(phi[k].min() - expected) < 1e-8


def text(numbers):
    return " ".join(f"{x:.17g}" for x in np.ravel(numbers))


def quaternion(turn):
    import mujoco

    found = np.zeros(4)
    mujoco.mju_mat2Quat(found, turn.ravel())
    return found


def geom(shape, numbers):
    get = lambda what: numbers[getattr(shape, what)]  # noqa: E731
    if isinstance(shape, geometry.Sphere):
        return f'<geom type="sphere" size="{get("radius")}"/>'
    if isinstance(shape, geometry.Capsule):
        return f'<geom type="capsule" size="{get("radius"):.17g}" fromto="{text(get("ends"))}"/>'
    return f'<geom type="box" size="{text(get("size") / 2)}"/>'


@pytest.mark.slow
@pytest.mark.parametrize(("kind_a", "kind_b"), [pair for pair in SPATIAL if "point" not in pair])
def test_gaps_against_coal(kind_a, kind_b):
    """Coal's GJK is good to 1e-9 but on some poses of curved shapes; there a bound decides."""
    coal = pytest.importorskip("coal", reason="needs coal: pip install -e '.[bench]'")
    a, b = cases.make(kind_a, 3, "a"), cases.make(kind_b, 3, "b")
    count = 10_000
    positions, turns, constants = cases.samples(3, a, b, count, 11, (1.0, 4.0))
    _, _, phi, normal = cases.contacts(3, a.shape, b.shape, positions, turns, constants)
    request = coal.DistanceRequest()
    request.gjk_tolerance, request.gjk_max_iterations = 1e-13, 1000
    apart = 0
    for k in range(count):
        numbers = {key: value[k] for key, value in constants.items()}
        solids = [
            coal_solid(coal, case.shape, numbers, position, turn)
            for case, position, turn in zip((a, b), positions[k], turns[k], strict=True)
        ]
        expected = coal.distance(*solids[0], *solids[1], request, coal.DistanceResult())
        if expected < 1e-3:
            continue
        apart += 1
        if abs(phi[k].min() - expected) > 1e-9:
            assert {kind_a, kind_b} & {"cylinder", "ellipsoid"}, (k, expected, phi[k].min())
            along = normal[k, np.argmin(phi[k])][None]
            assert (
                abs(phi[k].min() - cases.separation(a, b, numbers, positions[k], turns[k], along)[0]) < 1e-9
            )
    assert apart > count // 4


def coal_solid(coal, shape, numbers, position, turn):
    """Coal's geometry and transform of a shape."""
    get = lambda what: numbers[getattr(shape, what)]  # noqa: E731

    def place(axes, origin):
        return coal.Transform3s(np.asarray(axes, float), np.asarray(origin, float))

    if isinstance(shape, geometry.HalfSpace):
        return coal.Halfspace(np.array(shape.normal), float(get("offset"))), place(np.eye(3), np.zeros(3))
    if isinstance(shape, geometry.Sphere):
        return coal.Sphere(float(get("radius"))), place(turn, position + turn @ get("at"))
    if isinstance(shape, geometry.Capsule):
        ends = get("ends")
        length = np.linalg.norm(ends[1] - ends[0])
        z = (ends[1] - ends[0]) / length
        x = np.cross(z, np.eye(3)[np.argmin(np.abs(z))])
        x /= np.linalg.norm(x)
        axes = np.stack([x, np.cross(z, x), z], axis=1)
        return coal.Capsule(float(get("radius")), length), place(
            turn @ axes, position + turn @ ends.mean(axis=0)
        )
    if isinstance(shape, geometry.ConvexMesh):
        points, faces = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        for vertex in get("vertices"):
            points.append(vertex)
        for face in shape.faces:
            faces.append(coal.Triangle(*face))
        return coal.Convex(points, faces), place(turn, position)
    at = place(turn @ cases.quaternion_matrix(get("rotation")), position + turn @ get("at"))
    if isinstance(shape, geometry.Box):
        return coal.Box(*get("size")), at
    if isinstance(shape, geometry.Ellipsoid):
        return coal.Ellipsoid(*get("semi_axes")), at
    return coal.Cylinder(float(get("radius")), 2.0 * float(get("half_length"))), at

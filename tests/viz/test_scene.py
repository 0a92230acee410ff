"""What there is to draw: where bodies, links and contacts are, against closed forms and the kinematics."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull

import jaxcontact as jc
from jaxcontact.viz.scene import extent, scene_frames, scene_of
from jaxcontact.viz.solids import Solid, mesh_of, outline, solids_of


def test_frames_are_those_of_the_kinematics_at_every_time():
    model = jc.models.tossed_cube()
    q = np.stack([model.initial_state().q, model.initial_state().q + 0.1])
    frames = scene_frames(model, q)
    for k in range(2):
        places, turns = jc.forward_kinematics(model, jnp.asarray(q[k]))
        np.testing.assert_allclose(frames.positions[k], places, atol=1e-14)
        np.testing.assert_allclose(frames.rotations[k], turns, atol=1e-14)
    assert frames.contacts.shape == (2, 8, 3) and frames.axes.shape == (2, 8, 3, 3)
    np.testing.assert_allclose(
        frames.axes @ np.swapaxes(frames.axes, -1, -2), np.tile(np.eye(3), (2, 8, 1, 1)), atol=1e-12
    )
    np.testing.assert_array_equal(scene_frames(model, q[None]).positions[0], frames.positions)


def test_a_quadruped_has_a_trunk_and_legs_from_hip_to_foot():
    pytest.importorskip("mujoco")
    model = jc.models.quadruped()
    scene = scene_of(model)
    links = {scene.bodies[part.body]: part.solid for part in scene.parts if part.is_link}
    assert set(links) == set(scene.bodies)
    # The trunk spans the four hips of the file; a calf goes from the knee to the ball of the foot.
    hips = [[x, y, 0.0] for x in (-0.19, 0.19) for y in (-0.05, 0.05)]
    np.testing.assert_allclose(np.array(sorted(links["trunk"].points.tolist())), hips, atol=1e-9)
    np.testing.assert_allclose(links["FL_calf"].points, [[0, 0, 0], [0, 0, -0.21]], atol=1e-9)
    np.testing.assert_allclose(links["RR_hip"].points, [[0, 0, 0], [0, -0.08, 0]], atol=1e-9)
    assert links["trunk"].radius > 1.5 * links["FL_calf"].radius
    assert len(scene.joints) == 12 and not any(joint.on_world for joint in scene.joints)
    low, high = extent(scene, scene_frames(model, model.initial_state().q))
    assert low[2] == pytest.approx(0.0, abs=1e-6)  # it stands
    assert high[0] - low[0] > 0.4


POLE = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.5">
      <joint type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1"/>
      <body pos="0.3 0 0" euler="0 90 0">
        <joint name="pivot" axis="0 1 0" pos="0 0 0.1"/>
        <inertial pos="0 0 0.4" mass="1" diaginertia="1 1 1"/>
        <body pos="0 0 0.8"><joint type="ball"/><geom type="box" size="0.1 0.1 0.1" contype="0" conaffinity="0"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.long
def test_links_join_the_places_of_joints_in_turned_frames():
    """Every place of a link in the world is where a joint is: asked of MuJoCo."""
    mujoco = pytest.importorskip("mujoco")
    model = jc.load_mjcf(POLE)
    frames = scene_frames(model, model.initial_state().q)
    scene = scene_of(model)
    (link,) = [
        part for part in scene.parts if part.is_link
    ]  # the cart is a ball, the last body has one place
    assert scene.bodies[link.body] == "body_2"
    mj = mujoco.MjModel.from_xml_string(POLE)
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    np.testing.assert_allclose(frames.placed(link.body, link.solid.points), data.xanchor[1:3], atol=1e-12)
    np.testing.assert_allclose(frames.centres, data.xipos[1:], atol=1e-12)


def test_a_mechanism_without_a_tree_is_drawn_by_its_shapes():
    model = jc.models.compass_gait()
    scene = scene_of(model)
    frame = scene_frames(model, model.initial_state().q)
    assert not any(part.is_link for part in scene.parts) and scene.joints == ()
    legs = [part for part in scene.parts if len(part.solid.points) == 2]
    ends = [frame.placed(part.body, part.solid.points) for part in legs]
    np.testing.assert_allclose(
        [leg[1] for leg in ends], [model.initial_state().q[:2]] * 2, atol=1e-12
    )  # both at the hip


VOLUMES = {
    "box": (jc.Box(name="s", body="b", size="size", at="at", rotation="turn"), {"size": [1.0, 2.0, 3.0]}, 6.0),
    "cylinder": (
        jc.Cylinder(name="s", body="b", radius="r", half_length="l", at="at", rotation="turn"),
        {"r": 0.5, "l": 2.0}, np.pi,
    ),
    "ellipsoid": (
        jc.Ellipsoid(name="s", body="b", semi_axes="semi", at="at", rotation="turn"),
        {"semi": [1.0, 2.0, 0.5]}, 4.0 / 3.0 * np.pi,
    ),
    "sphere": (jc.Sphere(name="s", body="b", radius="r", at="at"), {"r": 2.0}, 32.0 / 3.0 * np.pi),
    "capsule": (
        jc.Capsule(name="s", body="b", radius="r", ends="ends"),
        {"r": 1.0, "ends": [[0.0, 0.0, 1.0], [0.0, 3.0, 1.0]]}, (4.0 / 3.0 + 3.0) * np.pi,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", VOLUMES)
def test_surfaces_enclose_the_volume_of_the_shape_and_look_outward(kind):
    shape, numbers, volume = VOLUMES[kind]
    numbers = {**numbers, "at": [0.3, 0.2, 0.1], "turn": [np.cos(0.4), 0.0, np.sin(0.4), 0.0]}
    (solid,) = solids_of(shape, 3, {name: jnp.asarray(value) for name, value in numbers.items()})
    mesh = mesh_of(solid, 32)
    found = 0.0
    for face, normal in zip(mesh.faces, mesh.normals, strict=True):
        a, rest = mesh.corners[face[0]], mesh.corners[face[1:]]
        for b, c in itertools.pairwise(rest):
            assert np.cross(b - a, c - a) @ normal > 0.0  # counter-clockwise from outside
            found += a @ np.cross(b, c) / 6.0
    assert 0.94 * volume < found < volume * (1.0 + 1e-9)


def test_a_box_is_six_faces_and_its_picture_from_the_side_four_corners():
    box = Solid(np.array([[x, y, z] for x in (0, 1) for y in (0, 2) for z in (0, 3)], float), 0.0)
    mesh = mesh_of(box)
    assert sorted(len(face) for face in mesh.faces) == [4] * 6
    assert len(outline(box.points[:, 1:])) == 4
    assert len(outline(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))) == 2  # edge-on


def test_points_have_no_surface_and_what_is_inside_is_known():
    point = Solid(np.zeros((1, 3)), 0.0)
    assert mesh_of(point) is None
    capsule = Solid(np.array([[0.0, 0.0], [4.0, 0.0]]), 1.0)
    assert capsule.contains(np.array([2.0, 0.99]))
    assert not capsule.contains(np.array([2.0, 1.01]))
    assert not capsule.contains(np.array([5.1, 0.0]))


def test_a_shape_of_ones_own_registers_its_picture():
    class Star:
        body, name = "b", "star"

    with pytest.raises(
        TypeError, match=r"a Star has no picture; register one by solids_of\.register\(Star\)"
    ):
        solids_of(Star(), 3, {})
    solids_of.register(Star, lambda shape, dim, constants: [Solid(np.eye(dim), 0.1)])
    (solid,) = solids_of(Star(), 3, {})
    assert solid.radius == 0.1


def test_a_robot_in_other_units_has_the_same_links():
    """A micrometre where it was a metre: pictures are the same but for that."""
    pytest.importorskip("mujoco")
    model = jc.models.quadruped()
    tree = model.params.tree
    lengths = {name: 1e-6 * getattr(tree, name) for name in ("position", "com", "anchor")}
    sizes = {name: 1e-6 * value for name, value in model.params.constants.items()}
    small = model.params.replace(tree=tree.replace(**lengths), constants=sizes)
    links = [part for part in scene_of(model).parts if part.is_link]
    tiny = [part for part in scene_of(model.replace(params=small)).parts if part.is_link]
    for a, b in zip(links, tiny, strict=True):
        np.testing.assert_allclose(b.solid.points, 1e-6 * a.solid.points, rtol=1e-9, atol=1e-18)
        assert b.solid.radius == pytest.approx(1e-6 * a.solid.radius)


def test_single_precision_draws_the_same():
    model = jc.models.rocking_block()
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), model.params)
    for a, b in zip(scene_of(model).parts, scene_of(model.replace(params=single)).parts, strict=True):
        np.testing.assert_allclose(a.solid.points, b.solid.points, rtol=1e-6)


def test_the_outline_has_the_corners_of_the_hull_counter_clockwise():
    rng = np.random.default_rng(0)
    for draw in range(60):
        points = rng.normal(size=(rng.integers(3, 40), 2))
        if draw % 3 == 0:  # with points in line, and some twice
            points = np.concatenate([np.round(points), np.round(points)])
        if np.linalg.matrix_rank(points - points[0]) < 2:
            continue
        found, hull = outline(1e-3 * points), ConvexHull(points)
        np.testing.assert_allclose(found, 1e-3 * np.unique(points[hull.vertices], axis=0)[_order(found)])
        ahead = np.roll(found, -1, axis=0) - found
        assert np.all(ahead[:, 0] * np.roll(ahead[:, 1], -1) > ahead[:, 1] * np.roll(ahead[:, 0], -1))


def _order(points):
    """The places that points have in lexicographic order."""
    return np.argsort(np.lexsort(points.T[::-1]))

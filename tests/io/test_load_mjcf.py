"""Robots from files: names, states, pairs, and what is refused by its name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_parts import FLOOR, robot

import jaxcontact as jc
from jaxcontact.geometry import num_contacts
from jaxcontact.io.mjcf import IgnoredOptionWarning
from jaxcontact.io.mjcf_pairs import candidate_pairs
from jaxcontact.models.robots import file_of
from jaxcontact.terms import contact_gaps

mujoco = pytest.importorskip("mujoco")


def test_names_keyframes_and_numbers():
    model = jc.models.quadruped()
    structure = model.structure
    assert structure.bodies[:2] == ("trunk", "FR_hip")
    trunk, calf = model.body("trunk"), model.joint("FL_calf")
    assert (trunk.index, trunk.q, trunk.v) == (0, slice(0, 7), slice(0, 6))
    assert (calf.index, calf.q, calf.v) == (6, slice(12, 13), slice(11, 12))
    np.testing.assert_allclose(model.initial_state().q[calf.q], -1.8)
    assert model.num_controls == 12
    assert model.dt == 0.004
    np.testing.assert_allclose(jnp.sum(model.params.mass), 12.2)
    for wrong, message in (
        (model.body, "body: expected one of trunk, FR_hip"),
        (model.joint, "joint: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong("tail")
    with pytest.raises(ValueError, match="joint: expected one of none, got 'hip'"):
        jc.models.ramone().joint("hip")


def test_a_keyframe_by_name_by_number_or_none():
    text = file_of("planar_walker")
    by_name, by_number = (jc.load_mjcf(text, keyframe=k).initial_state() for k in ("landing", 0))
    np.testing.assert_array_equal(by_name.q, by_number.q)
    np.testing.assert_array_equal(by_name.v[:3], [0.5, -1.0, 0.3])
    np.testing.assert_array_equal(jc.load_mjcf(text).initial_state().q, 0.0)
    for wrong in (0.0, True, ["landing"]):
        with pytest.raises((TypeError, ValueError), match="keyframe: expected"):
            jc.load_mjcf(text, keyframe=wrong)
    for wrong in ("flying", 2, -1):
        with pytest.raises(ValueError, match=r"keyframe: expected one of \['landing', 'crouched'\]"):
            jc.load_mjcf(text, keyframe=wrong)
    with pytest.raises(
        ValueError, match="keyframe: expected None, for the file has no keyframes, got 'home'"
    ):
        jc.load_mjcf(file_of("ant"), keyframe="home")


def test_the_same_file_twice_is_the_same_system(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text(file_of("ant"))
    first, second = jc.load_mjcf(path), jc.load_mjcf(mujoco.MjModel.from_xml_path(str(path)))
    assert first.system == second.system
    assert hash(first.system) == hash(second.system)
    assert first.system.fingerprint == second.system.fingerprint
    assert first.system.fingerprint != jc.models.quadruped().system.fingerprint


def test_urdf(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(
        '<robot name="arm"><link name="base"/><link name="link"><inertial><origin xyz="0 0 -0.5"/><mass value="2"/>'
        '<inertia ixx="0.1" iyy="0.1" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>'
        '<joint name="hinge" type="revolute"><parent link="base"/><child link="link"/><axis xyz="0 1 0"/>'
        '<limit lower="-1" upper="1" effort="10" velocity="1"/></joint></robot>'
    )
    model = jc.load_mjcf(path)
    np.testing.assert_allclose(jc.mass_matrix(model, model.initial_state().q), [[0.1 + 2 * 0.25]])
    assert model.structure.tree.joints[0].limited


def test_a_urdf_finds_the_meshes_of_its_package_and_may_float(tmp_path):
    text = """<robot name="rock"><link name="world"/><link name="rock">
      <inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
      <collision><geometry><mesh filename="package://rocks/meshes/rock.obj"/></geometry></collision></link>
      <joint name="free" type="floating"><parent link="world"/><child link="rock"/></joint></robot>"""
    source = tmp_path / "rocks" / "urdf" / "rock.urdf"
    source.parent.mkdir(parents=True)
    source.write_text(text)
    with pytest.raises(ValueError, match=r"rocks/meshes/rock\.obj"):
        jc.load_mjcf(source)
    mesh = tmp_path / "rocks" / "meshes" / "rock.obj"
    mesh.parent.mkdir()
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"
    mesh.write_text(corners + "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    model = jc.load_mjcf(source)
    assert model.initial_state().v.shape == (6,) and float(model.params.mass[0]) == 2.0
    beside = tmp_path / "urdf" / "rock.urdf"
    beside.parent.mkdir()
    beside.write_text(text)
    assert jc.load_mjcf(beside).initial_state().v.shape == (6,)


def test_pairs_are_those_of_mujoco(rng):
    """Everything in one place: what MuJoCo then finds in contact is what may touch."""
    mj = mujoco.MjModel.from_xml_string(robot())
    data = mujoco.MjData(mj)
    for margin in (mj.geom_margin, mj.pair_margin, mj.body_margin):
        margin[:] = 100.0
    mujoco.mj_forward(mj, data)
    geoms = data.contact.geom
    found = {
        frozenset(map(int, pair)): float(f[0]) for pair, f in zip(geoms, data.contact.friction, strict=True)
    }
    dims = {frozenset(map(int, pair)): int(d) for pair, d in zip(geoms, data.contact.dim, strict=True)}
    ours = {frozenset((p.first, p.second)): p.mu for p in candidate_pairs(mj)}
    expected = {pair: (mu if dims[pair] > 1 else 0.0) for pair, mu in found.items()}
    assert len(ours) == 15
    assert ours == expected


REFUSED = {
    "spatial tendon": (
        robot(
            more='<tendon><spatial name="rope" frictionloss="1"><site site="a"/><site site="b"/></spatial></tendon>',
        ),
        "tendon 'rope': spatial",
    ),
    "clipped tendon": (
        robot(
            more='<tendon><fixed name="belt" actuatorfrcrange="-1 1"><joint joint="knee" coef="1"/></fixed></tendon>'
        ),
        "tendon 'belt': actuatorfrcrange",
    ),
    "muscle": (
        robot(more='<actuator><muscle name="calf" joint="knee" lengthrange="0 1"/></actuator>'),
        "actuator 'calf': dyntype 'muscle', gaintype 'muscle', biastype 'muscle'",
    ),
    "filter": (
        robot(more='<actuator><general name="slow" joint="knee" dyntype="filter" dynprm="1"/></actuator>'),
        "actuator 'slow': dyntype 'filter'",
    ),
    "site": (
        robot(more='<actuator><motor name="jet" site="a" gear="1"/></actuator>'),
        "actuator 'jet': transmission 'site'",
    ),
    "servo on a ball": (
        robot(more='<actuator><position name="gimbal" joint="ball" kp="2"/></actuator>'),
        "actuator 'gimbal': a position gain on a free or ball joint",
    ),
    "polynomial springs": (  # of MuJoCo 4
        robot(
            more='<tendon><fixed name="band" stiffness="0 3" damping="0 1"><joint joint="knee" coef="1"/></fixed>'
            "</tendon>"
        ),
        "tendon 'band': a polynomial stiffness; tendon 'band': a polynomial damping",
    ),
    "three controls": (  # of MuJoCo 4
        robot(more='<actuator><orientation name="gaze" joint="ball" kp="3"/></actuator>'),
        "actuator 'gaze': transmission 'so3'",
    ),
    "no joints": (f"<mujoco><worldbody>{FLOOR}</worldbody></mujoco>", "no joints: nothing moves"),
    "hills": (
        '<mujoco><asset><hfield name="h" nrow="2" ncol="2" size="1 1 1 1" elevation="0 0 1 1"/></asset><worldbody>'
        '<geom name="hills" type="hfield" hfield="h"/>'
        '<body><freejoint/><geom name="crate" type="box" size="1 1 1"/></body></worldbody></mujoco>',
        "source: not supported: geom 'hills': no shape here for a hfield; unsupported='skip' or contacts=",
    ),
    "broken": ("<mujoco><worldbody>", "source: MuJoCo cannot read the text: XML"),
    "massless": (
        "<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>",
        "source: MuJoCo cannot read the text: .*mass and inertia of moving bodies must be larger than",
    ),
    "unbalanced": (
        '<mujoco><worldbody><body><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 3"/></body>'
        "</worldbody></mujoco>",
        "source: MuJoCo cannot read the text: .*inertia must satisfy A . B >= C",
    ),
}


OF_MUJOCO_4 = {"polynomial springs", "three controls"}
OF_LATER_3 = {"clipped tendon"}  # not of 3.2.0, the oldest


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name):
    if name in OF_MUJOCO_4 | OF_LATER_3 and int(mujoco.__version__.partition(".")[0]) < 4:
        pytest.skip("of a later MuJoCo")
    text, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as error:
        jc.load_mjcf(text)
    assert "\n" not in str(error.value)


def test_flags_and_groups_switch_off_as_in_mujoco():
    servos = '<actuator><motor joint="knee" group="1"/><position joint="heel" kp="3" group="2"/></actuator>'
    ranged = robot(joint='range="-1 1" limited="true"', more=servos)
    all_on = jc.load_mjcf(ranged)
    assert all_on.structure.num_contacts and all_on.system.constraints is not None
    without = jc.load_mjcf(
        ranged.replace("<worldbody>", '<option><flag constraint="disable"/></option><worldbody>')
    )
    assert without.structure.num_contacts == 0
    assert without.system.constraints is None
    mj = mujoco.MjModel.from_xml_string(
        ranged.replace("<worldbody>", '<option actuatorgroupdisable="2"/><worldbody>')
    )
    model, data = jc.load_mjcf(mj), mujoco.MjData(mj)
    data.qpos[-3:], data.ctrl[:] = 0.3, 1.0
    mujoco.mj_forward(mj, data)
    state = model.initial_state().replace(q=jnp.asarray(data.qpos.copy()))
    found = jc.actuator_forces(model, state, jnp.ones(2))
    np.testing.assert_allclose(found, data.qfrc_actuator, atol=1e-15)
    assert np.count_nonzero(found) == 1


def test_what_cannot_be_found_or_is_no_source():
    with pytest.raises(FileNotFoundError, match=r"source: no file 'missing.xml'"):
        jc.load_mjcf("missing.xml")
    with pytest.raises(TypeError, match="source: expected a path, XML text, a MjSpec or a MjModel, got int"):
        jc.load_mjcf(3)


def test_what_is_ignored_is_said_once():
    text = robot(more='<option integrator="RK4" cone="elliptic"/>').replace(
        'name="foot" type="sphere" size="0.06" condim="1"',
        'name="foot" type="sphere" size="0.06" condim="6" solref="0.01 1" margin="0.01"',
    )
    with pytest.warns(IgnoredOptionWarning) as found:
        jc.load_mjcf(text)
    (warning,) = found
    assert str(warning.message) == ("load_mjcf ignores option integrator, cone")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (file_of("ant"), r"planar: joint 'root' \(free\) leaves the x-z plane"),
        (robot(joint='axis="0 1 0.1"', free=""), r"planar: joint 'knee' \(hinge\) leaves the x-z plane"),
    ],
)
def test_what_leaves_the_plane_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        jc.load_mjcf(text, planar=True)


def test_shapes_of_a_file_are_where_mujoco_has_them(rng):
    """Least gaps of every kind of shape over the floor, at random poses, against MuJoCo's distances."""
    corners = " ".join(f"{x:.6f}" for x in rng.normal(size=30))
    kinds = {
        "ball": 'type="sphere" size="0.3"',
        "pill": 'type="capsule" size="0.1 0.4"',
        "crate": 'type="box" size="0.2 0.3 0.4"',
        "can": 'type="cylinder" size="0.2 0.3"',
        "egg": 'type="ellipsoid" size="0.2 0.3 0.4"',
        "rock": 'type="mesh" mesh="rock"',
    }
    bodies = "".join(
        f'<body name="{name}"><freejoint/><geom name="{name}" pos="0.1 0.2 0.3" euler="20 30 40" '
        f'contype="1" conaffinity="2" {kind}/></body>'
        for name, kind in kinds.items()
    )
    text = (
        f'<mujoco><asset><mesh name="rock" vertex="{corners}"/></asset><worldbody>'
        f'<geom name="floor" type="plane" size="9 9 1" contype="2" conaffinity="1"/>{bodies}</worldbody></mujoco>'
    )
    mj = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(mj)
    model = jc.load_mjcf(mj)
    gaps = jax.jit(lambda q: contact_gaps(model, q))
    owner = [pair[0] for pair in model.structure.pairs]
    sizes = [num_contacts(3, model.structure.shape_table, (p,)) for p in model.structure.pairs]
    assert sorted(owner) == sorted(kinds)
    for _ in range(5):
        q = rng.normal(size=mj.nq)
        q.reshape(-1, 7)[:, 2] += 5.0
        q.reshape(-1, 7)[:, 3:] /= np.linalg.norm(q.reshape(-1, 7)[:, 3:], axis=1, keepdims=True)
        data.qpos[:] = q
        mujoco.mj_kinematics(mj, data)
        found = np.asarray(gaps(jnp.asarray(q)))
        for name, rows in zip(owner, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
            expected = mujoco.mj_geomDistance(mj, data, mj.geom(name).id, mj.geom("floor").id, 100.0, None)
            np.testing.assert_allclose(rows.min(), expected, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.filterwarnings("ignore:load_mjcf. MuJoCo warns")
def test_a_number_that_is_nan_is_named():
    text = robot().replace('name="knee"', 'name="knee" pos="nan 0 0"')
    # MuJoCo before 3.10 refuses the text itself.
    with pytest.raises(ValueError, match=r"source: (numbers of the file are NaN, in .*tree.anchor|.*: Nan)"):
        jc.load_mjcf(text)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (10**6, "at most 10000 elements and copies of them, got 2000001"),
        (1600, "at most 1500 geoms that may"),
    ],
)
def test_copies_that_nobody_can_wait_for_are_refused(count, message):
    text = f"""<mujoco><worldbody><geom type="plane" size="1 1 1"/><replicate count="{count}" offset="1 0 0">
      <body pos="0 0 1"><freejoint/><geom size="0.04"/></body></replicate></worldbody></mujoco>"""
    with pytest.raises(ValueError, match=f"source: expected {message}"):
        jc.load_mjcf(text)


def test_a_file_is_loaded_inside_of_jit():
    def mass(x):
        return x * jnp.sum(jc.load_mjcf(robot()).params.mass)

    assert jax.jit(mass)(3.0) == 3.0 * jnp.sum(jc.load_mjcf(robot()).params.mass)
    assert jax.jit(lambda x: x + jc.models.hopper().initial_state().q[1])(0.0) < 1.0

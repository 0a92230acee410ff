"""Options of `load_mjcf`: which contacts, what is skipped, floating bases, floors, thinner hulls, notes."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_parts import robot

import jaxcontact as jc
from jaxcontact.io.mjcf import IgnoredOptionWarning
from jaxcontact.io.mjcf_hulls import displacement, hull_of
from jaxcontact.terms import contact_gaps

mujoco = pytest.importorskip("mujoco")

INERTIA = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
LINK = (
    '<inertial><mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
    '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
)
ARM = (
    f'<robot name="arm"><link name="base">{LINK}</link><link name="hand">{LINK}</link>'
    '<joint name="wrist" type="revolute"><parent link="base"/><child link="hand"/><origin xyz="0 0 0.5"/>'
    '<axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="10" velocity="1"/></joint></robot>'
)


def quiet(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        return jc.load_mjcf(source, **options)


def pairs_of(model):
    return {frozenset(pair) for pair in model.structure.pairs}


def test_contacts_are_all_those_of_the_world_or_pairs():
    every, world = (pairs_of(quiet(robot(), contacts=word)) for word in ("all", "world"))
    assert world == {pair for pair in every if pair & {"floor", "bump"}}
    assert 0 < len(world) < len(every)
    by_geom = pairs_of(quiet(robot(), contacts=[("foot", "floor"), ("floor", "heel")]))
    assert by_geom == {frozenset(("foot", "floor")), frozenset(("heel", "floor"))}
    by_body = pairs_of(quiet(robot(), contacts=[("thigh", "world")]))
    assert by_body == {frozenset(("thigh", "floor")), frozenset(("thigh", "bump"))}
    assert not quiet(robot(), contacts=[]).system.structure.pairs


@pytest.mark.parametrize(
    ("contacts", "error", "message"),
    [
        ("some", ValueError, "contacts: expected 'all', 'world' or pairs of names, got 'some'"),
        (3, TypeError, "contacts: expected 'all', 'world' or pairs of names, got 3"),
        ([("foot",)], TypeError, "contacts: expected 'all', 'world' or pairs of names, got"),
        ([("foot", 2)], TypeError, "contacts: expected names of geoms or bodies, got"),
        ([("toe", "floor")], ValueError, "contacts: no geom and no body is called 'toe'; geoms are floor,"),
        ([("thigh", "heel")], ValueError, "contacts: nothing of 'thigh' may touch 'heel' in the file"),
    ],
)
def test_contacts_that_cannot_be_are_named(contacts, error, message):
    with pytest.raises(error, match=message):
        jc.load_mjcf(robot(), contacts=contacts)


SKIPPED = {
    "tendon 'rope': spatial": robot(
        more='<tendon><spatial name="rope" frictionloss="1"><site site="a"/><site site="b"/></spatial></tendon>'
    ),
    "equality 'far': distance": robot(
        more='<equality><distance name="far" geom1="foot" geom2="stone"/></equality>'
    ),
    "actuator 'jet': transmission 'site'": robot(more='<actuator><motor name="jet" site="a"/></actuator>'),
    "actuator 'calf': dyntype 'muscle'": robot(
        more='<actuator><muscle name="calf" joint="knee" lengthrange="0 1"/></actuator>'
    ),
}


@pytest.mark.parametrize("lacking", SKIPPED)
def test_skip_leaves_out_what_error_refuses(lacking):
    text = SKIPPED[lacking]
    if "distance" in lacking:
        try:
            mujoco.MjModel.from_xml_string(text)
        except ValueError:
            pytest.skip("not of this MuJoCo")
    with pytest.raises(ValueError, match=f"{lacking}.*unsupported='skip' leaves this out"):
        jc.load_mjcf(text)
    with pytest.warns(IgnoredOptionWarning, match=f"leaves out .*{lacking}") as found:
        model = jc.load_mjcf(text, unsupported="skip")
    assert len(found) == 1
    assert any(note.startswith("left out: ") and lacking in note for note in model.notes)
    force = jc.actuator_forces(model, model.initial_state(), jnp.ones(model.num_controls))
    assert (
        not np.any(force) or model.num_controls == model.initial_state().v.size
    )  # then the controls are forces


def test_a_skipped_actuator_keeps_its_place_and_a_filter_acts_at_once():
    text = robot(
        more='<actuator><motor name="jet" site="a"/><general name="slow" joint="knee" dyntype="filter" dynprm="1"/>'
        '<motor name="quick" joint="heel" gear="3"/></actuator>'
    )
    model = quiet(text, unsupported="skip")
    assert model.structure.tree.actuators == ("jet", "slow", "quick")
    force = jc.actuator_forces(model, model.initial_state(), jnp.array([7.0, 2.0, 1.0]))
    expected = np.zeros(model.initial_state().v.size)
    expected[model.joint("knee").v], expected[model.joint("heel").v] = 2.0, 3.0
    np.testing.assert_array_equal(force, expected)


def test_what_only_measures_or_is_only_seen_refuses_nothing():
    text = robot(
        more='<tendon><spatial name="tape"><site site="a"/><site site="b"/></spatial></tendon>'
        '<sensor><tendonpos tendon="tape"/><force site="a"/><rangefinder site="b"/></sensor>'
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = jc.load_mjcf(text)
    assert model.notes == () and not model.structure.tree.tendons


def seen_mesh(inertia, touches="", file="missing.stl"):
    return (
        f'<mujoco><asset><mesh name="shell" file="{file}"/></asset><worldbody><body><freejoint/>{inertia}'
        f'<geom size="0.1"/><geom type="mesh" mesh="shell" {touches}/></body></worldbody></mujoco>'
    )


def test_a_mesh_that_is_only_seen_may_be_missing():
    unseen = 'contype="0" conaffinity="0"'
    with pytest.warns(IgnoredOptionWarning, match="what is only seen .1 geoms., for .*missing.stl"):
        model = jc.load_mjcf(seen_mesh(INERTIA, unseen))
    assert float(model.params.mass[0]) == 1.0
    for text in (seen_mesh("", unseen), seen_mesh(INERTIA)):  # it has mass, or it touches
        with pytest.raises(ValueError, match=r"^source: MuJoCo cannot read the text: .*missing.stl[^\n]*$"):
            jc.load_mjcf(text)


BAD_FILES = {
    "an SDF": (
        '<sdf version="1.6"><model name="x"/></sdf>',
        "source: the text is an SDF, which MuJoCo cannot read",
    ),
    "a URDF without joints": (
        f'<robot name="stone"><link name="stone">{LINK}</link></robot>',
        "source: no joints: nothing moves; floating=True lets the body on the world move",
    ),
    "a flat mesh": (
        '<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 1 1 0"/></asset><worldbody><body><freejoint/>'
        f'{INERTIA}<geom type="mesh" mesh="m"/></body></worldbody></mujoco>',
        "source: MuJoCo cannot read the text: .*(mesh|name) 'm'",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(name):
    text, message = BAD_FILES[name]
    with pytest.raises(ValueError, match=message) as error:
        jc.load_mjcf(text)
    assert "\n" not in str(error.value)


NUMBERS = {
    "joint 'knee': armature: expected finite numbers >= 0, got -5": robot(joint='armature="-5"'),
    "joint 'knee': damping: expected finite numbers, got inf": robot(joint='damping="inf"'),
    "joint 'knee': stiffness: expected finite numbers >= 0, got -1": robot(joint='stiffness="-1"'),
    "joint 'knee': frictionloss: expected finite numbers >= 0, got -2": robot(joint='frictionloss="-2"'),
    "joint 'knee': armature: expected finite numbers >= 0, got inf": robot(joint='armature="inf"'),
    "actuator 'servo': gear: expected finite numbers, got inf": robot(
        more='<actuator><motor name="servo" joint="knee" gear="inf"/></actuator>'
    ),
    "option: gravity: expected finite numbers": robot(more='<option gravity="0 0 -inf"/>'),
    "tendon 'band': damping: expected finite numbers, got inf": robot(
        more='<tendon><fixed name="band" damping="inf"><joint joint="knee" coef="1"/></fixed></tendon>'
    ),
}


@pytest.mark.filterwarnings("ignore:load_mjcf. MuJoCo warns")
@pytest.mark.parametrize("message", NUMBERS)
@pytest.mark.parametrize("unsupported", ["error", "skip"])
def test_a_negative_or_infinite_number_is_named(message, unsupported):
    with pytest.raises(ValueError, match=f"source: {message}|source: MuJoCo cannot read the text"):
        jc.load_mjcf(NUMBERS[message], unsupported=unsupported)


WHEEL = (
    '<mujoco><worldbody><body name="wheel"><joint name="axle" axis="0 0 1" damping="-0.5"/>'
    f"{INERTIA}</body></worldbody>"
    '<tendon><fixed name="belt" damping="-1"><joint joint="axle" coef="0.5"/></fixed></tendon></mujoco>'
)


@pytest.mark.long
@pytest.mark.parametrize(
    "stepper",
    [
        jc.simulate.Compliant(),
        jc.simulate.TimeStepping(),
        jc.simulate.EventDriven(),
        jc.simulate.Variational(),
    ],
    ids=lambda stepper: type(stepper).__name__,
)
def test_a_negative_damping_is_noted_and_feeds_a_wheel(stepper):
    with pytest.warns(IgnoredOptionWarning, match="notes joint 'axle' has the damping -0.5 < 0; tendon"):
        model = jc.load_mjcf(WHEEL)
    assert model.notes == (
        "joint 'axle' has the damping -0.5 < 0",
        "tendon 'belt' has the damping -1 < 0",
    )
    start = model.initial_state().replace(v=jnp.ones(1))
    states = jc.simulate.rollout(model, start, jnp.zeros((100, 1)), stepper=stepper, dt=0.01).states
    np.testing.assert_allclose(states.v[-1], np.exp(0.75), rtol=0.01)  # 0.5 + 0.5^2 of the belt


@pytest.mark.long
@pytest.mark.parametrize(
    "stepper",
    [jc.simulate.Compliant(), jc.simulate.TimeStepping(), jc.simulate.Variational()],
    ids=lambda stepper: type(stepper).__name__,
)
def test_a_negative_damping_too_large_for_the_step_is_no_success(stepper):
    """With d h above 2 I the midpoint rule turns the wheel back, where it gets faster and faster."""
    with pytest.warns(IgnoredOptionWarning, match="damping"):
        model = jc.load_mjcf(WHEEL)
    start = model.initial_state().replace(v=jnp.ones(1))
    for dt, fails in ((1.0, False), (4.0, True)):
        status = jc.simulate.rollout(model, start, jnp.zeros((1, 1)), stepper=stepper, dt=dt).status
        assert bool(jc.Status.failed(status[-1])) == fails


def test_a_urdf_gets_a_floor_and_a_floating_base():
    model = jc.load_mjcf(ARM, floating=True, floor=-0.5)
    assert model.initial_state().v.size == 7 and "base" in model.structure.bodies
    gaps = contact_gaps(model, model.initial_state().q)
    np.testing.assert_allclose(np.sort(gaps), [0.4, 0.9], atol=1e-12)
    assert jc.load_mjcf(ARM).initial_state().v.size == 1
    stone = jc.load_mjcf(BAD_FILES["a URDF without joints"][0], floating=True)
    assert stone.initial_state().v.size == 6
    fixed = quiet(
        f"<mujoco><worldbody><body><freejoint/>{INERTIA}<body><joint/>{INERTIA}</body></body></worldbody>"
        '<keyframe><key qpos="0 0 0 1 0 0 0 0"/></keyframe></mujoco>',
        floating=False,
    )
    assert fixed.initial_state().v.size == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"floating": 1}, TypeError, "floating: expected True, False or None, got 1"),
        ({"floor": True}, TypeError, "floor: expected a height in m or None, got True"),
        ({"floor": float("nan")}, TypeError, "floor: expected a height in m or None, got nan"),
        ({"unsupported": "warn"}, ValueError, "unsupported: expected 'error' or 'skip', got 'warn'"),
        ({"max_hull_vertices": 3}, ValueError, "max_hull_vertices: expected an integer >= 4, got 3"),
    ],
)
def test_an_option_of_another_kind_is_named(options, error, message):
    with pytest.raises(error, match=message):
        jc.load_mjcf(ARM, **options)


def test_a_base_on_a_joint_cannot_float_and_a_compiled_model_cannot_change():
    with pytest.raises(ValueError, match="floating: 'thigh' is on joint 'hip'; expected a fixed base"):
        jc.load_mjcf(robot(free=""), floating=True)
    mj = mujoco.MjModel.from_xml_string(robot())
    with pytest.raises(ValueError, match="floor: a compiled MjModel cannot be changed"):
        jc.load_mjcf(mj, floor=0.0)


KNEES = {"bent": 0.7, "far": 2.0}  # rad


def test_a_start_out_of_range_is_noted():
    text = robot(joint='range="0.5 1" limited="true"')
    with pytest.warns(
        IgnoredOptionWarning, match="notes joint 'knee' starts at 0, out of its range 0.5 .. 1"
    ):
        model = jc.load_mjcf(text.replace("<mujoco>", '<mujoco><compiler angle="radian"/>'))
    assert model.notes == ("joint 'knee' starts at 0, out of its range 0.5 .. 1",)


def test_keyframes_are_named_where_a_start_is_out_of_range():
    text = robot(joint='range="0.5 1" limited="true"')
    text = text.replace("<mujoco>", '<mujoco><compiler angle="radian"/>')
    mj, keys = mujoco.MjModel.from_xml_string(text), []
    for name, angle in KNEES.items():
        qpos = mj.qpos0.copy()
        qpos[mj.joint("knee").qposadr] = angle
        keys.append(f'<key name="{name}" qpos="{" ".join(map(str, qpos))}"/>')
    text = text.replace("</mujoco>", f"<keyframe>{''.join(keys)}</keyframe></mujoco>")
    with pytest.warns(IgnoredOptionWarning, match="keyframes to start from: 'bent', 'far'"):
        model = jc.load_mjcf(text)
    assert model.notes[1:] == ("keyframes to start from: 'bent', 'far' (keyframe=)",)
    assert jc.load_mjcf(text, keyframe="bent").notes == ()
    with pytest.warns(IgnoredOptionWarning, match="starts at 2, out of its range"):
        assert len(jc.load_mjcf(text, keyframe="far").notes) == 1


def ball_of_points(count):
    step = np.arange(count) + 0.5
    height, turn = 1.0 - 2.0 * step / count, np.pi * (1.0 + 5.0**0.5) * step
    radius = np.sqrt(1.0 - height**2)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)


def test_a_thin_hull_lies_within_and_tells_how_far():
    points = ball_of_points(400)
    previous = np.inf
    for count in (6, 12, 48, 200):
        hull = hull_of(points, count)
        assert len(hull.corners) == count and hull.displacement < previous
        previous = hull.displacement
    assert hull_of(points, 400).displacement == 0.0
    assert previous < 0.03  # of the radius; 200 points that are spread best leave about 0.01
    cube = np.stack(np.meshgrid([0.0, 1.0], [0.0, 1.0], [0.0, 1.0]), axis=-1).reshape(-1, 3)
    corner_cut = cube[np.any(cube != 1.0, axis=1)]
    np.testing.assert_allclose(displacement(cube, corner_cut), 1.0 / np.sqrt(3.0), rtol=1e-12)
    with pytest.raises(ValueError, match="a mesh of no volume"):
        hull_of(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]))


def test_max_hull_vertices_thins_the_meshes_of_a_file():
    vertices = " ".join(f"{x:.6f}" for x in ball_of_points(60).ravel())
    text = (
        f'<mujoco><asset><mesh name="rock" vertex="{vertices}"/></asset><worldbody>'
        '<geom name="floor" type="plane" size="9 9 1"/>'
        '<body><freejoint/><geom name="rock" type="mesh" mesh="rock"/></body></worldbody></mujoco>'
    )
    (mesh,) = (s for s in jc.load_mjcf(text).structure.shapes if s.name == "rock")
    assert mesh.count == 60
    with pytest.warns(
        IgnoredOptionWarning, match="geom 'rock': a hull of 16 corners, 0.2.* m inside that of the mesh"
    ):
        model = jc.load_mjcf(text, max_hull_vertices=16)
    assert model.structure.num_contacts == 16


@pytest.mark.long
def test_a_body_fixed_to_the_world_keeps_its_orientation():
    """A ball over a box on two tilted bodies without joints: the gap along the tilted normal."""
    text = (
        '<mujoco><worldbody><body pos="0.1 0 0" axisangle="0 1 0 20"><body axisangle="0 1 0 10">'
        '<geom name="ramp" type="box" size="2 2 0.5"/></body></body>'
        '<body pos="0 0 3"><freejoint/><geom size="0.25"/></body></worldbody></mujoco>'
    )
    model = jc.load_mjcf(text)
    normal = np.array([np.sin(np.pi / 6), 0.0, np.cos(np.pi / 6)])
    expected = np.array([-0.1, 0.0, 3.0]) @ normal - 0.75
    np.testing.assert_allclose(contact_gaps(model, model.initial_state().q), [expected], atol=1e-12)


PRINTED = {
    "contains a 'NaN'": """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
        <body><freejoint/><geom size="0.1" mass="nan"/></body></worldbody></mujoco>""",
    "joint 'j' has equal lower and upper limits": """<robot name="r"><link name="a"/>
        <link name="b"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
        </link><joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/>
        <limit lower="0" upper="0" effort="1" velocity="1"/></joint></robot>""",
}


@pytest.mark.parametrize("message", PRINTED)
def test_what_mujoco_only_prints_is_a_warning(message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=f"load_mjcf: MuJoCo warns: .*{message}"):
        jc.load_mjcf(PRINTED[message])
    assert not list(tmp_path.iterdir())  # MuJoCo's log
    assert "WARNING" not in capfd.readouterr().err
    assert mujoco.get_mju_user_warning() is None

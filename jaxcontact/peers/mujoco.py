"""Impacts of the models by MuJoCo, one outcome instead of a set: `mujoco_outcome`, `outcome_of_file`.

Owns the translation of models to MJCF. The x-y plane of planar models becomes MuJoCo's x-z plane; slides and
hinges are such that qpos and qvel are q and v of the model. All numbers come from the `Model`.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxcontact import models
from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_not_negative
from jaxcontact.front_door import NOT_NEGATIVE, POSITIVE, checked
from jaxcontact.geometry import HalfSpace
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.mechanics.system import Model
from jaxcontact.terms import contact_terms

if TYPE_CHECKING:
    import mujoco

MAX_STEPS = 20_000  # of MuJoCo in one impact; contacts that still approach after them are an error
MARGIN = 1e-9  # m; gaps below it count as closed in MuJoCo
POINT_RADIUS = 1e-5  # m; radius of the spheres that stand for points and corners
MIN_MASS = 1e-9  # kg, kg m^2; replaces zero mass and inertia in MuJoCo


@checked(
    timestep=POSITIVE,
    timeconst=POSITIVE,
    dampratio=POSITIVE,
    impratio=POSITIVE,
    friction=check_not_negative,
    tolerance=NOT_NEGATIVE,
)
def mujoco_outcome(
    model_name: str,
    *,
    timestep: float = 1e-6,
    timeconst: float | None = None,
    dampratio: float = 1.0,
    impratio: float = 1.0,
    cone: str = "elliptic",
    friction: float | np.ndarray | None = None,
    tolerance: float = 1e-6,
) -> np.ndarray:
    """Compute the one post-impact velocity by MuJoCo for the impact of a model.

    MuJoCo has no impacts: contacts are stiff and damped, and the impact takes time. It starts at the
    model's state with all contacts touching, with gravity, and runs until no touching contact
    approaches faster than `tolerance`. Contacts are allowed only between the pairs of the model. Points
    and corners are spheres of 0.01 mm, so that each is one contact.

    Args:
        model_name: of a model in `jaxcontact.models`: rocking_block, compass_gait, box_and_wall, ramone,
            disk_stack or box_drop_3d.
        timestep: s; MuJoCo's implicitfast integrator.
        timeconst: time constant of contacts (first number of solref), s; default 100 timestep = 0.1 ms.
            MuJoCo's own 0.02 s would give gravity time to act during the impact.
        dampratio: damping ratio of contacts (second number of solref); MuJoCo's default. It returns up to
            e^-2 = 14 % of the approach speed if another contact outlasts the compression. solimp is
            also MuJoCo's default.
        impratio: ratio of frictional to normal impedance; MuJoCo's default.
        cone: friction cone, "elliptic" or "pyramidal".
        friction: coefficient of all contacts; default the model's.
        tolerance: approach speed at which the impact is over, m/s.

    Returns:
        Velocity (nv,) in the generalized coordinates of the model.

    Raises:
        ValueError: an unknown model or cone, a timestep that is not positive.
        ImportError: MuJoCo is not installed; the message says how to get it.
        RuntimeError: contacts still approach after 20,000 steps.
    """
    if model_name not in MODELS:
        raise ValueError(f"model_name: expected one of {', '.join(MODELS)}, got {model_name!r}")
    if cone not in ("elliptic", "pyramidal"):
        raise ValueError(f"cone: expected elliptic or pyramidal, got {cone!r}")
    mujoco = mujoco_package("mujoco_outcome")
    model: Model = getattr(models, model_name)()
    text = mjcf(
        model_name,
        timestep=timestep,
        timeconst=100.0 * timestep if timeconst is None else timeconst,
        dampratio=dampratio,
        impratio=impratio,
        cone=cone,
        friction=friction,
    )
    compiled = mujoco.MjModel.from_xml_string(text)
    state = model.initial_state()

    def approaches(q: np.ndarray, v: np.ndarray) -> bool:
        moved = state.replace(q=jax.numpy.asarray(q, state.q.dtype))
        terms = contact_terms(model, moved)
        closing = np.asarray(terms.J_n) @ v.astype(state.q.dtype) < -tolerance
        return bool(np.any(closing & np.asarray(terms.active)))

    return run_impact(compiled, np.asarray(state.q), np.asarray(state.v), approaches, model_name)


def outcome_of_file(source: Any, model: Model) -> np.ndarray | None:  # a source as `load_mjcf` takes
    """Compute the one post-impact velocity by MuJoCo for a robot of a file; return None without MuJoCo.

    The same as `mujoco_outcome` by default, with one stiffness of all contacts, and without actuators.

    Args:
        source: the argument of `load_mjcf`: a path, XML text or a `mujoco.MjModel`.
        model: the result of `load_mjcf`, in the state before the impact.

    Returns:
        Velocity (nv,), or None if MuJoCo is not installed.

    Raises:
        RuntimeError: contacts still approach after 20,000 steps.
    """
    if importlib.util.find_spec("mujoco") is None:
        return None
    compiled = with_stiff_contacts(source, 1e-6, 1e-4)
    terms = contact_terms(model, model.initial_state())
    normals = np.asarray(terms.J_n)[np.asarray(terms.active)]  # the robot hardly moves

    def approaches(_: np.ndarray, v: np.ndarray) -> bool:
        return bool(np.any(normals @ v < -1e-6))

    return run_impact(
        compiled,
        np.asarray(model.initial_state().q),
        np.asarray(model.initial_state().v),
        approaches,
        "the robot",
    )


def with_stiff_contacts(
    source: object, timestep: float, timeconst: float, dampratio: float = 1.0
) -> mujoco.MjModel:
    """Compile a source to a mujoco.MjModel with contacts of this time constant and damping, no actuators."""
    import mujoco

    compiled = copy.deepcopy(compile_source(source).mj)
    compiled.opt.timestep, compiled.opt.tolerance, compiled.opt.iterations = timestep, 1e-14, 200
    compiled.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    compiled.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    compiled.geom_solref[:], compiled.pair_solref[:] = (timeconst, dampratio), (timeconst, dampratio)
    compiled.geom_margin[:], compiled.pair_margin[:] = MARGIN, MARGIN
    return compiled


def run_impact(
    compiled: mujoco.MjModel,
    q: np.ndarray,
    v: np.ndarray,
    approaches: Callable[[np.ndarray, np.ndarray], bool],
    name: str,
) -> np.ndarray:
    """Step until no contact approaches; return the velocity.

    Raises:
        RuntimeError: contacts still approach after MAX_STEPS steps.
    """
    import mujoco

    data = mujoco.MjData(compiled)
    data.qpos[:], data.qvel[:] = q, v
    for _ in range(MAX_STEPS):
        mujoco.mj_step(compiled, data)
        if not approaches(data.qpos, data.qvel):
            return np.array(data.qvel)
    raise RuntimeError(
        f"mujoco_outcome: contacts of {name} still approach after {MAX_STEPS} steps "
        f"({MAX_STEPS * compiled.opt.timestep:g} s); raise tolerance or change timeconst"
    )


def mjcf(
    model_name: str,
    *,
    timestep: float = 1e-6,
    timeconst: float = 1e-4,
    dampratio: float = 1.0,
    impratio: float = 1.0,
    cone: str = "elliptic",
    friction: float | np.ndarray | None = None,
) -> str:
    """Write the MJCF text of a model; arguments as `mujoco_outcome`."""
    model: Model = getattr(models, model_name)()
    structure, params = model.structure, model.params
    gravity = np.asarray(params.gravity)
    rub = np.broadcast_to(np.asarray(params.mu if friction is None else friction), structure.num_contacts)
    solref = f"{timeconst:.17g} {dampratio:.17g}"
    planes = []
    for shape in structure.shapes:
        if isinstance(shape, HalfSpace):
            offset = 0.0 if shape.offset is None else float(params.constants[shape.offset])
            where = [offset * n for n in shape.normal]
            planes.append(
                f'<geom name="{shape.name}" type="plane" size="10 10 1" pos="{_vector(where)}" '
                f'zaxis="{_vector(shape.normal)}"/>'
            )
    geoms = _contact_geoms(model)
    pairs = [
        f'<pair geom1="{a}" geom2="{b}" condim="3" solref="{solref}" margin="{MARGIN}" '
        f'friction="{rub[i]:.17g} {rub[i]:.17g} 0 0 0"/>'
        for i, (a, b) in enumerate(geoms)
    ]
    return f"""<mujoco model="{model_name}">
  <compiler angle="radian" autolimits="false"/>
  <option timestep="{timestep:.17g}" gravity="{_vector(gravity)}" integrator="implicitfast" cone="{cone}"
          impratio="{impratio:.17g}" iterations="200" tolerance="1e-14"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    {" ".join(planes)}
    {MODELS[model_name](model)}
  </worldbody>
  <contact>
    {" ".join(pairs)}
  </contact>
</mujoco>"""


def _vector(plane: Iterable[float]) -> str:
    """Write (x, y) of the plane as MuJoCo's (x, 0, z), and (x, y, z) unchanged."""
    first, *between, last = (float(value) for value in plane)
    return " ".join(f"{value:.17g}" for value in (first, *(between or (0.0,)), last))


def _slides() -> str:
    return '<joint type="slide" axis="1 0 0"/> <joint type="slide" axis="0 0 1"/>'


def _hinge() -> str:
    """Write a hinge that turns counter-clockwise in the plane, x to the right, z up."""
    return '<joint type="hinge" axis="0 -1 0"/>'


def _write_inertial(model: Model, body: int, at: PyTree = (0.0, 0.0)) -> str:
    mass = max(float(model.params.mass[body]), MIN_MASS)
    inertia = max(float(model.params.inertia[body]), MIN_MASS)
    # The moments about the other two axes have no effect in the plane.
    return (
        f'<inertial pos="{_vector(at)}" mass="{mass:.17g}" '
        f'diaginertia="{inertia:.17g} {inertia:.17g} {inertia:.17g}"/>'
    )


def _ball(name: str, at: PyTree, radius: float) -> str:
    return f'<geom name="{name}" type="sphere" size="{radius:.17g}" pos="{_vector(at)}"/>'


def _lifted(at: jax.typing.ArrayLike, normal: tuple[float, float], angle: float) -> np.ndarray:
    """Compute the centre, in body axes, of a small sphere that touches a plane at the point `at`."""
    c, s = np.cos(angle), np.sin(angle)
    return np.asarray(at) + POINT_RADIUS * np.array([[c, s], [-s, c]]) @ np.asarray(normal)


def _contact_geoms(model: Model) -> list[tuple[str, str]]:
    """List the names of the two geoms of every contact, in the order of the model's contacts."""
    structure = model.structure
    geoms = []
    for a, b in structure.pairs:
        corners = getattr(structure.shape(a), "corners", None)
        if corners is None:
            geoms.append((a, b))
        else:
            geoms += [(f"{a}{k}", b) for k in corners]
    return geoms


def _box(model: Model) -> str:
    """Write a single box that meets planes at some corners."""
    structure, angle = model.structure, float(model.initial_state().q[2])
    half = np.asarray(model.params.constants["size"]) / 2.0
    balls = []
    for a, b in structure.pairs:
        shape, plane = structure.shape(a), structure.shape(b)
        assert isinstance(plane, HalfSpace)
        for k in getattr(shape, "corners", None) or ():
            corner = half * np.array([1.0 if k & 1 else -1.0, 1.0 if k & 2 else -1.0])
            centre = _lifted(corner, (plane.normal[0], plane.normal[1]), angle)
            balls.append(_ball(f"{a}{k}", centre, POINT_RADIUS))
    return f"<body>{_slides()} {_hinge()} {_write_inertial(model, 0)} {' '.join(balls)}</body>"


def _box_in_space(model: Model) -> str:
    """Write a single level box that meets the floor at some corners."""
    half = np.asarray(model.params.constants["size"]) / 2.0
    balls = []
    for a, _ in model.structure.pairs:
        for k in getattr(model.structure.shape(a), "corners", None) or ():
            corner = half * np.array([1.0 if k & bit else -1.0 for bit in (1, 2, 4)])
            balls.append(_ball(f"{a}{k}", corner + np.array([0.0, 0.0, POINT_RADIUS]), POINT_RADIUS))
    inertia = " ".join(f"{float(moment):.17g}" for moment in model.params.inertia[0])
    inertial = f'<inertial pos="0 0 0" mass="{float(model.params.mass[0]):.17g}" diaginertia="{inertia}"/>'
    return f"<body><freejoint/> {inertial} {' '.join(balls)}</body>"


def _compass_gait(model: Model) -> str:
    """Write the compass gait; the hip slides without turning, so that both pitch angles are absolute."""
    constants, q = model.params.constants, np.asarray(model.initial_state().q)
    centre = np.array([0.0, -float(constants["hip_to_mass"])])
    legs = []
    for i, name in enumerate(("leading", "trailing")):
        foot = _lifted(centre + np.asarray(constants["mass_to_foot"]), (0.0, 1.0), float(q[2 + i]))
        ball = _ball(f"{name}_foot", foot, POINT_RADIUS)
        legs.append(f"<body>{_hinge()} {_write_inertial(model, i, centre)} {ball}</body>")
    light = f'<inertial pos="0 0 0" mass="{MIN_MASS}" diaginertia="{MIN_MASS} {MIN_MASS} {MIN_MASS}"/>'
    return f"<body>{_slides()} {light} {' '.join(legs)}</body>"


def _write_ramone(model: Model) -> str:
    lengths = model.params.constants

    def down(name: str) -> np.ndarray:
        return np.array([0.0, -float(lengths[name])])

    legs = []
    for i, name in enumerate(("leading", "trailing")):
        thigh, shank = 1 + 2 * i, 2 + 2 * i
        foot = down("knee_to_shank") + np.asarray(lengths["shank_to_foot"])
        legs.append(
            f'<body pos="{_vector(down("trunk_to_hip"))}">{_hinge()} '
            f"{_write_inertial(model, thigh, down('hip_to_thigh'))} "
            f'<body pos="{_vector(down("thigh"))}">{_hinge()} '
            f"{_write_inertial(model, shank, down('knee_to_shank'))} "
            f"{_ball(f'{name}_foot', foot, float(lengths['foot_radius']))}</body></body>"
        )
    return f"<body>{_slides()} {_hinge()} {_write_inertial(model, 0)} {' '.join(legs)}</body>"


def _write_disk_stack(model: Model) -> str:
    radius = float(model.params.constants["radius"])
    joints = f"{_slides()} {_hinge()}"
    return " ".join(
        f"<body>{joints} {_write_inertial(model, i)} {_ball(f'{name}_rim', (0.0, 0.0), radius)}</body>"
        for i, name in enumerate(model.structure.bodies)
    )


MODELS: dict[str, Callable[[Model], str]] = {
    "rocking_block": _box,
    "compass_gait": _compass_gait,
    "box_and_wall": _box,
    "ramone": _write_ramone,
    "disk_stack": _write_disk_stack,
    "box_drop_3d": _box_in_space,
}

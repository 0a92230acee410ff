"""What moves a scene: every stepper of the package, and MuJoCo."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from jaxcontact.io.mjcf import IgnoredOptionWarning

from .scene import COMPLIANT, EVENTS, MUJOCO, STEPPING, STIFF, VARIATIONAL, Path, Scene

STIFFER = 1e6  # times the file's stiffness: a depth of 1 nm


@dataclasses.dataclass(frozen=True)
class Run:
    """A motion and its statuses, or why there is none.

    Attributes:
        path: None if the scene is refused.
        status: names of the bits of all steps, "" for success.
        failed: share of the steps with a bit that says they are not to be trusted.
        refusal: the message of the error.
    """

    path: Path | None
    status: str = ""
    failed: float = 0.0
    refusal: str = ""


def stepper_of(name: str, law: Any) -> Any:
    """Make a stepper by its name in the table."""
    if name in (COMPLIANT, STIFF):
        return jc.simulate.Compliant()
    if name == STEPPING:
        return jc.simulate.TimeStepping(impact=law)
    if name == EVENTS:
        return jc.simulate.EventDriven(impact=law)
    assert name == VARIATIONAL, name
    return jc.simulate.Variational(impact=law)


def _material(model: jc.Model, stiffer: float) -> jc.compliant.Material:
    """Make a material that carries all weight at a depth of 1 mm over `stiffer`; loops as in the file."""
    springs, law = (
        model.params.material.stiffness,
        jc.compliant.stiff_material(float(model.params.mass.sum())),
    )
    numbers = {"stiffness": law.stiffness * stiffer, "damping": law.damping * np.sqrt(stiffer)}
    if model.structure.tree.loops:
        others = springs.mobility.shape[0]
        numbers = {
            name: np.append(getattr(springs, f"joint_{name}") * factor, np.full(others, numbers[name]))
            for name, factor in (("stiffness", stiffer), ("damping", np.sqrt(stiffer)))
        }
    return law.replace(**{name: jax.device_put(np.asarray(value)) for name, value in numbers.items()})


def model_of(scene: Scene, stiff: bool = False) -> tuple[jc.Model, jc.State]:
    """Load the file; return the model and the start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        model = jc.load_mjcf(scene.mjcf, planar=scene.planar)
    model = model.replace(params=model.params.replace(material=_material(model, STIFFER if stiff else 1.0)))
    state = model.initial_state()
    q, v = np.array(state.q), np.array(state.v)
    q[list(scene.q)], v[list(scene.v)] = list(scene.q.values()), list(scene.v.values())
    return model, state.replace(q=jax.device_put(q), v=jax.device_put(v))


def move(scene: Scene, name: str, dts: tuple[float, ...]) -> list[Run]:
    """Move a scene by a stepper at every dt, with one program: the coarse motions go on, and are cut off."""
    if name == MUJOCO:
        return [Run(mujoco_path(scene, dt)) for dt in dts]
    model, state = model_of(scene, stiff=name == STIFF)
    longest = round(scene.duration / min(dts))
    controls = jnp.asarray(scene.controls, float) if scene.controls else jnp.zeros(model.num_controls)
    runs = []
    for dt in dts:
        steps = round(scene.duration / dt)
        try:
            motion = jc.simulate.rollout(
                model,
                state,
                jnp.tile(controls, (longest, 1)),
                stepper=stepper_of(name, scene.law),
                dt=jnp.asarray(dt),
            )
        except (ValueError, NotImplementedError) as error:
            runs.append(Run(None, refusal=str(error).splitlines()[0]))
            continue
        status = np.asarray(motion.status)[:steps]
        bits = int(np.bitwise_or.reduce(status))
        rows = (np.asarray(x)[: steps + 1] for x in (motion.states.t, motion.states.q, motion.states.v))
        names = jc.Status.describe(bits) if bits else ""
        runs.append(Run(Path(*rows), names, float(np.mean(np.asarray(jc.Status.failed(status))))))
    return runs


def mujoco_path(scene: Scene, dt: float, *, solref: tuple[float, float] | None = None) -> Path:
    """Move a scene by MuJoCo, with elliptic cones.

    With `solref`, the time constant (s) and damping ratio of stiff contacts, for a check of exact values.
    """
    import mujoco

    model = mujoco.MjModel.from_xml_string(scene.mjcf)
    model.opt.timestep, model.opt.cone = dt, mujoco.mjtCone.mjCONE_ELLIPTIC
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    if scene.order == 2:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    if solref is not None:
        model.opt.impratio, model.opt.tolerance = 100.0, 1e-14
        for stiff in (
            model.geom_solref,
            model.pair_solref,
            model.jnt_solref,
            model.eq_solref,
            model.dof_solref,
        ):
            stiff[:] = solref
        for solimp in (
            model.geom_solimp,
            model.pair_solimp,
            model.jnt_solimp,
            model.eq_solimp,
            model.dof_solimp,
        ):
            solimp[:, :2] = [0.99, 0.999]
    data = mujoco.MjData(model)
    data.qpos[list(scene.q)], data.qvel[list(scene.v)] = list(scene.q.values()), list(scene.v.values())
    if scene.controls:
        data.ctrl[:] = scene.controls
    steps = round(scene.duration / dt)
    q, v = np.empty((steps + 1, model.nq)), np.empty((steps + 1, model.nv))
    q[0], v[0] = data.qpos, data.qvel
    for k in range(steps):
        mujoco.mj_step(model, data)
        q[k + 1], v[k + 1] = data.qpos, data.qvel
    return Path(dt * np.arange(steps + 1), q, v)

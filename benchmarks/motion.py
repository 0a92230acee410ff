"""Motion with impacts: Newton's cradle beside MuJoCo and Bullet, TREX's drop, the design problem.

Each engine has the same balls on the same springs; Bullet is the LCP engine of Seghete & Murphey, Fig. 2b.
Curves of the last runs are kept in `CURVES` for the figures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.runner import Case
from jaxcontact import models, optimize, simulate, viz
from jaxcontact.optimize.design_equations import DesignEquations
from jaxcontact.status import Status

IMPACTS, PEER_IMPACTS, SWING = 10_000, 60, 0.2
SPEEDS = np.linspace(0.5, 5.0, 46)
RESTITUTIONS = (1.0, 0.7, 0.0)
LENGTHS = ("front_radius", "rear_radius", "thigh", "shank")
CURVES: dict[str, dict[str, Any]] = {"single": {}, "repeated": {}, "order": {}}


def _energy(x: np.ndarray, v: np.ndarray, rate: float) -> np.ndarray:
    """Over that at the start, for balls of 1 kg at displacements x (..., 3)."""
    return np.sum(v**2 + (rate * x) ** 2, axis=-1) / (rate * SWING) ** 2


def _thinned(ratio: np.ndarray, impacts: float) -> tuple[np.ndarray, np.ndarray]:
    """Some energies of a whole run (T,) against the number of impacts, medians of a swing each."""
    per = len(ratio) / impacts
    count = np.unique(np.round(np.geomspace(1, impacts - 1, 60)).astype(int))
    return count, np.array([np.median(ratio[int(k * per) : int((k + 1) * per)]) for k in count])


def _cradle() -> Callable[[], dict[str, Any]]:
    model = models.swinging_cradle()
    home, rate = np.asarray(model.params.constants["home"]), float(model.params.constants["rate"])
    run_all = functools.partial(
        simulate.variational, model, model.initial_state(), dt=0.02, duration=IMPACTS / 2.0 + 10.0,
        max_impacts=16,
    )  # fmt: skip

    def run() -> dict[str, Any]:
        found = jax.block_until_ready(run_all())
        ratio = _energy(np.asarray(found.states.q) - home, np.asarray(found.states.v), rate)
        CURVES["repeated"]["jaxcontact"] = _thinned(ratio, int(found.impacts.count))
        return {
            "impacts": int(found.impacts.count),
            "energy drift": float(np.max(np.abs(ratio - 1.0))),
            "failed steps": int(np.sum((np.asarray(found.status) & int(Status.FAILURES)) != 0)),
        }

    return run


def _mujoco_balls(home: np.ndarray, rate: float, restitution: float = 1.0) -> Any:
    """Three balls on a line; contacts are springs, 1e6 / s^2, in steps of 0.1 ms: what is stiffer gains more.

    Their damping gives two balls this restitution; for 0 it is critical.
    """
    import mujoco

    lost = -np.log(restitution) if restitution > 0 else np.inf
    ratio = 1.0 / np.sqrt(1.0 + (np.pi / lost) ** 2) if lost > 0 else 0.0
    ball = (
        '<body pos="{} 0 0"><joint type="slide" axis="1 0 0" stiffness="{}"/>'
        '<geom type="sphere" size="0.05" mass="1" condim="1"/></body>'
    )
    balls = "".join(ball.format(x, rate**2) for x in home)
    return mujoco.MjModel.from_xml_string(
        '<mujoco><option gravity="0 0 0" timestep="1e-4"/><default>'
        f'<geom solref="-1e6 {-2e3 * ratio}" solimp="1 1 0.001"/>'
        f"</default><worldbody>{balls}</worldbody></mujoco>"
    )


def _cradle_mujoco() -> Callable[[], dict[str, Any]]:
    import mujoco

    model = models.swinging_cradle()
    home, rate = np.asarray(model.params.constants["home"]), float(model.params.constants["rate"])
    compiled = _mujoco_balls(home, rate)

    def run() -> dict[str, Any]:
        data = mujoco.MjData(compiled)
        data.qpos[0] = -SWING
        ratio = np.empty(int(PEER_IMPACTS / 2.0 / 1e-4))
        for i in range(len(ratio)):
            mujoco.mj_step(compiled, data)
            ratio[i] = _energy(data.qpos, data.qvel, rate)
        CURVES["repeated"]["MuJoCo"] = _thinned(ratio, PEER_IMPACTS)
        return {"energy at the end": float(CURVES["repeated"]["MuJoCo"][1][-1])}

    return run


def _bullet_balls(positions: np.ndarray, dt: float, restitution: float) -> tuple[Any, list[int]]:
    import pybullet

    pybullet.connect(pybullet.DIRECT)
    pybullet.setGravity(0, 0, 0)
    pybullet.setTimeStep(dt)
    pybullet.setPhysicsEngineParameter(restitutionVelocityThreshold=0.0)
    shape = pybullet.createCollisionShape(pybullet.GEOM_SPHERE, radius=0.05)
    balls = [pybullet.createMultiBody(1.0, shape, basePosition=[x, 0, 0]) for x in positions]
    for b in balls:
        pybullet.changeDynamics(
            b, -1, restitution=restitution, lateralFriction=0, rollingFriction=0, spinningFriction=0,
            linearDamping=0, angularDamping=0,
        )  # fmt: skip
    return pybullet, balls


def _cradle_bullet() -> Callable[[], dict[str, Any]]:
    import pybullet  # noqa: F401  the case is skipped without it

    model = models.swinging_cradle()
    home, rate = np.asarray(model.params.constants["home"]), float(model.params.constants["rate"])

    def run() -> dict[str, Any]:
        dt = 1.0 / 240.0
        engine, balls = _bullet_balls(np.asarray(model.initial_state().q), dt, 1.0)
        ratio = np.empty(int(PEER_IMPACTS / 2.0 / dt))

        def displaced() -> np.ndarray:
            return np.array([engine.getBasePositionAndOrientation(b)[0][0] for b in balls]) - home

        for i in range(len(ratio)):
            for b, x in zip(balls, displaced(), strict=True):
                force = [-(rate**2) * x, 0.0, 0.0]
                engine.applyExternalForce(b, -1, force, [0, 0, 0], engine.LINK_FRAME)
            engine.stepSimulation()
            v = np.array([engine.getBaseVelocity(b)[0][0] for b in balls])
            ratio[i] = _energy(displaced(), v, rate)
        engine.disconnect()
        CURVES["repeated"]["Bullet"] = _thinned(ratio, PEER_IMPACTS)
        return {"energy at the end": float(CURVES["repeated"]["Bullet"][1][-1])}

    return run


def _single() -> Callable[[], dict[str, Any]]:
    """One simultaneous impact: the first ball meets two at rest that touch; no springs."""
    model = models.swinging_cradle(frequency=0.0)
    settings = {"dt": 0.01, "duration": 1.0}

    def after(speed: jax.Array, restitution: jax.Array) -> jax.Array:
        state = model.initial_state().replace(v=model.initial_state().v.at[0].set(speed))
        found = simulate.variational(
            model, state, simulate.Variational(restitution=restitution, max_impacts=16), **settings
        )
        return jnp.sum(found.states.v[-1] ** 2) / speed**2

    grid = jax.jit(jax.vmap(jax.vmap(after, (None, 0)), (0, None)))

    def run() -> dict[str, Any]:
        ratio = np.asarray(grid(jnp.asarray(SPEEDS), jnp.asarray(RESTITUTIONS)))
        CURVES["single"]["jaxcontact"] = (SPEEDS, ratio)
        # Plastic: all three go on together, a third of the energy; R^2 of the rest comes back.
        exact = 1.0 / 3.0 + np.array(RESTITUTIONS) ** 2 * 2.0 / 3.0
        return {"worst error of the energy": float(np.max(np.abs(ratio - exact)))}

    return run


def _single_bullet() -> Callable[[], dict[str, Any]]:
    import pybullet  # noqa: F401  the case is skipped without it

    def after(speed: float, restitution: float) -> float:
        dt = 1.0 / 240.0
        engine, balls = _bullet_balls(np.array([-0.4, 0.0, 0.1]), dt, restitution)
        engine.resetBaseVelocity(balls[0], [speed, 0, 0])
        for _ in range(int(0.3 / speed / dt) + 50):
            engine.stepSimulation()
        v = np.array([engine.getBaseVelocity(b)[0][0] for b in balls])
        engine.disconnect()
        return float(np.sum(v**2) / speed**2)

    def run() -> dict[str, Any]:
        ratio = np.array([[after(s, e) for e in RESTITUTIONS] for s in SPEEDS])
        CURVES["single"]["Bullet"] = (SPEEDS, ratio)
        return {"least elastic": float(ratio[:, 0].min()), "largest elastic": float(ratio[:, 0].max())}

    return run


def _single_mujoco() -> Callable[[], dict[str, Any]]:
    import mujoco

    compiled = [_mujoco_balls(np.array([-0.11, 0.0, 0.1]), 0.0, e) for e in RESTITUTIONS]

    def after(model: Any, speed: float) -> float:
        data = mujoco.MjData(model)
        data.qvel[0] = speed
        mujoco.mj_step(model, data, round((0.02 / speed + 0.1) / model.opt.timestep))
        return float(np.sum(data.qvel**2) / speed**2)

    def run() -> dict[str, Any]:
        ratio = np.array([[after(model, s) for model in compiled] for s in SPEEDS])
        CURVES["single"]["MuJoCo"] = (SPEEDS, ratio)
        return {"least elastic": float(ratio[:, 0].min()), "largest elastic": float(ratio[:, 0].max())}

    return run


def _design(differences: bool) -> Callable[[], dict[str, Any]]:
    model = models.trex()
    task = optimize.DesignTask(
        design=LENGTHS, rebuild=models.trex_params, hold=(0,), clearance=1e-3, friction="none"
    )

    def run() -> dict[str, Any]:
        problem = DesignEquations(model, model.initial_state(), task)
        found = problem.nearest(differences=differences)
        return {
            "evaluations": problem.evaluations,
            "iterations": int(found.nit),
            "distance": float(np.sqrt(found.fun)),
            "equations": float(np.max(np.abs(problem.residual(found.x)))),
        }

    return run


def _drop() -> Callable[[], dict[str, Any]]:
    model = models.trex()
    params, state, report = optimize.impact_design(
        model, model.initial_state(),
        optimize.DesignTask(
            design=LENGTHS, rebuild=models.trex_params, hold=(0,), clearance=1e-3, friction="none"
        ),
    )  # fmt: skip
    stances = {"optimised stance": state.q, "initial stance": models.trex_straight(params, state.q[2])}

    def run() -> dict[str, Any]:
        figures: dict[str, Any] = {"cosine": float(report.cosine)}
        for name, q in stances.items():
            drop = models.trex_drop(params, q)
            both = [
                simulate.variational(
                    drop, drop.initial_state(), simulate.Variational(order=order), dt=1e-3, duration=0.6
                )
                for order in ("most_violated", "least_violated")
            ]
            xi = np.asarray(simulate.momentum_difference(drop, *both))
            CURVES["order"][name] = (np.asarray(both[0].states.t), xi)
            failed = sum(int(np.sum((np.asarray(x.status) & int(Status.FAILURES)) != 0)) for x in both)
            # Row 187 is the first after the landing.
            figures |= {
                f"{name}: first impact": float(xi[187]),
                f"{name}: median after": float(np.median(xi[187:])),
            }
            figures |= {f"{name}: impacts": int(both[0].impacts.count), f"{name}: failed steps": failed}
        return figures

    return run


def draw(folder: Path) -> None:
    """The figures of the cases that have run."""
    if CURVES["single"] or CURVES["repeated"]:
        picture = viz.plot_cradle_energy(
            CURVES["single"], CURVES["repeated"],
            title="Newton's cradle: restitution 1, 0.7, 0 (left), 1 (right)",
        )  # fmt: skip
        picture.savefig(folder / "cradle_energy.png", dpi=110)
    if CURVES["order"]:
        picture = viz.plot_order_difference(
            CURVES["order"], title="TREX dropped by 17 cm: two orders of single impacts"
        )
        picture.savefig(folder / "trex_orders.png", dpi=110)


CASES = [
    Case(name="cradle 10^4 impacts, variational", items=IMPACTS, setup=_cradle, repeats=3),
    Case(name="cradle 60 impacts, MuJoCo", items=PEER_IMPACTS, setup=_cradle_mujoco, repeats=1),
    Case(name="cradle 60 impacts, Bullet", items=PEER_IMPACTS, setup=_cradle_bullet, repeats=1),
    Case(name="cradle one impact, variational", items=3 * len(SPEEDS), setup=_single, repeats=3),
    Case(name="cradle one impact, Bullet", items=3 * len(SPEEDS), setup=_single_bullet, repeats=1),
    Case(name="cradle one impact, MuJoCo", items=3 * len(SPEEDS), setup=_single_mujoco, repeats=1),
    Case(name="impact design of TREX, autodiff", items=1, setup=functools.partial(_design, False)),
    Case(name="impact design of TREX, differences", items=1, setup=functools.partial(_design, True)),
    Case(name="TREX drop, two stances, two orders", items=2400, setup=_drop, repeats=3),
]

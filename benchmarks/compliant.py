"""Compliant steps: a box, feet, a foundation and a stack, beside MuJoCo, MJX and SciPy's stiff solvers.

Every peer simulates the same mechanism for the same time, and says how far it ends from the truth: the
stopping distance of a rigid box v^2 / (2 mu g), the deflection of the foundation, the balance of the stack.
Batches are by `jc.simd` or, where the name says so, by XLA, on all cores, and so are MuJoCo's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import runner
from benchmarks.runner import Case

Run = Callable[[], dict[str, Any]]
SIDE, MU, SPEED = 0.1, 0.5, 1.0  # m, friction, m/s along the floor at the start
STOP = SPEED**2 / (2 * MU * 9.81)
HERE = np.array([0.0, 0.0, SIDE / 2, 1.0, 0.0, 0.0, 0.0])


def _sliding_box(num_feet: int | None = None) -> jc.Model:
    """A box of 1 kg on four corners, or on feet along two edges of its bottom."""
    if num_feet is None:
        shape, constants = jc.Box(name="box", body="box", size="size", corners=(0, 1, 2, 3)), {}
    else:
        across = np.where(np.arange(num_feet) % 2, 1.0, -1.0) * SIDE / 2
        along = SIDE * (np.arange(num_feet) // 2 / max(1, (num_feet - 1) // 2) - 0.5)
        feet = np.stack([along, across, np.full(num_feet, -SIDE / 2)], axis=1)
        shape = jc.Points(name="box", body="box", at="feet", count=num_feet)
        constants = {"feet": jnp.asarray(feet)}
    structure = jc.Structure(
        dim=3,
        bodies=("box",),
        num_positions=7,
        quaternions=(3,),
        shapes=(shape, jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0))),
        pairs=(("box", "floor"),),
    )
    params = jc.Params(
        mass=jnp.ones(1),
        inertia=jnp.full((1, 3), SIDE**2 / 6),
        mu=jnp.array(MU),
        gravity=jnp.array([0.0, 0.0, -9.81]),
        constants={"size": jnp.full(3, SIDE)} | constants,
        material=jc.compliant.Material(stiffness=jnp.array(1e6), damping=jnp.array(1e2)),
    )
    state = jc.State(q=jnp.asarray(HERE), v=jnp.array([SPEED, 0.0, 0.0, 0.0, 0.0, 0.0]), t=jnp.array(0.0))
    return jc.Model(system=jc.System(structure, jc.free_poses), params=params, initial=state)


def _starts(batch: int) -> np.ndarray:
    """Initial speeds, a little different in every world."""
    return SPEED * np.linspace(0.9, 1.1, batch) if batch > 1 else np.array([SPEED])


def _final(model: jc.Model, state: jc.State, steps: int, dt: float) -> Any:
    """Last state, and the status of all steps."""

    def again(carry: Any, _: None) -> Any:
        now, lam, status = carry
        now, info = jc.compliant.step(
            model, now, jnp.zeros_like(now.v), dt=dt, memory=jc.compliant.StepMemory(forces=lam)
        )
        return (now, info.lam, status | info.status), None

    shape = jax.eval_shape(jc.constraint_terms, model, state).phi
    start = state, jnp.zeros(shape.shape, shape.dtype), jnp.uint32(0)
    (end, _, status), _ = jax.lax.scan(again, start, None, length=steps)
    return end, status


def _share_good(status: Any) -> float:
    return 100 * float(np.mean(np.asarray(status) == 0))


def _distance_error(x: np.ndarray, speeds: np.ndarray) -> float:
    """Worst error of the stopping distance, % of it."""
    truth = speeds**2 / (2 * MU * 9.81)
    return 100 * float(np.max(np.abs(x - truth) / truth))


def _box(batch: int, steps: int, dt: float, num_feet: int | None = None, by_xla: bool = False) -> Run:
    model = _sliding_box(num_feet)
    speeds = _starts(batch)
    v = np.zeros((batch, 6))
    v[:, 0] = speeds

    def one(v: jax.Array) -> Any:
        return _final(model, model.initial_state().replace(v=v), steps, dt)

    march = jc.on_all_cores(jax.vmap(one)) if by_xla else jc.simd(one, nan=False)

    def run() -> dict[str, Any]:
        end, status = jax.block_until_ready(march(v))
        error = _distance_error(np.asarray(end.q[:, 0]), speeds)
        return {"stop error %": error, "status 0 %": _share_good(status)}

    return run


def _mjcf(dt: float, num_feet: int | None) -> str:
    if num_feet is None:
        geoms = f'<geom type="box" size="{SIDE / 2} {SIDE / 2} {SIDE / 2}" mass="1"/>'
    else:
        feet = np.asarray(_sliding_box(num_feet).params.constants["feet"])
        small = 1e-4
        geoms = "".join(
            f'<geom type="sphere" size="{small}" pos="{x} {y} {z + small}" mass="0"/>' for x, y, z in feet
        )
        inertia = SIDE**2 / 6
        geoms += f'<inertial pos="0 0 0" mass="1" diaginertia="{inertia} {inertia} {inertia}"/>'
    return f"""<mujoco><option timestep="{dt}" cone="elliptic" integrator="implicitfast" gravity="0 0 -9.81"/>
<default><geom friction="{MU} 0 0" condim="3" solref="0.02 1"/></default><worldbody>
<geom type="plane" size="0 0 1" contype="2" conaffinity="1"/><body pos="0 0 {SIDE / 2}"><freejoint/>
{geoms.replace("<geom", '<geom contype="1" conaffinity="2"')}</body></worldbody></mujoco>"""


def _box_mujoco(batch: int, steps: int, dt: float, num_feet: int | None = None) -> Run:
    import mujoco
    import mujoco.rollout

    model = mujoco.MjModel.from_xml_string(_mjcf(dt, num_feet))
    data = mujoco.MjData(model)
    threads = [mujoco.MjData(model) for _ in runner.os_affinity()]
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    start = np.zeros(size)
    mujoco.mj_getState(model, data, start, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    starts = np.tile(start, (batch, 1))
    speeds = _starts(batch)
    starts[:, 1 + model.nq] = speeds

    def run() -> dict[str, Any]:
        states, _ = mujoco.rollout.rollout(model, threads, starts, nstep=steps)
        return {"stop error %": _distance_error(states[:, -1, 1], speeds)}

    return run


def _box_mjx(batch: int, steps: int, dt: float) -> Run:
    import mujoco
    from mujoco import mjx

    model = mujoco.MjModel.from_xml_string(_mjcf(dt, None).replace('cone="elliptic"', 'cone="pyramidal"'))
    there = mjx.put_model(model)
    data = mjx.make_data(there)
    speeds = _starts(batch)

    def one(speed: jax.Array) -> jax.Array:
        start = data.replace(qvel=data.qvel.at[0].set(speed))
        return jax.lax.fori_loop(0, steps, lambda _, d: mjx.step(there, d), start).qpos[0]

    march = jax.jit(jax.vmap(one))

    def run() -> dict[str, Any]:
        x = np.asarray(march(jnp.asarray(speeds)))
        return {"stop error %": _distance_error(x, speeds)}

    return run


def _box_gradient(steps: int, dt: float, reverse: bool) -> Run:
    """Forward time, or forward and reverse: derivative of the distance by the friction coefficient."""
    model = _sliding_box()

    def distance(mu: jax.Array) -> jax.Array:
        params = model.params.replace(mu=mu)
        return _final(model.replace(params=params), model.initial_state(), steps, dt)[0].q[0]

    function = jax.jit(jax.value_and_grad(distance) if reverse else distance)

    def run() -> dict[str, Any]:
        found = jax.block_until_ready(function(jnp.array(MU)))
        if not reverse:
            return {"distance m": float(found)}
        return {"error of dx/dmu %": 100 * abs(float(found[1]) * MU / -STOP - 1)}

    return run


# --- the foundation

# Depth and quaternion x, y after 1 s by an explicit method of order 8; see tests/compliant_reference.py.
ACCURATE = {
    5.0: (-8.34800226e-06, 8.15978536e-07, -1.26101069e-06),
    50.0: (-1.25250595e-05, 8.86324320e-06, -1.34042056e-05),
}


def _deflection_error(q: np.ndarray, load: float) -> float:
    found, truth = np.array([q[2] - 0.5, q[4], q[5]]), np.array(ACCURATE[load])
    return 100 * float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def _foundation(load: float, steps: int) -> Run:
    model = jc.models.box_on_foundation(900, 1e7, load)
    march = jax.jit(lambda s: _final(model, s, steps, 1.0 / steps))

    def run() -> dict[str, Any]:
        end, status = jax.block_until_ready(march(model.initial_state()))
        return {"error %": _deflection_error(np.asarray(end.q), load), "status 0 %": _share_good(status)}

    return run


def _foundation_scipy(load: float, method: str, rtol: float) -> Run:
    from scipy.integrate import solve_ivp

    from tests.oracles.compliant_reference import foundation_rate

    rate, start = foundation_rate(900, 1e7, load)

    def run() -> dict[str, Any]:
        done = solve_ivp(rate, (0.0, 1.0), start, method=method, rtol=rtol, atol=1e-5 * rtol)
        return {"error %": _deflection_error(done.y[:, -1], load), "evaluations": int(done.nfev)}

    return run


def _stack(number: int, steps: int) -> Run:
    model = jc.models.sphere_stack(number)
    march = jax.jit(lambda s: _final(model, s, steps, 0.01))

    def run() -> dict[str, Any]:
        end, status = jax.block_until_ready(march(model.initial_state()))
        fastest = float(jnp.max(jnp.abs(end.v)))
        return {"fastest at the end m/s": fastest, "status 0 %": _share_good(status)}

    return run


def _reverse(name: str, steps: int, dt: float, *arguments: Any) -> Run:
    """Derivative of where an example ends by its velocity at the start; its time to compile counts."""
    model = getattr(jc.models, name)(*arguments)
    nv = model.initial_state().v.size
    along = jnp.cos(jnp.arange(nv) + 1.0) / nv  # some direction

    def end(v: jax.Array) -> jax.Array:
        state = model.initial_state().replace(v=v)
        states, _ = jc.compliant.rollout(model, state, jnp.zeros((steps, nv)), dt=dt)
        return jnp.mean(states.q[-1])

    function = jax.jit(jax.value_and_grad(end))
    error: list[float] = []

    def run() -> dict[str, Any]:
        _, slope = jax.block_until_ready(function(model.initial_state().v))
        if not error:  # before the runs that are timed
            ahead, behind = (float(function(model.initial_state().v + h * along)[0]) for h in (1e-5, -1e-5))
            exact = float(slope @ along)
            error.append(abs((ahead - behind) / 2e-5 / exact - 1.0))
        return {"slope against differences %": 100 * error[0]}

    return run


# --- the tossed cube: derivative of its final distance by its initial speed, after 1 s

TOSS = 0.42575  # m per m/s, by differences of an ODE solution; see tests/physics/test_compliant_gradients.py


def _toss(steps: int) -> Run:
    model = jc.models.tossed_cube()

    def distance(speed: jax.Array) -> jax.Array:
        state = model.initial_state().replace(v=model.initial_state().v.at[0].set(speed))
        return _final(model, state, steps, 1.0 / steps)[0].q[0]

    function = jax.jit(lambda speed: jax.jvp(distance, (speed,), (jnp.ones_like(speed),)))

    def run() -> dict[str, Any]:
        x, slope = jax.block_until_ready(function(jnp.array(1.0)))
        return {"distance m": float(x), "slope": float(slope), "truth": TOSS}

    return run


def _toss_mjx(steps: int) -> Run:
    """MJX on the same toss; its contacts are its own, so only sign and size can be compared."""
    import mujoco
    from mujoco import mjx

    half = 0.05
    model = mujoco.MjModel.from_xml_string(f"""<mujoco>
<option timestep="{1.0 / steps}" cone="pyramidal" gravity="0 0 -9.81"/>
<default><geom friction="0.25 0 0" condim="3"/></default>
<worldbody><geom type="plane" size="0 0 1"/><body pos="0 0 0.3"><freejoint/>
<geom type="box" size="{half} {half} {half}" mass="0.37"/></body></worldbody></mujoco>""")
    there = mjx.put_model(model)
    data = mjx.make_data(there)

    def distance(speed: jax.Array) -> jax.Array:
        v = jnp.array([0.0, 0.0, 0.0, 0.5, -2.0, 0.3]).at[0].set(speed)
        start = data.replace(qvel=v)
        end, _ = jax.lax.scan(lambda d, _: (mjx.step(there, d), None), start, None, length=steps)
        return end.qpos[0]

    function = jax.jit(lambda speed: jax.jvp(distance, (speed,), (jnp.ones_like(speed),)))

    def run() -> dict[str, Any]:
        x, slope = jax.block_until_ready(function(jnp.array(1.0)))
        return {"distance m": float(x), "slope": float(slope), "truth": TOSS}

    return run


def _case(name: str, items: int, setup: Callable[..., Run], *arguments: Any, repeats: int = 5) -> Case:
    return Case(
        name=f"compliant {name}",
        items=items,
        setup=functools.partial(setup, *arguments),
        repeats=repeats,
    )


FEET = (4, 10, 30, 100)
CASES = [
    *(_case(f"box batch {n}", 50 * n, _box, n, 50, 0.01) for n in (1, 1024, 4096)),
    *(_case(f"box batch {n} by XLA", 50 * n, _box, n, 50, 0.01, None, True) for n in (1, 1024)),
    _case("box batch 1024 MuJoCo", 50 * 1024, _box_mujoco, 1024, 50, 0.01),
    _case("box batch 1024 MJX", 50 * 1024, _box_mjx, 1024, 50, 0.01, repeats=3),
    *(_case(f"{n} feet batch 256", 50 * 256, _box, 256, 50, 0.01, n, repeats=3) for n in FEET),
    *(_case(f"{n} feet batch 256 by XLA", 50 * 256, _box, 256, 50, 0.01, n, True, repeats=3) for n in FEET),
    *(_case(f"{n} feet MuJoCo", 50 * 256, _box_mujoco, 256, 50, 0.01, n, repeats=3) for n in FEET),
    _case("box 1000 steps forward", 1000, _box_gradient, 1000, 1e-3, False),
    _case("box 1000 steps forward and reverse", 1000, _box_gradient, 1000, 1e-3, True),
    *(_case(f"foundation 900 elements {load:g} N", 1, _foundation, load, 100) for load in ACCURATE),
    _case("foundation 900 elements 5 N SciPy Radau", 1, _foundation_scipy, 5.0, "Radau", 2e-2, repeats=3),
    _case("foundation 900 elements 5 N SciPy BDF", 1, _foundation_scipy, 5.0, "BDF", 2e-2, repeats=3),
    _case("foundation 900 elements 50 N SciPy Radau", 1, _foundation_scipy, 50.0, "Radau", 2e-2, repeats=3),
    _case("foundation 900 elements 50 N SciPy BDF", 1, _foundation_scipy, 50.0, "BDF", 2e-2, repeats=3),
    *(_case(f"tossed cube slope {n} steps", n, _toss, n, repeats=3) for n in (100, 1000, 3333)),
    *(_case(f"tossed cube slope {n} steps MJX", n, _toss_mjx, n, repeats=1) for n in (100, 1000, 3333)),
    *(_case(f"stack of {n} spheres, 500 steps", 1, _stack, n, 500, repeats=3) for n in (10, 100)),
    _case("reverse stack of 100 spheres", 20, _reverse, "sphere_stack", 20, 1e-2, 100, repeats=3),
    _case("reverse foundation 900 elements", 100, _reverse, "box_on_foundation", 100, 1e-2, 900, repeats=3),
    _case("reverse box on incline", 100, _reverse, "box_on_incline", 100, 1e-2, repeats=3),
    _case("reverse tossed cube", 1000, _reverse, "tossed_cube", 1000, 1e-3, repeats=3),
    _case("reverse pendulum on a joint", 1000, _reverse, "pendulum_joint", 1000, 1e-3, repeats=3),
    _case("reverse pendulum against a limit", 1000, _reverse, "pendulum_limit", 1000, 1e-3, repeats=3),
]  # fmt: skip

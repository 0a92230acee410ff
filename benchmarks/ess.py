"""The event-selected integrator against MuJoCo: a plate on one-sided springs, 2 to 100 of them.

The mechanics that both can have exactly: a plate of 1 kg in the plane, spring i attached at the body's
place x_i, vertical, pushing with k (L0 - z - x_i sin theta) where that is positive. In MuJoCo each spring
is a spatial tendon to an anchor so far above that its direction changes by 1e-7, slack up to a length
(`springlength` with a dead band). MuJoCo's tendon damping also acts on a slack tendon, so there is none.
The figures of a case are its times; `python -m benchmarks.ess` also fits the marginal time per contact.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case, os_affinity

SPAN, REST, STIFFNESS, GRAVITY, HEIGHT = 4.0, 1.0, 1000.0, 9.81, 2.0e7
# One bounce: beyond it the undamped plate on few springs is chaotic, and errors say nothing.
HORIZON, DT, STARTS, BATCH = 1.0, 0.002, 120, 1024
COUNTS = (2, 5, 10, 20, 50, 100)


def _field(t: jax.Array, x: jax.Array, signs: jax.Array, control: Any, params: Any) -> jax.Array:
    z, theta, vz, w = x
    places = params["places"]
    n = places.shape[0]
    sine, cosine = jnp.sin(theta), jnp.cos(theta)
    closed = (signs[:n] > 0) & (signs[n:] < 0)
    push = jnp.where(closed, params["stiffness"] * (REST - z - places * sine), 0.0)
    total, moment = jnp.sum(push), jnp.sum(push * places) * cosine
    return jnp.stack([vz, w, total - GRAVITY, moment / (SPAN**2 / 12.0)])


def _guards(x: jax.Array, params: Any) -> jax.Array:
    depth = REST - x[0] - params["places"] * jnp.sin(x[1])
    return jnp.concatenate([depth, -depth])


@functools.cache
def _system(n: int) -> jc.ess.EventSystem:
    none, every = np.zeros((n, n), bool), np.eye(n, dtype=bool)
    return jc.ess.EventSystem(_field, _guards, rearm=np.block([[none, every], [every, none]]))


def _params(n: int) -> dict[str, jax.Array]:
    return {"places": jnp.linspace(-0.5 * SPAN, 0.5 * SPAN, n), "stiffness": jnp.array(STIFFNESS / n)}


def starts(number: int = STARTS) -> np.ndarray:
    """Heights in (2, 3) m and angles in (-0.1, 0.1), at rest."""
    draws = np.random.default_rng(0).uniform(size=(number, 2))
    return np.stack([2.0 + draws[:, 0], 0.2 * draws[:, 1] - 0.1, *np.zeros((2, number))], axis=-1)


def solver(n: int, eps: Any, rtol: float, extra_steps: int = 256) -> Callable[[jax.Array], Any]:
    """x0 (4,) -> (end (4,), FlowInfo)."""
    es, params = _system(n), _params(n)
    crossed = jnp.arange(2 * n) >= n

    def run(x0: jax.Array) -> Any:
        return jc.ess.flow(
            es, params, x0, 0.0, HORIZON, eps=eps, crossed0=crossed,
            ode=jc.ess.DormandPrince(rtol=rtol, atol=rtol), max_steps=16 * n + extra_steps,
            max_events=12 * n + 16,
        )  # fmt: skip

    return run


def mujoco_model(n: int, dt: float = DT, integrator: str = "Euler") -> Any:
    """The same plate in MuJoCo; positions are z - 2 and theta."""
    import mujoco

    places = np.linspace(-0.5 * SPAN, 0.5 * SPAN, n)
    sites = "".join(f'<site name="p{i}" pos="{x} 0 0"/>' for i, x in enumerate(places))
    anchors = "".join(f'<site name="a{i}" pos="{x} 0 {HEIGHT}"/>' for i, x in enumerate(places))
    tendons = "".join(
        f'<spatial stiffness="{STIFFNESS / n}" springlength="0 {HEIGHT - REST}"><site site="p{i}"/>'
        f'<site site="a{i}"/></spatial>'
        for i in range(n)
    )
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{dt}" gravity="0 0 -{GRAVITY}" integrator="{integrator}">'
        f'<flag contact="disable"/></option><worldbody>{anchors}<body pos="0 0 2">'
        '<joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 -1 0"/>'
        f'<inertial pos="0 0 0" mass="1" diaginertia="1 {SPAN**2 / 12.0} 1"/>{sites}</body></worldbody>'
        f"<tendon>{tendons}</tendon></mujoco>"
    )


def mujoco_ends(model: Any, x0: np.ndarray) -> np.ndarray:
    """Ends of runs from x0 (k, 4), one thread, after `HORIZON` seconds."""
    import mujoco

    data = mujoco.MjData(model)
    steps = round(HORIZON / model.opt.timestep)
    ends = np.empty_like(x0)
    for i, x in enumerate(x0):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = x[0] - 2.0, x[1]
        data.qvel[:] = x[2:]
        mujoco.mj_step(model, data, steps)
        ends[i] = data.qpos[0] + 2.0, data.qpos[1], data.qvel[0], data.qvel[1]
    return ends


def _error(ends: np.ndarray, reference: np.ndarray) -> float:
    return float(np.median(np.sqrt(np.mean((ends - reference) ** 2, axis=1))))


def mujoco_rollout(model: Any, x0: np.ndarray) -> float:
    """Seconds that MuJoCo's `rollout` takes for runs from x0 (k, 4) on all cores."""
    import mujoco
    from mujoco import rollout

    threads = len(os_affinity())
    data = [mujoco.MjData(model) for _ in range(threads)]
    state = np.concatenate([np.zeros((len(x0), 1)), x0[:, :1] - 2.0, x0[:, 1:]], axis=1)
    with rollout.Rollout(nthread=threads) as pool:
        begin = time.perf_counter()
        pool.rollout(model, data, state, nstep=round(HORIZON / model.opt.timestep))
        return time.perf_counter() - begin


def calibrated(n: int, allowed: float, x0: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """The widest band, by halving, whose median error is at most `allowed`, and that error."""
    eps, rtol = 1e-2, 1e-5
    runs = jax.jit(lambda x, width: jax.lax.map(lambda y: solver(n, width, rtol)(y)[0], x))
    while True:
        error = _error(np.asarray(runs(jnp.asarray(x0), eps)), reference)
        if error <= allowed or eps < 1e-6:
            return eps, error
        eps *= 0.5


def _race(n: int) -> Callable[[], dict[str, Any]]:
    x0 = starts()
    tight = jax.jit(lambda x: jax.lax.map(lambda y: solver(n, 1e-6, 1e-11, 2048)(y), x))
    reference, info = jax.tree.map(np.asarray, tight(jnp.asarray(x0)))
    agreement = np.max(np.abs(mujoco_ends(mujoco_model(n, 2e-4, "RK4"), x0[:8]) - reference[:8]))
    model = mujoco_model(n)
    allowed = _error(mujoco_ends(model, x0), reference)
    eps, error = calibrated(n, allowed, x0, reference)
    one = jax.jit(solver(n, eps, 1e-5))
    many = jax.jit(lambda x: jax.lax.map(lambda y: one(y)[0], x))
    batch = np.resize(x0, (BATCH, 4))
    jax.block_until_ready((one(jnp.asarray(x0[0])), many(jnp.asarray(batch))))

    def seconds(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def run() -> dict[str, Any]:
        ours = [seconds(lambda x=x: jax.block_until_ready(one(x))) for x in jnp.asarray(x0)]
        theirs = [seconds(lambda x=x: mujoco_ends(model, x[None])) for x in x0]
        batched = seconds(lambda: jax.block_until_ready(many(jnp.asarray(batch))))
        return {
            "ms single": 1e3 * float(np.median(ours)) / HORIZON,
            "ms batched": 1e3 * batched / BATCH / HORIZON,
            "ms MuJoCo": 1e3 * float(np.median(theirs)) / HORIZON,
            "ms MuJoCo rollout": 1e3 * mujoco_rollout(model, batch) / BATCH / HORIZON,
            "eps": eps,
            "error": error,
            "error of MuJoCo": allowed,
            "agreement at small steps": float(agreement),
            "crossings": float(np.median(info.num_events)),
            "failures": int(np.count_nonzero(info.status & np.uint32(int(jc.Status.FAILURES)))),
        }

    return run


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Time per simulated second over the number of contacts, as figure 5 of Anderson & Revzen."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
    names = ("ms single", "ms batched", "ms MuJoCo", "ms MuJoCo rollout")
    for name, style in zip(names, ("o-", "o--", "s-", "s--"), strict=True):
        axes.loglog([row["n"] for row in rows], [row[name] for row in rows], style, label=name[3:])
    axes.set(xlabel="contacts", ylabel="ms per simulated second")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path: str = "ess_vs_mujoco.png") -> None:
    """Measure all sizes, print time and marginal time per contact, draw the figure."""
    jax.config.update("jax_enable_x64", True)
    rows = []
    for n in COUNTS:
        rows.append({"n": n} | _race(n)())
        print({k: float(f"{v:.3g}") for k, v in rows[-1].items()}, flush=True)
    for name in ("ms single", "ms batched", "ms MuJoCo", "ms MuJoCo rollout"):
        slope = np.polyfit([row["n"] for row in rows], [row[name] for row in rows], 1)[0]
        print(f"marginal {name} per contact: {slope:.4f}")
    plot(rows, path)


CASES = [
    Case(name=f"ess_vs_mujoco n={n}", items=STARTS, setup=functools.partial(_race, n), repeats=1)
    for n in COUNTS
]

if __name__ == "__main__":
    main()

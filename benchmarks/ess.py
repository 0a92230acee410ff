"""The event-selected integrator against MuJoCo: a plate on one-sided springs, 2 to 100 of them.

The mechanics that both can have exactly: a plate of 1 kg in the plane, spring i attached at the body's
place x_i, vertical, pushing with k (L0 - z - x_i sin theta) where that is positive. In MuJoCo each spring
is a spatial tendon to an anchor so far above that its direction changes by 1e-7, slack up to a length
(`springlength` with a dead band). MuJoCo's tendon damping also acts on a slack tendon, so there is none.
Its step is the paper's, Euler's at 2 ms, for the race; its RK4 at the longest step that is as accurate is
timed too. The figures of a case are its times; `--figures` also draws them, and fits the marginal time per
contact.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case, os_affinity

SPAN, REST, STIFFNESS, GRAVITY, HEIGHT = 4.0, 1.0, 1000.0, 9.81, 2.0e7
# One bounce: beyond it the undamped plate on few springs is chaotic, and errors say nothing.
HORIZON, DT, STARTS, BATCH = 1.0, 0.002, 120, 1024
COUNTS = (2, 5, 10, 20, 50, 100, 150, 200, 300)
BANDS = tuple(0.1 * 2.0 ** (-0.5 * k) for k in range(16))  # m
PAPER = 100  # contacts in its figure 5; marginal times are fitted up to there


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
    """The band with fewest steps of those whose median error is at most `allowed`, and that error."""
    runs = jax.jit(lambda x, eps: jax.lax.map(lambda y: solver(n, eps, 1e-5)(y), x))
    found = []
    for eps in BANDS:
        ends, info = runs(jnp.asarray(x0), eps)
        error = _error(np.asarray(ends), reference)
        failed = np.any(info.status & np.uint32(int(jc.Status.FAILURES)))
        if error <= allowed and not failed:
            found.append((float(np.mean(info.num_steps)), eps, error))
    return min(found)[1:]


def as_accurate(n: int, allowed: float, x0: np.ndarray, reference: np.ndarray) -> Any:
    """MuJoCo's model with RK4 at the longest step of 1 s / k whose median error is at most `allowed`."""
    for steps in np.unique(np.round(1.25 ** np.arange(12, 32))).astype(int):
        model = mujoco_model(n, HORIZON / steps, "RK4")
        if _error(mujoco_ends(model, x0), reference) <= allowed:
            return model
    raise RuntimeError("no step of RK4 is as accurate as Euler's")


def _race(n: int) -> Callable[[], dict[str, Any]]:
    x0 = starts()
    tight = jax.jit(lambda x: jax.lax.map(lambda y: solver(n, 1e-6, 1e-11, 2048)(y), x))
    reference, info = jax.tree.map(np.asarray, tight(jnp.asarray(x0)))
    failures = int(np.count_nonzero(info.status & np.uint32(int(jc.Status.FAILURES))))
    agreement = np.max(np.abs(mujoco_ends(mujoco_model(n, 2e-4, "RK4"), x0[:8]) - reference[:8]))
    model = mujoco_model(n)
    allowed = _error(mujoco_ends(model, x0), reference)
    eps, error = calibrated(n, allowed, x0, reference)
    careful = as_accurate(n, allowed, x0, reference)
    one = jax.jit(solver(n, eps, 1e-5))
    many = jax.jit(lambda x: jax.lax.map(lambda y: one(y)[0], x))
    together = jax.jit(jax.vmap(lambda y: one(y)[0]))
    batch = np.resize(x0, (BATCH, 4))
    parts = [jnp.asarray(part) for part in np.array_split(batch, len(os_affinity()))]
    _, info = jax.block_until_ready(one(jnp.asarray(x0[0])))
    jax.block_until_ready([many(part) for part in parts])
    if n <= PAPER:
        jax.block_until_ready(together(jnp.asarray(batch)))

    def run() -> dict[str, Any]:
        ours = [seconds(lambda x=x: jax.block_until_ready(one(x))) for x in jnp.asarray(x0)]
        theirs = [seconds(lambda x=x: mujoco_ends(model, x[None])) for x in x0]
        runge = [seconds(lambda x=x: mujoco_ends(careful, x[None])) for x in x0]
        with ThreadPoolExecutor(len(parts)) as pool:
            batched = seconds(lambda: list(pool.map(lambda x: jax.block_until_ready(many(x)), parts)))
        mapped = np.nan
        if n <= PAPER:  # both branches for all lanes, so beyond it takes minutes
            mapped = seconds(lambda: jax.block_until_ready(together(jnp.asarray(batch))))
        return {
            "ms single": 1e3 * float(np.median(ours)) / HORIZON,
            "ms batched": 1e3 * batched / BATCH / HORIZON,
            "ms vmap": 1e3 * mapped / BATCH / HORIZON,
            "ms MuJoCo": 1e3 * float(np.median(theirs)) / HORIZON,
            "ms MuJoCo RK4": 1e3 * float(np.median(runge)) / HORIZON,
            "ms MuJoCo rollout": 1e3 * mujoco_rollout(model, batch) / BATCH / HORIZON,
            "eps": eps,
            "error": error,
            "error of MuJoCo": allowed,
            "ms step of RK4": 1e3 * careful.opt.timestep,
            "agreement at small steps": float(agreement),
            "crossings": int(info.num_events),
            "steps": int(info.num_steps),
            "failures": failures,
        }

    return run


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


TIMES = {  # figure -> line in the plot
    "ms single": ("jaxcontact", "#d55e00", "o-"),
    "ms batched": ("jaxcontact, 1024 on all cores", "#d55e00", "o--"),
    "ms MuJoCo": ("MuJoCo, Euler at 2 ms", "#0072b2", "s-"),
    "ms MuJoCo RK4": ("MuJoCo, RK4 as accurate", "#009e73", "^-"),
    "ms MuJoCo rollout": ("MuJoCo rollout, 1024 on all cores", "#0072b2", "s--"),
}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Time per simulated second over the number of contacts, as figure 5 of Anderson & Revzen."""
    import matplotlib.pyplot as plt

    found = [(re.fullmatch(r"ess_vs_mujoco n=(\d+)", row["name"]), row) for row in rows if "ms single" in row]
    counts = np.array([int(match[1]) for match, _ in found if match])
    inside = counts <= PAPER
    figure, axes = plt.subplots(figsize=(5.8, 4.0), layout="constrained")
    for name, (label, color, style) in TIMES.items():
        times = np.array([row[name] for match, row in found if match])
        slope = 1e3 * np.polyfit(counts[inside], times[inside], 1)[0]
        axes.loglog(
            counts, times, style, color=color, label=f"{label}: {slope:.0f} us per contact", ms=4, lw=1.2
        )
    axes.axvspan(PAPER, counts.max(), color="#b5b5b5", alpha=0.2, lw=0, zorder=0)
    axes.set_xlabel("contacts (shaded: beyond the paper's)", fontsize=9)
    axes.set_ylabel("ms per simulated second", fontsize=9)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


CASES = [
    Case(name=f"ess_vs_mujoco n={n}", items=STARTS, setup=functools.partial(_race, n), repeats=1)
    for n in COUNTS
]

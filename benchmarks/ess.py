"""The event-selected integrator against MuJoCo: a plate on one-sided springs, 2 to 100 of them.

The mechanics that both can have exactly: a plate of 1 kg in the plane, spring i attached at the body's
place x_i, vertical, pushing with k (L0 - z - x_i sin theta) where that is positive. In MuJoCo each spring
is a spatial tendon to an anchor so far above that its direction changes by 1e-7, slack up to a length
(`springlength` with a dead band). MuJoCo's tendon damping also acts on a slack tendon; where there are
dampers, c per spring, the tendon has an actuator that pushes with max(0, k depth + c d(depth)/dt), and so do
ours.
Its step is the paper's, Euler's at 2 ms, for the race; its RK4 at the longest step that is as accurate is
timed too. The figures of a case are its times; `--figures` also draws them, and fits the marginal time per
contact.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
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
DAMPING = 5.0  # N s/m, all dampers together, of the cases with spring-dampers
AGREED = 1e-4  # m and rad; nothing is timed where the two differ more at small steps


def _depth(x: jax.Array, params: Any) -> jax.Array:
    """Of every spring; with dampers that of a spring alone with the same force."""
    depth = REST - x[0] - params["places"] * jnp.sin(x[1])
    if "damping" not in params:
        return depth
    return depth - params["damping"] / params["stiffness"] * (x[2] + params["places"] * jnp.cos(x[1]) * x[3])


def _field(t: jax.Array, x: jax.Array, signs: jax.Array, control: Any, params: Any) -> jax.Array:
    _, theta, vz, w = x
    places = params["places"]
    n = places.shape[0]
    cosine = jnp.cos(theta)
    closed = (signs[:n] > 0) & (signs[n:] < 0)
    push = jnp.where(closed, params["stiffness"] * _depth(x, params), 0.0)
    total, moment = jnp.sum(push), jnp.sum(push * places) * cosine
    return jnp.stack([vz, w, total - GRAVITY, moment / (SPAN**2 / 12.0)])


def _guards(x: jax.Array, params: Any) -> jax.Array:
    depth = _depth(x, params)
    return jnp.concatenate([depth, -depth])


@functools.cache
def _system(n: int) -> jc.ess.EventSystem:
    none, every = np.zeros((n, n), bool), np.eye(n, dtype=bool)
    return jc.ess.EventSystem(_field, _guards, rearm=np.block([[none, every], [every, none]]))


def _params(n: int, damping: float = 0.0) -> dict[str, jax.Array]:
    params = {"places": jnp.linspace(-0.5 * SPAN, 0.5 * SPAN, n), "stiffness": jnp.array(STIFFNESS / n)}
    return params | {"damping": jnp.array(damping / n)} if damping else params


def starts(number: int = STARTS) -> np.ndarray:
    """Heights in (2, 3) m and angles in (-0.1, 0.1), at rest."""
    draws = np.random.default_rng(0).uniform(size=(number, 2))
    return np.stack([2.0 + draws[:, 0], 0.2 * draws[:, 1] - 0.1, *np.zeros((2, number))], axis=-1)


def solver(
    n: int, eps: Any, rtol: float, extra_steps: int = 256, damping: float = 0.0
) -> Callable[[jax.Array], Any]:
    """x0 (4,) -> (end (4,), FlowInfo)."""
    es, params = _system(n), _params(n, damping)
    crossed = jnp.arange(2 * n) >= n
    ode = jc.ess.DormandPrince(rtol=rtol, atol=rtol)
    settings = jc.ess.Settings(eps=eps, ode=ode, max_steps=16 * n + extra_steps, max_events=12 * n + 16)

    def run(x0: jax.Array) -> Any:
        return jc.ess.flow(
            jc.Model(system=es, params=params), x0, 0.0, HORIZON, settings=settings, crossed0=crossed
        )

    return run


def mujoco_model(n: int, dt: float = DT, integrator: str = "Euler", damping: float = 0.0) -> Any:
    """The same plate in MuJoCo; positions are z - 2 and theta."""
    import mujoco

    places = np.linspace(-0.5 * SPAN, 0.5 * SPAN, n)
    sites = "".join(f'<site name="p{i}" pos="{x} 0 0"/>' for i, x in enumerate(places))
    anchors = "".join(f'<site name="a{i}" pos="{x} 0 {HEIGHT}"/>' for i, x in enumerate(places))
    spring = "" if damping else f'stiffness="{STIFFNESS / n}" springlength="0 {HEIGHT - REST}"'
    tendons = "".join(
        f'<spatial name="t{i}" {spring}><site site="p{i}"/><site site="a{i}"/></spatial>' for i in range(n)
    )
    k, force = STIFFNESS / n, 'biastype="affine" gainprm="0" forcelimited="true" forcerange="-1e9 0"'
    dampers = "".join(
        f'<general tendon="t{i}" {force} biasprm="{k * (HEIGHT - REST)} {-k} {-damping / n}"/>'
        for i in range(n if damping else 0)
    )
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{dt}" gravity="0 0 -{GRAVITY}" integrator="{integrator}">'
        f'<flag contact="disable"/></option><worldbody>{anchors}<body pos="0 0 2">'
        '<joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 -1 0"/>'
        f'<inertial pos="0 0 0" mass="1" diaginertia="1 {SPAN**2 / 12.0} 1"/>{sites}</body></worldbody>'
        f"<tendon>{tendons}</tendon><actuator>{dampers}</actuator></mujoco>"
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


def calibrated(
    n: int, allowed: float, x0: np.ndarray, reference: np.ndarray, damping: float = 0.0
) -> tuple[float, float]:
    """The band with fewest steps of those whose median error is at most `allowed`, and that error."""
    runs = jax.jit(lambda x, eps: jax.lax.map(lambda y: solver(n, eps, 1e-5, damping=damping)(y), x))
    found = []
    for eps in BANDS:
        ends, info = runs(jnp.asarray(x0), eps)
        error = _error(np.asarray(ends), reference)
        failed = np.any(info.status & np.uint32(int(jc.Status.FAILURES)))
        if error <= allowed and not failed:
            found.append((float(np.mean(info.num_iters)), eps, error))
    return min(found)[1:]


def as_accurate(n: int, allowed: float, x0: np.ndarray, reference: np.ndarray, damping: float = 0.0) -> Any:
    """MuJoCo's model with RK4 at the longest step of 1 s / k whose median error is at most `allowed`."""
    for steps in np.unique(np.round(1.25 ** np.arange(12, 32))).astype(int):
        model = mujoco_model(n, HORIZON / steps, "RK4", damping)
        if _error(mujoco_ends(model, x0), reference) <= allowed:
            return model
    raise RuntimeError("no step of RK4 is as accurate as Euler's")


def agreed(n: int, x0: np.ndarray, damping: float = 0.0) -> tuple[np.ndarray, int, float]:
    """Accurate ends of runs from x0, how many failed, and how far MuJoCo's are off at small steps.

    Raises:
        RuntimeError: by more than `AGREED`; the two are not the same mechanics, and no time means anything.
    """
    tight = jax.jit(lambda x: jax.lax.map(lambda y: solver(n, 1e-6, 1e-11, 2048, damping)(y), x))
    reference, info = jax.tree.map(np.asarray, tight(jnp.asarray(x0)))
    failures = int(np.count_nonzero(info.status & np.uint32(int(jc.Status.FAILURES))))
    small = mujoco_ends(mujoco_model(n, 2e-4, "RK4", damping), x0[:8])
    apart = float(np.max(np.abs(small - reference[:8])))
    if not apart <= AGREED:
        raise RuntimeError(
            f"{n} contacts: MuJoCo ends {apart:.1e} apart at small steps, more than {AGREED:g}"
        )
    return reference, failures, apart


def _race(n: int, damping: float = 0.0) -> Callable[[], dict[str, Any]]:
    x0 = starts()
    reference, failures, agreement = agreed(n, x0, damping)
    model = mujoco_model(n, damping=damping)
    allowed = _error(mujoco_ends(model, x0), reference)
    eps, error = calibrated(n, allowed, x0, reference, damping)
    careful = as_accurate(n, allowed, x0, reference, damping)
    run_one = solver(n, eps, 1e-5, damping=damping)
    one = jax.jit(run_one)
    many = jc.on_all_cores(lambda x: jax.lax.map(lambda y: run_one(y)[0], x))
    together = jax.jit(jax.vmap(lambda y: run_one(y)[0]))
    batch = np.resize(x0, (BATCH, 4))
    _, info = jax.block_until_ready(one(jnp.asarray(x0[0])))
    many(batch)
    if n <= PAPER:
        jax.block_until_ready(together(jnp.asarray(batch)))

    def run() -> dict[str, Any]:
        ours = [seconds(lambda x=x: jax.block_until_ready(one(x))) for x in jnp.asarray(x0)]
        theirs = [seconds(lambda x=x: mujoco_ends(model, x[None])) for x in x0]
        runge = [seconds(lambda x=x: mujoco_ends(careful, x[None])) for x in x0]
        batched = seconds(lambda: jax.block_until_ready(many(batch)))
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
            "agreement at small steps": agreement,
            "crossings": int(info.num_events),
            "steps": int(info.num_iters),
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
] + [
    Case(
        name=f"ess_vs_mujoco damped n={n}", items=STARTS, repeats=1,
        setup=functools.partial(_race, n, DAMPING),
    )
    for n in COUNTS if n <= PAPER
]  # fmt: skip

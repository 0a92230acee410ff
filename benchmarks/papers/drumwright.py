"""Drumwright, An Unconditionally Stable First-Order Constraint Solver."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxcontact as jc
from benchmarks.papers import foundation_times


def _roll(model: jc.Model, dt: float, steps: int, **options: Any) -> tuple[Any, Any]:
    controls = jnp.zeros((steps, model.structure.num_velocities))
    return jc.compliant.rollout(model, model.initial_state(), controls, dt=dt, **options)


def _lines(
    path: Path, panels: list[tuple[str, dict[str, tuple[Any, Any]]]], xlabel: str, ylabel: str
) -> None:
    figure = Figure(figsize=(2.7 * len(panels) + 0.6, 2.6), layout="constrained")
    for axes, (title, curves) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        for label, (x, y) in curves.items():
            axes.plot(np.asarray(x), np.asarray(y), lw=1.2, label=label)
        axes.set_title(title, fontsize=9)
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlabel(xlabel, fontsize=8)
        axes.set_ylabel(ylabel, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves) > 1:
            axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def _spring(k: float, b: float, h: float, steps: int, semi_implicit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Euler's explicit or semi-implicit method on m = 1 kg from x = 1 m, in plain NumPy."""
    x, v, found = 1.0, 0.0, []
    for _ in range(steps):
        found.append(x)
        pushed = v - h * (k * x + b * v)
        x, v = x + h * (pushed if semi_implicit else v), pushed
    return h * np.arange(steps), np.array(found)


def explicit(path: Path) -> None:
    """Fig. 1: explicit Euler at h = 1e-5 s and 1e6 N/m for three dampings."""
    panels = [
        (f"b = {b:g} N s/m", {"x": _spring(1e6, b, 1e-5, n, False)})
        for b, n in ((1, 20000), (2e5, 20), (2.1e5, 40))
    ]
    _lines(path, panels, "t, s", "x, m")


def semi_implicit(path: Path) -> None:
    """Fig. 2: semi-implicit Euler at h = 1e-3 s and b = 1 N s/m for two stiffnesses."""
    panels = [(f"k = {k:g} N/m", {"x": _spring(k, 1.0, 1e-3, n, True)}) for k, n in ((1e6, 60), (1e7, 10))]
    _lines(path, panels, "t, s", "x, m")


def implicit(path: Path) -> None:
    """Fig. 3: a constraint of 1e6 N/m without damping at two steps."""

    def on_a_line(structure: Any, q: jax.Array, params: Any) -> Any:
        return jnp.stack([q, jnp.zeros_like(q)], axis=1), jnp.zeros(1)

    def stretch(structure: Any, q: jax.Array, params: Any) -> Any:
        return q, jnp.zeros(0)

    structure = jc.Structure(dim=2, bodies=("mass",), num_positions=1)
    model = jc.Model(
        system=jc.System(structure, on_a_line, constraints=stretch),
        params=jc.Params(
            mass=jnp.ones(1), inertia=jnp.zeros(1), mu=jnp.array(0.0), gravity=jnp.zeros(2), constants={},
            material=jc.compliant.Material(stiffness=1e6, damping=0.0),
        ),
        initial=jc.State(q=jnp.ones(1), v=jnp.zeros(1), t=jnp.array(0.0)),
    )  # fmt: skip
    curves = {}
    for dt in (1e-5, 1e-2):
        states, _ = _roll(model, dt, round(0.05 / dt))
        curves[f"h = {dt:g} s"] = (states.t, states.q[:, 0])
    _lines(path, [("k = 1e6 N/m, b = 0", curves)], "t, s", "x, m")


def pendulum_joint(path: Path) -> None:
    """Fig. 4: how far a joint of 1e15 N/m comes apart at two steps."""
    panels = []
    for dt in (0.1, 1e-3):
        states, _ = _roll(jc.models.pendulum_joint(), dt, round(2.0 / dt))
        x, y, angle = states.q.T
        panels.append(
            (f"h = {dt:g} s", {"deviation": (states.t, jnp.hypot(x - jnp.sin(angle), y + jnp.cos(angle)))})
        )
    _lines(path, panels, "t, s", "deviation, m")


LIMIT, INERTIA, WEIGHT = 1e12, 1.005, 9.81  # N m/rad, kg m^2, N m of `jc.models.pendulum_limit`


def limited_step(theta: Any, rate: Any, dt: float) -> tuple[Any, Any]:
    """Take one step of the paper of that pendulum, in closed form; 10^8 of them are drawn."""
    free = rate - dt * WEIGHT / INERTIA * jnp.sin(theta)
    push = jnp.maximum(0.0, -LIMIT * (theta + dt * free)) / (1.0 + dt * dt * LIMIT / INERTIA)
    rate = free + dt * push / INERTIA
    return theta + dt * rate, rate


@functools.partial(jax.jit, static_argnames=("samples", "between"))
def full_swing(dt: float, samples: int, between: int) -> jax.Array:
    """Angles (samples,) from the horizontal on, every `between` steps."""

    def sample(carry: Any, _: None) -> Any:
        carry = jax.lax.fori_loop(0, between, lambda _, c: limited_step(*c, dt), carry)
        return carry, carry[0]

    return jax.lax.scan(sample, (jnp.array(np.pi / 2), jnp.array(0.0)), None, length=samples)[1]


def pendulum_limit(path: Path) -> None:
    """Fig. 6: a pendulum from the horizontal on a limit of 1e12 N m/rad at four steps, and its impact."""
    model, shown, samples = jc.models.pendulum_limit(), 1.5, 250
    speed = float(np.sqrt(2 * WEIGHT / INERTIA))
    near = model.replace(initial=model.initial_state().replace(q=jnp.array([1e-6]), v=jnp.array([-speed])))
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    swing, impact = figure.subplots(1, 2, width_ratios=(3, 2))
    for dt, color, style in (
        (1e-5, "#c0392b", "-"), (1e-6, "#0072b2", "-."), (1e-7, "0.5", ":"), (1e-8, "#2e8b57", "--")
    ):  # fmt: skip
        angles = full_swing(dt, samples, round(shown / dt / samples))
        swing.plot(shown / samples * np.arange(1, samples + 1), np.degrees(angles), style, color=color,
                   label=f"h = {dt:g} s")  # fmt: skip
        states, _ = _roll(near, dt, max(3, round(5e-6 / dt)))
        inside = np.asarray(states.t <= 5.5e-6 if dt < 5e-6 else states.t <= 2e-5)
        t = np.append(0.0, 1e6 * np.asarray(states.t)[inside])
        impact.plot(t, np.append(-1.0, np.asarray(states.v)[inside, 0] / speed), style, color=color)
    impact.set_xlim(0, 12)
    for axes, xlabel, ylabel in (
        (swing, "t, s", "angle, degrees"), (impact, "t from a microradian before, us", "rate, of that before")
    ):  # fmt: skip
        axes.set_xlabel(xlabel, fontsize=8)
        axes.set_ylabel(ylabel, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    swing.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def foundation(path: Path) -> None:
    """Fig. 7: a cube on 900 springs, the pressure below it."""
    model = jc.models.box_on_foundation(900, youngs_modulus=1e7, load=50.0)
    states, infos = _roll(model, 0.01, 100)
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    at = 0.5 * np.array([np.cos(10.0), np.sin(10.0), 1.0])
    figure = jc.viz.plot_pressure(model, last, infos.lam[-1], area=1 / 900, load_at=at)
    figure.savefig(path, dpi=110)


def tangential_spring(path: Path) -> None:
    """Fig. 8: a mass on a friction spring swings while it sticks, and slides where the bound is reached."""
    foot = jc.Structure(
        dim=2, bodies=("mass",), num_positions=2,
        shapes=(jc.Points(name="foot", body="mass", at="feet", count=1),
                jc.HalfSpace(name="floor", normal=(0.0, 1.0))),
        pairs=(("foot", "floor"),),
    )  # fmt: skip
    spring = jc.compliant.FrictionSpring(stiffness=jnp.array(400.0), damping=jnp.array(0.0))

    def upright(structure: Any, q: jax.Array, params: Any) -> Any:
        return q[None], jnp.zeros(1)

    def run(mu: float) -> tuple[Any, Any]:
        model = jc.Model(
            system=jc.System(foot, upright),
            params=jc.Params(
                mass=jnp.ones(1), inertia=jnp.ones(1), mu=jnp.array(mu), gravity=jnp.array([0.0, -9.81]),
                constants={"feet": jnp.zeros((1, 2))},
                material=jc.compliant.Material(stiffness=1e6, damping=1e2, friction_spring=spring),
            ),
            initial=jc.State(q=jnp.array([0.0, -9.81e-6]), v=jnp.array([0.5, 0.0]), t=jnp.array(0.0)),
        )  # fmt: skip
        return _roll(model, 2e-4, 5000, settings=jc.compliant.Settings(cone="coulomb"))

    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    place, force = figure.subplots(1, 2)
    for mu, color in ((2.0, "#0072b2"), (0.3, "#d55e00")):
        states, info = run(mu)
        place.plot(states.t, 1e3 * states.q[:, 0], color=color, lw=1.4, label=f"mu = {mu:g}")
        force.plot(states.t, info.lam[:, 1], color=color, lw=1.4)
    t = np.linspace(0.0, 1.0, 60)
    swing = 1e3 * 0.5 / 20.0 * np.sin(20.0 * t)
    place.plot(t, swing, "k.", ms=3, label="swing of sqrt(K / m)")
    for sign in (-1, 1):
        label = "mu m g of mu = 0.3" if sign > 0 else None
        force.axhline(sign * 0.3 * 9.81, color="0.5", lw=0.8, ls="--", label=label)
    place.set_ylim(None, 78)
    force.set_ylim(None, 14)
    for axes, label in ((place, "place of the mass, mm"), (force, "friction, N")):
        axes.legend(fontsize=8, frameon=False, loc="upper right")
        axes.set_xlabel("t, s", fontsize=8)
        axes.set_ylabel(label, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("1 kg on a tangential spring of 400 N/m in series with friction, 0.5 m/s", fontsize=9)
    figure.savefig(path, dpi=110)


def incline(path: Path) -> None:
    """Fig. 9: how far a box slides down a slope of 15 degrees, beside the rigid one."""
    slope = np.radians(15.0)
    downhill = np.array([np.cos(slope), 0.0, -np.sin(slope)])
    curves = {}
    for mu in (0.0, 0.125, 0.25, 0.375):
        states, _ = _roll(jc.models.box_on_incline(mu), 0.01, 100)
        start = np.asarray(jc.models.box_on_incline(mu).initial_state().q[:3])
        curves[f"mu = {mu:g}"] = (states.t, (np.asarray(states.q)[:, :3] - start) @ downhill)
        rigid = 0.5 * 9.81 * max(0.0, np.sin(slope) - mu * np.cos(slope))
        curves[f"rigid, mu = {mu:g}"] = (states.t[::20], rigid * np.asarray(states.t[::20]) ** 2)
    jc.viz.plot_curves(curves, xlabel="t, s", ylabel="distance, m").savefig(path, dpi=110)


def spheres(path: Path) -> None:
    """Fig. 10: time for one second of a stack, against the number of its spheres."""
    numbers, times = (1, 3, 10, 30, 100), []
    for number in numbers:
        model = jc.models.sphere_stack(number)
        controls = jnp.zeros((100, model.structure.num_velocities))

        def run(model: jc.Model = model, controls: jax.Array = controls) -> Any:
            convex = jc.compliant.Settings(cone="associated")  # as the paper's
            return jc.compliant.rollout(model, model.initial_state(), controls, dt=0.01, settings=convex)

        jax.block_until_ready(run())
        begin = time.process_time()
        jax.block_until_ready(run())
        times.append(time.process_time() - begin)
    linear = times[-1] * np.array(numbers) / numbers[-1]
    jc.viz.plot_curves(
        {"processor time": (numbers, times), "in proportion": (numbers, linear)}, xlabel="spheres",
        ylabel="s for one second, 100 steps", xscale="log", yscale="log", markers=True,
    ).savefig(path, dpi=110)  # fmt: skip


def local_error(path: Path) -> None:
    """Theorem 1: the error of one step of a pendulum on a soft joint, against the step."""
    model = jc.models.pendulum_joint()
    law = jc.compliant.Material(stiffness=jnp.array(100.0), damping=jnp.array(1.0))
    model = model.replace(params=model.params.replace(material=law))
    steps = 2e-4 * 0.5 ** np.arange(5)
    errors = []
    for h in steps:
        coarse, _ = _roll(model, h, 1)
        fine, _ = _roll(model, h / 2048, 2048)
        finer, _ = _roll(model, h / 4096, 4096)
        truth = 2 * finer.v[-1] - fine.v[-1]  # of second order
        errors.append(float(jnp.linalg.norm(coarse.v[-1] - truth)))
    ratio = np.array(errors[:-1]) / errors[1:]
    lines = ["| step, s | error of one step, m/s | ratio |", "|---|---|---|"]
    for h, error, r in zip(steps, errors, [*(f"{r:.3f}" for r in ratio), ""], strict=True):
        lines.append(f"| {h:.3g} | {error:.3e} | {r} |")
    path.write_text("\n".join(lines) + "\n")


FIGURES: dict[str, Callable[[Path], None]] = {
    "fig01.png": explicit,
    "fig02.png": semi_implicit,
    "fig03.png": implicit,
    "fig04.png": pendulum_joint,
    "fig06.png": pendulum_limit,
    "fig07.png": foundation,
    "fig08.png": tangential_spring,
    "fig09.png": incline,
    "fig10.png": spheres,
    "theorem1.md": local_error,
    "table1.md": foundation_times.table,
}

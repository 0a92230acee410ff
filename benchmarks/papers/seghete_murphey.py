"""Seghete & Murphey, A Propagative Model of Simultaneous Impact."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxcontact as jc
from benchmarks import motion, runner


def one_impact(path: Path) -> None:
    """Fig. 2b in numbers: energy after one impact over before, least and largest over the speeds."""
    lines = [
        "| restitution | energy left, exact | engine | least | largest | worst error |",
        "|---|---|---|---|---|---|",
    ]
    absent = []
    for run in (motion._single, motion._single_mujoco, motion._single_bullet):
        try:
            run()()
        except ImportError as error:
            absent.append(f"| | | skipped: {runner.reason_to_skip(error)} | | | |")
    for j, e in enumerate(motion.RESTITUTIONS):
        exact = 1.0 / 3.0 + e**2 * 2.0 / 3.0
        for engine, (_, ratio) in motion.CURVES["single"].items():
            left = np.asarray(ratio)[:, j]
            lines.append(
                f"| {e:g} | {exact:.4f} | {engine} | {left.min():.4f} | {left.max():.4f} | "
                f"{np.abs(left - exact).max():.1e} |"
            )
    path.write_text("\n".join([*lines, *absent]) + "\n")


def cradle(path: Path) -> None:
    """Fig. 2b: energy after one impact and over many, beside the peers that are installed."""
    motion._single()()
    model, impacts = jc.models.swinging_cradle(), motion.PEER_IMPACTS
    run = jc.simulate.variational(
        model, model.initial_state(), jc.simulate.Variational(max_impacts=16), dt=0.02, duration=impacts / 2.0
    )
    away = np.asarray(run.states.q) - np.asarray(model.params.constants["home"])
    energy = motion._energy(away, np.asarray(run.states.v), float(model.params.constants["rate"]))
    curves = motion.CURVES
    curves["repeated"]["jaxcontact"] = motion._thinned(energy, impacts)
    for peer in (motion._single_bullet, motion._cradle_bullet, motion._single_mujoco, motion._cradle_mujoco):
        try:
            peer()()
        except ImportError as error:
            print(f"  left out: {runner.reason_to_skip(error)}")
    title = "Newton's cradle: restitution 1, 0.7, 0 (left), 1 (right)"
    jc.viz.plot_cradle_energy(curves["single"], curves["repeated"], title=title).savefig(path, dpi=110)


def billiards(path: Path) -> None:
    """Fig. 5: indeterminacy of a billiard break over the angle between the balls."""
    angles = np.arange(62.0, 180.0, 2.0)
    found = []
    for angle in angles:
        model = jc.models.billiard_break(math.radians(angle))
        terms = jc.contact_terms(model, model.initial_state())
        found.append(100 * float(jc.impact.indeterminacy(terms, model.initial_state().v)))
    jc.viz.plot_curves(
        {"xi": (angles, found)}, xlabel="angle, degrees", ylabel="difference of the two outcomes, % of |p|",
        title="A billiard break",
    ).savefig(path, dpi=110)  # fmt: skip


def trex(path: Path) -> None:
    """Fig. 8: how far apart two orders lead, for the design and for the straight stance."""
    motion._drop()()
    title = "TREX dropped by 17 cm: two orders of single impacts"
    jc.viz.plot_order_difference(motion.CURVES["order"], title=title).savefig(path, dpi=110)


def two_normals(path: Path) -> None:
    """Theorems 1 to 3: single impacts, and how far apart two orders end, over the angle of two normals."""
    angles = np.linspace(0.12, np.pi - 0.05, 300)
    rates = -np.random.default_rng(0).uniform(0.01, 1.0, (200, 2))
    base = jc.ContactTerms(
        M=jnp.eye(2), J_n=jnp.eye(2), J_t=jnp.zeros((2, 1, 2)), phi=jnp.zeros(2), mu=jnp.zeros(2),
        active=jnp.ones(2, bool),
    )  # fmt: skip
    normals = np.stack([np.tile([1.0, 0.0], (300, 1)), np.stack([-np.cos(angles), np.sin(angles)], 1)], 1)

    def ends(normals: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array]:
        v = jnp.linalg.solve(normals, rate)
        one, two = (
            jc.impact.propagate(base.replace(J_n=normals), v, order=order, max_reflections=32)
            for order in ((0, 1), (1, 0))
        )
        apart = jnp.linalg.norm(one[0] - two[0]) / jnp.linalg.norm(v)
        return apart, jnp.maximum(one[1].num_iters, two[1].num_iters)

    both = jax.jit(jax.vmap(jax.vmap(ends, (None, 0)), (0, None)))
    apart, count = (np.asarray(a).max(axis=1) for a in both(jnp.asarray(normals), jnp.asarray(rates)))
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(np.degrees(angles), count, color="#0072b2", label="most single impacts of 200 velocities")
    gamma = angles / 2  # <u, v> = -cos(angle)
    above.plot(
        np.degrees(angles), np.ceil(np.pi / gamma), "--", color="0.5", label="Theorem 1, ceil(pi / gamma)"
    )
    above.plot(np.degrees(angles), np.ceil(np.pi / angles - 1e-9), ":", color="#d55e00", label="half of that")
    above.set_ylim(0, 20)
    above.legend(fontsize=8, frameon=False)
    below.plot(np.degrees(angles), apart, color="#0072b2")
    for n in range(2, 9):
        below.axvline(180 / n, color="0.8", lw=0.8, zorder=0)
    below.set_ylabel("outcomes apart, of |v|", fontsize=8)
    below.set_xlabel("angle between the contacts, degrees (grey: 180 / n)", fontsize=8)
    figure.savefig(path, dpi=110)


FIGURES: dict[str, Callable[[Path], None]] = {
    "fig2b.png": cradle,
    "fig2b.md": one_impact,
    "fig5.png": billiards,
    "fig8.png": trex,
    "theorems_1_to_3.png": two_normals,
}

"""Halm & Posa, Set-Valued Rigid-Body Dynamics for Simultaneous, Inelastic, Frictional Impacts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxcontact as jc

TWO_CONTACTS = ("rocking_block", "compass_gait", "box_and_wall", "ramone")
PRINTED = {
    "rocking_block": 2.67, "compass_gait": 2.27, "box_and_wall": 1.97, "ramone": 3.20, "disk_stack": 9.04,
}  # fmt: skip


@functools.cache
def _sampled(name: str) -> tuple[jc.Model, jc.ContactTerms, Any]:
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    disks = name == "disk_stack"
    samples = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(
            impulse_step=model.impulse_step,
            max_steps=model.max_steps,
            selection="visited" if disks else "all",
        ),
        keep_path=True,
        num_samples=2**11 if disks else 2**14,
    )
    return model, terms, samples


def impact_set(name: str, path: Path) -> None:
    """Figs. 9 to 11, 13 and 14: sampled outcomes in the velocities of the contacts."""
    _, terms, samples = _sampled(name)
    jc.viz.plot_impact_set(samples, terms, title=name.replace("_", " ")).savefig(path, dpi=110)


def mechanisms(path: Path) -> None:
    """Figs. 1a, 4a, 5a, 13a and 14a: before the impacts."""
    figure = Figure(figsize=(9.0, 2.4), layout="constrained")
    panels = figure.subplots(1, 5)
    for axes, name in zip(panels, (*TWO_CONTACTS, "disk_stack"), strict=True):
        model = getattr(jc.models, name)()
        jc.viz.draw_mechanism(axes, model, model.initial_state())
        axes.set_title(name.replace("_", " "), fontsize=8)
    figure.savefig(path, dpi=110)


def one_contact(path: Path) -> None:
    """Fig. 3: the velocity of one contact through Routh's impact, and the edges of the friction cone."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    for axes, (mu, title) in zip(
        figure.subplots(1, 3), ((0.05, "slides on"), (0.5, "reverses"), (2.5, "sticks")), strict=True
    ):
        terms = jc.ContactTerms(
            M=jnp.diag(jnp.array([1.0, 1.0, 0.1])), J_n=jnp.array([[0.0, 1.0, -1.0]]),
            J_t=jnp.array([[[1.0, 0.0, 0.3]]]), phi=jnp.zeros(1), mu=jnp.array([mu]),
            active=jnp.ones(1, bool),
        )  # fmt: skip
        J = np.stack([np.asarray(terms.J_n)[0], np.asarray(terms.J_t)[0, 0]])
        D = J @ np.linalg.solve(np.asarray(terms.M), J.T)
        start = np.array([-2.0, 0.9 if mu < 0.1 else 0.3])
        v = jnp.asarray(np.linalg.solve(terms.M, J.T) @ np.linalg.solve(D, start))
        _, info = jc.impact.routh_path(terms, v, jnp.ones(1), max_events=8)
        u_n, u_t = (np.asarray(info.path) @ J.T).T
        axes.plot(u_t, u_n, color="#d9a400", lw=2, marker="o", ms=4, label="velocity through the impact")
        for sign in (-1, 1):
            ray = D @ np.array([1.0, sign * mu])
            tip = start + 1.2 * ray / np.linalg.norm(ray)
            axes.plot(tip[1], tip[0], ".", alpha=0)  # makes room for the arrow
            axes.annotate(
                "",
                (tip[1], tip[0]),
                (start[1], start[0]),
                arrowprops={"arrowstyle": "->", "color": "#c0392b"},
            )
        axes.plot([], [], color="#c0392b", lw=1, label="edges of the friction cone")
        axes.axhline(0, color="0.4", lw=0.8)
        axes.axvline(0, color="0.4", lw=0.8, ls=":")
        axes.set_title(f"mu = {mu:g}: {title}", fontsize=9)
        axes.set_xlabel("tangential velocity, m/s", fontsize=8)
        axes.set_ylabel("normal velocity, m/s", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )
    figure.savefig(path, dpi=110)


def compliant_block(path: Path) -> None:
    """Fig. 12: outcomes of a block on stiff springs, over stiffness ratios and angles, beside the set."""
    from jaxcontact.impact import kelvin_voigt

    model, terms, samples = _sampled("rocking_block")
    J_n = np.asarray(terms.J_n)
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    ratios, angles = np.linspace(-5.0, 5.0, 21), np.radians(np.linspace(-0.01, 0.01, 21))
    found = []
    for exponent in ratios:
        stiffness = 1e6 * 10.0 ** np.array([max(exponent, 0.0), max(-exponent, 0.0)])
        v_plus, _ = kelvin_voigt(model, model.initial_state(), stiffness, 5.0)
        found.append(J_n @ np.asarray(v_plus))
    speed, half = -float(model.initial_state().v[1]), np.array([0.5, 1.0])
    tilted = []
    for angle in angles:
        height = half[0] * abs(np.sin(angle)) + half[1] * np.cos(angle)
        drop = np.sqrt(speed**2 - 2 * 9.81 * (height - half[1]))
        state = model.initial_state().replace(
            q=jnp.array([0.0, height, angle]), v=jnp.array([0.0, -drop, 0.0])
        )
        v_plus, _ = kelvin_voigt(model, state, 1e6, 5.0)
        tilted.append(J_n @ np.asarray(v_plus))
    for axes, outcomes, shade, label in (
        (panels[0], found, ratios, "log10 of the stiffness ratio"),
        (panels[1], tilted, np.degrees(angles), "angle, degrees"),
    ):
        sampled = np.asarray(samples.v_plus) @ J_n.T
        axes.plot(*sampled.T, ".", color="0.75", ms=6, zorder=0, label="sampled set")
        dots = axes.scatter(
            *np.array(outcomes).T, c=shade, cmap="coolwarm", s=22, edgecolor="k", linewidth=0.4
        )
        figure.colorbar(dots, ax=axes, label=label, shrink=0.65)
        axes.set_xlabel("normal velocity of A, m/s", fontsize=8)
        axes.set_ylabel("normal velocity of B, m/s", fontsize=8)
        axes.legend(fontsize=8, frameon=False)
        axes.set_aspect("equal")
    panels[0].set_title("corners of unequal stiffness", fontsize=9)
    panels[1].set_title("corners of equal stiffness, block at an angle", fontsize=9)
    figure.savefig(path, dpi=110)


def bounds(path: Path) -> None:
    """Proposition 4, Theorems 2 and 3: |v|_M over s along random paths of the block and the gait."""
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    rng = np.random.default_rng(0)
    for axes, name in zip(figure.subplots(1, 2), ("rocking_block", "compass_gait"), strict=True):
        model = getattr(jc.models, name)()
        terms, v = jc.contact_terms(model, model.initial_state()), model.initial_state().v
        bound, speed = jc.impact.impulse_bound(terms, v), float(jnp.sqrt(v @ terms.M @ v))
        rates = jnp.asarray(rng.uniform(size=(200, 4, 2)) ** 3 + 1e-3)
        until = jnp.asarray(np.sort(rng.uniform(0, bound.total / 2, (200, 3)), axis=1))

        def follow(r: Any, u: Any, terms: Any = terms, v: Any = v) -> Any:
            return jc.impact.routh_path(terms, v, r, until=u, max_events=16)

        _, info = jax.jit(jax.vmap(follow))(rates, until)
        s = np.asarray(info.path_impulse[..., 0]).sum(-1)
        size = np.sqrt(np.einsum("nki,ij,nkj->nk", info.path, terms.M, info.path))
        axes.plot(s.T, size.T / speed, color="#0072b2", lw=0.4, alpha=0.4)
        axes.axvline(bound.total, color="#d55e00", lw=1.5, label=f"bound, {bound.total:.3f} N s")
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.set_xlabel("normal impulse s, N s", fontsize=8)
        axes.set_ylabel("|v(s)| / |v(0)|", fontsize=8)
        axes.set_ylim(0, 1.02)
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def table_3(path: Path) -> None:
    """LCPs per sample, beside the printed ones."""
    lines = ["| example | LCPs per sample, paper | here, all solutions |", "|---|---|---|"]
    for name, printed in PRINTED.items():
        samples = _sampled(name)[2]
        lines.append(f"| {name} | {printed} | {float(np.mean(np.asarray(samples.num_iters))):.2f} |")
    path.write_text("\n".join(lines) + "\n")


def ball(path: Path) -> None:
    """Fig. 6: a ball falls, lands and rests, in the plane of its gap and its rate."""
    text = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.1">
    <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
    <geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
    model = jc.load_mjcf(text, planar=True)
    paths = {}
    for height, speed in ((0.4, 0.0), (0.2, 1.5), (0.8, -1.0)):
        state = model.initial_state().replace(q=jnp.array([0.0, height]), v=jnp.array([0.0, speed]))
        paths[f"{height} m, {speed} m/s"], info = jc.simulate.time_augmented(
            model, state, length=8.0, longest=0.02, max_pieces=800
        )
        jc.raise_if_failed(info)
    jc.viz.plot_phase(paths, lambda q, v: (q[:, 1], v[:, 1])).savefig(path, dpi=110)


@functools.cache
def _rocking() -> Any:
    model = jc.models.rocking_block()
    state = model.initial_state().replace(q=jnp.array([0.0, 1.0, 0.0]), v=jnp.array([-1.0, 0.5, 1.0]))
    motion, info = jc.simulate.time_augmented(model, state, length=32.0, max_pieces=400)
    jc.raise_if_failed(info)
    return motion


def snapshots(path: Path) -> None:
    """Fig. 7: the block on its left corner, at its apex, and about its first two impacts."""
    motion = _rocking()
    impact = np.asarray(motion.impact)
    first, second = (int(np.flatnonzero(impact == k)[0]) for k in (0, 1))
    rows = {"starts": 0, "strikes": first, "after": first + 1, "strikes again": second}
    corners = np.array([[-0.5, -1.0], [0.5, -1.0], [0.5, 1.0], [-0.5, 1.0]])
    jc.viz.plot_snapshots(motion, corners, rows).savefig(path, dpi=110)


def zeno(path: Path) -> None:
    """Fig. 8: the angle of the block and its rate over t and over s."""
    figure = jc.viz.plot_path(_rocking(), 2, name="angle")
    figure.axes[0].set_ylabel("rad and rad/s")
    figure.axes[2].legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


FIGURES: dict[str, Callable[[Path], None]] = {
    "mechanisms.png": mechanisms,
    "fig03.png": one_contact,
    "fig06.png": ball,
    "fig07.png": snapshots,
    "fig08.png": zeno,
    "fig09.png": functools.partial(impact_set, "rocking_block"),
    "fig10.png": functools.partial(impact_set, "compass_gait"),
    "fig11.png": functools.partial(impact_set, "box_and_wall"),
    "fig12.png": compliant_block,
    "fig13.png": functools.partial(impact_set, "ramone"),
    "fig14.png": functools.partial(impact_set, "disk_stack"),
    "theorems_2_and_3.png": bounds,
    "table3.md": table_3,
}

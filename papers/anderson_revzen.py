"""Anderson & Revzen, Rapid Integrator for a Class of Multi-Contact Systems."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc


def _field(t: jax.Array, x: jax.Array, signs: jax.Array, control: Any, params: Any) -> jax.Array:
    return jnp.stack([1.0 + 0.3 * signs[1], 1.0 - 0.4 * signs[0]])


def _guards(x: jax.Array, params: Any) -> jax.Array:
    return jnp.stack([x[0] + 0.2 * x[1], x[1] - 0.3 * x[0]])


def corner(path: Path) -> None:
    """Fig. 2: a piecewise constant field and two guards that are not orthogonal."""
    system = jc.ess.EventSystem(_field, _guards)
    jc.viz.plot_corner(
        system, None, jnp.zeros(2), eps=0.1, radius=0.5, duration=1.8, title="two guards and their bands"
    ).savefig(path, dpi=110)


def motion_errors(widths: np.ndarray) -> np.ndarray:
    """Errors at the end of the affine system of Table 1, by the half widths of its bands."""
    model = jc.models.affine_3d()
    tight = jc.ess.DormandPrince(rtol=1e-12, atol=1e-14)
    run = jax.jit(
        jax.vmap(
            lambda e: jc.ess.flow(model.system, model.params, model.state, 0.0, 0.5, eps=e, ode=tight)[0]
        )
    )
    ends, best = np.asarray(run(jnp.asarray(widths))), np.asarray(run(jnp.full(1, 1e-8)))[0]
    errors: np.ndarray = np.maximum(np.sqrt(np.mean((ends - best) ** 2, axis=1)), 1e-16)
    return errors


def order(path: Path) -> None:
    """Fig. 3: error at the end of the affine system of Table 1 against the width of the bands."""
    widths = np.logspace(-6, -2, 17)
    errors = motion_errors(widths)
    jc.viz.plot_order(widths, errors, fit=(1e-4, 1e-2), title="Table 1").savefig(path, dpi=110)


def hopper(path: Path) -> None:
    """Fig. 4: the hopper, MuJoCo and the exact motion, at the band of equal error."""
    import mujoco  # noqa: F401  left out without it

    from benchmarks import hopper

    allowed = hopper._rms(
        hopper.mujoco_run(hopper.mujoco_model()), hopper.DT * np.arange(round(hopper.END / hopper.DT) + 1)
    )
    hopper.draw([{"eps": hopper.calibrate(allowed, hopper.ours())}], path)


def order_table(path: Path) -> None:
    """Errors of Fig. 3 in numbers, over powers of the half width eps of the bands."""
    model = jc.models.affine_3d()
    tight = jc.ess.DormandPrince(rtol=1e-12, atol=1e-14)

    def end(eps: float) -> np.ndarray:
        return np.asarray(
            jc.ess.flow(model.system, model.params, model.state, 0.0, 0.5, eps=eps, ode=tight)[0]
        )

    lines = ["| eps | error at the end | over eps^2 | over eps^3 |", "|---|---|---|---|"]
    best = end(1e-8)
    for eps in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4):
        error = float(np.linalg.norm(end(eps) - best))
        lines.append(f"| {eps:g} | {error:.3e} | {error / eps**2:.3e} | {error / eps**3:.3e} |")
    path.write_text("\n".join(lines) + "\n")


@functools.cache
def pieces() -> dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]]:
    """The eight affine fields A x + b of Table 1, by the guards (x, y, -z) that are crossed."""
    model = jc.models.affine_3d()
    found = {}
    for past in np.ndindex(2, 2, 2):
        signs = 2.0 * np.array(past) - 1.0

        def field(x: np.ndarray, signs: np.ndarray = signs) -> np.ndarray:
            return np.asarray(model.system.field(0.0, jnp.asarray(x), jnp.asarray(signs), None, model.params))

        b = field(np.zeros(3))
        found[past] = np.stack([field(e) - b for e in np.eye(3)], axis=1), b
    return found


def projection_error(eps: float, radius: float = 0.5, seed: int = 0) -> tuple[float, float]:
    """Largest error of a first-order projection onto the next guard, eps away, and Section 6's bound on it.

    The bound is 2 M / L (exp(eps L / c) - 1) + 2 M eps / c, with the largest speed M, the Lipschitz constant
    L and the least rate c of a guard over the cube of this radius.
    """
    from scipy.linalg import expm
    from scipy.optimize import brentq

    rng, fields = np.random.default_rng(seed), pieces()
    guard = np.diag([1.0, 1.0, -1.0])
    corners = radius * (2.0 * np.array(list(np.ndindex(2, 2, 2))) - 1.0)
    speed = lipschitz = 0.0
    rate = np.inf
    for past, (A, b) in fields.items():
        octant = np.where(past, 1.0, -1.0)  # in which this piece of the field rules
        inside = corners * (octant == np.sign(corners @ guard.T))
        values = inside @ A.T + b
        speed = max(speed, np.linalg.norm(values, axis=1).max())
        lipschitz, rate = max(lipschitz, np.linalg.norm(A, 2)), min(rate, (values @ guard.T).min())
    bound = 2 * speed / lipschitz * np.expm1(eps * lipschitz / rate) + 2 * speed * eps / rate
    worst = 0.0
    for _ in range(64):
        x, j = rng.uniform(-radius, radius, size=3), rng.integers(3)
        x[j] = -eps * guard[j, j]
        A, b = fields[tuple(int(h >= 0) for h in guard @ x)]
        whole = np.block([[A, b[:, None]], [np.zeros((1, 4))]])

        def at(t: float, x: np.ndarray = x, whole: np.ndarray = whole) -> np.ndarray:
            return (expm(whole * t) @ np.append(x, 1.0))[:3]

        end = eps / rate * (1 + 1e-9)
        arrival = brentq(lambda t, at=at, j=j: (guard @ at(t))[j], 0.0, end, xtol=1e-15)
        if np.any(((guard @ x) < 0) & ((guard @ at(arrival)) > 1e-12)):
            continue  # another guard comes first
        rates = A @ x + b
        projected = x + rates * eps / (guard[j] @ rates)
        worst = max(worst, float(np.linalg.norm(projected - at(arrival))))
    return worst, float(bound)


def bound(path: Path) -> None:
    """Section 6: the error of a first-order projection, the bound on it, and the error of a motion here."""
    from matplotlib.figure import Figure

    widths = np.logspace(-4, -1.5, 11)
    measured = np.array([projection_error(eps) for eps in widths])
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.loglog(widths, measured[:, 1], "k--", label="bound of Section 6")
    axes.loglog(widths, measured[:, 0], "o-", label="first-order projection, worst of 64 states")
    axes.loglog(widths, motion_errors(widths), "s-", label="jc.ess.flow, the motion of Fig. 3")
    axes.set(xlabel="eps, half width of the bands", ylabel="error", title="Table 1")
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


FIGURES: dict[str, Callable[[Path], None]] = {
    "fig2.png": corner,
    "fig3.png": order,
    "fig4.png": hopper,
    "fig3.md": order_table,
    "section6.png": bound,
}

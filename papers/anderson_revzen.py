"""Anderson & Revzen, Rapid Integrator for a Class of Multi-Contact Systems."""

from __future__ import annotations

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


def order(path: Path) -> None:
    """Fig. 3: error at the end of the affine system of Table 1 against the width of the bands."""
    model = jc.models.affine_3d()
    tight = jc.ess.DormandPrince(rtol=1e-12, atol=1e-14)
    widths = jnp.logspace(-6, -2, 17)
    run = jax.jit(
        jax.vmap(
            lambda e: jc.ess.flow(model.system, model.params, model.state, 0.0, 0.5, eps=e, ode=tight)[0]
        )
    )
    ends, best = np.asarray(run(widths)), np.asarray(run(jnp.full(1, 1e-8)))[0]
    errors = np.maximum(np.sqrt(np.mean((ends - best) ** 2, axis=1)), 1e-16)
    jc.viz.plot_order(np.asarray(widths), errors, fit=(1e-4, 1e-2), title="Table 1").savefig(path, dpi=110)


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


FIGURES: dict[str, Callable[[Path], None]] = {
    "fig2.png": corner,
    "fig3.png": order,
    "fig4.png": hopper,
    "fig3.md": order_table,
}

"""`choose_bands`: the widths of the bands that keep the error of a run within a tolerance.

Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_not_empty, check_number_leaves, check_positive, is_concrete
from jaxcontact.ess.inputs import check
from jaxcontact.ess.integrate import flow
from jaxcontact.ess.run import FlowInfo
from jaxcontact.ess.settings import Settings
from jaxcontact.front_door import checked
from jaxcontact.mechanics.system import Model
from jaxcontact.status import Status

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

ORDER = 3.0  # of the error in eps
SAFETY = 0.8  # fraction of the width that the order predicts
NARROWING_FRACTION = 0.1  # fraction of its width to which a trial narrows a band
TRIALS = 16  # runs of a choice; each narrows a band by 0.8 and more


@checked(x0=check_not_empty, control=check_number_leaves)
def choose_bands(
    model: Model,
    x0: Float[jax.Array, " n"],
    t0: float | Float[jax.Array, ""],
    t1: float | Float[jax.Array, ""],
    *,
    settings: Settings,
    control: PyTree = None,
    crossed0: Bool[jax.Array, " m"] | None = None,
) -> tuple[jax.Array, FlowInfo]:
    """Choose bands as wide as `settings.tol` allows, from `settings.eps` downward.

    The error of a run is C eps^3 (in Anderson & Revzen's program C eps^2); `flow` estimates it by a run with
    half the bands. As long as the estimate exceeds `tol`, eps is narrowed by 0.8 (tol / estimate)^(1/3).

        eps, info = jc.ess.choose_bands(model, x0, 0.0, 1.0, settings=jc.ess.Settings(eps=0.1, tol=1e-6))

    Args:
        model, x0, t0, t1, control, crossed0: as `flow`.
        settings: its `eps` is the widest band to try, its `tol` the largest error of x1, > 0.

    Returns:
        eps (m,) in the units of the guards, and the FlowInfo of the run with it.

    Raises:
        ValueError, TypeError: as `flow`; tol is not positive; inside `jit` or a derivative.

    Status: of the run with the chosen bands; INACCURATE if 16 runs found none, which means that the smooth
        steps, not the bands, are the cause: tighten `settings.ode`.

    Derivative: none, because this function runs `flow` until a tolerance is met.
    """
    check_positive("settings.tol", settings.tol)
    arguments = {"model": model, "x0": x0, "t0": t0, "t1": t1, "settings": settings, "control": control}
    for name, value in arguments.items():
        if not is_concrete(value):
            raise TypeError(
                f"{name}: expected known numbers, got traced ones; call `choose_bands` outside of jit"
            )
    _, widths = check(model, x0, t0, t1, settings, control, crossed0)
    for _ in range(TRIALS):
        _, info = flow(
            model, x0, t0, t1, settings=settings.replace(eps=widths), control=control, crossed0=crossed0
        )
        failures = int(info.status) & int(Status.FAILURES)
        if failures != int(Status.INACCURATE):  # a success, or a failure that no width mends
            break
        excess = float(np.max(np.asarray(info.band_error) / np.asarray(settings.tol)))
        factor = SAFETY * excess ** (-1.0 / ORDER) if np.isfinite(excess) and excess > 1.0 else 0.5
        widths = widths * jnp.asarray(max(factor, NARROWING_FRACTION), widths.dtype)
    return widths, info

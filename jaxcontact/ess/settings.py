"""`Settings` of an event-selected run: its bands, tolerances, limits, and its derivative at a corner."""

from __future__ import annotations

import jax

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_choice, check_not_negative, check_positive, check_rows
from jaxcontact.front_door import checked
from jaxcontact.solvers.ode import DormandPrince

CORNERS = ("smooth", "one_sided")
MAX_STEPS, MAX_EVENTS = 1024, 64  # iterations and crossings of a run by default; they set its memory


@checked(
    eps=check_positive,
    tol=check_not_negative,
    corner_tol=check_positive,
    corner=check_choice(*CORNERS),
    max_steps=check_rows,
    max_events=check_rows,
)
class Settings(Record):
    """The settings of an event-selected run.

    Attributes:
        eps: half width of the bands in units of the guards, one number or (m,). The time spent in a band
            should be short against that of the motion.
        ode: tolerances or fixed step of the smooth steps; default `DormandPrince()`.
        tol: largest `band_error` of `flow` that is allowed, in the units of x, one number or (n,). With it
            the run is repeated with half the bands, whose error is an eighth as large. Default: no estimate.
        corner_tol: crossings within this time (s) of the first one make one corner; default the time in which
            a hundredth of eps is crossed. It must be longer than the errors of the crossing times, of order
            eps^3, and shorter than the time between crossings that are not simultaneous.
        corner: the derivative of `flow` where guards are crossed together. "smooth": that of the order taken,
            forward and reverse. "one_sided": `jax.jvp` is the B-derivative; it is not linear in the direction
            there, so reverse mode and second derivatives are refused.
        max_steps: bound on iterations of the loop: steps taken, refused, and crossings.
        max_events: bound on crossings.
    """

    eps: float | jax.Array
    ode: DormandPrince | None = None
    tol: float | jax.Array | None = None
    corner_tol: float | jax.Array | None = None
    corner: str = static(default="smooth")
    max_steps: int = static(default=MAX_STEPS)
    max_events: int = static(default=MAX_EVENTS)

"""Steps at guards: the entry of a step into a band, and the steps from guard to guard inside.

Owns the event-selected step of Anderson & Revzen (2024), section 3: within the band |h_k| <= eps_k of a
guard the field counts as constant and the guards as planes, so that the next crossing has the minimum of
-h_k / (Dh_k f). Entries: `find_entry`, `enter`, `cross_guard`. Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.solvers import ode
from jaxcontact.solvers.roots import safeguarded_newton

# Fractions of a step at which guards are interpolated; five values fix the quartic of the step's
# interpolant, so that the interpolation of linear guards is exact.
SAMPLES = np.linspace(0.0, 1.0, 5)
_TO_COEFFICIENTS = np.linalg.inv(np.vander(SAMPLES, increasing=True))
# Fraction of a band's half width, or of the time to cross it. A state closer to a guard counts as on it,
# guards closer in time count as simultaneous. Errors of order eps^3 stay below it.
TIE = 1e-2
# Fraction of the guard's rate at the start of a step to it; if the rate at its end is smaller, the step is
# refused.
LIVE = 0.5
# Fraction of a band's half width by which a step may miss its guard, before its Newton correction; if it
# misses by more, it is refused.
STRAIGHT = 0.1
# The same for the note WIDE_BAND: 0.055 made a hopper 6 cm off after ten seconds, 0.013 another one 6 mm.
NOTED_MISS = 0.015
_ROOT_STEPS = 9  # safeguarded Newton steps from the middle of a part; the polynomial's root to round-off


class FirstMeeting(NamedTuple):
    """The first meeting of a trial step with a guard: fraction theta (inf if none), guard, level of h."""

    theta: jax.Array
    guard: jax.Array
    level: jax.Array
    hidden: jax.Array  # a guard dipped and came back within one sample: the step is too long to resolve it


def find_entry(
    values: jax.Array, rate: jax.Array, armed: jax.Array, ready: jax.Array, eps: jax.Array
) -> tuple[FirstMeeting, jax.Array]:
    """Find the first guard that a step meets, from guard values (5, m) at `SAMPLES`.

    A step meets a ready guard as it enters its band, h = -eps, and an armed one that has not yet left its
    band since it was re-armed as it comes back to h = 0 from below.

    Args:
        values: (5, m) guard values along the step.
        rate: (m,) of the guards at the start of the step.
        armed: (m,) not crossed.
        ready: (m,) armed and seen below the band.
        eps: (m,) half widths of the bands.

    Returns:
        The entry, and which guards are ready at the end of the step.
    """
    away = -(1.0 + TIE) * eps  # a little beyond the band, so that a refused entry is not met again
    ready = armed & (ready | (values[0] < away))
    hidden = armed & ~ready & (rate < 0) & (values[0] <= TIE * eps) & (values[1] >= 0)
    crossed = jnp.zeros_like(armed)
    low = jnp.zeros_like(rate)
    level = jnp.zeros_like(rate)
    for k in range(1, len(SAMPLES)):
        below, above = values[k - 1], values[k]
        enters = armed & ready & (below < -eps) & (above >= -eps)
        returns = armed & ~ready & (below < 0) & (above >= 0)
        first = (enters | returns) & ~crossed
        low = jnp.where(first, SAMPLES[k - 1], low)
        level = jnp.where(first & enters, -eps, level)
        crossed |= first
        ready |= armed & (above < away)
    theta = lax.cond(
        jnp.any(crossed),
        lambda: jnp.where(crossed, _root(values, level, low), jnp.inf),
        lambda: jnp.full_like(rate, jnp.inf),
    )
    guard = jnp.argmin(theta).astype(jnp.int32)
    return FirstMeeting(theta[guard], guard, level[guard], jnp.any(hidden)), ready


def _root(values: jax.Array, level: jax.Array, low: jax.Array) -> jax.Array:
    """Find the root (m,) of the interpolating quartics minus `level` in [low, low + 1/4], where they grow."""
    c = jnp.sum(jnp.asarray(_TO_COEFFICIENTS, values.dtype)[:, :, None] * values[None], axis=1)
    c = c.at[0].add(-level)
    high = low + SAMPLES[1]
    x = 0.5 * (low + high)
    for _ in range(_ROOT_STEPS):
        p = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))
        slope = c[1] + x * (2 * c[2] + x * (3 * c[3] + x * 4 * c[4]))
        x, low, high = safeguarded_newton(x, p, slope, low, high)
    return x


class LevelSet(NamedTuple):
    """The states with h_guard = level."""

    guard: jax.Array
    level: jax.Array


def enter(
    es: EventSystem,
    params: PyTree,
    control: PyTree,
    trial: ode.OdeStep,
    start: jax.Array,
    end: jax.Array,
    crossed: jax.Array,
    target: LevelSet,
) -> tuple[jax.Array, jax.Array]:
    """Compute time and state (n,) at which a step from time `start` meets its target.

    Two Newton steps correct the time `end`, at which the meeting was located.

    Derivative: that of the point on the level set, by the implicit rule, which one Newton step gives to
    first order and two to second; `end` carries none.
    """

    def correct(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        time = carry[0]
        x = ode.interpolate(trial, (time - start) / trial.h)
        f = es.xdot(time, x, crossed, control, params)
        h, rate = es.guard_rates(x, f, params)
        delay = (target.level - h[target.guard]) / rate[target.guard]
        # If the rate vanishes (the guard is only touched), the correction has no meaning.
        delay = jnp.where(jnp.abs(delay) <= jnp.abs(trial.h), delay, 0.0)
        return time + delay, x + delay * f

    # A loop, so that the field is compiled once.
    return lax.fori_loop(0, 2, correct, (end, trial.x0))


class Crossing(NamedTuple):
    """A step to a guard: time, state before and after its jump, mask after it, field and rates before it.

    `left` (m,) are the guard values at the end of the bent step before the Newton correction, `beside` (m,)
    those before the jump, of first order in the correction.
    """

    t: jax.Array
    before: jax.Array
    x: jax.Array
    crossed: jax.Array
    left: jax.Array
    beside: jax.Array
    rate: jax.Array


def cross_guard(
    es: EventSystem,
    params: PyTree,
    control: PyTree,
    t: jax.Array,
    x: jax.Array,
    f: jax.Array,
    crossed: jax.Array,
    guard: jax.Array,
) -> Crossing:
    """Make the step of Anderson & Revzen from (t, x) along f onto the plane of a guard, and cross it.

    Three points differ from their listing 1: the mask of crossed guards is carried along instead of being
    read from signs of h on a guard; the entry into a band is located inside the step; and the field at the
    end of the straight step, which the test of liveness needs anyway, bends the step. Its mean with f makes
    the step one of second order, and a Newton step brings it back onto the guard. The error of a crossing is
    then of order eps^3, and zero if the field is constant and the guard a plane. Without the bend it is
    exactly of second order in eps; with it, bands may be ten times as wide.

    Derivative: of the discrete step.
    """
    h, rate = es.guard_rates(x, f, params)
    wait = -h[guard] / rate[guard]
    ahead = es.xdot(t + wait, x + wait * f, crossed, control, params)
    bent = x + 0.5 * wait * (f + ahead)
    left, rate = es.guard_rates(bent, ahead, params)
    # If the rate has changed sign, the crossing is refused and the correction has no meaning.
    delay = jnp.where(rate[guard] > 0, -left[guard] / jnp.where(rate[guard] > 0, rate[guard], 1.0), 0.0)
    before = bent + delay * ahead
    after = es.after(before, guard, params)
    return Crossing(
        t + wait + delay, before, after, es.cross(crossed, guard), left, left + delay * rate, rate
    )

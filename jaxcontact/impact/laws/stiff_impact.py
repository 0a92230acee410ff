"""One impact between compliant bodies as SciPy's stiff solvers see it: rates, their Jacobian, events.

Entry: `StiffImpact`. Used by `kelvin_voigt`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import implicit
from jaxcontact.mechanics.configuration import velocity_map
from jaxcontact.mechanics.motion_equations import bias
from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.precision import jit
from jaxcontact.status import Status
from jaxcontact.terms import contact_terms

if TYPE_CHECKING:
    from jaxcontact.impact.laws.kelvin_voigt import StiffSolver

STARTED_FRACTION = 1e-12  # fraction of the total impulse above which a contact has started to push
BISECTIONS = 60  # halvings of the last solver step at most; they exhaust the 53 bits of float64

Integrated = tuple[
    np.ndarray, np.ndarray, Status, int
]  # times (n,), rows (n, ny), status, evaluations of the rate
ContactLaw = tuple[
    jax.Array, jax.Array, jax.Array, jax.Array
]  # initial penetration, k, damping (nc,); slip speed


@jit
def state_rate(model: Model, law: ContactLaw, y: jax.Array) -> jax.Array:
    """Compute the time derivative of y = (q, v, normal impulses)."""
    start, stiffness, damping, slip_speed = law
    state = state_of(model.system, y)
    terms = contact_terms(model, state)
    gap = terms.phi - start
    push = jnp.maximum(0.0, -stiffness * gap - damping * (terms.J_n @ state.v))
    normal = jnp.where(gap <= 0.0, push, 0.0)
    slip = jnp.einsum("ctv,v->ct", terms.J_t, state.v)
    square = jnp.sum(slip**2, axis=1)
    safe = jnp.where(square > 0.0, square, 1.0)  # no derivative of a norm at zero
    slip_norm = jnp.where(square > 0.0, jnp.sqrt(safe), 0.0)
    friction = -(terms.mu * normal / jnp.maximum(slip_norm, slip_speed))[:, None] * slip
    force = normal @ terms.J_n + jnp.einsum("ct,ctv->v", friction, terms.J_t)
    acceleration = implicit.solve_spd(terms.M, (force - bias(model, state))[:, None])[:, 0]
    return jnp.concatenate([velocity_map(model.system, state.q) @ state.v, acceleration, normal])


state_rate_jacobian = jit(jax.jacfwd(state_rate, argnums=2))


@jit
def approach_rates(model: Model, law: ContactLaw, y: jax.Array) -> jax.Array:
    """Find the lowest normal velocity of a penetrating contact, +inf if there is none."""
    state = state_of(model.system, y)
    terms = contact_terms(model, state)
    return jnp.min(jnp.where(terms.phi <= law[0], terms.J_n @ state.v, jnp.inf))


def state_of(system: System, y: jax.Array) -> State:
    """Read the state from a row (ny,) of the solver."""
    nq, nv = system.structure.num_positions, system.structure.num_velocities
    return State(q=y[:nq], v=y[nq : nq + nv], t=jnp.zeros((), y.dtype))


class StiffImpact:
    """One impact as SciPy's solvers see it: NumPy vectors in and out."""

    def __init__(
        self,
        model: Model,
        state: State,
        law: ContactLaw,
        stop_speed: float,
        min_impulse: np.ndarray,
    ) -> None:
        self.problem = (model, law)
        self.start = np.concatenate([state.q, state.v, np.zeros(min_impulse.size)])
        self.sizes = (state.q.size, state.q.size + state.v.size)
        self.stop_speed, self.min_impulse = stop_speed, min_impulse

    def split(self, y: np.ndarray) -> list[np.ndarray]:
        """Split rows y into q, v and impulses."""
        return np.split(y, self.sizes, axis=-1)

    def over(self, y: np.ndarray) -> bool:
        """Tell whether no penetrating contact approaches and every contact has had its minimum impulse."""
        if np.any(y[self.sizes[1] :] < self.min_impulse):
            return False
        return bool(self.approach(y) <= self.stop_speed)

    def approach(self, y: np.ndarray) -> float:
        """Compute the largest speed at which a penetrating contact approaches, at least 0; NaN of a NaN."""
        return float(np.maximum(0.0, -float(approach_rates(*self.problem, y))))

    def integrate(self, span: float, settings: StiffSolver) -> Integrated:
        """Solve up to the end of the impact; return times (n,), rows y (n, ny), status and evaluations."""
        from scipy import integrate  # imported late because its import is slow

        def rate(_: float, y: np.ndarray) -> np.ndarray:
            out: np.ndarray = np.asarray(state_rate(*self.problem, y))
            return out

        def jacobian(_: float, y: np.ndarray) -> np.ndarray:
            # The solvers shrink their step on a rate that is not finite, but not on such a Jacobian.
            out: np.ndarray = np.nan_to_num(np.asarray(state_rate_jacobian(*self.problem, y)))
            return out

        times, rows, status = [0.0], [self.start], Status.SUCCESS
        if self.over(self.start):
            return np.array(times), np.stack(rows), status, 0
        if not np.all(np.isfinite(rate(0.0, self.start))):
            return np.array(times), np.stack(rows), Status.UNTERMINATED | Status.NONFINITE, 1
        solver = getattr(integrate, settings.method)(
            rate, 0.0, self.start, span, jac=jacobian, rtol=settings.rtol, atol=settings.atol
        )
        while True:
            solver.step()
            if solver.status == "failed":
                status = Status.UNTERMINATED | Status.STALLED
                break
            over = self.over(solver.y)
            if over:
                end, last = first_time(self.over, solver.dense_output(), solver.t_old, solver.t)
            else:
                end, last = solver.t, solver.y
            times.append(end)
            rows.append(last)
            if over:
                break
            if solver.status == "finished":
                status = Status.UNTERMINATED
                break
            if len(times) > settings.max_steps:
                status = Status.UNTERMINATED | Status.MAX_ITERS
                break
        return np.array(times), np.stack(rows), status, int(solver.nfev)


def first_time(
    over: Callable[[np.ndarray], bool], dense: Callable[[float], np.ndarray], low: float, high: float
) -> tuple[float, np.ndarray]:
    """Find the time in (low, high] at which the impact ends, by bisection, and y at that time."""
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if over(dense(middle)):
            high = middle
        else:
            low = middle
    return high, dense(high)


def first_share(impulses: np.ndarray) -> float:
    """Compute the fraction of the first contact's impulse transmitted before the second contact starts."""
    total = impulses[-1]
    started = impulses > STARTED_FRACTION * np.sum(total)
    begin = np.where(np.any(started, axis=0), np.argmax(started, axis=0), len(impulses))
    first, *others = np.argsort(begin, kind="stable")
    if begin[first] == len(impulses):
        return 0.0
    second = min((int(begin[i]) for i in others), default=len(impulses))
    return float(impulses[second - 1, first] / total[first])

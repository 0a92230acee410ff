"""An impact between compliant bodies, integrated through its short but finite duration.

Entry `kelvin_voigt`: the comparison for the rigid impact laws. Springs and dampers at the contacts,
regularised friction, the equations of motion, and a stiff solver on the host; Halm & Posa, equations 88-90.
Its settings are `ImpactEnd` and `StiffSolver`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_choice, check_rows
from jaxcontact.front_door import NOT_NEGATIVE, POSITIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.mechanics.configuration import velocity_map
from jaxcontact.mechanics.motion_equations import bias
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.precision import jit
from jaxcontact.status import Info, Status
from jaxcontact.terms import ContactTerms, contact_terms

METHODS = ("BDF", "Radau")
IMPULSE_SHARE = 1e-2  # fraction of m |J_n v| that a contact must have transmitted before the impact can end
STARTED = 1e-12  # fraction of the total impulse above which a contact has started to push
BISECTIONS = 60  # halvings of the last solver step at most; they exhaust the 53 bits of float64


class CompliantInfo(Info):
    """Info that `kelvin_voigt` returns with v_plus; the path has one row per step of the solver.

    Attributes:
        status: uint32 bits of `Status`.
        duration: of the impact, s.
        impulse: (nc,) normal impulse, N s.
        first_contact_share: fraction of its impulse that the contact which pushes first has transmitted
            when the second one starts; 0 if they start together, 1 if none follows.
        num_evaluations: evaluations of the equations of motion, without those of their Jacobian.
        num_iters: steps of the solver.
        residual: largest speed at which a penetrating contact approaches at the end, m/s.
        time: (n,) s since the start of the impact; the last row is its end.
        q_path: (n, nq) configurations.
        v_path: (n, nv) velocities.
        impulse_path: (n, nc) normal impulses so far, N s.
    """

    duration: jax.Array
    impulse: jax.Array
    first_contact_share: jax.Array
    num_evaluations: jax.Array
    time: jax.Array
    q_path: jax.Array
    v_path: jax.Array
    impulse_path: jax.Array


@checked(duration=POSITIVE, stop_speed=NOT_NEGATIVE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImpactEnd:
    """Say when an impact between compliant bodies ends; numbers are physical, in SI units.

    Attributes:
        duration: the longest impact, s.
        stop_speed: no penetrating contact approaches faster, m/s; None is 1e-3 m / min k with m in kg and k
            in N/m, as the paper.
        min_impulse: that every contact has transmitted, a number or (nc,), N s; None is 0.01 m |J_n v| on
            every contact that would be reached within `duration` at its initial velocity, 0 on the others.
    """

    duration: float = 0.1
    stop_speed: float | None = None
    min_impulse: float | np.ndarray | jax.Array | None = None


@checked(method=check_choice(*METHODS), rtol=POSITIVE, atol=POSITIVE, max_steps=check_rows)
@dataclasses.dataclass(frozen=True, kw_only=True)
class StiffSolver:
    """A stiff solver of SciPy and its tolerances.

    Attributes:
        method: "BDF" or "Radau" (three times slower, for comparison: at the default tolerances the two agree
            to 1e-8). LSODA is not offered: at a sticking contact it gives up or stands still.
        rtol: relative tolerance.
        atol: absolute tolerance, on m, rad, m/s, rad/s and N s alike; None is slip_speed / 10. At slip_speed
            it no longer resolves sticking, and v_plus is wrong in the third digit.
        max_steps: largest number of steps.
    """

    method: str = "BDF"
    rtol: float = 1e-10
    atol: float | None = None
    max_steps: int = 20_000


DEFAULT_END, DEFAULT_SOLVER = ImpactEnd(), StiffSolver()


@checked(damping_ratio=NOT_NEGATIVE, mass=POSITIVE, slip_speed=POSITIVE)
def kelvin_voigt(
    model: Model,
    state: State,
    stiffness: float | np.ndarray | jax.Array,
    damping_ratio: float,
    *,
    mass: float | None = None,
    slip_speed: float = 1e-10,
    end: ImpactEnd = DEFAULT_END,
    solver: StiffSolver = DEFAULT_SOLVER,
) -> tuple[jax.Array, CompliantInfo]:
    """Compute the outcome of an impact on Kelvin-Voigt contacts (Halm & Posa, equations 88-90).

    M vdot + b = J_n^T lam_n + J_t^T lam_t, with gravity and all other forces acting through the impact, and

        lam_n,i = max(0, -k_i phi_i - 2 zeta sqrt(k_i m) phidot_i) where phi_i <= 0, else 0
        lam_t,i = -mu_i lam_n,i r / max(|r|, slip_speed),   r = J_t,i v.

    (The paper prints sqrt(k_i / m), which is the same number for its mass of 1 kg.) The impact ends when no
    penetrating contact approaches faster than `end.stop_speed` and every contact has transmitted its
    `end.min_impulse`. The paper's criterion is meant for overdamped contacts (zeta = 5), which creep back
    slowly; an impact with zeta < 1 ends at its greatest compression, not at separation.

    Inputs are in SI units: the defaults of `slip_speed`, `end` and `solver` are physical numbers.

    Gaps keep their values, except that a contact which penetrates within the contact tolerance (1e-6 m) at
    the start counts as just touching.

    Args:
        model: the mechanism and its numbers.
        state: q and v at the moment of impact.
        stiffness: k > 0, a number or (nc,), N/m.
        damping_ratio: zeta >= 0.
        mass: m in the damping and in the defaults below, kg; default the total mass.
        slip_speed: friction grows linearly with the slip below this speed, m/s.
        end: when the impact ends.
        solver: method, tolerances, steps.

    Returns:
        v_plus (nv,), of the dtype of state.v, and CompliantInfo.

    Raises:
        ValueError, TypeError: bad numbers or shapes in params, state or the options; a contact that
            penetrates by more than 1e-6 m; traced arguments.

    Status: UNTERMINATED if the impact has not ended after its `duration`; with MAX_ITERS if `max_steps`
        came first, with STALLED if the solver's step size vanished, with NONFINITE if forces
        are not finite at the start. v_plus is then the last velocity.

    Derivative: none; a host-level driver. It computes in float64 for every dtype of the inputs.
    """
    _check_call(model, state, (stiffness, damping_ratio, vars(end), vars(solver)))
    dtype = jnp.asarray(state.v).dtype
    with jax.enable_x64(True):  # slip speeds of 1e-10 m/s are below the round-off of float32
        model, state = jax.tree.map(_double, (model, state))
        terms, m = _terms_and_mass(model, state, mass)
        law = _contact_law(terms, stiffness, damping_ratio, m, slip_speed)
        stop_speed = (
            1e-3 * float(m) / float(np.min(law[1])) if end.stop_speed is None else float(end.stop_speed)
        )
        impulse_bound = _impulse_bound(terms, state.v, m, end)
        atol = 0.1 * slip_speed if solver.atol is None else solver.atol
        impact = _StiffImpact(model, state, law, stop_speed, impulse_bound)
        path = impact.integrate(float(end.duration), dataclasses.replace(solver, atol=float(atol)))
        return _read_outcome(impact, path, dtype)


def _check_call(model: Model, state: State, numbers: PyTree) -> None:
    """Raise ValueError or TypeError if an argument of `kelvin_voigt` is traced or out of range."""
    if not inputs.is_concrete(model.params, state, numbers):
        raise ValueError("kelvin_voigt: a driver for the host, not traceable by jit, vmap or grad")
    _check_state(model.params, state)


def _read_outcome(
    impact: _StiffImpact, integrated: _Integrated, dtype: jax.typing.DTypeLike
) -> tuple[jax.Array, CompliantInfo]:
    """Make the last velocity and the info of an integrated impact."""
    time, path, status, evaluations = integrated
    q, v, impulses = impact.split(path)
    info = CompliantInfo(
        status=jnp.asarray(int(status), jnp.uint32),
        duration=jnp.asarray(time[-1], dtype),
        impulse=jnp.asarray(impulses[-1], dtype),
        first_contact_share=jnp.asarray(_first_share(impulses), dtype),
        num_evaluations=jnp.asarray(evaluations, jnp.int32),
        num_iters=jnp.asarray(len(time) - 1, jnp.int32),
        residual=jnp.asarray(impact.approach(path[-1]), dtype),
        time=jnp.asarray(time, dtype),
        q_path=jnp.asarray(q, dtype),
        v_path=jnp.asarray(v, dtype),
        impulse_path=jnp.asarray(impulses, dtype),
    )
    return jnp.asarray(v[-1], dtype), info


_Integrated = tuple[
    np.ndarray, np.ndarray, Status, int
]  # times (n,), rows (n, ny), status, evaluations of the rate
Law = tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # initial penetration, k, damping (nc,); slip speed


def _terms_and_mass(model: Model, state: State, mass: float | None) -> tuple[ContactTerms, np.ndarray]:
    """Compute the contact terms and choose the mass; raise if joints are held, or numbers are bad."""
    check_no_held_joints(model.system, "kelvin_voigt")
    terms = contact_terms(model, state)
    inputs.check(terms, state.v)
    return terms, _as_positive("mass", float(np.sum(model.params.mass)) if mass is None else mass)


def _contact_law(
    terms: ContactTerms,
    stiffness: jax.typing.ArrayLike,
    damping_ratio: jax.typing.ArrayLike,
    mass: np.ndarray,
    slip_speed: float,
) -> Law:
    """Check the numbers of the contact law and make it."""
    phi = np.asarray(terms.phi)
    k = _as_positive("stiffness", stiffness, phi.shape)
    zeta = _as_positive("damping_ratio", damping_ratio, (), zero=True)
    slip = _as_positive("slip_speed", slip_speed)
    law = (np.minimum(phi, 0.0), k, 2.0 * zeta * np.sqrt(k * mass), slip)
    return jax.tree.map(jnp.asarray, law)


def _impulse_bound(terms: ContactTerms, v: jax.Array, mass: np.ndarray, end: ImpactEnd) -> np.ndarray:
    """Check the minimum impulses (nc,), or compute those of the contacts reached within the duration."""
    phi, approach = np.asarray(terms.phi), np.asarray(terms.J_n @ v)
    if end.min_impulse is not None:
        return _as_positive("min_impulse", end.min_impulse, phi.shape, zero=True)
    reached = (phi + approach * end.duration < 0) & (approach < 0)
    return IMPULSE_SHARE * mass * np.where(reached, -approach, 0.0)


@jit
def _rate(model: Model, law: Law, y: jax.Array) -> jax.Array:
    """Compute the time derivative of y = (q, v, normal impulses)."""
    start, stiffness, damping, slip_speed = law
    state = _state(model.system, y)
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


_rate_jacobian = jit(jax.jacfwd(_rate, argnums=2))


@jit
def _approach(model: Model, law: Law, y: jax.Array) -> jax.Array:
    """Find the lowest normal velocity of a penetrating contact, +inf if there is none."""
    state = _state(model.system, y)
    terms = contact_terms(model, state)
    return jnp.min(jnp.where(terms.phi <= law[0], terms.J_n @ state.v, jnp.inf))


def _state(system: System, y: jax.Array) -> State:
    nq, nv = system.structure.num_positions, system.structure.num_velocities
    return State(q=y[:nq], v=y[nq : nq + nv], t=jnp.zeros((), y.dtype))


class _StiffImpact:
    """One impact as SciPy's solvers see it: NumPy vectors in and out."""

    def __init__(
        self,
        model: Model,
        state: State,
        law: Law,
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
        return float(np.maximum(0.0, -float(_approach(*self.problem, y))))

    def integrate(self, span: float, settings: StiffSolver) -> _Integrated:
        """Solve up to the end of the impact; return times (n,), rows y (n, ny), status and evaluations."""
        from scipy import integrate  # imported late because its import is slow

        def rate(_: float, y: np.ndarray) -> np.ndarray:
            out: np.ndarray = np.asarray(_rate(*self.problem, y))
            return out

        def jacobian(_: float, y: np.ndarray) -> np.ndarray:
            # The solvers shrink their step on a rate that is not finite, but not on such a Jacobian.
            out: np.ndarray = np.nan_to_num(np.asarray(_rate_jacobian(*self.problem, y)))
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
                end, last = _first(self.over, solver.dense_output(), solver.t_old, solver.t)
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


def _first(
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


def _first_share(impulses: np.ndarray) -> float:
    """Compute the fraction of the first contact's impulse transmitted before the second contact starts."""
    total = impulses[-1]
    started = impulses > STARTED * np.sum(total)
    begin = np.where(np.any(started, axis=0), np.argmax(started, axis=0), len(impulses))
    first, *others = np.argsort(begin, kind="stable")
    if begin[first] == len(impulses):
        return 0.0
    second = min((int(begin[i]) for i in others), default=len(impulses))
    return float(impulses[second - 1, first] / total[first])


def _double(leaf: PyTree) -> jax.Array:
    array = np.asarray(leaf)
    return jnp.asarray(array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array)


def _check_state(params: Params, state: State) -> None:
    plain = (("params", params.replace(tree=None)), ("state.q", state.q), ("state.v", state.v))
    for name, numbers in plain:
        if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in jax.tree.leaves(numbers)):
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    if any(np.any(np.isnan(np.asarray(leaf))) for leaf in jax.tree.leaves(params.tree)):
        raise ValueError("params: expected numbers, got NaN")  # a force range of a robot may be infinite


def _as_positive(name: str, value: object, shape: tuple[int, ...] = (), zero: bool = False) -> np.ndarray:
    """Return `value` as float64 of shape `shape`, a number repeated; raise ValueError with its name."""
    if not np.issubdtype(np.asarray(value).dtype, np.number):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    array = np.asarray(value, np.float64)
    condition = ">= 0" if zero else "> 0"
    if array.shape not in ((), shape):
        wanted = f"a number or shape {shape}" if shape else "a number"
        raise ValueError(f"{name}: expected {wanted}, got shape {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0) or (not zero and np.any(array == 0)):
        raise ValueError(f"{name}: expected finite numbers {condition}, got {value}")
    return np.broadcast_to(array, shape)

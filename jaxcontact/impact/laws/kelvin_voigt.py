"""An impact between compliant bodies, integrated through its short but finite duration.

Entry `kelvin_voigt`: the comparison for the rigid impact laws. Springs and dampers at the contacts,
regularised friction, the equations of motion, and a stiff solver on the host; Halm & Posa, equations 88-90.
Its settings are `ImpactEnd` and `StiffSolver`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_choice, check_rows
from jaxcontact.front_door import NOT_NEGATIVE, POSITIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.stiff_impact import ContactLaw, Integrated, StiffImpact, first_share
from jaxcontact.mechanics.system import Model, Params, State
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.status import Info
from jaxcontact.terms import ContactTerms, contact_terms

METHODS = ("BDF", "Radau")
IMPULSE_SHARE = 1e-2  # fraction of m |J_n v| that a contact must have transmitted before the impact can end


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
        impact = StiffImpact(model, state, law, stop_speed, impulse_bound)
        path = impact.integrate(float(end.duration), dataclasses.replace(solver, atol=float(atol)))
        return _read_outcome(impact, path, dtype)


def _check_call(model: Model, state: State, numbers: PyTree) -> None:
    """Raise ValueError or TypeError if an argument of `kelvin_voigt` is traced or out of range."""
    if not inputs.is_concrete(model.params, state, numbers):
        raise ValueError("kelvin_voigt: a driver for the host, not traceable by jit, vmap or grad")
    _check_state(model.params, state)


def _read_outcome(
    impact: StiffImpact, integrated: Integrated, dtype: jax.typing.DTypeLike
) -> tuple[jax.Array, CompliantInfo]:
    """Make the last velocity and the info of an integrated impact."""
    time, path, status, evaluations = integrated
    q, v, impulses = impact.split(path)
    info = CompliantInfo(
        status=jnp.asarray(int(status), jnp.uint32),
        duration=jnp.asarray(time[-1], dtype),
        impulse=jnp.asarray(impulses[-1], dtype),
        first_contact_share=jnp.asarray(first_share(impulses), dtype),
        num_evaluations=jnp.asarray(evaluations, jnp.int32),
        num_iters=jnp.asarray(len(time) - 1, jnp.int32),
        residual=jnp.asarray(impact.approach(path[-1]), dtype),
        time=jnp.asarray(time, dtype),
        q_path=jnp.asarray(q, dtype),
        v_path=jnp.asarray(v, dtype),
        impulse_path=jnp.asarray(impulses, dtype),
    )
    return jnp.asarray(v[-1], dtype), info


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
) -> ContactLaw:
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

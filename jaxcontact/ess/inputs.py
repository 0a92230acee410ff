"""The arguments of a run, and the named errors for bad ones.

Owns `RunInputs` and the checks that can be made before a run: shapes and dtypes always, values if
they are known. Entry: `check`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_number, check_type
from jaxcontact.ess import guard_crossing
from jaxcontact.ess.settings import Settings
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.solvers.ode import DormandPrince
from jaxcontact.status import Status, flag


class RunInputs(NamedTuple):
    """The arguments by which the outcome of a run can be differentiated."""

    params: PyTree
    control: PyTree
    x0: jax.Array
    t0: jax.Array
    t1: jax.Array


def system_of(model: Model) -> EventSystem:
    """Return the event-selected system of a model; raise TypeError if it has none."""
    check_type("model", model, Model)
    if not isinstance(model.system, EventSystem):
        raise TypeError(
            f"model: expected a Model of an EventSystem, got one of {type(model.system).__name__}; "
            "see `from_system`"
        )
    return model.system


def start_mask(
    es: EventSystem, params: PyTree, x0: jax.Array, eps: jax.Array, crossed0: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Choose the mask (m,) at the start; return it and whether it is ambiguous or contradicts the guards.

    Without `crossed0` a guard is crossed if h >= 0; within a hundredth of eps of zero that would be noise.
    With it, a guard that is not crossed must not lie beyond its band, h > eps.
    """
    h = es.guards(x0, params)
    if crossed0 is None:
        return h >= 0, jnp.any(jnp.abs(h) <= guard_crossing.TIE * eps)
    return crossed0, jnp.any(~crossed0 & (h > eps))


def as_jax(numbers: PyTree) -> PyTree:
    """Convert NumPy arrays to arrays of JAX, which a field may index by traced numbers."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, numbers)


def _strong(numbers: PyTree, dtype: jax.typing.DTypeLike) -> PyTree:
    """Convert weakly typed floats to the dtype of the state, so that a program is compiled only once."""

    def strengthen(a: PyTree) -> PyTree:
        loose = isinstance(a, float) or getattr(a, "weak_type", False)
        return jnp.asarray(a, dtype) if loose and jnp.issubdtype(jnp.result_type(a), jnp.floating) else a

    return jax.tree.map(strengthen, as_jax(numbers))


def check(
    model: Model,
    x0: jax.Array,
    t0: jax.typing.ArrayLike,
    t1: jax.typing.ArrayLike,
    settings: Settings,
    control: PyTree,
    crossed0: PyTree,
) -> tuple[RunInputs, jax.Array]:
    """Check the arguments of a run; return inputs and eps (m,) in one dtype, or raise a named error."""
    es = system_of(model)
    check_type("settings", settings, Settings)
    eps = settings.eps
    dtype = x0.dtype
    inputs = RunInputs(
        _strong(model.params, dtype),
        _strong(control, dtype),
        jnp.asarray(x0),
        jnp.asarray(t0, dtype),
        jnp.asarray(t1, dtype),
    )
    m = _check_functions(es, inputs)
    if jnp.ndim(eps) > 1 or (jnp.ndim(eps) == 1 and jnp.shape(eps) != (m,)):
        raise ValueError(f"eps: expected one number or shape ({m},), got {jnp.shape(eps)}")
    widths = jnp.broadcast_to(jnp.asarray(eps, dtype), (m,))
    _check_settings(widths, settings.ode)
    if crossed0 is not None and (jnp.shape(crossed0) != (m,) or jnp.asarray(crossed0).dtype != jnp.bool_):
        raise ValueError(f"crossed0: expected ({m},) booleans, got {crossed0!r}")
    if not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves((inputs, widths, crossed0))):
        _check_values(es, inputs, widths, crossed0)
    return inputs, widths


def _known(value: object) -> bool:
    return not isinstance(value, jax.core.Tracer)


def _check_settings(eps: jax.Array, ode: DormandPrince | None) -> None:
    if _known(eps) and not np.all((np.asarray(eps) > 0) & np.isfinite(eps)):
        raise ValueError(f"eps: expected finite numbers > 0, got {np.asarray(eps)}")
    if ode is None:
        return
    if not isinstance(ode, DormandPrince):
        raise TypeError(f"ode: expected DormandPrince or None, got {type(ode).__name__}")
    for name in ("rtol", "atol"):
        check_number(f"ode.{name}", getattr(ode, name), 0.0)
    for name, value in (("dt", ode.dt), ("longest", ode.longest)):
        if value is not None and _known(value) and not (value > 0 and (name == "longest" or value < np.inf)):
            raise ValueError(f"ode.{name}: expected a number > 0, got {value}")


def bad_settings(eps: jax.Array, ode: DormandPrince) -> jax.Array:
    """Set the bit INVALID for traced settings that `check` would refuse if they were known."""
    good = jnp.all((eps > 0) & jnp.isfinite(eps)) & (ode.longest > 0)
    for error in (ode.rtol, ode.atol):
        good &= (error >= 0) & jnp.isfinite(error)
    if ode.dt is not None:
        good &= (ode.dt > 0) & jnp.isfinite(ode.dt)
    return flag(~good, Status.INVALID)


def allowed_error(tol: jax.typing.ArrayLike, x0: jax.Array) -> jax.Array:
    """Broadcast `tol` to (n,) in the dtype of the state; raise an error if it is no tolerance."""
    check_number("tol", tol, 0.0)
    if jnp.shape(tol) not in ((), x0.shape):
        raise ValueError(f"tol: expected one number or shape {x0.shape}, got {jnp.shape(tol)}")
    return jax.lax.stop_gradient(jnp.broadcast_to(jnp.asarray(tol, x0.dtype), x0.shape))


def count_guards(name: str, model: Model, x: jax.Array, control: PyTree) -> int:
    """Count the guards of a model; raise ValueError if its functions take no state like `name`."""
    es, params, control = system_of(model), as_jax(model.params), as_jax(control)
    h = guards_at(name, es, params, x)
    zero, before = jnp.zeros((), x.dtype), jnp.zeros(h.shape, bool)
    try:
        rate = jax.eval_shape(lambda y: es.xdot(zero, y, before, control, params), x)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{name}: expected a state of the field, got shape {jnp.shape(x)}: {error}"
        ) from error
    if rate.shape != x.shape:
        raise ValueError(f"{name}: expected a state of the field, {rate.shape}, got shape {jnp.shape(x)}")
    return int(h.shape[0])


def guards_at(name: str, es: EventSystem, params: PyTree, x: jax.Array) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of the guards; raise ValueError if the argument `name` is no state for them."""
    try:
        # A lambda: a function that lasts would keep each call in a cache of JAX.
        return jax.eval_shape(lambda y: es.guards(y, params), x)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{name}: expected a state of the guards, got shape {jnp.shape(x)}: {error}"
        ) from error


def check_guards(name: str, m: int, guards: PyTree) -> jax.Array:
    """Return whether traced indices `guards` leave 0..m - 1; raise ValueError if known ones do."""
    if not jnp.issubdtype(jnp.result_type(guards), jnp.integer):
        raise ValueError(f"{name}: expected indices of guards, got {jnp.result_type(guards)}")
    if _known(guards) and not np.all((np.asarray(guards) >= 0) & (np.asarray(guards) < m)):
        raise ValueError(f"{name}: expected indices of guards in 0..{m - 1}, got {np.asarray(guards)}")
    guards = jnp.asarray(guards)
    return jnp.any((guards < 0) | (guards >= m))


def _check_functions(es: EventSystem, inputs: RunInputs) -> int:
    """Count the guards; raise ValueError if field, guards, jump or rearm do not fit x0."""
    params, control, x0, t0, _ = inputs
    h = guards_at("x0", es, params, x0)
    if h.ndim != 1 or h.shape[0] == 0:
        raise ValueError(f"guards: expected values of shape (m,), m >= 1, got {h.shape}")
    m = h.shape[0]
    if es.rearm is not None and len(es.rearm) != m:
        raise ValueError(f"rearm: expected shape ({m}, {m}) for {m} guards, got {np.shape(es.rearm)}")
    calls: list[tuple[str, PyTree]] = [
        ("field", lambda: es.xdot(t0, x0, jnp.zeros(m, bool), control, params))
    ]
    if es.jump is not None:
        calls.append(("jump", lambda: es.after(x0, jnp.int32(0), params)))
    for name, call in calls:
        result = jax.eval_shape(call)
        if result.shape != x0.shape or result.dtype != x0.dtype:
            raise ValueError(
                f"{name}: expected {x0.dtype} of shape {x0.shape} as x0, got {result.dtype} of {result.shape}"
            )
    return m


def _check_values(es: EventSystem, inputs: RunInputs, eps: jax.Array, crossed0: jax.Array | None) -> None:
    if not np.all(np.isfinite(np.asarray(inputs.x0))):
        raise ValueError("x0: expected finite numbers, got NaN or inf")
    t0, t1 = float(inputs.t0), float(inputs.t1)
    if not -math.inf < t0 <= t1 < math.inf:
        raise ValueError(f"t1: expected finite t1 >= t0, got t0 = {t0:g}, t1 = {t1:g}")
    _, bad = start_mask(es, inputs.params, inputs.x0, eps, crossed0)
    if bool(bad):
        h = np.asarray(es.guards(inputs.x0, inputs.params))
        if crossed0 is None:
            raise ValueError(
                f"x0: guard {int(np.argmin(np.abs(h) / np.asarray(eps)))} is zero there, so it could count "
                "as crossed or not; say which by crossed0"
            )
        worst = int(np.argmax(np.where(np.asarray(crossed0), -np.inf, h)))
        raise ValueError(f"crossed0: guard {worst} is not crossed, but h = {h[worst]:g} lies behind its band")

"""Event-selected systems that the tests share: functions at module level, numbers in params."""

import jax.numpy as jnp
import numpy as np

from jaxcontact.ess import DormandPrince, EventSystem

TIGHT = DormandPrince(rtol=1e-12, atol=1e-13)


def corner_field(t, x, signs, control, params):
    """Affine, one matrix and drift per guard: xdot = (A + sum_k s_k A_k) x + b + sum_k s_k b_k + control."""
    drift = params["b"] + jnp.einsum("k,kn->n", signs, params["b_k"])
    matrix = params["A"] + jnp.einsum("k,knm->nm", signs, params["A_k"])
    return matrix @ x + drift + (0.0 if control is None else control)


def corner_guards(x, params):
    """Planes a_k x - c_k."""
    return params["normals"] @ x - params["offsets"]


CORNER = EventSystem(corner_field, corner_guards)


def corner_params(rng, n, m, spread=0.3, linear=0.0):
    """m guards through the origin, all crossed by every field: drift along (1, ..., 1) dominates."""
    normals = np.ones((m, n)) / n + spread * rng.uniform(-1, 1, (m, n)) / n
    return {
        "A": linear * rng.normal(size=(n, n)) / n,
        "A_k": linear * rng.normal(size=(m, n, n)) / (n * m),
        "b": np.ones(n),
        "b_k": spread * rng.uniform(-1, 1, (m, n)) / m,
        "normals": normals,
        "offsets": np.zeros(m),
    }


def ball_field(t, x, signs, control, params):
    """A ball above a floor: x = (z, v), gravity only."""
    return jnp.stack([x[1], -params["g"]])


def ball_guards(x, params):
    return -x[:1]


def ball_jump(x, k, params):
    return jnp.stack([x[0], -params["e"] * x[1]])


BALL = EventSystem(ball_field, ball_guards, rearm=[[True]], jump=ball_jump)


def hopper_field(t, x, signs, control, params):
    """x = (z, v); guard 0 touch-down, guard 1 lift-off; the control adds to the leg's rest length."""
    stance = signs[0] > signs[1]
    length = 1.0 + (0.0 if control is None else control)
    spring = jnp.where(stance, params["k"] * (length - x[0]) / params["m"], 0.0)
    return jnp.stack([x[1], spring - params["g"]])


def hopper_guards(x, params):
    return jnp.stack([1.0 - x[0], x[0] - 1.0])


HOPPER = EventSystem(hopper_field, hopper_guards, rearm=[[False, True], [True, False]])
HOPPER_PARAMS = {"k": 200.0, "m": 1.0, "g": 9.81}

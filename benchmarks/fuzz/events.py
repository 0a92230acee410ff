"""Checks of event-selected systems against SciPy's event location: a hopper, a plate on springs; any band.

A wide band is no error by itself; a flow that is off by more than its own claim without a status bit is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import jaxcontact as jc
from benchmarks.fuzz.tally import Tally

# Relative to the size of the motion. The error of a flow is of third order in the width of its bands, so a
# narrow one has to be as good as the smooth steps, and a wide one that says nothing must not show.
SMOOTH, OFF, ASKED = 1e-5, 3e-2, 1e-3
PLACES = np.array([-1.0, 0.3, 1.0])  # of the springs under the plate, m


def _hopper(t: Any, x: Any, signs: Any, control: Any, params: Any) -> Any:
    stance = signs[0] > signs[1]
    push = jnp.where(stance, params["k"] * (1.0 - x[0]), 0.0)
    return jnp.stack([x[1], push - params["g"]])


def _hopper_guards(x: Any, params: Any) -> Any:
    return jnp.stack([1.0 - x[0], x[0] - 1.0])


def _hopper_plain(t: float, x: np.ndarray, crossed: np.ndarray, p: Any) -> np.ndarray:
    stance = crossed[0] and not crossed[1]
    return np.array([x[1], p["k"] * (1.0 - x[0]) * stance - p["g"]])


def _hopper_guards_plain(x: np.ndarray, p: Any) -> np.ndarray:
    return np.array([1.0 - x[0], x[0] - 1.0])


def _plate(t: Any, x: Any, signs: Any, control: Any, params: Any) -> Any:
    """X = (z, angle, their rates); guards 0, 1, 2 touch a spring, 3, 4, 5 leave it."""
    height = x[0] + PLACES * x[1]
    rate = x[2] + PLACES * x[3]
    on = signs[:3] > signs[3:]
    push = jnp.where(on, params["k"] * (1.0 - height) - params["b"] * rate, 0.0)
    lift, turn = jnp.sum(push) - params["g"], jnp.sum(push * PLACES) / params["inertia"]
    return jnp.stack([x[2], x[3], lift, turn])


def _plate_guards(x: Any, params: Any) -> Any:
    height = x[0] + PLACES * x[1]
    return jnp.concatenate([1.0 - height, height - 1.0])


def _plate_plain(t: float, x: np.ndarray, crossed: np.ndarray, p: Any) -> np.ndarray:
    on = crossed[:3] & ~crossed[3:]
    push = on * (p["k"] * (1.0 - x[0] - PLACES * x[1]) - p["b"] * (x[2] + PLACES * x[3]))
    return np.array([x[2], x[3], push.sum() - p["g"], (push * PLACES).sum() / p["inertia"]])


def _plate_guards_plain(x: np.ndarray, p: Any) -> np.ndarray:
    height = x[0] + PLACES * x[1]
    return np.concatenate([1.0 - height, height - 1.0])


_ARMS = np.kron(np.array([[False, True], [True, False]]), np.eye(3, dtype=bool)) > 0
HOPPER = jc.ess.EventSystem(_hopper, _hopper_guards, rearm=[[False, True], [True, False]])
PLATE = jc.ess.EventSystem(_plate, _plate_guards, rearm=_ARMS.tolist())


def by_scipy(
    field: Callable[..., np.ndarray], guards: Callable[..., np.ndarray], rearm: np.ndarray, p: Any,
    x: np.ndarray, t1: float,
) -> np.ndarray | None:  # fmt: skip
    """The state at t1 by DOP853, restarted at every event; None if that takes more than 200 of them."""
    t, crossed = 0.0, guards(x, p) >= 0
    for _ in range(200):
        events = []
        for k in np.flatnonzero(~crossed):

            def event(t: float, y: np.ndarray, mask: np.ndarray, k: int = int(k)) -> float:
                return float(guards(y, p)[k])

            event.terminal, event.direction = True, 1.0  # type: ignore[attr-defined]
            events.append((int(k), event))
        run = solve_ivp(
            lambda t, y, mask: field(t, y, mask, p), (t, t1), x, method="DOP853", rtol=1e-11, atol=1e-12,
            events=[e for _, e in events], max_step=0.01, args=(crossed.copy(),),
        )  # fmt: skip
        t, x = float(run.t[-1]), run.y[:, -1]
        if run.status == 0:
            return x
        hits = [k for (k, _), times in zip(events, run.t_events) if len(times)]
        if not run.success or not hits:
            return None
        crossed[hits] = True
        crossed &= ~np.any(rearm[hits], axis=0)
    return None


def _bands(rng: np.random.Generator) -> float:
    """Half widths: narrow ones, where the claim is sharp, and wide ones."""
    return float(10.0 ** (rng.uniform(-5, -2) if rng.random() < 0.3 else rng.uniform(-2, -0.5)))


def _compare(
    tally: Tally,
    rng: np.random.Generator,
    model: jc.Model,
    x0: np.ndarray,
    t1: float,
    exact: np.ndarray,
) -> None:
    """One flow with a band of any width; half of them ask for an estimate of the error, too."""
    eps = _bands(rng)
    size = np.repeat([1.0, 5.0], len(x0) // 2)  # m or rad, then their rates
    asked = rng.random() < 0.5
    settings = jc.ess.Settings(eps=eps, tol=ASKED * size if asked else None, max_steps=512)
    x1, info = jc.ess.flow(model, jnp.asarray(x0), 0.0, t1, settings=settings)
    tally.problems += 1
    if int(info.status):  # any bit: a note such as GRAZING warns of the band, too
        tally.declined += 1
        return
    off = float(np.max(np.abs(np.asarray(x1) - exact) / size))
    narrow = eps < 1e-3
    name = "narrow band" if narrow else ("estimated error" if asked else "wide band")
    limit = SMOOTH if narrow else (4.0 * ASKED if asked else OFF)
    tally.judge(name, off, limit, note=f"eps {eps:.3g}, off by {off:.3g}")


def hopper(seed: int) -> Tally:
    """`ess.flow` of a hopper."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    for _ in range(8):
        p = {"k": float(10.0 ** rng.uniform(2, 3.3)), "g": 9.81}
        x0, t1 = np.array([rng.uniform(1.35, 2.2), rng.normal()]), float(rng.uniform(0.5, 2.0))
        exact = by_scipy(_hopper_plain, _hopper_guards_plain, np.array(HOPPER.rearm_matrix(2)), p, x0, t1)
        if exact is not None:
            params = {name: jnp.asarray(a) for name, a in p.items()}
            _compare(tally, rng, jc.Model(system=HOPPER, params=params), x0, t1, exact)
    return tally


def plate(seed: int) -> Tally:
    """`ess.flow` of a plate that falls on three springs."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    for _ in range(8):
        p = {"k": float(10.0 ** rng.uniform(2, 3)), "b": float(rng.choice([0.0, 2.0])), "g": 9.81}
        p["inertia"] = float(rng.uniform(0.3, 1.0))
        x0 = np.array([rng.uniform(1.6, 2.0), rng.uniform(-0.2, 0.2), rng.normal() * 0.3, rng.normal() * 0.3])
        t1 = float(rng.uniform(0.4, 1.0))
        exact = by_scipy(_plate_plain, _plate_guards_plain, _ARMS, p, x0, t1)
        if exact is not None:
            params = {name: jnp.asarray(a) for name, a in p.items()}
            _compare(tally, rng, jc.Model(system=PLATE, params=params), x0, t1, exact)
    return tally

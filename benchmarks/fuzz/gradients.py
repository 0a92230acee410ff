"""Checks of derivatives and of `jc.simd` at random states: differences, and JAX's own batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz.tally import Tally

STEP = 1e-5  # of the differences
SMOOTH = 1e-4  # relative change of a slope from one difference to another, beyond which there is a kink
LIMIT = 1e-4  # relative error of a derivative where the differences agree
WORLDS = 8


@functools.cache
def functions() -> dict[str, tuple[Callable[..., Any], np.ndarray, float]]:
    """Functions of one vector, with status; where they start, and how far the start is moved."""
    gait, slope, walker = jc.models.compass_gait(), jc.models.box_on_incline(0.25), jc.models.planar_walker()
    terms = jc.contact_terms(gait, gait.initial_state())

    def impact(v: jax.Array) -> Any:
        v_plus, info = jc.impact.anitescu_potra(terms, v)
        return v_plus, info.status

    def step(v: jax.Array) -> Any:
        state = slope.initial_state().replace(v=v)
        after, info = jc.compliant.step(slope, state, jnp.zeros(6), dt=0.01)
        return after.v, info.status

    def dynamics(q: jax.Array) -> Any:
        state = walker.initial_state().replace(q=q)
        return jc.forward_dynamics(walker, state, jnp.zeros_like(state.v)), jnp.uint32(0)

    starts = {"impact": gait.initial_state().v, "step": jnp.zeros(6), "dynamics": walker.initial_state().q}
    made = {"impact": impact, "step": step, "dynamics": dynamics}
    return {name: (made[name], np.asarray(start), 0.3) for name, start in starts.items()}


@functools.cache
def compiled(name: str) -> Callable[..., Any]:
    function = functions()[name][0]

    def slopes(x: jax.Array, d: jax.Array) -> Any:
        _, slope, status = jax.jvp(function, (x,), (d,), has_aux=True)
        values = [function(x + k * STEP * d) for k in (-2, -1, 0, 1, 2)]
        every = jnp.bitwise_or.reduce(jnp.stack([status, *(each[1] for each in values)]))
        return slope, jnp.stack([each[0] for each in values]), every

    return jax.jit(jax.vmap(slopes))


def gradients(seed: int) -> Tally:
    """Forward derivatives against central differences, where these tell of no kink."""
    rng = np.random.default_rng(seed)
    name = sorted(functions())[seed % len(functions())]
    _, start, spread = functions()[name]
    x = start + spread * rng.normal(size=(WORLDS, start.size))
    d = rng.normal(size=x.shape)
    slope, values, status = (np.asarray(part) for part in compiled(name)(x, d))
    tally = Tally()
    good = tally.count(status)
    one = (values[:, 3] - values[:, 1]) / (2.0 * STEP)
    two = (values[:, 4] - values[:, 0]) / (4.0 * STEP)
    sides = (values[:, 3] - values[:, 2]) / STEP, (values[:, 2] - values[:, 1]) / STEP
    size = np.abs(one).max(axis=1) + np.abs(x).max(axis=1)
    bent = np.maximum(np.abs(one - two).max(axis=1), np.abs(sides[0] - sides[1]).max(axis=1)) / size
    error = np.abs(slope - one).max(axis=1) / size
    tally.judge(f"derivative of {name}", error, LIMIT, good & (bent < SMOOTH))
    return tally


@functools.cache
def batches(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = functions()[name][0]
    return jc.simd(function), jax.jit(jax.vmap(function))


def simd(seed: int) -> Tally:
    """Impacts and steps of many worlds by `jc.simd`, against `vmap`."""
    rng = np.random.default_rng(seed)
    name = ("impact", "step")[seed % 2]
    _, start, spread = functions()[name]
    x = jnp.asarray(start + spread * rng.normal(size=(WORLDS, start.size)))
    (found, status), (expected, same) = (batch(x) for batch in batches(name))
    tally = Tally()
    good = tally.count(same)
    size = np.abs(np.asarray(expected)).max(axis=1) + np.abs(np.asarray(x)).max(axis=1)
    apart = np.abs(np.asarray(found) - np.asarray(expected)).max(axis=1) / size
    tally.judge(f"{name} by simd", apart, 1e-6, good)
    tally.judge(f"status of {name} by simd", (np.asarray(status) != np.asarray(same)).astype(float), 0.5)
    return tally

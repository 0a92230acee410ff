"""Sampling the post-impact sets of the five mechanisms with the paper's settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case


def _sampling(model_name: str, num_samples: int, selection: str) -> Callable[[], dict[str, Any]]:
    model = getattr(jc.models, model_name)()
    terms = jc.contact_terms(model.system, model.params, model.state)

    def run() -> dict[str, Any]:
        samples = jc.impact.sample(
            terms, model.state.v, step=model.step, max_steps=model.max_steps, num_samples=num_samples,
            selection=selection,
        )  # fmt: skip
        jax.block_until_ready(samples.v_plus)
        status = np.asarray(samples.status)
        unfinished = status & np.uint32(int(jc.Status.UNTERMINATED))
        return {
            "terminated %": 100 * float(np.mean(unfinished == 0)),
            "other failures": int(np.count_nonzero(status != unfinished)),
            "worst residual": float(samples.residual.max()),
            "LCPs per sample": float(samples.num_solves.mean()),
        }

    return run


def _in_jit(model_name: str, num_samples: int, gradient: bool) -> Callable[[], dict[str, Any]]:
    """`sample_in_jit` within one program; with `gradient` of a mean over outcomes by the velocity."""
    model = getattr(jc.models, model_name)()
    terms = jc.contact_terms(model.system, model.params, model.state)

    def outcomes(v: jax.Array, key: jax.Array) -> tuple[jax.Array, jc.impact.ImpactInfo]:
        return jc.impact.sample_in_jit(
            terms, v, key, step=model.step, max_steps=model.max_steps, num_samples=num_samples
        )

    def mean(v: jax.Array, key: jax.Array) -> tuple[jax.Array, jc.impact.ImpactInfo]:
        v_plus, info = outcomes(v, key)
        return (v_plus**2).mean(), info

    work = jax.jit(jax.grad(mean, has_aux=True) if gradient else outcomes)

    def run() -> dict[str, Any]:
        found, info = jax.block_until_ready(work(model.state.v, jax.random.key(0)))
        status = np.asarray(info.status)
        unfinished = status & np.uint32(int(jc.Status.UNTERMINATED))
        return {
            "terminated %": 100 * float(np.mean(unfinished == 0)),
            "other failures": int(np.count_nonzero(status != unfinished)),
            "worst residual": float(info.residual.max()),
            "finite": bool(np.all(np.isfinite(found))),
        }

    return run


def _in_jit_case(model: str, power: int, gradient: bool = False) -> Case:
    setup = functools.partial(_in_jit, model, 2**power, gradient)
    name = f"sample_in_jit {model} all{' gradient' * gradient} 2^{power}"
    return Case(name=name, items=2**power, setup=setup)


def _case(model: str, samples: int, selection: str, repeats: int = 5) -> Case:
    setup = functools.partial(_sampling, model, samples, selection)
    power = int(np.log2(samples))
    return Case(name=f"sample {model} {selection} 2^{power}", items=samples, setup=setup, repeats=repeats)


CASES = [
    *(_case(name, 2**16, "all") for name in ("rocking_block", "compass_gait", "box_and_wall", "ramone")),
    _case("compass_gait", 2**20, "all", repeats=3),
    *(_in_jit_case(name, 16) for name in ("rocking_block", "compass_gait")),
    _in_jit_case("compass_gait", 12, gradient=True),
    *(_case(name, 2**13, "lemke", repeats=3) for name in ("rocking_block", "compass_gait", "ramone")),
    _case("disk_stack", 2**13, "all", repeats=3),
    *(_case("disk_stack", 2**k, "visited", repeats=3) for k in (16, 18, 20)),
    _case("disk_stack", 2**10, "lemke", repeats=3),
]

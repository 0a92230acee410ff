"""Sampling the post-impact sets of the five mechanisms with the paper's settings."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.numpy_lemke import lemke
from benchmarks.runner import Case
from jaxcontact.impact.laws.contact_space import contact_space, friction_directions, slowest_approach
from jaxcontact.impact.laws.pivoting import impact_lcp


def _sampling(model_name: str, num_samples: int, selection: str) -> Callable[[], dict[str, Any]]:
    model = getattr(jc.models, model_name)()
    terms = jc.contact_terms(model, model.initial_state())

    def run() -> dict[str, Any]:
        samples = jc.impact.sample(
            terms,
            model.initial_state().v,
            jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps, selection=selection),
            num_samples=num_samples,
        )
        jax.block_until_ready(samples.v_plus)
        status = np.asarray(samples.status)
        unfinished = status & np.uint32(int(jc.Status.UNTERMINATED))
        return {
            "terminated %": 100 * float(np.mean(unfinished == 0)),
            "other failures": int(np.count_nonzero(status != unfinished)),
            "worst residual": float(samples.residual.max()),
            "LCPs per sample": float(samples.num_iters.mean()),
        }

    return run


Outcomes = Callable[[jax.Array, jax.Array], tuple[jax.Array, jc.impact.ImpactInfo]]


def outcomes_in_jit(model_name: str, num_samples: int) -> tuple[Outcomes, jax.Array]:
    """(v, key) -> outcomes and info by `sample_in_jit`, traceable; and the velocity before the impact."""
    model = getattr(jc.models, model_name)()
    terms = jc.contact_terms(model, model.initial_state())

    def outcomes(v: jax.Array, key: jax.Array) -> tuple[jax.Array, jc.impact.ImpactInfo]:
        return jc.impact.sample_in_jit(
            terms,
            v,
            jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
            key,
            num_samples=num_samples,
        )

    return outcomes, model.initial_state().v


def _in_jit(model_name: str, num_samples: int, gradient: bool) -> Callable[[], dict[str, Any]]:
    """`sample_in_jit` within one program; with `gradient` of a mean over outcomes by the velocity."""
    outcomes, before = outcomes_in_jit(model_name, num_samples)

    def mean(v: jax.Array, key: jax.Array) -> tuple[jax.Array, jc.impact.ImpactInfo]:
        v_plus, info = outcomes(v, key)
        return (v_plus**2).mean(), info

    work = jax.jit(jax.grad(mean, has_aux=True) if gradient else outcomes)

    def run() -> dict[str, Any]:
        found, info = jax.block_until_ready(work(before, jax.random.key(0)))
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


def sampling_case(model: str, samples: int, selection: str, repeats: int = 5) -> Case:
    setup = functools.partial(_sampling, model, samples, selection)
    power = int(np.log2(samples))
    return Case(name=f"sample {model} {selection} 2^{power}", items=samples, setup=setup, repeats=repeats)


SIDES, STEP, MAX_STEPS = 4, 0.2, 12  # of the box in space: sides of the friction cone, N s, steps
FIRST = 2**14  # samples of its chunks


def landing_box(num_contacts: int) -> tuple[jc.ContactTerms, jax.Array]:
    """A box that lands flat and turning, on its first corners."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    names = ("J_n", "J_t", "phi", "mu", "active")
    corners = terms.replace(**{name: getattr(terms, name)[:num_contacts] for name in names})
    return corners, model.initial_state().v + jnp.array([0.0, 0.3, 0.0, 1.0, -0.5, 2.0])


def _in_space(num_contacts: int, num_samples: int, selection: str) -> Callable[[], dict[str, Any]]:
    """Also the processor time per sample behind the first chunk, which takes in tables and the pilot."""
    terms, v = landing_box(num_contacts)
    chunk = min(FIRST, num_samples // 2)

    def run() -> dict[str, Any]:
        begin, laps = time.process_time(), []
        samples = jc.impact.sample(
            terms,
            v,
            jc.impact.Routh(
                impulse_step=STEP, max_steps=MAX_STEPS, selection=selection, num_directions=SIDES
            ),
            num_samples=num_samples,
            run=jc.Run(chunk=chunk, progress=lambda *_: laps.append(time.process_time())),
        )
        jax.block_until_ready(samples.v_plus)
        return {
            "status 0 %": 100 * float(np.mean(np.asarray(samples.status) == 0)),
            "worst residual": float(samples.residual.max()),
            "LCPs per sample": float(samples.num_iters.mean()),
            "core us": (laps[-1] - begin) / num_samples * 1e6,
            "core us behind the first": (laps[-1] - laps[0]) / (num_samples - chunk) * 1e6,
        }

    return run


def _mujoco_in_space(num_contacts: int) -> Callable[[], dict[str, Any]]:
    """The one outcome of MuJoCo: stiff contacts, in steps until none approaches."""
    from jaxcontact.peers.mujoco import mjcf, run_impact, with_stiff_contacts

    terms, v = landing_box(num_contacts)
    model = jc.models.box_drop_3d()
    compiled = with_stiff_contacts(mjcf("box_drop_3d"), 1e-6, 1e-4)
    compiled.geom_pos[1 + num_contacts :, 2] += 1.0  # the other corners, out of reach
    normals, q = np.asarray(terms.J_n), np.asarray(model.initial_state().q)

    def run() -> dict[str, Any]:
        begin = time.process_time()
        v_plus = run_impact(compiled, q, np.asarray(v), lambda _, v: bool(np.any(normals @ v < -1e-6)), "box")
        return {
            "slowest contact m/s": float((normals @ v_plus).min()),
            "core us": (time.process_time() - begin) * 1e6,
        }

    return run


def _numpy_lemke_in_space(num_contacts: int, num_samples: int) -> Callable[[], dict[str, Any]]:
    """One Lemke solution per step in NumPy, one sample after the other."""
    terms, v = landing_box(num_contacts)
    space = jax.jit(contact_space)(terms)
    directions = friction_directions(2, SIDES)
    scale = np.asarray(space.scale)
    W, w_unit = (
        np.asarray(a) for a in impact_lcp(space, jnp.zeros(scale.size), directions, jnp.zeros_like(space.mu))
    )
    fan = np.kron(np.eye(num_contacts), directions)  # rows of each contact, from (t1, t2)
    delassus, start = np.asarray(space.delassus), np.asarray(space.jacobian @ v)
    slowest = np.asarray(slowest_approach(space, v))
    normal = np.arange(scale.size) % 3 == 0

    def run() -> dict[str, Any]:
        begin = time.process_time()
        rng = np.random.default_rng(0)
        solved = worst = steps = 0.0
        for _ in range(num_samples):
            u = start
            for _ in range(MAX_STEPS):
                if not np.any(u[normal] < -slowest):
                    break
                w = w_unit.copy()
                w[:num_contacts] = rng.uniform(size=num_contacts) * STEP / scale[normal]
                w[num_contacts : 2 * num_contacts] = u[normal]
                w[2 * num_contacts : num_contacts * (2 + SIDES)] = fan @ u[~normal]
                z = lemke(W, w)
                steps += 1
                if z is None:
                    break
                solved += 1
                worst = max(worst, float(np.abs(np.minimum(z, W @ z + w)).max()))
                push = np.zeros(scale.size)
                push[normal] = z[num_contacts : 2 * num_contacts]
                push[~normal] = fan.T @ z[2 * num_contacts : num_contacts * (2 + SIDES)]
                u = u + delassus @ push
        return {
            "solved %": 100 * solved / steps,
            "worst residual": worst,
            "LCPs per sample": steps / num_samples,
            "core us": (time.process_time() - begin) / num_samples * 1e6,
        }

    return run


def _space_case(num_contacts: int, power: int, selection: str, repeats: int = 3) -> Case:
    setup = functools.partial(_in_space, num_contacts, 2**power, selection)
    name = f"sample in space, {num_contacts} contacts {selection} 2^{power}"
    return Case(name=name, items=2**power, setup=setup, repeats=repeats)


def _space_mujoco(num_contacts: int) -> Case:
    setup = functools.partial(_mujoco_in_space, num_contacts)
    return Case(name=f"sample in space, {num_contacts} contacts MuJoCo, one outcome", items=1, setup=setup)


def _space_peer(num_contacts: int, num_samples: int) -> Case:
    setup = functools.partial(_numpy_lemke_in_space, num_contacts, num_samples)
    return Case(
        name=f"sample in space, {num_contacts} contacts numpy lemke",
        items=num_samples,
        setup=setup,
        repeats=3,
    )


TWO_CONTACTS = ("rocking_block", "compass_gait", "box_and_wall", "ramone")
CASES = [
    *(
        sampling_case(name, 2**16, "all")
        for name in ("rocking_block", "compass_gait", "box_and_wall", "ramone")
    ),
    sampling_case("compass_gait", 2**20, "all", repeats=3),
    *(_in_jit_case(name, 16) for name in ("rocking_block", "compass_gait")),
    _in_jit_case("compass_gait", 12, gradient=True),
    *(sampling_case(name, 2**13, "lemke", repeats=3) for name in ("rocking_block", "compass_gait", "ramone")),
    sampling_case("disk_stack", 2**13, "all", repeats=3),
    *(sampling_case("disk_stack", 2**k, "visited", repeats=3) for k in (16, 18, 20)),
    sampling_case("disk_stack", 2**10, "lemke", repeats=3),
    *(_space_case(2, 16, selection) for selection in ("all", "visited")),
    _space_case(2, 12, "lemke"),
    _space_peer(2, 200),
    _space_mujoco(2),
    _space_case(4, 16, "visited", repeats=1),
    _space_case(4, 10, "lemke"),
    _space_peer(4, 100),
    _space_mujoco(4),
]

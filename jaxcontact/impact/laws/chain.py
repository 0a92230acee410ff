"""Impacts of chains through the stiffnesses of their contacts: entry `chain`; docs/methods/restitution.md.

Contact i is a spring of stiffness k_i in compression and k_i / e_i^2 in expansion, so that it gives back
e_i^2 of the work of compression. An impact has no time scale, so only ratios of stiffnesses count.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_corner, check_number, check_positive, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_space import (
    ImpactInfo,
    contact_space,
    energy_ratio,
    mass_norm,
    slowest_approach,
)
from jaxcontact.impact.laws.reflections import tolerance
from jaxcontact.impact.laws.turns_one_sided import end_turns
from jaxcontact.precision import jit
from jaxcontact.solvers.contact_directions import negative_part, without_rate
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

STEPS_PER_PERIOD = 200  # time steps per fastest period; the relative error of the energy is about 1e-5
LEAST_RESTITUTION = 0.1  # lowest e; steps must resolve an expansion, e times as long as a compression
BALANCE = 1e-3  # fraction of the kinetic energy before; a larger imbalance is INACCURATE


class _Springs(NamedTuple):
    """Compression (nc,), its largest value, impulse so far, and whether the impact is over."""

    depth: jax.Array
    peak: jax.Array
    impulse: jax.Array
    done: jax.Array


class _Laws(NamedTuple):
    """Springs: stiffness (nc,), squares of e, and the compression (nc,) up to which it counts as zero."""

    k: jax.Array
    square: jax.Array
    faint: jax.Array
    is_one_sided: bool

    def peak(self, depth: jax.Array, peak: jax.Array) -> jax.Array:
        """Compute max(peak, depth); if `is_one_sided` also where both are the same."""
        if not self.is_one_sided:
            return jnp.maximum(peak, depth)
        over = depth - peak
        return peak + over - negative_part(over, jnp.abs(over) <= self.faint)

    def force(self, depth: jax.Array, peak: jax.Array) -> jax.Array:
        """Compute the pushes (nc,) of springs, >= 0."""
        soft = self.k / self.square
        if not self.is_one_sided:
            expanding = soft * (depth - (1.0 - self.square) * peak)
            return jnp.maximum(jnp.where(depth >= peak, self.k * depth, expanding), 0.0)
        higher = self.peak(depth, peak)
        pushes = soft * (depth - higher) + self.k * higher
        return pushes - negative_part(pushes, jnp.abs(pushes) <= self.k * self.faint)


@checked(stiffness=check_positive, restitution=check_number, max_steps=check_rows, corner=check_corner)
def chain(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    *,
    stiffness: float | Float[jax.Array, ""] | Float[jax.Array, " nc"],
    restitution: float | Float[jax.Array, ""] | Float[jax.Array, " nc"] = 1.0,
    max_steps: int = 8192,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve an impact without friction through the springs of its contacts, all at once.

    M v' = J_n^T f, depth' = -J_n v, f = k depth in compression and (k / e^2) (depth - (1 - e^2) peak) >= 0
    after its peak: the distributing law of Liu, Zhao & Brogliato (2008) with linear springs, for chains as
    those of Ceanga & Hurmuzlu (2001). A far softer second contact gives single impacts one after the other.
    Integrated by Runge and Kutta's method, with steps of 1/200 of the fastest period.

    Args:
        terms: contact terms, nc contacts; friction plays no part.
        v: (nv,) velocity before the impact.
        stiffness: relative stiffnesses > 0, a number or (nc,); only ratios matter.
        restitution: e in 0.1..1, a number or (nc,), energetic.
        max_steps: largest number of time steps; a stiffness ratio r needs some 400 / (sqrt(r) min(e)).
        corner: the derivative where a contact neither approaches nor separates. "smooth": it does not push.
            "one_sided": `jax.jvp` is that of the direction, not linear in it.

    Returns:
        v_plus (nv,) and ImpactInfo.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; stiffnesses or e of another shape or out of range,
            max_steps < 1.
        NotImplementedError: `corner="one_sided"` in reverse mode, or for a second derivative.

    Status: UNTERMINATED if a contact still approaches or presses after max_steps; INACCURATE if energy
        and work differ by more than 1e-3; inside jit INVALID for bad stiffnesses or e, and as other laws.

    Derivative: of the steps taken, by v, terms, stiffness and restitution, forward and reverse; accurate to
        first order in the step at the moments when springs begin or cease to push. With `corner="one_sided"`
        that of the direction, forward only; NaN if its impact does not end within max_steps.
    """
    inputs.check(terms, v)
    inputs.check_restitution(terms, restitution)
    inputs.check_count("max_steps", max_steps)
    nc = jnp.shape(terms.phi)[0]
    if np.shape(stiffness) not in ((), (nc,)):
        raise ValueError(f"stiffness: expected a number or shape ({nc},), got shape {np.shape(stiffness)}")
    if inputs.is_concrete(restitution) and np.any(np.asarray(restitution) < LEAST_RESTITUTION):
        raise ValueError(f"restitution: expected numbers in {LEAST_RESTITUTION}..1, got {restitution}")
    if inputs.is_concrete(stiffness):
        check_positive("stiffness", stiffness)
    k, e = (jnp.broadcast_to(jnp.asarray(a, v.dtype), (nc,)) for a in (stiffness, restitution))
    return _chain(terms, v, k, e, int(max_steps), corner == "one_sided")


@functools.partial(jit, static_argnames=("max_steps", "is_one_sided"))
def _chain(
    terms: ContactTerms, v: jax.Array, stiffness: jax.Array, restitution: jax.Array, max_steps: int,
    is_one_sided: bool,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:  # fmt: skip
    v_in = v
    terms, v, bad = inputs.prepare(terms, v)
    valid = jnp.all((restitution >= LEAST_RESTITUTION) & (restitution <= 1))
    valid &= jnp.all((stiffness > 0) & jnp.isfinite(stiffness))
    bad = bad | flag(~valid, Status.INVALID)
    k = jnp.where(valid, stiffness, 1.0)
    k = jnp.where(terms.active, k / lax.stop_gradient(jnp.max(k)), 0.0)
    square = jnp.where(valid, restitution, 1.0) ** 2
    response = implicit.solve_spd(terms.M, terms.J_n.T)
    gram, before = terms.J_n @ response, terms.J_n @ v
    space = contact_space(terms)
    scale = lax.stop_gradient(space.scale[:: 1 + space.num_tangents])
    slowest = slowest_approach(space, v) / scale
    root = jnp.sqrt(k / square)
    fastest = lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(root[:, None] * gram * root[None]), axis=1)))
    dt = 2.0 * np.pi / STEPS_PER_PERIOD / jnp.sqrt(jnp.where(fastest > 0, fastest, 1.0))
    border = tolerance(v.dtype) * lax.stop_gradient(mass_norm(terms.M, v)) / scale
    second = STEPS_PER_PERIOD * dt  # the fastest period
    springs = _Laws(k, square, border * second, is_one_sided)

    def rates(depth: jax.Array, impulse: jax.Array, peak: jax.Array) -> tuple[jax.Array, jax.Array]:
        return -(before + gram @ impulse), springs.force(depth, peak)

    def goes_on(depth: jax.Array, peak: jax.Array, impulse: jax.Array) -> jax.Array:
        approaches = terms.active & (before + gram @ impulse < -slowest)
        pushes = springs.force(depth, peak) > (k * springs.faint if is_one_sided else 0.0)
        return jnp.any(approaches | pushes)

    def step(at: _Springs, _: None) -> tuple[_Springs, None]:
        slopes: list[tuple[jax.Array, jax.Array]] = []
        for part in (0.0, 0.5, 0.5, 1.0):
            ahead = slopes[-1] if slopes else (jnp.zeros_like(k), jnp.zeros_like(k))
            slopes.append(rates(at.depth + part * dt * ahead[0], at.impulse + part * dt * ahead[1], at.peak))
        change = [(a + 2.0 * b + 2.0 * c + d) / 6.0 for a, b, c, d in zip(*slopes, strict=True)]
        depth, impulse = at.depth + dt * change[0], at.impulse + dt * change[1]
        peak = springs.peak(depth, at.peak)
        done = ~goes_on(depth, peak, impulse) & ~jnp.array(is_one_sided)  # a direction may have more
        new = _Springs(depth, peak, impulse, done)
        return jax.tree.map(lambda old, then: jnp.where(at.done, old, then), at, new), None

    at_rest = jnp.zeros_like(k)
    begins = (jnp.any(terms.active & (before < -slowest)) | is_one_sided) & (bad == 0)
    end, _ = lax.scan(step, _Springs(at_rest, at_rest, at_rest, ~begins), length=max_steps)
    unfinished = goes_on(end.depth, end.peak, end.impulse) if is_one_sided else ~end.done
    v_plus = v + response @ end.impulse
    if is_one_sided:
        after = before + gram @ end.impulse
        pushes = springs.force(end.depth, end.peak)
        ends = jnp.concatenate([after, -second * pushes])
        is_left = jnp.concatenate([terms.active & (jnp.abs(after) <= border), terms.active])
        v_plus = without_rate(end_turns(v_plus, jnp.tile(before, 2), ends, is_left), unfinished)
    energy, lost = 0.5 * v @ terms.M @ v, 0.5 * jnp.sum((1.0 - square) * k * end.peak**2)
    balance = jnp.abs(energy - lost - 0.5 * v_plus @ terms.M @ v_plus) / jnp.where(energy > 0, energy, 1.0)
    nc, nt, _ = terms.J_t.shape
    info = ImpactInfo(
        status=bad
        | flag(unfinished, Status.UNTERMINATED)
        | flag(~unfinished & (balance > BALANCE), Status.INACCURATE),
        residual=lax.stop_gradient(balance),
        impulse=jnp.zeros((nc, 1 + nt), v.dtype).at[:, 0].set(end.impulse),
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_iters=jnp.int32(1),
    )
    return jnp.where(bad != 0, v_in, v_plus), info

"""The steps of one sample of Routh's impact, one after the other: the core of `routh`.

Owns a single step, the loop over steps in its two forms (entries `all_steps` and `needed_steps`), and the
state that an impact carries from step to step. The algorithm: docs/methods/set-valued.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.circular_cone import capped_one_sided
from jaxcontact.impact.laws.contact_enumeration import mode_table
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    approaching,
    contact_space,
    friction_directions,
    mass_norm,
    residual_status,
    slowest_approach,
)
from jaxcontact.impact.laws.outcome_of_modes import outcome
from jaxcontact.impact.laws.pivoting import random_cover, solve_by_pivoting
from jaxcontact.impact.laws.spatial_restitution import give_back_in_space
from jaxcontact.impact.laws.turned_polygon import random_angles, turn_rows, turned
from jaxcontact.impact.laws.turns_one_sided import end_turns
from jaxcontact.solvers import contact_modes, mode_choice
from jaxcontact.solvers.contact_directions import border_size, without_rate
from jaxcontact.solvers.lcp import Lemke
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

MANY_CONTACTS = 3  # 343 modes, of which each takes kilobytes in a table
Density = Callable[[jax.Array], jax.Array]  # (nc,) uniform numbers -> (nc,) fractions of the largest impulses


class StepSettings(NamedTuple):
    """The choices of `resolve`: how a step is solved, and whether steps end when contacts have separated.

    With `is_one_sided` contacts at rest take part in further steps, for the sake of directions.
    Without `until_separated` there is one step, whose modes are not tabulated where there are many.
    Without `tells_complete`, an impact with singular modes counts as not complete, and planar modes are not
    tabulated but solved again in each step.
    """

    selection: str
    num_directions: int
    until_separated: bool = True
    early_exit: bool = True
    turn_polygon: bool = False
    tells_complete: bool = True
    is_one_sided: bool = False


class ImpactDraws(NamedTuple):
    """Random numbers of all steps.

    Attributes:
        impulse_max: (N, nc) largest normal impulses, N s.
        pick: (N,) choices among solutions.
        solutions: (N, r) scaled impulses of the steps if another solver has found them, or None.
    """

    impulse_max: jax.Array
    pick: jax.Array
    solutions: jax.Array | None = None


def draw_step(
    key: jax.Array, number: jax.Array, impulse_step: jax.Array, density: Density | None = None
) -> ImpactDraws:
    """Draw the largest impulses and the pick of step `number`; `impulse_step` (nc,), N s, bounds them."""
    nc = impulse_step.shape[0]
    draws = jax.random.uniform(jax.random.fold_in(key, number), (nc + 1,), impulse_step.dtype)
    fractions = draws[:nc]
    if density is not None:
        fractions = jnp.clip(density(fractions), 0.0, 1.0).astype(impulse_step.dtype)
    return ImpactDraws(fractions * impulse_step, draws[nc])


class ImpactSteps(NamedTuple):
    """State of an impact after some of its steps.

    Attributes:
        v: (nv,) velocity.
        impulse: (r,) scaled, of all steps.
        status: bits of the steps that were needed.
        worst: largest residual of these steps.
        num_steps: number of these steps.
        complete: bool, whether every solution of each step was a candidate.
        stored: (nc,) energy that restitution has yet to give back, scaled; None without restitution.
    """

    v: jax.Array
    impulse: jax.Array
    status: jax.Array
    worst: jax.Array
    num_steps: jax.Array
    complete: jax.Array
    stored: jax.Array | None


class Resolved(NamedTuple):
    """Result of an impact.

    Attributes:
        v: (nv,) velocity.
        impulse: (nc, 1 + nt), N s.
        status: bits, which may include UNTERMINATED.
        residual: the largest of its steps.
        num_iters: number of steps that were needed.
        complete: bool, whether every solution of each step was a candidate.
    """

    v: jax.Array
    impulse: jax.Array
    status: jax.Array
    residual: jax.Array
    num_iters: jax.Array
    complete: jax.Array


def _solve_step(
    space: ContactSpace,
    table: contact_modes.ModeMaps | contact_modes.ModeInverses | None,
    directions: np.ndarray,
    v: jax.Array,
    draw: ImpactDraws,
    needed: jax.Array,
    settings: StepSettings,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Solve one step of `draw`: v_next, the scaled impulse (r,), zero if not needed, residual, solver status.

    The last value says whether every solution was a candidate.
    """
    early_exit, holds_all = settings.early_exit, jnp.array(False)
    impulse_max, pick, solution = draw
    rows = 1 + space.num_tangents
    cap = jnp.where(space.active, impulse_max / space.scale[::rows], 0.0)
    fixed, v_fixed, cap_fixed = lax.stop_gradient((space, v, cap))
    if solution is not None:
        guess, status = solution, jnp.uint32(0)
    elif _takes_tiles(fixed, settings):
        problem = contact_modes.PlanarProblem(
            fixed.delassus, fixed.mu, fixed.active, fixed.rates(v_fixed), cap_fixed
        )
        violation, score, unresolved = contact_modes.evaluate_in_tiles(problem)
        mode = _choose_mode(violation, score, pick, mass_norm(space.mass, v), early_exit)
        guess, status = contact_modes.impulse_of_mode(problem, mode), jnp.uint32(0)
        holds_all = ~jnp.any(unresolved)
    elif table is None:
        # In the plane "all" provides the variety; "lemke" stays one solver with its bias.
        size = space.mu.shape[0] * (directions.shape[0] + 3)
        cover = random_cover(size, pick) if space.num_tangents == 2 else None
        solver = Lemke(early_exit=early_exit)
        guess, status = solve_by_pivoting(fixed, v_fixed, directions, cap_fixed, solver, cover)
    else:
        x = jnp.concatenate([fixed.rates(v_fixed), cap_fixed])
        if isinstance(table, contact_modes.ModeInverses):
            table, x = contact_modes.modes_at(table, fixed.rates(v_fixed), cap_fixed), jnp.ones(1, v.dtype)
        score = jnp.sum(table.score * x[:, None], axis=0)
        mode = _choose_mode(
            contact_modes.evaluate(table, x), score, pick, mass_norm(space.mass, v), early_exit
        )
        guess, status = table.impulse[:, :, mode] @ x, jnp.uint32(0)
        holds_all = ~jnp.any(table.unresolved)
    # At rest contacts may press against each other with any impulse; zero is chosen.
    guess = jnp.where(needed & (mass_norm(space.mass, v) > 0), guess, 0.0)
    v_next, impulse, worst = outcome(space, v, guess, directions, cap)
    return v_next, impulse, worst, status, holds_all


def _takes_tiles(space: ContactSpace, settings: StepSettings) -> bool:
    """Decide whether a step looks at its modes in tiles: alone, in the plane, with many modes."""
    is_alone = settings.selection == "all" and not settings.until_separated
    return is_alone and space.num_tangents == 1 and space.mu.shape[0] >= MANY_CONTACTS


def _choose_mode(
    violation: jax.Array, score: jax.Array, pick: jax.Array, speed: jax.Array, early_exit: bool
) -> jax.Array:
    """Pick one of the valid modes, the one violated least if none is valid."""
    valid = violation <= contact_modes.feasibility_tolerance(speed.dtype) * speed
    mode, count = mode_choice.choose(valid, score, pick, speed, early_exit)
    return jnp.where(count == 0, jnp.argmin(violation), mode)


class _RouthImpact:
    """An impact of given contacts: its start, its step, and the test whether another step is needed."""

    def __init__(
        self, terms: ContactTerms, v: jax.Array, restitution: jax.Array | None, clearance: jax.Array | None,
        has_known: bool, settings: StepSettings,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.directions = friction_directions(terms.J_t.shape[1], settings.num_directions)
        self.space = contact_space(terms, clearance)
        self.tabulated = settings.selection != "lemke" and not has_known
        self.table = None if settings.turn_polygon else self._tabulate(self.space)
        self.speed, self.slowest = mass_norm(self.space.mass, v), slowest_approach(self.space, v)
        self.elastic = None if restitution is None else restitution**2
        self.rates = self.space.normal_rates(v)

    def _tabulate(self, space: ContactSpace) -> contact_modes.ModeMaps | contact_modes.ModeInverses | None:
        """Tabulate the solutions of all modes, or in the plane their inverses; None without a table."""
        if not self.tabulated or _takes_tiles(space, self.settings):
            return None
        fixed = lax.stop_gradient(space)
        if space.num_tangents == 1 and not self.settings.tells_complete:
            return contact_modes.mode_inverses(fixed.delassus, fixed.mu, fixed.active)
        return mode_table(fixed, self.directions, capped=True)

    def start(self, v: jax.Array, status: jax.Array) -> ImpactSteps:
        """Return the state before the first step."""
        return ImpactSteps(
            v=v,
            impulse=jnp.zeros_like(self.space.scale),
            status=status,
            worst=jnp.zeros((), v.dtype),
            num_steps=jnp.int32(0),
            complete=jnp.array(self.tabulated),
            stored=None if self.elastic is None else jnp.zeros_like(self.space.mu),
        )

    def unfinished(self, so_far: ImpactSteps) -> jax.Array:
        """Tell whether a contact approaches or has energy in store."""
        left = jnp.any(approaching(self.space, so_far.v, self.slowest))
        if so_far.stored is not None:
            left |= jnp.any(energetic_restitution.find_loaded(so_far.stored, self.slowest))
        return left

    def step(self, so_far: ImpactSteps, draw: ImpactDraws) -> ImpactSteps:
        """Return the state after one more step; a step that is not needed changes nothing."""
        settings, original, v = self.settings, self.space, so_far.v
        needed = (
            jnp.any(approaching(original, v, self.slowest)) if settings.until_separated else jnp.array(True)
        )
        space, table, angle = original, self.table, None
        if settings.turn_polygon:
            angle = random_angles(draw.pick, space.mu.shape[0])
            space = turned(original, angle)
            table = self._tabulate(space)
        v_next, change, misfit, solver, holds_all = _solve_step(
            space, table, self.directions, v, draw, needed, settings
        )
        solver = solver | residual_status(misfit)
        so_far = so_far._replace(complete=so_far.complete & (~needed | holds_all))
        if settings.is_one_sided:
            return self._one_sided_step(so_far, draw, change, misfit, solver, needed)
        # If no contact approaches at all, v stays, but contacts at rest stay at rest to first order.
        held = v_next - v
        held = v + (held - lax.stop_gradient(held))
        v_next = jnp.where(needed, v_next, jnp.where(so_far.num_steps == 0, held, v))
        moved, stored = needed, so_far.stored
        if stored is not None:
            assert self.elastic is not None
            moved |= jnp.any(energetic_restitution.find_loaded(stored, self.slowest))
            change = jnp.where(needed, change, 0.0)
            cap = jnp.where(space.active, draw.impulse_max / space.scale[:: 1 + space.num_tangents], 0.0)
            u, u_next = space.jacobian @ v, space.jacobian @ v_next
            compression = energetic_restitution.Compression(
                space, self.elastic, cap, u, u_next, change, stored, self.speed, self.slowest
            )
            if space.num_tangents == 1:
                push, stored = energetic_restitution.give_back(compression)
            else:
                push, stored = give_back_in_space(compression, self.directions)
            v_next, change = v_next + space.response @ push, change + push
        if angle is not None:
            change = turn_rows(change, -angle)
        return ImpactSteps(
            v=v_next,
            impulse=jnp.where(moved, so_far.impulse + change, so_far.impulse),
            status=so_far.status | jnp.where(needed, solver, jnp.uint32(0)),
            worst=jnp.maximum(so_far.worst, jnp.where(needed, misfit, 0.0)),
            num_steps=so_far.num_steps + moved.astype(jnp.int32),
            complete=so_far.complete,
            stored=stored,
        )

    def _one_sided_step(
        self, so_far: ImpactSteps, draw: ImpactDraws, change: jax.Array, misfit: jax.Array, solver: jax.Array,
        needed: jax.Array,
    ) -> ImpactSteps:  # fmt: skip
        """Take the step whose scaled impulse is `change`, or none, with the derivative of the direction."""
        space = self.space
        cap = jnp.where(space.active, draw.impulse_max / space.scale[:: 1 + space.num_tangents], 0.0)
        change = jnp.where(needed, lax.stop_gradient(change), 0.0)
        change, jumps = capped_one_sided(space, so_far.v, change, cap, self.speed, self.directions)
        return so_far._replace(
            v=so_far.v + space.response @ change,
            impulse=so_far.impulse + change,
            status=so_far.status | flag(jumps, Status.JUMP) | jnp.where(needed, solver, jnp.uint32(0)),
            worst=jnp.maximum(so_far.worst, jnp.where(needed, misfit, 0.0)),
            num_steps=so_far.num_steps + needed.astype(jnp.int32),
        )

    def end(self, so_far: ImpactSteps) -> Resolved:
        """Convert the state after the last step to the result of the impact."""
        left = self.unfinished(so_far) & self.settings.until_separated
        if self.settings.is_one_sided and self.settings.until_separated:
            rates = self.space.normal_rates(so_far.v)
            rests = self.space.active & (jnp.abs(rates) <= border_size(rates.dtype, self.speed))
            v = without_rate(end_turns(so_far.v, self.rates, rates, rests), left)
            so_far = so_far._replace(v=v)
        impulse = (self.space.scale * so_far.impulse).reshape(self.space.mu.shape[0], -1)
        status = so_far.status | flag(left, Status.UNTERMINATED)
        return Resolved(so_far.v, impulse, status, so_far.worst, so_far.num_steps, so_far.complete)


def all_steps(
    terms: ContactTerms, v: jax.Array, draws: ImpactDraws, restitution: jax.Array | None,
    clearance: jax.Array | None, status: jax.Array, settings: StepSettings,
) -> tuple[Resolved, jax.Array]:  # fmt: skip
    """Take N steps in a loop of static length; return the result and the path (N + 1, nv) of velocities.

    Derivative: through the contact modes of every step, any order.
    """
    impact = _RouthImpact(terms, v, restitution, clearance, draws.solutions is not None, settings)

    def step(so_far: ImpactSteps, draw: ImpactDraws) -> tuple[ImpactSteps, jax.Array]:
        so_far = impact.step(so_far, draw)
        return so_far, so_far.v

    end, path = lax.scan(step, impact.start(v, status), draws)
    return impact.end(end), jnp.concatenate([v[None], path])


def needed_steps(
    terms: ContactTerms, v: jax.Array, draw: Callable[[jax.Array], ImpactDraws], number: int,
    restitution: jax.Array | None, clearance: jax.Array | None, status: jax.Array, settings: StepSettings,
) -> Resolved:  # fmt: skip
    """Take at most `number` steps, as `all_steps`, in a loop that ends after the last step that is needed.

    Derivative: none.
    """
    impact = _RouthImpact(terms, v, restitution, clearance, False, settings)

    def body(carry: tuple[ImpactSteps, jax.Array]) -> tuple[ImpactSteps, jax.Array]:
        so_far, k = carry
        return impact.step(so_far, draw(k)), k + 1

    def unfinished(carry: tuple[ImpactSteps, jax.Array]) -> jax.Array:
        return (carry[1] < number) & impact.unfinished(carry[0])

    end, _ = bounded_loop(unfinished, body, (impact.start(v, status), jnp.int32(0)), max_iters=number)
    return impact.end(end)

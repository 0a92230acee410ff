"""Routh's impact as records of settings: `Routh`, the law of whole impacts, and `RouthStep`, one step of it.

A record stands for the law in every call that takes one. Called, it gives one outcome; `sample`,
`sample_in_jit`, `extreme` and `outcomes` take the same record for the set of outcomes. The algorithm:
docs/methods/set-valued.md.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.arguments import (
    check_choice,
    check_corner,
    check_fraction,
    check_not_negative,
    check_positive,
    check_rows,
    check_sides,
)
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.circular_cone import circular_outcome
from jaxcontact.impact.laws.contact_space import ImpactInfo, contact_space
from jaxcontact.impact.laws.routh import resolve_draws, resolve_order, routh_step
from jaxcontact.impact.laws.routh_steps import Density, StepSettings, draw_step
from jaxcontact.impact.laws.routh_touching import OrderKey, TouchingSettings
from jaxcontact.impact.laws.turned_polygon import check_turning
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes
from jaxcontact.solvers.friction_search import CoulombNewton
from jaxcontact.terms import ContactTerms

SELECTIONS = ("all", "visited", "lemke")


STEPS_PER_CONTACT = 32  # of impulses up to `stopping_impulse`; landings of robots take 2 to 7 in all
ROUGHLY_SOLVED = 1e-3  # residual of the simultaneous law at which its impulses still have the right size
FIXED_ITERS = 40  # of the search for them without an early exit; landings of robots take up to 15


def stopping_impulse(
    terms: ContactTerms, v: jax.Array, clearance: jax.Array | None = None, early_exit: bool = True
) -> jax.Array:
    """Return the largest normal impulse with which a touching contact stops, N s; 1 if none closes.

    Alone a contact stops by -u_n / D_nn. Together they stop by the impulses of the simultaneous law, which is
    far more for a light foot under a heavy body and for a leg that jams. So an order in which one contact
    stops at once is likely, and all of them stop within a few steps, in any units.

    Derivative: that of the contact with the largest impulse.
    """
    compute = _compute_once if inputs.is_concrete(terms, v, clearance) else _find_stopping_impulse
    impulse: jax.Array = compute(terms, v, clearance, early_exit)
    return impulse


@functools.partial(jit, static_argnames="early_exit")
def _find_stopping_impulse(
    terms: ContactTerms, v: jax.Array, clearance: jax.Array | None, early_exit: bool
) -> jax.Array:
    space = contact_space(terms, clearance)
    normals = slice(None, None, 1 + space.num_tangents)
    mobility = jnp.diagonal(space.delassus)[normals]
    alone = jnp.where(mobility > 0, -space.normal_rates(v) / jnp.where(mobility > 0, mobility, 1.0), 0.0)
    search = CoulombNewton() if early_exit else CoulombNewton(max_iters=FIXED_ITERS, early_exit=False)
    _, impulse, residual, _ = circular_outcome(space, v, None, search)
    together = jnp.where(residual <= ROUGHLY_SOLVED, impulse[normals], 0.0)
    impulses = space.scale[normals] * jnp.where(space.active, jnp.maximum(alone, together), 0.0)
    largest = impulses[jnp.argmax(lax.stop_gradient(impulses))]
    return jnp.where(largest > 0, largest, 1.0)


# A run asks once: compiling takes all the time, half of it without optimisation.
_compute_once = jit(
    _find_stopping_impulse,
    static_argnames="early_exit",
    compiler_options={"xla_backend_optimization_level": 0},
)


@checked(
    impulse_step=check_positive,
    max_steps=check_rows,
    restitution=check_fraction,
    num_directions=check_sides,
    corner=check_corner,
)
class Routh(Record):
    """Steps of bounded normal impulse in a random order of contacts (Halm & Posa, Algorithm 1).

    Attributes:
        impulse_step: largest normal impulse of a step, a number or (nc,), N s; None is `stopping_impulse`,
            which stops any one contact alone and all of them in a few steps. Smaller steps follow Routh's
            paths more finely, larger ones jump.
        max_steps: N, the largest number of steps; None is STEPS_PER_CONTACT for each contact, with
            restitution four times as many.
        restitution: e, a number or (nc,) in 0..1, Stronge's energetic coefficient: steps then also let
            compressed contacts push, see `resolve`. None or 0: inelastic. An impact takes about twice the
            steps.
        selection: choice among the solutions of a step. "all": uniform among the distinct ones, enumerating
            contact modes (planar, nc <= 5; in space nc <= 4 with four directions, 3 with eight, where four
            contacts take some seconds to begin; of more candidates those that are active count alone).
            "visited": the same among the modes that earlier samples met, much faster for many contacts; a
            sample with a step whose valid modes are not among the sets that earlier samples found complete
            continues with "all" (`sample` only). Of contacts that cannot be enumerated each step is searched
            from several sides by pivoting in machine code (extra `friction`, on a CPU in double precision,
            without restitution); the choice is uniform among the outcomes found. "lemke": the one that
            pivoting finds. If steps have several solutions it misses whole families of outcomes. Inside `jit`
            it is the only choice for more contacts; in space the covering vector of Lemke's method is random
            in every step, which finds other solutions as well, with frequencies of its own. None: "all" if
            many outcomes are requested, and in a single call for up to five contacts in the plane; else
            "lemke".
        num_directions: sides of the friction cone in space; no effect in the plane.
        density: p(lambda_n), as a function that maps (nc,) independent uniform numbers in (0, 1) to (nc,)
            fractions of `impulse_step` in [0, 1], traceable by JAX; `lambda x: x**2` prefers small impulses.
            The measure on the set of outcomes changes, not the set, as long as its fractions are dense in
            the unit cube. A module-level function compiles once, a new lambda each time.
        turn_polygon: turn the friction polygon of each contact by a random angle in every step, so that no
            direction of sliding is preferred (spatial contacts). Modes then belong to one step: "lemke" for
            any number of contacts, "all" for two at most, which takes milliseconds per outcome.
            `complete` is False.
        early_exit: as `resolve`, and the loop over steps may end early as well; for single calls only.
        corner: derivative of a single call where a contact is between two modes, "smooth" or "one_sided", as
            `anitescu_potra`: `jax.jvp` is that of the direction, not linear in it. With a known
            `impulse_step`, without restitution; the loop over steps does not end early.
    """

    impulse_step: float | jax.Array | None = None
    max_steps: int = static(default=None)  # None until `num_steps` knows the number of contacts
    restitution: float | jax.Array | None = None
    selection: str | None = static(default=None)
    num_directions: int = static(default=8)
    density: Density | None = static(default=None)
    turn_polygon: bool = static(default=False)
    early_exit: bool = static(default=True)
    corner: str = static(default="smooth")

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for settings with which no impact can be computed."""
        if self.max_steps is not None:
            inputs.check_count("max_steps", self.max_steps)
        inputs.check_count("num_directions", self.num_directions)
        if self.selection is not None and self.selection not in SELECTIONS:
            raise ValueError(f"selection: expected one of {', '.join(SELECTIONS)}, got {self.selection!r}")
        if self.density is not None and not callable(self.density):
            raise TypeError(f"density: expected a function of (nc,) uniform numbers, got {self.density!r}")
        if self.corner == "one_sided" and self.restitution is not None:
            raise ValueError("corner: expected 'smooth' with restitution, got 'one_sided'")

    def num_steps(self, num_contacts: int) -> int:
        """Return the largest number of steps for `num_contacts` contacts."""
        if self.max_steps is not None:
            return self.max_steps
        return STEPS_PER_CONTACT * num_contacts * (1 if self.restitution is None else 4)

    def __call__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        key: jax.Array | None = None,
        *,
        clearance: jax.Array | None = None,
    ) -> tuple[jax.Array, ImpactInfo]:
        """Resolve the impact in the impulse order that `key` draws; return v_plus (nv,) and ImpactInfo.

        Raises:
            ValueError: no key; the selection "visited", which learns from earlier samples.
        """
        if key is None:
            raise ValueError("key: Routh draws an impulse order and needs a jax.random key, got None")
        inputs.check_shapes(terms, v)
        nc, nt, _ = terms.J_t.shape
        selection = self.selection
        if selection is None:
            selection = "all" if nt == 1 and nc <= contact_modes.MAX_ENUMERATED else "lemke"
        if self.turn_polygon:
            check_turning(terms, selection)
        if self.corner == "one_sided" and self.impulse_step is None:
            raise ValueError("impulse_step: expected N s with corner='one_sided', got None")
        impulse_step = (
            stopping_impulse(terms, v, clearance, self.early_exit)
            if self.impulse_step is None
            else self.impulse_step
        )
        impulse_step = jnp.broadcast_to(jnp.asarray(impulse_step, v.dtype), (nc,))
        max_steps = self.num_steps(nc)
        steps = StepSettings(
            selection, self.num_directions, early_exit=self.early_exit, turn_polygon=self.turn_polygon,
            tells_complete=clearance is None or not self.early_exit or self.corner == "one_sided",
            is_one_sided=self.corner == "one_sided",
        )  # fmt: skip
        if self.early_exit and self.corner == "smooth":
            settings = TouchingSettings(steps, max_steps, str(jax.random.key_impl(key)), self.density)
            order = OrderKey(jax.random.key_data(key), impulse_step)
            return resolve_order(terms, v, order, settings, restitution=self.restitution, clearance=clearance)
        draws = jax.vmap(lambda number: draw_step(key, number, impulse_step, self.density))(
            jnp.arange(max_steps)
        )
        return resolve_draws(terms, v, draws, steps, restitution=self.restitution, clearance=clearance)


@checked(
    impulse_max=check_not_negative,
    selection=check_choice("all", "lemke"),
    num_directions=check_sides,
    corner=check_corner,
)
class RouthStep(Record):
    """One step of Routh's impact with given largest normal impulses; see `routh_step`.

    Attributes:
        impulse_max: (nc,) largest normal impulses, N s.
        selection: "all" or "lemke", as in `routh_step`.
        num_directions: sides of the friction cone in space.
        corner: derivative between two modes, "smooth" or "one_sided".
    """

    impulse_max: jax.Array
    selection: str = static(default="all")
    num_directions: int = static(default=8)
    corner: str = static(default="smooth")

    def __call__(
        self, terms: ContactTerms, v: jax.Array, key: jax.Array | None = None
    ) -> tuple[jax.Array, ImpactInfo]:
        """Return v_next (nv,) and ImpactInfo of the solution that `key` picks; of the first without a key."""
        pick = 0.0 if key is None else jax.random.uniform(key, (), v.dtype)
        return routh_step(
            terms, v, self.impulse_max, pick=pick, selection=self.selection,
            num_directions=self.num_directions, corner=self.corner,
        )  # fmt: skip


class FittedRouth(Record):
    """The law for nc contacts with every choice made: `impulse_step` (nc,), restitution (nc,) or None."""

    impulse_step: jax.Array
    max_steps: int = static()
    restitution: jax.Array | None = None
    selection: str = static()
    num_directions: int = static(default=8)
    density: Density | None = static(default=None)
    turn_polygon: bool = static(default=False)

    @property
    def steps(self) -> StepSettings:
        """Return the settings of each step."""
        return StepSettings(self.selection, self.num_directions, turn_polygon=self.turn_polygon)


def fitted_law(terms: ContactTerms, v: jax.Array, law: PyTree) -> FittedRouth:
    """Fit the law to these contacts, without a check that their modes can be enumerated.

    Raises:
        TypeError: a law that is not a `Routh`, or arguments of another kind.
        ValueError: numbers out of range or of the wrong shape.
    """
    inputs.check(terms, v)
    if not isinstance(law, Routh):
        name = law.__name__ if isinstance(law, type) else type(law).__name__
        raise TypeError(
            f"law: expected jc.impact.Routh(impulse_step=, max_steps=), whose outcomes it draws, got {name}; "
            "outcomes(terms, v, law) finds all solutions of AnitescuPotra and RouthStep"
        )
    if law.corner == "one_sided":
        raise ValueError("law: expected Routh(corner='smooth') for many outcomes, got 'one_sided'")
    nc = terms.phi.shape[0]
    if law.impulse_step is None:
        touching = np.flatnonzero(np.asarray(terms.active)) if inputs.is_concrete(terms.active) else ()
        law = law.replace(impulse_step=stopping_impulse(terms.take(touching) if len(touching) else terms, v))
    if inputs.is_concrete(law.impulse_step):
        step_sizes(law.impulse_step, nc)
    elif jnp.shape(law.impulse_step) not in ((), (nc,)):
        raise ValueError(
            f"impulse_step: expected a number or shape ({nc},), got shape {jnp.shape(law.impulse_step)}"
        )
    selection = "all" if law.selection is None else law.selection
    count = max(1, int(np.sum(np.asarray(terms.active)))) if inputs.is_concrete(terms.active) else nc
    if law.turn_polygon:
        check_turning(terms, selection)
    return FittedRouth(
        impulse_step=jnp.broadcast_to(jnp.asarray(law.impulse_step, v.dtype), (nc,)),
        max_steps=law.num_steps(count),
        restitution=energetic_restitution.check_coefficients(terms, law.restitution),
        selection=selection,
        num_directions=law.num_directions,
        density=law.density,
        turn_polygon=law.turn_polygon,
    )


def step_sizes(impulse_step: jax.typing.ArrayLike, num_contacts: int) -> np.ndarray:
    """Return `impulse_step` as an array () or (nc,); raise ValueError unless it is finite and positive."""
    try:
        sizes = np.asarray(impulse_step, float)
    except (TypeError, ValueError):
        sizes = np.array(np.nan)
    if sizes.shape not in ((), (num_contacts,)) or not np.all(np.isfinite(sizes)) or np.any(sizes <= 0):
        raise ValueError(
            f"impulse_step: expected a finite number > 0, or ({num_contacts},) of them, got {impulse_step!r}"
        )
    return sizes

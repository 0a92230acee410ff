"""`Variational`: midpoint discrete mechanics with impacts at their time, under any impact law."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_fraction, check_not_negative, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import Law, law_as_pytree
from jaxcontact.impact.laws.reflections import check_order_word
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import all_digits, jit
from jaxcontact.simulate.stepper import StepperInfo, of_contacts
from jaxcontact.simulate.variational.event_loop import start_node
from jaxcontact.simulate.variational.inputs import check_motion, no_memory
from jaxcontact.simulate.variational.motion_records import MotionChoice, MotionMemory, MotionNumbers
from jaxcontact.simulate.variational.replay import compute_motion

MAX_IMPACTS = 16  # recorded of a step by default; they set its memory
_start_of = jit(start_node)


@checked(order=check_order_word, restitution=check_fraction, zeno=check_not_negative, max_impacts=check_rows)
class Variational(Record):
    """Steps of `jc.simulate.variational`, with controls that are constant during a step.

    A contact is closed if it touches and neither approaches nor leaves. Controls act at the midpoint of
    every move. With a key, impact k of a motion gives its law the key folded with k.

    Attributes:
        impact: a law, such as `jc.impact.AnitescuPotra()`, or a module-level function; None reflects.
        restitution: R in 0..1: of the energy that a plastic impact would lose, the fraction R^2 comes back
            (Seghete & Murphey, 16); the outcome is that mixture of the elastic and of the unilateral plastic
            one. No meaning with a law.
        order: of the single elastic impacts: "most_violated" or "least_violated", by approach speed in the
            metric of the kinetic energy, or contact indices as a cycle that skips contacts not approaching.
            No meaning with a law.
        zeno: shortest time between two impacts of a contact, s; 0 for never; None is dt, which ends a chatter
            up to dt early.
        max_impacts: number of impacts that are recorded, and that a derivative includes; None is 16 of a
            step, 1024 of a motion by `variational`. In `jc.fixed_iterations` also a limit: a step makes
            16 trial steps for each of them and 16 more, at most 1000.

    Raises:
        TypeError: a law that is no callable.
        ValueError: `max_impacts` is no integer >= 1.

    Mocap bodies and surfaces move as in `EventDriven`; the energy of moves on them is not compared.

    Status: as `variational`, also MAX_ITERS at that limit, and PENETRATION for every step that starts too
        deep or with open loops.

    Derivative: as `variational`, also by controls and the numbers of the law; NaN after a step with more
        impacts than are recorded.
    """

    impact: Law | None = None
    restitution: float | jax.Array = 1.0
    order: str | tuple[int, ...] = static(default="most_violated")
    zeno: float | jax.Array | None = None
    max_impacts: int | None = static(default=None)

    def __post_init__(self) -> None:
        if self.impact is not None:
            law = law_as_pytree(self.impact, "impact")
            if getattr(law, "corner", "smooth") == "one_sided":
                instead = "take EventDriven(corner='one_sided')"
                raise ValueError(f"impact: expected a law with corner='smooth', got 'one_sided'; {instead}")
            object.__setattr__(self, "impact", law)

    @all_digits
    def init(self, model: Model, state: State, key: jax.Array | None = None) -> MotionMemory:
        """Check the mechanism and the state, and make the first memory, without impacts.

        Raises:
            ValueError: as `variational`, mocap bodies that it cannot move.
        """
        zeno = 0.0 if self.zeno is None else self.zeno
        check_motion(model, state, self.order, self.restitution, zeno)
        return no_memory(model, state, key)

    @all_digits
    def closed(self, model: Model, state: State) -> jax.Array:
        """Find the contacts that touch and neither approach nor leave; return (nc,) bool."""
        return _start_of(*lax.stop_gradient((model, state))).closed[: model.structure.num_contacts]

    @all_digits
    def step(
        self,
        model: Model,
        state: State,
        tau: jax.Array,
        memory: MotionMemory,
        *,
        dt: jax.Array,
    ) -> tuple[State, MotionMemory, StepperInfo]:
        """Make one step; the residual is the relative change of a velocity by another Newton iteration."""
        dtype = state.q.dtype
        dt, restitution, zeno = (
            jnp.asarray(x, dtype) for x in (dt, self.restitution, dt if self.zeno is None else self.zeno)
        )
        numbers = MotionNumbers(model.params, state, dt, restitution, zeno, self.impact, tau[None])
        choice = MotionChoice(self.order, 1, MAX_IMPACTS if self.max_impacts is None else self.max_impacts)
        trajectory, memory = compute_motion(model.system, choice, numbers, memory)
        then, info = (jax.tree.map(lambda rows: rows[-1], x) for x in (trajectory.states, trajectory.info))
        info = of_contacts(info, model.structure.num_contacts)
        return then, memory, info.replace(impacts=trajectory.impacts)

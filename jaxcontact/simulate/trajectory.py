"""What a motion with impacts is on record: its states, its contacts, its impacts.

Owns the records and their account in words.
"""

from __future__ import annotations

import jax
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.status import Status
from jaxcontact.system import State


class Impacts(Record):
    """The impacts of a trajectory in the order of time; rows that were not needed hold NaN, -1 and zeros.

    Attributes:
        t: (k,) s.
        touching: (k, nc) bool, the contacts that were closed.
        approaching: (k, nc) bool, those of them that approached.
        order: (k, max_reflections) contacts in the order of their single impacts, -1 where there was none.
        impulse: (k, nc) normal impulses, N s.
        v_minus, v_plus: (k, nv) velocities before and after.
        plastic: (k,) bool, made plastic for coming too soon after another one (Zeno).
        count: number of impacts, also of those beyond k, which are not kept.
    """

    t: jax.Array
    touching: jax.Array
    approaching: jax.Array
    order: jax.Array
    impulse: jax.Array
    v_minus: jax.Array
    v_plus: jax.Array
    plastic: jax.Array
    count: jax.Array


class Trajectory(Record):
    """A motion at T + 1 times, dt apart; the last row is the final state.

    Attributes:
        states: State with q (T + 1, nq), v (T + 1, nv), t (T + 1,); v = M^-1 p with the discrete momentum p.
            At an impact the state after it.
        contacts: (T + 1, nc) bool, contacts that stay closed.
        impulse: (T, nc, dim) impulses of the closed contacts during each step, n first, N s.
        impacts: Impacts.
        status: (T,) uint32 bits of `Status`, of each step.
    """

    states: State
    contacts: jax.Array
    impulse: jax.Array
    impacts: Impacts
    status: jax.Array

    @property
    def notes(self) -> list[str]:
        """What is worth knowing of one motion (not a batch), in words, in the order of time."""
        found, kept = [], min(int(self.impacts.count), self.impacts.t.shape[0])
        for i in range(kept):
            when = f"t = {float(self.impacts.t[i]):.6g} s"
            who = ", ".join(str(c) for c in np.flatnonzero(np.asarray(self.impacts.approaching[i])))
            if bool(self.impacts.plastic[i]):
                found.append(f"{when}: contact {who} chatters and is made plastic (ZENO)")
            elif int(np.sum(np.asarray(self.impacts.touching[i]))) > 1:
                found.append(f"{when}: contact {who} strikes while others touch (SIMULTANEOUS)")
        bad = np.asarray(self.status) & int(Status.FAILURES)
        if np.any(bad):
            first = int(np.flatnonzero(bad)[0])
            found.append(
                f"t = {float(self.states.t[first]):.6g} s, step {first}: {Status.describe(bad[first])}"
            )
        return found

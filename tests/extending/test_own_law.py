"""A law of one's own: rebound of all contacts at once without friction, by one complementarity problem."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc


class ReboundInfo(NamedTuple):
    status: jax.Array
    impulse: jax.Array


@jax.tree_util.register_dataclass  # a pytree: one may differentiate by its numbers
@dataclasses.dataclass(frozen=True)
class Rebound:
    """0 <= lam, u+ + e u- >= 0, one of them zero per contact; u+ = u- + D lam, D = J_n M^-1 J_n^T."""

    restitution: jax.Array

    def __call__(self, terms, v, key=None):
        to_v = jnp.linalg.solve(terms.M, terms.J_n.T)
        approach = terms.J_n @ v
        D = terms.J_n @ to_v
        # Contacts that do not touch part so fast that they take no impulse.
        offset = jnp.where(terms.active, (1.0 + self.restitution) * approach, 1e6)
        normal, solved = jc.solve_lcp(D, offset)
        impulse = jnp.zeros((normal.shape[0], 1 + terms.J_t.shape[1])).at[:, 0].set(normal)
        return v + to_v @ normal, ReboundInfo(solved.status, impulse)


def falling_block():
    model = jc.models.rocking_block()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


def test_contacts_part_at_e_times_their_approach_or_faster():
    terms, v = falling_block()
    law = Rebound(jnp.array(0.5))
    v_plus, info = jax.jit(law.__call__)(terms, v)
    assert int(info.status) == 0
    assert np.all(terms.J_n @ v_plus >= -0.5 * (terms.J_n @ v) - 1e-12)
    assert np.all(info.impulse[:, 0] >= 0.0)


def test_energy_is_kept_at_one_and_its_derivative_by_e_is_exact():
    terms, v = falling_block()

    def energy(e):
        after, _ = Rebound(e)(terms, v)
        return 0.5 * after @ terms.M @ after

    np.testing.assert_allclose(energy(jnp.array(1.0)), 0.5 * v @ terms.M @ v, rtol=1e-12)
    e, h = jnp.array(0.5), 1e-6
    np.testing.assert_allclose(jax.grad(energy)(e), (energy(e + h) - energy(e - h)) / (2 * h), rtol=1e-8)

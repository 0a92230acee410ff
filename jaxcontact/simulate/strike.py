"""One impact within a motion: which law it obeys and what is kept of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.terms import ContactTerms


class Strike(NamedTuple):
    """An impact: v_plus (nv,), normal impulses (nc,), order (k,) of single impacts, status."""

    v_plus: jax.Array
    impulse: jax.Array
    order: jax.Array
    status: jax.Array


def strike(terms, v, key, soon, restitution, order, law) -> Strike:
    minv = jnp.linalg.inv(terms.M)

    def body(i, c):
        v, imp = c
        u = jnp.where(terms.active, terms.J_n @ v, 0.0)
        k = jnp.argmin(u)
        J = terms.J_n[k]
        lam = -(1 + jnp.where(soon, 0.0, restitution)) * jnp.minimum(u[k], 0) / (J @ minv @ J)
        return v + minv @ J * lam, imp.at[k].add(lam)

    v, imp = lax.fori_loop(0, 20, body, (v, jnp.zeros_like(terms.phi)))
    return Strike(v, imp, jnp.full(4, -1, jnp.int32), jnp.uint32(0))

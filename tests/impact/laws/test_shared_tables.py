"""Worlds that differ in velocity alone share the table of contact modes."""

import jax
import jax.numpy as jnp
import pytest

import jaxcontact as jc


def bytes_of(worlds):
    """Scratch memory of a batch of impact steps of the stack of disks: five contacts, 16807 modes."""
    model = jc.models.disk_stack()
    state = model.initial_state()
    terms, caps = jc.contact_terms(model, state), jnp.full(5, 0.3)

    @jax.jit
    @jax.vmap
    def step(v):
        return jc.impact.routh_step(terms, v, caps, pick=0.3)[0]

    return step.lower(jnp.tile(state.v, (worlds, 1))).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.long
def test_a_world_more_takes_less_than_a_megabyte():
    assert (bytes_of(33) - bytes_of(1)) / 32 < 1e6

"""Worlds that differ in velocity alone share the table of contact modes."""

import jax
import jax.numpy as jnp
import numpy as np
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


def stack_of_disks(num_contacts):
    model = jc.models.disk_stack()
    state = model.initial_state()
    return jc.contact_terms(model, state).take(np.arange(num_contacts)), state.v


@pytest.mark.long
def test_a_world_with_terms_of_its_own_takes_less_than_a_megabyte():
    terms, v = stack_of_disks(5)

    def bytes_of(worlds):
        def step(mass):
            return jc.impact.routh_step(terms.replace(M=mass * terms.M), v, jnp.full(5, 0.3), pick=0.3)[0]

        program = jax.jit(jax.vmap(step)).lower(jnp.linspace(1.0, 1.1, worlds)).compile()
        return program.memory_analysis().temp_size_in_bytes

    one, more = bytes_of(1), bytes_of(9)
    assert one < 1e6 and (more - one) / 8 < 1e6


@pytest.mark.long
@pytest.mark.parametrize("mass", [1e-6, 1.0, 1e7])
@pytest.mark.parametrize("num_contacts", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_modes_in_tiles_choose_what_a_table_chooses(num_contacts, mass, rng):
    """A step alone has no table; a whole impact of one step has."""
    terms, v = stack_of_disks(num_contacts)
    terms = terms.replace(M=mass * terms.M)
    speeds = v[None] + jnp.asarray(rng.normal(size=(20, v.shape[0])))
    caps = mass * jnp.asarray(rng.uniform(0.0, 1.0, (20, num_contacts)))
    picks = jnp.asarray(rng.uniform(size=20))

    @jax.jit
    def both(v, cap, pick):
        alone = jc.impact.routh_step(terms, v, cap, pick=pick)
        return alone, jc.impact.resolve(terms, v, cap[None], pick[None])

    compared = 0
    for v, cap, pick in zip(speeds, caps, picks):
        (value, info), (expected, table) = both(v, cap, pick)
        if table.num_iters == 0:  # no contact approaches
            continue
        compared += 1
        assert info.complete == table.complete
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-11 * np.max(np.abs(v)))
        np.testing.assert_allclose(info.impulse, table.impulse, rtol=0, atol=1e-10 * mass)
        assert info.status == table.status & ~jnp.uint32(int(jc.Status.UNTERMINATED))
    assert compared > 10

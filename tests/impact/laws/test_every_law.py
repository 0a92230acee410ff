"""Every impact law, function or record, through everything that takes a law."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact._pytree import Record
from jaxcontact.impact.laws.callable_laws import law_as_pytree

MODEL = jc.models.rocking_block()
FLAT = MODEL.initial_state().replace(q=jnp.array([0.0, 1.0, 0.0]), v=jnp.array([0.3, -1.0, 0.0]))
TERMS = jc.contact_terms(MODEL, FLAT)
START = FLAT.replace(q=jnp.array([0.0, 1.012, 0.0]))  # lands on both corners within the first step of 0.02 s
KEY = jax.random.key(2)
DT, STEPS = 0.02, 2


def drawn(terms, v, key):
    nc = terms.phi.shape[0]
    draws = jax.random.uniform(key, (8, nc + 1), v.dtype)
    return jc.impact.resolve(terms, v, 0.5 * draws[:, :nc], draws[:, nc])


def one_step(terms, v, key):
    return jc.impact.routh_step(terms, v, jnp.full(2, 10.0), pick=jax.random.uniform(key))


def along_a_path(terms, v, key):
    return jc.impact.routh_path(terms, v, jnp.array([1.0, 0.5]))


def in_turn(terms, v, key):
    return jc.impact.sequential(terms, v, (1, 0), max_impacts=32)


LAWS = {
    "AnitescuPotra": jc.impact.AnitescuPotra(),
    "Routh": jc.impact.Routh(impulse_step=0.4, max_steps=8),
    "Routh with restitution": jc.impact.Routh(impulse_step=0.4, max_steps=12, restitution=0.5),
    "Sequential": jc.impact.Sequential(order=(1, 0)),
    "Newton": jc.impact.Newton(restitution=0.5),
    "Poisson": jc.impact.Poisson(restitution=0.5),
    "Energetic": jc.impact.Energetic(restitution=0.5),
    "Chain": jc.impact.Chain(stiffness=1.0, restitution=0.5, max_steps=1024),
    "Propagative": jc.impact.Propagative(order=(1, 0), restitution=0.5),
    "Plastic": jc.impact.Plastic(),
    "anitescu_potra": jc.impact.anitescu_potra,
    "sequential": jc.impact.sequential,
    "propagate": jc.impact.propagate,
    "plastic": jc.impact.plastic,
    "by resolve": drawn,
    "by routh_step": one_step,
    "by routh_path": along_a_path,
    "by sequential": in_turn,
}
NAMES = tuple(LAWS)


class Told(NamedTuple):
    status: jax.Array
    impulse: jax.Array


class Chosen(Record):
    """One of all laws, by its number: one program for all of them."""

    number: jax.Array

    def __call__(self, terms, v, key=None):
        def ask(law):
            v_plus, info = law_as_pytree(law)(terms, v, key)
            return v_plus, Told(jnp.asarray(info.status, jnp.uint32), info.impulse)

        return jax.lax.switch(self.number, [lambda law=law: ask(law) for law in LAWS.values()])


@jax.jit
def directly(number, v, key):
    return Chosen(number=number)(TERMS, v, key)


@functools.partial(jax.jit, static_argnums=0)
def rolled(kind, number, key):
    stepper = kind(impact=Chosen(number=number))
    controls = jnp.zeros((STEPS, 3))
    return jc.simulate.rollout(MODEL, START, controls, stepper=stepper, dt=DT, key=key)


@pytest.mark.slow  # to trace all laws takes a while
@pytest.mark.parametrize("kind", [jc.simulate.Variational, jc.simulate.EventDriven])
@pytest.mark.parametrize("name", NAMES)
def test_every_law_is_one_of_a_motion(name, kind):
    """The outcome of the first impact in a motion is that of the law alone."""
    number = NAMES.index(name)
    impacts = rolled(kind, number, KEY).impacts
    v = impacts.v_minus[0]
    assert int(impacts.count) >= 1 and np.all(impacts.touching[0])
    own = jax.random.fold_in(jax.random.split(KEY)[0], 0)
    expected, info = directly(number, v, own)
    assert not jc.Status.failed(info.status)
    np.testing.assert_allclose(impacts.v_plus[0], expected, atol=1e-9)
    np.testing.assert_allclose(impacts.impulse[0], info.impulse[:, 0], atol=1e-9)
    assert np.min(TERMS.J_n @ expected) > -1e-8  # no corner goes on into the floor


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_law_goes_in_as_it_is(name):
    """Into `variational`, and into the stepper of `run`."""
    expected = rolled(jc.simulate.Variational, NAMES.index(name), KEY)
    place = MODEL, START
    motion = jc.simulate.variational(
        *place,
        jc.simulate.Variational(impact=LAWS[name]),
        dt=DT,
        duration=STEPS * DT,
        key=jax.random.split(KEY)[0],
    )
    stepper = jc.simulate.Variational(impact=LAWS[name])
    course = jc.simulate.MotionSettings(stepper=stepper, duration=STEPS * DT, dt=DT)
    found = jc.simulate.run(*place, course, key=KEY)
    for each in (motion, found):
        np.testing.assert_allclose(each.states.v, expected.states.v, atol=1e-12)


def test_functions_with_settings_of_their_own_become_records_or_are_named():
    assert isinstance(law_as_pytree(jc.impact.anitescu_potra), jc.impact.AnitescuPotra)
    uses = {
        jc.impact.resolve: "Routh", jc.impact.routh_step: "Routh", jc.impact.routh_path: "Energetic",
        jc.impact.newton: "Newton", jc.impact.poisson: "Poisson",
    }  # fmt: skip
    for law, use in uses.items():
        with pytest.raises(TypeError, match=rf"impact: .*got {law.__name__}; use jc.impact.{use}"):
            jc.simulate.Variational(impact=law)
    with pytest.raises(TypeError, match="(law|impact): expected a callable .* too many positional arguments"):
        jc.simulate.variational(
            MODEL, START, jc.simulate.Variational(impact=lambda terms, v: (v, None)), dt=DT, duration=DT
        )

"""Every impact law as a record of settings: the same results as its function, wherever a law is taken."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.callable_laws import law_as_pytree

MODEL = jc.models.rocking_block()
TERMS = jc.contact_terms(MODEL, MODEL.initial_state())
KEY = jax.random.key(3)
DRAWS = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(KEY, k), (3,)))(jnp.arange(8))
LAWS = {
    "anitescu_potra": (jc.impact.AnitescuPotra(), lambda v: jc.impact.anitescu_potra(TERMS, v)),
    "routh": (
        jc.impact.Routh(impulse_step=0.4, max_steps=8),
        lambda v: jc.impact.resolve(TERMS, v, 0.4 * DRAWS[:, :2], DRAWS[:, 2]),
    ),
    "sequential": (
        jc.impact.Sequential(order=(1, 0)),
        lambda v: jc.impact.sequential(TERMS, v, (1, 0), max_impacts=64),
    ),
    "propagative": (
        jc.impact.Propagative(order=(1, 0), restitution=0.5),
        lambda v: jc.impact.propagate(TERMS, v, order=(1, 0), restitution=0.5),
    ),
    "plastic": (jc.impact.Plastic(), lambda v: jc.impact.plastic(TERMS, v)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_its_function_with_settings(name):
    law, function = LAWS[name]
    v_plus, info = law(TERMS, MODEL.initial_state().v, KEY)
    expected, known = function(MODEL.initial_state().v)
    np.testing.assert_array_equal(v_plus, expected)
    np.testing.assert_array_equal(info.impulse, known.impulse)
    assert not jc.Status.failed(info.status)


@pytest.mark.long
@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_a_pytree_for_jit_and_derivatives(name):
    law = law_as_pytree(LAWS[name][0])
    v = MODEL.initial_state().v

    @jax.jit
    def outcome_and_rate(law, v):
        return jax.jvp(lambda v: law(TERMS, v, KEY)[0], (v,), (v,))

    found, rate = outcome_and_rate(law, v)
    np.testing.assert_allclose(found, law(TERMS, v, KEY)[0], rtol=1e-12, atol=1e-12)
    ahead, behind = (outcome_and_rate(law, v * (1 + h))[0] for h in (1e-6, -1e-6))
    np.testing.assert_allclose(rate, (ahead - behind) / 2e-6, atol=1e-6)


@pytest.mark.slow
def test_numbers_of_a_law_have_derivatives():
    def speed(restitution):
        return jnp.sum(jc.impact.Propagative(restitution=restitution)(TERMS, MODEL.initial_state().v)[0] ** 2)

    slope = jax.grad(speed)(0.5)
    np.testing.assert_allclose(slope, (speed(0.5 + 1e-6) - speed(0.5 - 1e-6)) / 2e-6, rtol=1e-6)


def test_wrong_laws_are_named():
    with pytest.raises(ValueError, match=r"key: Routh draws .* got None"):
        jc.impact.Routh(impulse_step=0.4, max_steps=8)(TERMS, MODEL.initial_state().v)
    with pytest.raises(ValueError, match="max_steps: expected an integer >= 1, got 0"):
        jc.impact.Routh(impulse_step=0.4, max_steps=0)(TERMS, MODEL.initial_state().v, KEY)
    with pytest.raises(TypeError, match=r"law: expected a callable .* got str"):
        law_as_pytree("plastic")

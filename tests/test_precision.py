"""The warning of single precision: where it is due, once, and never from inside of jit."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import precision


def point(dtype, mu=0.5, masses=(1.0, 1.0)):
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.asarray(masses, dtype)),
        J_n=jnp.asarray([[0.0, 1.0]], dtype),
        J_t=jnp.asarray([[[1.0, 0.0]]], dtype),
        phi=jnp.zeros(1, dtype),
        mu=jnp.asarray([mu], dtype),
        active=jnp.ones(1, bool),
    )
    return terms, jnp.asarray([0.1, -1.0], dtype)


@pytest.fixture(autouse=True)
def _new_process(monkeypatch):
    monkeypatch.setattr(precision, "_said", set())


@pytest.mark.parametrize(
    ("problem", "named"),
    [({"mu": 200.0}, "friction above 100"), ({"masses": (1.0, 2e4)}, "masses spread by more than 10000")],
)
def test_said_once(problem, named):
    with pytest.warns(jc.PrecisionWarning, match=f"single precision with {named}.*jax_enable_x64"):
        jc.impact.anitescu_potra(*point(np.float32, **problem))
    jc.impact.anitescu_potra(*point(np.float32, **problem))  # a warning would be an error


def test_nothing_to_say():
    jc.impact.anitescu_potra(*point(np.float64, mu=200.0))
    terms, v = point(np.float32)
    jc.impact.anitescu_potra(terms, v)
    traced = jax.jit(lambda mu: jc.impact.anitescu_potra(terms.replace(mu=mu), v)[0])
    traced(jnp.full(1, 200.0, np.float32))


def test_made_an_error_it_is_raised_each_time():
    for _ in range(2):
        with warnings.catch_warnings(), pytest.raises(jc.PrecisionWarning):
            warnings.simplefilter("error")
            jc.impact.sequential(*point(np.float32, mu=1e5), order=(0,), max_impacts=1)


def test_motion_in_single_precision():
    model = jc.models.rocking_block()
    single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (model, model.initial_state()))
    with warnings.catch_warnings(), pytest.raises(jc.PrecisionWarning, match="precision with `variational`"):
        warnings.simplefilter("error")  # stops before anything is compiled
        jc.simulate.variational(*single, jc.simulate.Variational(max_impacts=1), dt=1e-3, duration=1e-3)

"""Arguments of the wrong kind: an error that names the argument, what was expected and what came."""

import re

import jax
import jax.numpy as jnp
import pytest

import jaxcontact as jc
from jaxcontact import compliant, impact, models

DRAWING = {"step": 0.25, "max_steps": 5, "num_samples": 8}


@pytest.fixture(scope="module")
def given():
    """A model, its terms and velocity, and a sample of its outcomes."""
    model = models.compass_gait()
    terms = jc.contact_terms(model.system, model.params, model.state)
    v = model.state.v
    samples = impact.ImpactSamples(
        v_minus=v, v_plus=v[None], impulse=jnp.zeros((1, 2, 2)), status=jnp.zeros(1, jnp.uint32),
        num_solves=jnp.ones(1, jnp.int32), energy_ratio=jnp.ones(1), residual=jnp.zeros(1), independent=True,
    )  # fmt: skip
    return model, terms, v, samples


TERMS = "terms: expected ContactTerms, got Model; make them with contact_terms(system, params, state)"
SAMPLES = "samples: expected ImpactSamples, got ContactTerms; draw them with sample"
INDICES = "order: expected contact indices in 0..1, got "
ORDER = "expected (system, params, state), which a Model has as .system, .params and .state"
MISTAKES = {
    "a model for terms": (lambda m, t, v, s: impact.sample(m, v, **DRAWING), TypeError, TERMS),
    "no device": (
        lambda m, t, v, s: impact.sample(t, v, devices=[], **DRAWING), ValueError,
        "devices: expected at least one, got []"),
    "a number to reduce with": (
        lambda m, t, v, s: impact.sample(t, v, reduce=3, **DRAWING), TypeError,
        "reduce: expected a function, got int"),
    "terms for a problem": (
        lambda m, t, v, s: compliant.solve(t), TypeError, "problem: expected Problem, got ContactTerms"),
    "a law of a model": (lambda m, t, v, s: impact.anitescu_potra(m, v), TypeError, TERMS),
    "an order of a model": (lambda m, t, v, s: impact.unique_order(m), TypeError, TERMS),
    "terms for samples": (lambda m, t, v, s: impact.contains(t, v), TypeError, SAMPLES),
    "coverage of terms": (lambda m, t, v, s: impact.coverage(t), TypeError, SAMPLES),
    "images of terms": (lambda m, t, v, s: impact.mirrored(t, t, m.symmetry), TypeError, SAMPLES),
    "no symmetry": (lambda m, t, v, s: impact.mirrored(s, t, None), TypeError, "symmetry: expected Symmetry, got None"),
    "a metric of a model": (lambda m, t, v, s: impact.contains(s, v, terms=m), TypeError, TERMS),
    "a word for a velocity": (
        lambda m, t, v, s: impact.contains(s, "v"), TypeError, "v_measured: expected a number, got 'v'"),
    "a word for a distance": (
        lambda m, t, v, s: impact.contains(s, v, tolerance="1"), TypeError, "tolerance: expected a number, got '1'"),
    "a negative distance": (
        lambda m, t, v, s: impact.contains(s, v, tolerance=-1.0), ValueError,
        "tolerance: expected a finite number >= 0, got -1.0"),
    "a list for a direction": (
        lambda m, t, v, s: impact.extreme(t, v, [1.0, 0, 0, 0], step=1.0, max_steps=2), TypeError,
        "direction: expected an array, got list"),
    "a contact for an order": (
        lambda m, t, v, s: impact.sequential(t, v, order=0, max_impacts=2), ValueError, INDICES + "0"),
    "a word for an order": (
        lambda m, t, v, s: impact.sequential(t, v, order="01", max_impacts=2), ValueError, INDICES + "'01'"),
    "no orders": (
        lambda m, t, v, s: impact.indeterminacy(t, v, orders=0), ValueError, "orders: expected cycles of one length, got 0"),
    "one order for several": (
        lambda m, t, v, s: impact.indeterminacy(t, v, orders=(0, 1)), ValueError,
        "orders: expected contact indices in 0..1, got 0"),
    "params first": (
        lambda m, t, v, s: jc.contact_terms(m.params, m.system, m.state), TypeError,
        f"system: expected System, got Params; {ORDER}"),
    "state second": (
        lambda m, t, v, s: jc.contact_terms(m.system, m.state, m.params), TypeError,
        f"params: expected Params, got State; {ORDER}"),
    "rows of a model": (
        lambda m, t, v, s: jc.constraint_terms(m, m.params, m.state), TypeError,
        f"system: expected System, got Model; {ORDER}"),
    "forces of a model": (
        lambda m, t, v, s: jc.bias(m, m.params, m.state), TypeError, "system: expected System, got Model"),
    "masses in another order": (
        lambda m, t, v, s: jc.mass_matrix(m.params, m.system, v), TypeError, "system: expected System, got Params"),
    "a step of a model": (
        lambda m, t, v, s: compliant.step(m, m.params, m.state, v, dt=0.1), TypeError,
        f"system: expected System, got Model; {ORDER}"),
    "a step without forces": (
        lambda m, t, v, s: compliant.step(m.system, m.params, m.state, None, dt=0.1), TypeError,
        "tau: expected an array, got NoneType"),
    "forces of another size": (
        lambda m, t, v, s: compliant.step(m.system, m.params, m.state, v[:3], dt=0.1), ValueError,
        "tau: expected shape (4,), got (3,)"),
    "a word for a time": (
        lambda m, t, v, s: compliant.step(m.system, m.params, m.state, v, dt="1"), TypeError,
        "dt: expected a number, got '1'"),
    "a word for a solver": (
        lambda m, t, v, s: compliant.rollout(m.system, m.params, m.state, v[None], dt=0.1, solver="Newton"), TypeError,
        "solver: expected Newton, got str"),
    "controls of one step": (
        lambda m, t, v, s: compliant.rollout(m.system, m.params, m.state, v, dt=0.1), ValueError,
        "controls: expected shape (T, 4), got (4,)"),
    "a potential without a spring": (
        lambda m, t, v, s: compliant.step(
            (box := models.box_on_incline()).system, box.params, box.state, jnp.zeros(6), dt=0.1, cone="coupled",
            formulation="min_norm"), ValueError, "formulation: 'min_norm' has springs and dampers only"),
    "a word for a stiffness": (
        lambda m, t, v, s: impact.kelvin_voigt(m.system, m.params, m.state, "1", 5.0), TypeError,
        "stiffness: expected a number, got '1'"),
    "a word for friction": (
        lambda m, t, v, s: models.box_on_incline("0.2"), TypeError, "mu: expected a number, got '0.2'"),
    "friction that is none": (
        lambda m, t, v, s: models.box_on_incline(float("nan")), ValueError, "mu: expected finite numbers, got NaN or inf"),
    "negative friction": (
        lambda m, t, v, s: models.box_on_incline(-1.0), ValueError, "mu: expected a finite number >= 0, got -1.0"),
    "a word for a count": (
        lambda m, t, v, s: models.box_on_foundation("100"), ValueError, "num_elements: expected an integer >= 1, got '100'"),
    "half a sphere": (
        lambda m, t, v, s: models.sphere_stack(2.5), ValueError, "n: expected an integer >= 1, got 2.5"),
    "a word for a mass": (
        lambda m, t, v, s: models.disk_stack(mass="1"), TypeError, "mass: expected a number, got '1'"),
}  # fmt: skip


@pytest.mark.float32
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(given, mistake):
    call, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=re.escape(message)):
        call(*given)


def test_traced_numbers_pass():
    friction = jax.jit(lambda mu: models.box_on_incline(mu).params.mu)(0.3)
    assert friction.shape == (4,) and friction[0] == jnp.asarray(0.3, friction.dtype)

"""The landing of the planar walker on both flat feet: four contacts, every solution of every step."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytestmark = pytest.mark.slow


def test_samples_of_the_walker_terminate_and_lose_energy(tmp_path, saved):
    pytest.importorskip("mujoco")
    model = jc.models.planar_walker()
    terms = jc.contact_terms(model, model.initial_state())
    assert np.all(terms.active)
    samples = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        num_samples=256,
        keep_path=True,
    )
    assert samples.complete
    assert not np.any(samples.status)
    energy = 0.5 * jnp.einsum("nki,ij,nkj->nk", samples.path, terms.M, samples.path)
    assert float(jnp.max(jnp.diff(energy, axis=1))) < 1e-12 * float(energy[0, 0])
    assert float(jnp.max(samples.energy_ratio)) < 1.0
    assert float(jnp.min(samples.v_plus @ terms.J_n.T)) > -1e-8
    spread = jnp.ptp(samples.v_plus @ terms.J_n.T, axis=0)
    print("normal velocities spread by", spread)
    assert float(jnp.max(spread)) > 0.0  # the outcome is not unique
    jc.viz.plot_impact_set(samples, terms, title="Planar walker").savefig(tmp_path / "set.png")
    jc.viz.plot_mechanism(model, model.initial_state()).savefig(tmp_path / "walker.png")
    assert saved["set.png"].axes and saved["walker.png"].axes

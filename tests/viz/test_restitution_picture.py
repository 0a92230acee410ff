"""The picture of sets by restitution: its points are the contact velocities of what ended."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc


def test_points_are_contact_velocities(tmp_path):
    terms = jc.ContactTerms(
        M=jnp.eye(2), J_n=jnp.array([[0.0, 1.0], [1.0, 1.0]]), J_t=jnp.zeros((2, 1, 2)), phi=jnp.zeros(2),
        mu=jnp.zeros(2), active=jnp.ones(2, bool),
    )  # fmt: skip
    v = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    samples = jc.impact.ImpactSamples(
        v_minus=v[0], v_plus=v, impulse=jnp.zeros((2, 2, 2)), status=jnp.array([0, 16], jnp.uint32),
        num_iters=jnp.ones(2, int), energy_ratio=jnp.ones(2), residual=jnp.zeros(2),
    )  # fmt: skip
    figure = jc.viz.plot_restitution_sets({0.0: samples, 0.5: samples}, terms, title="Sets")
    figure.savefig(tmp_path / "sets.png")
    points = figure.axes[0].lines[2:]
    assert [line.get_label() for line in points] == ["e = 0", "e = 0.5"]
    assert np.array_equal(points[0].get_xydata(), [[2.0, 3.0]])
    assert {text.get_text(): text.xy for text in figure.axes[0].texts}["e = 0"] == (2.0, 3.0)
    words = figure._supxlabel.get_text()
    assert "dot is one impulse order" in words and "A and B move at 2 and 3 m/s" in words
    with pytest.raises(ValueError, match=r"pair: expected two contacts in 0\.\.1"):
        jc.viz.plot_restitution_sets({0.0: samples}, terms, pair=(0, 2))
    with pytest.raises(ValueError, match="sets: expected 1 to 6"):
        jc.viz.plot_restitution_sets({}, terms)

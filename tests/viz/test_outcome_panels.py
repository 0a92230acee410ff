"""Pictures of outcomes: panels, shares and words are those of the samples."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling.outcomes import outcome_shares
from jaxcontact.viz.scene import scene_of

MODEL = jc.models.rocking_block()
STATE = MODEL.initial_state()
TERMS = jc.contact_terms(MODEL, STATE)
SAMPLES = jc.impact.sample(TERMS, STATE.v, jc.impact.Routh(impulse_step=0.4, max_steps=8), num_samples=256)


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def test_panels_have_the_shares_of_the_samples():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, mujoco=jnp.zeros(3), title="block")
    shares = [share for _, share in outcome_shares(SAMPLES, TERMS)]
    assert len(shares) > 1 and titles(figure)[-1] == "MuJoCo"
    shown = [float(title.split(" %")[0]) / 100 for title in titles(figure)[:-1]]
    np.testing.assert_allclose(shown, shares[: len(shown)], atol=5e-3)
    assert any("A lifts\nB sticks" in title or "B lifts" in title for title in titles(figure))


def test_contacts_of_one_name_count_as_one():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["foot", "foot"])
    words = {title.split("\n", 1)[1] for title in titles(figure)}
    assert words <= {"foot sticks", "foot slides", "foot lifts", "foot tilts"} and "foot tilts" in words


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="names: expected one per contact, 2, got 1"):
        jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["foot"])
    with pytest.raises(TypeError, match="terms: expected ContactTerms, got str"):
        jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, "terms")
    failed = SAMPLES.replace(status=jnp.full_like(SAMPLES.status, jc.Status.NONFINITE))
    with pytest.raises(ValueError, match="samples: expected some that succeeded, got none"):
        jc.viz.plot_outcomes(MODEL, STATE, failed, TERMS)


def test_a_body_without_mass_has_no_link_to_its_centre():
    model = jc.load_mjcf(
        """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 1"><freejoint/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03" mass="1"/>
        <body pos="0 0 -0.3"><geom type="sphere" size="0.03" mass="0"/></body></body></worldbody></mujoco>"""
    )
    assert not any(part.is_link for part in scene_of(model).parts)

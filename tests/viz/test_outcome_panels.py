"""Pictures of outcomes: panels, shares and words are those of the samples."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling.outcomes import outcome_shares
from jaxcontact.viz.outcome_panels import _pick_kinds, _plain_names
from jaxcontact.viz.scene import scene_of

MODEL = jc.models.rocking_block()
STATE = MODEL.initial_state()
TERMS = jc.contact_terms(MODEL, STATE)
SAMPLES = jc.impact.sample(TERMS, STATE.v, jc.impact.Routh(impulse_step=0.4, max_steps=8), num_samples=256)


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def test_panels_have_the_shares_of_the_samples():
    figure = jc.viz.plot_outcomes(
        MODEL, STATE, SAMPLES, TERMS, names=["A", "B"], mujoco=jnp.zeros(3), title="block"
    )
    shares = [share for _, share in outcome_shares(SAMPLES, TERMS)]
    assert len(shares) > 1 and titles(figure)[-1] == "MuJoCo\none outcome"
    shown = [float(title.split(" %")[0]) / 100 for title in titles(figure)[:-1]]
    np.testing.assert_allclose(shown, shares[: len(shown)], atol=5e-3)
    assert any("A lifts\nB sticks" in title or "B lifts" in title for title in titles(figure))


def test_the_first_panel_names_the_contacts():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["A", "B"])
    places = np.asarray(jc.contacts(MODEL, STATE).point)
    for k, axes in enumerate(figure.axes):
        named = {text.get_text(): text.xy for text in axes.texts if text.get_text()}
        assert list(named) == (["A", "B"] if k == 0 else [])
        for place, shown in zip(places, named.values(), strict=k == 0):
            np.testing.assert_allclose(shown, place)


def test_two_contacts_that_do_the_same_are_both():
    still = SAMPLES.replace(v_plus=jnp.zeros_like(SAMPLES.v_plus))
    figure = jc.viz.plot_outcomes(MODEL, STATE, still, TERMS, names=["A", "B"])
    assert titles(figure) == ["100 % of impulse orders\nboth stick"]


def test_contacts_without_a_name_do_not_count():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["", "right corner"])
    words = {title.split("\n", 1)[1] for title in titles(figure)}
    assert words <= {f"right corner {verb}" for verb in ("sticks", "slides", "lifts")}
    assert not any(text.get_text() for text in figure.axes[0].texts)  # one name needs no place
    with pytest.raises(ValueError, match="names: expected one of a contact that touches, got none"):
        jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["", ""])


def test_rare_kinds_have_no_panel_beside_three_others():
    terms = TERMS.replace(
        J_n=jnp.eye(3), J_t=jnp.eye(3)[:, None], phi=jnp.zeros(3), mu=jnp.ones(3), active=jnp.ones(3, bool)
    )
    lifts = np.zeros((100, 3))
    lifts[:30, 0] = lifts[30:60, 1] = lifts[60:97, 2] = 1.0  # the last 3 % stick
    few = SAMPLES.replace(v_plus=jnp.asarray(lifts), status=jnp.zeros(100, jnp.uint32))
    kinds, _, rest = _pick_kinds(few, terms, ["a", "b", "c"])
    assert len(kinds) == 3 and abs(rest - 0.03) < 1e-9
    lifts[60:92, 2], lifts[92:97, 2] = 1.0, 0.0  # now 8 % do
    kinds, _, rest = _pick_kinds(few.replace(v_plus=jnp.asarray(lifts)), terms, ["a", "b", "c"])
    assert len(kinds) == 4 and rest == 0.0


def test_contacts_of_one_body_count_as_one():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS)
    assert not any(text.get_text() for text in figure.axes[0].texts)  # the titles have its name
    words = {title.split("\n", 1)[1] for title in titles(figure)}
    assert words <= {f"block {verb}" for verb in ("sticks", "slides", "lifts", "tilts")}
    assert "block tilts" in words


def test_an_arrow_is_the_velocity_of_a_contact_that_moves():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["A", "B"])
    places = np.asarray(jc.contacts(MODEL, STATE).point)
    lengths, words = [], figure._supxlabel.get_text().replace("\n", " ")
    for axes in figure.axes:
        arrows = [(np.asarray(text.xyann), np.asarray(text.xy)) for text in axes.texts if text.arrow_patch]
        lifts = [
            name in "".join(line for line in axes.get_title().split("\n") if "lift" in line) for name in "AB"
        ]
        assert len(arrows) == sum(lifts), axes.get_title()  # what sticks has none
        for start, end in arrows:
            np.testing.assert_allclose(start, places[np.flatnonzero(lifts)][0], atol=1e-9)
            assert abs(end[0] - start[0]) < 1e-9 < end[1] - start[1]
            lengths.append(end[1] - start[1])
    longest = max(float(np.max(SAMPLES.v_plus @ TERMS.J_n[k])) for k in (0, 1))
    shown = float(words.partition("longest ")[2].split()[0])
    assert 0.0 < shown <= longest
    np.testing.assert_allclose(max(lengths), 0.15 * 2.0, rtol=1e-6)  # of a block 2 m tall


def test_rounding_is_no_arrow():
    still = SAMPLES.replace(v_plus=1e-15 * jnp.ones_like(SAMPLES.v_plus))
    figure = jc.viz.plot_outcomes(MODEL, STATE, still, TERMS)
    assert titles(figure) == ["100 % of impulse orders\nblock sticks"] and not figure.axes[0].texts
    assert "Arrows" not in figure._supxlabel.get_text()


def test_many_kinds_are_told_apart_by_what_lifts():
    labels = np.random.default_rng(0).integers(0, 3, size=(400, 3))  # 27 kinds, as frequent as each other
    terms = TERMS.replace(
        J_n=jnp.eye(3), J_t=jnp.eye(3)[:, None], phi=jnp.zeros(3), mu=jnp.ones(3), active=jnp.ones(3, bool)
    )
    many = SAMPLES.replace(
        v_plus=jnp.asarray(np.where(labels == 2, 1.0, 0.0)), status=jnp.zeros(400, jnp.uint32)
    )
    kinds, _, rest = _pick_kinds(many, terms, ["a", "b", "c"])
    assert len(kinds) == 5 and rest < 1 - 5 / 9
    same = _pick_kinds(many.replace(v_plus=jnp.zeros((400, 3))), terms, ["a", "b", "c"])[0]
    assert [words for words, _, _ in same] == ["100 % of impulse orders\nall stick"]


def test_the_legend_has_what_a_panel_shows():
    still = SAMPLES.replace(v_plus=jnp.zeros_like(SAMPLES.v_plus))
    figure = jc.viz.plot_outcomes(MODEL, STATE, still, TERMS, names=["A", "B"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["sticks"]
    slow, fast = 1e-4 * STATE.v, -STATE.v  # of springs: no motion, and one that lifts
    for peer, entries in ((slow, ["sticks"]), (fast, ["sticks", "lifts"])):
        figure = jc.viz.plot_outcomes(MODEL, STATE, still, TERMS, names=["A", "B"], mujoco=peer)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == entries
        marks = [line for line in figure.axes[-1].lines if line.get_markersize() == 4.5]
        assert len(marks) == 2 and len({line.get_color() for line in marks}) == 1


def test_legs_are_named_in_plain_words():
    assert _plain_names(["FR_calf", "RL_calf"]) == ["front right", "rear left"]
    assert _plain_names(["LF_FOOT", "RH_FOOT"]) == ["front left", "hind right"]
    for others in (["FR_calf", "trunk"], ["FR_calf", "FR_thigh"], ["left_foot", "right_foot"], ["block"]):
        assert _plain_names(others) == others


def test_the_notes_below_the_panels_are_sentences():
    figure = jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["A", "B"], mujoco=jnp.zeros(3))
    notes = re.split(r"(?<=[.]) (?=[A-Z])", figure._supxlabel.get_text().replace("\n", " "))
    assert len(notes) > 2 and all(note[0].isupper() and note.endswith(".") for note in notes)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="names: expected one per contact, 2, got 1"):
        jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS, names=["foot"])
    with pytest.raises(ValueError, match="terms: expected those of all 2 contacts of the model, or the 2"):
        jc.viz.plot_outcomes(MODEL, STATE, SAMPLES, TERMS.take(np.array([0])))
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


def test_the_title_of_one_panel_stands_beside_the_legend():
    stuck = jnp.abs(SAMPLES.v_plus @ TERMS.J_n[0]) + jnp.abs(SAMPLES.v_plus @ TERMS.J_n[1]) < 1e-9
    alike = np.flatnonzero(stuck) if bool(jnp.any(stuck)) else np.arange(1)
    one = SAMPLES.replace(v_plus=jnp.tile(SAMPLES.v_plus[alike[0]], (len(SAMPLES.status), 1)))
    figure = jc.viz.plot_outcomes(MODEL, STATE, one, TERMS, title="A long name: what its impact may do")
    assert len(figure.axes) == 1
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert not figure._suptitle.get_window_extent().overlaps(legend.get_window_extent())

"""Structure of the pictures: panels, labels with units, legends, equal scales, and that they can be saved."""

import functools
import io

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from oracles import problems

import jaxcontact as jc
from jaxcontact.viz.scene import scene_frames

MODELS = ("rocking_block", "compass_gait", "box_and_wall", "ramone", "disk_stack")
SEQUENCES = ["one at a time, A first", "one at a time, B first"]


@functools.cache
def sampled(name, keep_path=True):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    samples = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        num_samples=64 if name == "disk_stack" else 256,
        keep_path=keep_path,
    )
    return terms, samples


def by_hand(nc, nt):
    """Contact terms of a random body with nc contacts, and an approaching velocity."""
    rng = np.random.default_rng(5)
    nv = 6
    v = rng.normal(size=nv)
    J_n = rng.normal(size=(nc, nv))
    J_n *= -np.sign(J_n @ v)[:, None]
    terms = jc.ContactTerms(
        M=jnp.asarray(problems.random_spd(rng, nv, 0.3)),
        J_n=jnp.asarray(J_n),
        J_t=jnp.asarray(rng.normal(size=(nc, nt, nv))),
        phi=jnp.zeros(nc),
        mu=jnp.full(nc, 0.5),
        active=jnp.ones(nc, bool),
    )
    return terms, jnp.asarray(v)


def saved(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=60)
    return buffer.getbuffer().nbytes


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def is_square(axes):
    return np.isclose(np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim()), rtol=1e-6)


def offsets(axes):
    return np.asarray(axes.collections[-1].get_offsets())


@pytest.mark.long
@pytest.mark.slow_cases("rocking_block")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("ramone", "disk_stack"))) for name in MODELS],
)
def test_impact_set_of_every_model(name):
    terms, samples = sampled(name)
    nc = terms.phi.shape[0]
    figure = jc.viz.plot_impact_set(
        samples, terms, beside=jc.viz.OtherOutcomes(mujoco=0.1 * samples.v_minus), title="a title"
    )
    assert isinstance(figure, Figure)
    # The feet of the block, and the foot of RAMone that strikes, move along their normals alone: panels of
    # lines are left out.
    panels = {"rocking_block": 1, "ramone": 2}.get(name, 3 if nc == 2 else nc + 2)
    assert panels < len(figure.axes) <= 2 * panels
    assert figure.get_suptitle() == "a title"
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[0] == "Through the impact"
    assert titles[panels] == "Outcomes, close up"
    for axes in figure.axes:
        assert axes.get_xlabel().endswith("m/s)")
        assert axes.get_ylabel().endswith("m/s)")
        told = "different scales" in [text.get_text() for text in axes.texts]
        assert told or (axes.get_aspect() == 1.0 and is_square(axes))
        assert axes.get_box_aspect() == 1.0 or not told
    labels = legend(figure)
    ends = int(np.sum(np.asarray(samples.status) == 0))
    assert "before the impact" in labels
    assert f"outcomes ({ends} samples)" in labels
    assert "simultaneous law" in labels
    assert "MuJoCo" in labels
    assert [label for label in labels if label in SEQUENCES] == (SEQUENCES if nc == 2 else [])
    assert saved(figure) > 10_000


def test_panels_without_motion_along_an_axis_are_left_out():
    terms, samples = sampled("rocking_block")
    figure = jc.viz.plot_impact_set(samples, terms)
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes] == 2 * [
        ("A normal (m/s)", "B normal (m/s)")
    ]
    first, second = (axes.get_subplotspec() for axes in figure.axes)
    assert first.rowspan == second.rowspan and first.colspan != second.colspan  # side by side


def test_close_up_panels_of_a_single_outcome_are_left_out():
    terms, samples = sampled("compass_gait")
    lands = samples.replace(v_plus=jnp.zeros_like(samples.v_plus).at[:, 0].set(jnp.linspace(0.0, 0.1, 256)))
    slides = lands.v_plus @ terms.J_t[:, 0].T  # along the ground alone
    assert np.ptp(lands.v_plus @ terms.J_n.T) == 0.0 < np.ptp(slides)
    figure = jc.viz.plot_impact_set(
        lands, terms, beside=jc.viz.OtherOutcomes(simultaneous=lands.v_plus[:1], sequences={})
    )
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels[-2:] == ["A tangential (m/s)", "B tangential (m/s)"]


def test_paths_of_fewer_samples_are_drawn():
    terms, samples = sampled("compass_gait")
    few = samples.replace(path=samples.path[:16])
    assert "through it (16 samples)" in legend(jc.viz.plot_impact_set(few, terms))


def test_panels_show_the_contact_velocities_they_say():
    terms, samples = sampled("compass_gait")
    figure = jc.viz.plot_impact_set(samples, terms, zoom=False)
    u_n = np.asarray(samples.v_plus) @ np.asarray(terms.J_n).T
    u_t = np.einsum("nv,cv->nc", samples.v_plus, terms.J_t[:, 0])
    good = np.asarray(samples.status) == 0
    expected = {
        ("A normal (m/s)", "B normal (m/s)"): (u_n[:, 0], u_n[:, 1]),
        ("A tangential (m/s)", "A normal (m/s)"): (u_t[:, 0], u_n[:, 0]),
        ("B tangential (m/s)", "B normal (m/s)"): (u_t[:, 1], u_n[:, 1]),
    }
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes] == list(expected)
    for axes, (x, y) in zip(figure.axes, expected.values(), strict=True):
        drawn = offsets(axes)
        truth = np.stack([x, y], axis=1)[good]
        apart = np.linalg.norm(drawn[:, None] - truth[None], axis=2)
        # Every point drawn is a sample, every sample has a point within a cell of it.
        cell = np.hypot(*[np.ptp(limits) / 240 for limits in (axes.get_xlim(), axes.get_ylim())])
        assert apart.min(axis=1).max() < 1e-6
        assert apart.min(axis=0).max() < cell


@pytest.mark.long
def test_outliers_of_many_samples_are_drawn():
    terms, samples = sampled("rocking_block", keep_path=False)
    rng = np.random.default_rng(0)
    n = 2**20
    # Nearly all at rest, one alone.
    v_plus = np.asarray(samples.v_plus)[np.zeros(n, int)] + 1e-9 * rng.normal(size=(n, 3))
    v_plus[n // 3] = samples.v_minus * 0.5
    many = samples.replace(v_plus=jnp.asarray(v_plus), status=jnp.zeros(n, jnp.uint32))
    figure = jc.viz.plot_impact_set(many, terms, zoom=False)
    assert "outcomes (1\u2009048\u2009576 samples)" in legend(figure)
    drawn = offsets(figure.axes[0])
    alone = 0.5 * np.asarray(terms.J_n @ samples.v_minus)
    assert len(drawn) < 100
    assert np.linalg.norm(drawn - alone, axis=1).min() < 1e-6
    assert saved(figure) > 10_000


def test_no_path_no_trajectories_and_options_to_leave_out():
    terms, samples = sampled("rocking_block", keep_path=False)
    figure = jc.viz.plot_impact_set(
        samples, terms, beside=jc.viz.OtherOutcomes(simultaneous=(), sequences={}), names=("left", "right")
    )
    assert legend(figure) == ["before the impact", "outcomes (256 samples)"]
    assert figure.axes[0].get_xlabel() == "left normal (m/s)"
    given = {"mine": jnp.stack([samples.v_minus, samples.v_plus[3]])}
    figure = jc.viz.plot_impact_set(
        samples, terms, beside=jc.viz.OtherOutcomes(simultaneous=samples.v_plus[:2], sequences=given)
    )
    assert legend(figure)[-2:] == ["simultaneous law", "mine"]


def test_trajectories_are_limited():
    terms, samples = sampled("rocking_block")
    figure = jc.viz.plot_impact_set(samples, terms, max_paths=20)
    assert "through it (20 samples)" in legend(figure)
    assert len(figure.axes[0].collections[0].get_segments()) == 20
    figure = jc.viz.plot_impact_set(samples, terms, max_paths=0)
    assert not any(label.startswith("through") for label in legend(figure))


@pytest.mark.slow
def test_sequences_start_before_and_end_after_the_impact():
    terms, samples = sampled("rocking_block")
    axes = jc.viz.plot_impact_set(samples, terms, zoom=False).axes[0]
    ends = [
        np.asarray(jc.impact.sequential(terms, samples.v_minus, o, max_impacts=9)[0])
        for o in ((0, 1), (1, 0))
    ]
    lines = [np.stack(line.get_data(), axis=1) for line in axes.lines]
    for end in ends:
        found = [line for line in lines if len(line) == 3 and np.allclose(line[-1], terms.J_n @ end)]
        assert len(found) == 1
        np.testing.assert_allclose(found[0][0], terms.J_n @ samples.v_minus, rtol=1e-5)


def invented(terms, v, n=40, steps=3):
    """Samples of no law: pictures only need shapes."""
    rng = np.random.default_rng(6)
    nc, nt, nv = terms.J_t.shape
    path = np.asarray(v) * np.linspace(1.0, 0.1, steps + 1)[:, None] * rng.random((n, 1, nv))
    return jc.impact.ImpactSamples(
        v_minus=v,
        v_plus=jnp.asarray(path[:, -1]),
        impulse=jnp.zeros((n, nc, 1 + nt)),
        status=jnp.zeros(n, jnp.uint32),
        num_iters=jnp.full(n, steps),
        energy_ratio=jnp.ones(n),
        residual=jnp.zeros(n),
        path=jnp.asarray(path),
    )


@pytest.mark.long
@pytest.mark.parametrize(("nc", "panels"), [(1, 1), (2, 3), (3, 5), (6, 8)])
@pytest.mark.parametrize("nt", [1, 2])
def test_any_number_of_contacts_in_plane_and_space(nc, nt, panels):
    terms, v = by_hand(nc, nt)
    samples = invented(terms, v)
    figure = jc.viz.plot_impact_set(
        samples, terms, beside=jc.viz.OtherOutcomes(simultaneous=0.2 * v, sequences={}), zoom=False
    )
    assert len(figure.axes) == panels
    last = figure.axes[-1 if nc <= 2 else nc - 1]
    kind = "tangential" if nt == 1 else "tangential speed"
    assert last.get_xlabel() == f"{'ABCDEF'[nc - 1]} {kind} (m/s)"
    if nt == 2:
        speed = np.linalg.norm(np.einsum("tv,nv->nt", terms.J_t[-1], samples.v_plus), axis=1)
        drawn = offsets(last)[:, 0]
        assert np.abs(drawn[:, None] - speed).min(axis=1).max() < 1e-6
    assert saved(figure) > 3_000


@pytest.mark.slow
def test_spatial_contacts_sampled_by_pivoting():
    terms, v = by_hand(2, 2)
    samples = jc.impact.sample(
        terms,
        v,
        jc.impact.Routh(impulse_step=1.0, max_steps=12, selection="lemke"),
        num_samples=16,
        keep_path=True,
    )
    labels = legend(jc.viz.plot_impact_set(samples, terms))
    assert "simultaneous law" in labels
    assert [label for label in labels if label in SEQUENCES] == SEQUENCES


def test_contacts_that_do_not_touch_are_not_drawn():
    terms, v = by_hand(5, 1)
    samples = invented(terms, v)
    apart = terms.replace(active=jnp.asarray([True, False, False, True, False]))
    figure = jc.viz.plot_impact_set(
        samples, apart, beside=jc.viz.OtherOutcomes(simultaneous=(), sequences={}), zoom=False
    )
    assert [axes.get_ylabel()[0] for axes in figure.axes] == ["D", "A", "D"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": "A"}, "names: expected a sequence of strings, got 'A'"),
        (
            {"beside": jc.viz.OtherOutcomes(mujoco=[1.0, 2.0])},
            r"mujoco: expected finite velocities \(k, 3\), got \(1, 2\)",
        ),
        (
            {"beside": jc.viz.OtherOutcomes(simultaneous=np.full((1, 3), np.nan))},
            "simultaneous: expected finite",
        ),
        ({"beside": jc.viz.OtherOutcomes(sequences={"x": np.zeros((2, 4))})}, "sequences"),
        ({"max_paths": -1}, "max_paths: expected an integer >= 0, got -1"),
    ],
)
def test_wrong_arguments_of_impact_set(change, message):
    terms, samples = sampled("rocking_block")
    with pytest.raises((TypeError, ValueError), match=message):
        jc.viz.plot_impact_set(samples, terms, **change)


def test_samples_of_other_terms_or_without_success_are_refused():
    terms, samples = sampled("rocking_block")
    with pytest.raises(ValueError, match=r"v_plus \(n, 4\)"):
        jc.viz.plot_impact_set(samples, sampled("compass_gait")[0])
    with pytest.raises(ValueError, match="at least one sample with status 0"):
        jc.viz.plot_impact_set(samples.replace(status=jnp.ones(256, jnp.uint32)), terms)


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_mechanism_of_every_model(name):
    model = getattr(jc.models, name)()
    nc, nv = model.structure.num_contacts, model.initial_state().v.shape[0]
    after = {"rest": np.zeros(nv), "half": -0.5 * np.asarray(model.initial_state().v)}
    figure = jc.viz.plot_mechanism(model, model.initial_state(), v=after, title="a title")
    assert [axes.get_title() for axes in figure.axes] == ["before", "rest", "half"]
    for axes in figure.axes:
        assert axes.get_aspect() == 1.0
        texts = [text.get_text() for text in axes.texts]
        assert [letter for letter in texts if len(letter) == 1] == list("ABCDE")[:nc]
        assert any(text.endswith("m/s") for text in texts)
    assert figure.axes[0].get_ylabel() == "y (m)"
    assert figure.axes[-1].get_xlabel() == "x (m)"
    # One arrow per moving contact and one for the scale.
    terms = jc.contact_terms(model, model.initial_state())
    u = np.stack([terms.J_n @ model.initial_state().v, terms.J_t[:, 0] @ model.initial_state().v])
    moving = int(np.sum(np.linalg.norm(u, axis=0) > 1e-6))
    arrows = [sum(text.arrow_patch is not None for text in axes.texts) for axes in figure.axes]
    assert arrows == [moving + 1, 1, moving + 1]
    assert saved(figure) > 5_000


def test_arrows_are_contact_velocities():
    model = jc.models.rocking_block()
    v = np.array([0.3, 0.1, -0.2])
    axes = Figure().add_subplot()
    jc.viz.draw_mechanism(axes, model, model.initial_state(), v=v, arrow_scale=2.0)
    assert isinstance(axes, Axes)
    arrows = [text for text in axes.texts if text.arrow_patch is not None][:2]
    for text, x in zip(arrows, (-0.5, 0.5), strict=True):
        start, end = np.asarray(text.get_position()), np.asarray(text.xy)
        np.testing.assert_allclose(start, [x, 0.0], atol=1e-6)
        # v + omega x r with r from the centre to the corner
        exact = [0.3 - (-0.2) * (0.0 - 1.0), 0.1 + (-0.2) * x]
        np.testing.assert_allclose((end - start) / 2.0, exact, rtol=1e-5)


def test_mechanism_refuses_what_it_cannot_draw():
    model = jc.models.rocking_block()
    with pytest.raises(ValueError, match=r"v: expected finite \(3,\) for 'x', got shape \(2,\)"):
        jc.viz.plot_mechanism(model, model.initial_state(), v={"x": np.zeros(2)})
    with pytest.raises(ValueError, match="names: expected 2"):
        jc.viz.plot_mechanism(model, model.initial_state(), names=["A"])
    spatial = jc.models.box_drop_3d()
    with pytest.raises(ValueError, match="only planar"):
        jc.viz.draw_mechanism(Figure().add_subplot(), spatial, spatial.initial_state())


def test_no_global_state_of_matplotlib_is_touched():
    import matplotlib

    before = dict(matplotlib.rcParams)
    terms, samples = sampled("rocking_block")
    saved(jc.viz.plot_impact_set(samples, terms))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.slow
def test_links_of_a_robot_end_at_its_centres_of_mass():
    """Not at the frames of its bodies: of a trunk that is its hip, and nothing would be drawn."""
    pytest.importorskip("mujoco")
    model = jc.models.planar_walker()
    params = model.params
    frame = scene_frames(model.replace(params=params), model.initial_state().q)
    energy = jc.potential_energy(
        model.replace(params=params), model.initial_state()
    )  # of gravity: it has no springs
    np.testing.assert_allclose(-params.mass @ frame.centres @ params.gravity, energy, rtol=1e-12)

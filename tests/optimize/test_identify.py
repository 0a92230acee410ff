"""`identify` on made motions whose truth is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

CUBE = jc.models.tossed_cube()
TRUTH = {"friction": 0.21, "side": 0.104}


def impact(params, q, v):
    """Outcome of the corner impact of a cube of this friction and side."""
    model = CUBE.params.replace(
        mu=jnp.full(8, params["friction"]), constants={"size": jnp.full(3, params["side"])}
    )
    terms = jc.contact_terms(CUBE.replace(params=model), CUBE.initial_state().replace(q=q, v=v))
    lowest = jnp.argmin(terms.phi)
    one = jc.ContactTerms(
        M=terms.M, J_n=terms.J_n[lowest][None], J_t=terms.J_t[lowest][None], phi=jnp.zeros(1),
        mu=terms.mu[lowest][None], active=jnp.ones(1, bool),
    )  # fmt: skip
    return jc.impact.anitescu_potra(one, v, num_directions=4)[0], terms.phi[lowest]


def likelihood(params, data):
    """Minus the log likelihood, up to a constant, at noise of one unit."""
    found, gap = jax.vmap(impact, (None, 0, 0))(params, data["q"], data["v"])
    off = (found - data["after"]) / data["noise"][None, :6]
    return 0.5 * jnp.sum(off**2, axis=1) + 0.5 * ((gap - data["gap"]) / data["noise"][6]) ** 2


@pytest.fixture(scope="module")
def motions():
    rng = np.random.default_rng(3)
    quaternion = rng.normal(size=(40, 4))
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    q = np.concatenate([np.zeros((40, 2)), np.full((40, 1), 0.08), quaternion], axis=1)
    v = np.concatenate([rng.normal(size=(40, 2)), np.full((40, 1), -2.0), rng.normal(size=(40, 3))], axis=1)
    noise = np.array([0.01] * 3 + [0.2] * 3 + [1e-3])
    outcome = jax.jit(jax.vmap(impact, (None, 0, 0)))
    after, gap = outcome(TRUTH, jnp.asarray(q), jnp.asarray(v))
    after = np.asarray(after) + noise[:6] * rng.normal(size=(40, 6))
    gap = np.asarray(gap) + noise[6] * rng.normal(size=40)
    return jax.tree.map(jnp.asarray, {"q": q, "v": v, "after": after, "gap": gap, "noise": noise})


BOUNDS = {"friction": (0.01, 2.0), "side": (0.05, 0.2)}


@pytest.mark.slow
def test_friction_and_side_are_found_within_their_intervals(motions):
    found, info = jc.optimize.identify(likelihood, {"friction": 0.1, "side": 0.12}, motions, bounds=BOUNDS)
    assert info.status == 0 and info.score < info.start and not info.at_bound.any()
    for name, truth in TRUTH.items():
        half = 0.5 * (info.upper[name] - info.lower[name])
        assert abs(found[name] - truth) < 1.5 * half  # three standard deviations
        assert half < 0.05 * truth


@pytest.mark.slow
def test_weights_leave_motions_out_and_groups_widen_the_interval(motions):
    start, score = {"friction": 0.2, "side": 0.1}, likelihood
    half = np.arange(40) < 20
    doubled = jax.tree.map(lambda leaf: leaf if leaf.shape == (7,) else leaf[np.r_[0:20, 0:20]], motions)
    weighted, alone = jc.optimize.identify(score, start, motions, bounds=BOUNDS, weights=half)
    twice, grouped = jc.optimize.identify(score, start, doubled, bounds=BOUNDS, groups=np.r_[0:20, 0:20])
    _, blind = jc.optimize.identify(score, start, doubled, bounds=BOUNDS)
    for name in start:
        assert abs(weighted[name] - twice[name]) < 1e-5
    np.testing.assert_allclose(grouped.covariance, alone.covariance, rtol=1e-4)
    np.testing.assert_allclose(blind.covariance, 0.5 * alone.covariance, rtol=1e-4)


def quadratic(params, data):
    off = (jnp.stack([params["a"], params["b"]])[None] - data) / jnp.array([[1e-4, 1e3]])
    return jnp.sum(off**2, axis=1)


def test_the_covariance_of_a_mean_is_the_known_one_and_a_bound_holds():
    data = np.random.default_rng(0).normal(size=(50, 2)) * [1e-4, 1e3] + [2e-4, -1e3]
    found, info = jc.optimize.identify(quadratic, {"a": 1e-4, "b": 10.0}, jnp.asarray(data))
    np.testing.assert_allclose([found["a"], found["b"]], data.mean(axis=0), rtol=1e-4)
    held, at = jc.optimize.identify(
        quadratic, {"a": 6e-4, "b": 10.0}, jnp.asarray(data), bounds={"a": (5e-4, 2e-3), "b": (-2e3, 2e3)}
    )
    assert held["a"] == 5e-4 and list(at.at_bound) == [True, False]
    assert at.covariance[0, 0] == 0.0
    spread = np.cov(data[:, 1], bias=True) / 50
    assert at.covariance[1, 1] == pytest.approx(spread, rel=1e-6)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"bounds": {"a": (2.0, 3.0), "b": (0.0, 1.0)}}, "bounds: expected"),
        ({"bounds": {"a": 1.0, "b": (0.0, 1.0)}}, "bounds: expected"),
        ({"weights": np.ones(3)}, "weights: expected shape"),
        ({"weights": np.zeros(5)}, "weights: expected finite"),
        ({"groups": np.zeros(3, int)}, "groups: expected shape"),
        ({"params0": {"a": np.nan, "b": 0.5}}, "params0: expected"),
        ({"params0": {}}, "params0: expected"),
        ({"data": np.full((5, 2), np.nan)}, "score: expected finite"),
    ],
)
def test_bad_input_is_named(change, words):
    given = {"params0": {"a": 1.0, "b": 0.5}, "data": np.ones((5, 2))} | change
    with pytest.raises(ValueError, match=words):
        jc.optimize.identify(quadratic, **given)


@pytest.mark.parametrize("change", [{"max_steps": 0}, {"tol": -1.0}, {"largest": np.nan}])
def test_bad_settings_of_the_search_are_named(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))}: expected"):
        jc.optimize.SearchSettings(**change)


def test_a_score_that_is_no_function():
    with pytest.raises(TypeError, match="score: expected a function"):
        jc.optimize.identify(3.0, {"a": 1.0}, np.ones(2))


def distance(params, data):
    return jnp.abs(params["centre"] - data)


def test_a_wide_curvature_step_sees_the_kinks_of_a_score(rng):
    """The median of n normal numbers has variance pi / (2 n); between two kinks its score has no curvature."""
    data, start = jnp.asarray(1.0 + rng.normal(size=2000)), {"centre": 0.9}
    narrow = jc.optimize.identify(
        distance, start, data, search=jc.optimize.SearchSettings(curvature_step=1e-9)
    )[1]
    wide = jc.optimize.identify(distance, start, data, search=jc.optimize.SearchSettings(curvature_step=0.2))[
        1
    ]
    assert np.isnan(narrow.covariance).all()
    assert wide.covariance[0, 0] == pytest.approx(np.pi / 2 / 2000, rel=0.1)
    assert narrow.status & int(jc.Status.SINGULAR) and wide.status == 0
    few_kinks = jc.optimize.identify(
        distance, start, data, search=jc.optimize.SearchSettings(curvature_step=1e-3)
    )[1]
    assert few_kinks.status == int(jc.Status.KINK)


def test_a_derivative_that_is_not_finite_ends_the_search_at_the_start_and_leaves_no_covariance():
    def kinked(params, data):
        return jnp.sqrt((params["x"] - 1.0) ** 2) + data

    found, info = jc.optimize.identify(kinked, {"x": 1.0}, jnp.zeros(3))
    assert found["x"] == 1.0 and info.status & int(jc.Status.NONFINITE) and info.num_iters == 0
    assert np.isnan(info.covariance).all()
    # Of several starts it is passed over.
    starts = jc.optimize.SearchSettings(starts={"x": jnp.array([3.0])})
    found, info = jc.optimize.identify(
        lambda p, d: kinked(p, d) + p["x"] ** 2, {"x": 1.0}, jnp.zeros(3), search=starts
    )
    assert found["x"] == pytest.approx(0.5) and info.status == 0
    assert info.statuses[0] & int(jc.Status.NONFINITE) and info.statuses[1] == 0

    def rough(params, data):  # without a derivative between its start and its minimum
        x = params["x"]
        nowhere = jnp.where((jnp.abs(x) > 1e-5) & (jnp.abs(x) < 0.5), jnp.sqrt(x - x), 0.0)
        return data + x**2 + jnp.sum(params["y"] ** 2) + nowhere

    info = jc.optimize.identify(rough, {"x": 1.0, "y": jnp.zeros(4)}, jnp.zeros(3))[1]
    assert np.all(np.isnan(info.covariance))


def rosenbrock(params, data):
    return (1 - params["a"]) ** 2 + 100 * (params["b"] - params["a"] ** 2) ** 2 + 0 * data


NORMAL = np.random.default_rng(0).normal(1.0, 0.1, 50)
MEAN = float(NORMAL.mean())
FAR_STARTS = {
    "two scales": (
        lambda p, d: (p["a"] - d) ** 2 + 1e8 * (p["b"] - 3.0) ** 2, {"a": 5.0, "b": 300.0}, (MEAN, 3.0)
    ),
    "a curved valley": (rosenbrock, {"a": -120.0, "b": 1000.0}, (1.0, 1.0)),
    "a large score": (lambda p, d: (p["a"] - d) ** 2, {"a": 1e8}, (MEAN,)),
    "zero for a large number": (
        lambda p, d: (1e-8 * p["a"] - d) ** 2 + (p["b"] - 2.0) ** 2, {"a": 0.0, "b": 1.0}, (1e8 * MEAN, 2.0)
    ),
    "zero for a small number": (lambda p, d: (1e8 * p["a"] - d) ** 2, {"a": 0.0}, (1e-8 * MEAN,)),
}  # fmt: skip


@pytest.mark.parametrize("case", FAR_STARTS)
def test_far_starts_and_other_scales_reach_the_minimum(case):
    score, start, expected = FAR_STARTS[case]
    found, info = jc.optimize.identify(score, start, jnp.asarray(NORMAL))
    assert info.status == 0 and info.slope <= 1e-6 * abs(info.score)
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-5)
    for name, value in zip(found, expected, strict=True):
        assert info.lower[name] - 1e-9 * abs(value) <= value <= info.upper[name] + 1e-9 * abs(value)


def test_the_edge_of_a_score_that_is_not_finite_beyond_is_no_minimum():
    def edge(p, d):
        return jnp.where(p["a"] < 2.0, jnp.sqrt(p["a"] - 1.5) + 0.29, (p["a"] - 1) ** 2) + 0 * d

    found, info = jc.optimize.identify(edge, {"a": 3.0}, jnp.asarray(NORMAL))
    assert found["a"] == pytest.approx(1.5, abs=1e-6)  # the search gets there past points that are not finite
    assert info.status & int(jc.Status.STALLED)


def test_a_bound_that_pushes_inwards_does_not_hold():
    score, bounds = FAR_STARTS["a large score"][0], {"a": (0.5, 3.0)}
    found, info = jc.optimize.identify(score, {"a": 0.5}, jnp.asarray(NORMAL), bounds=bounds)
    assert info.status == 0 and not info.at_bound.any()
    assert found["a"] == pytest.approx(MEAN, rel=1e-6)


def test_a_minimum_at_a_kink_is_noted_and_reached():
    """|a - 1| + (b - 2)^2 + (a - b - d)^2 / 10 with mean d: at a = 1, b = (4.2 - mean / 5) / 2.2."""

    def kinked(p, d):
        return jnp.abs(p["a"] - 1) + (p["b"] - 2) ** 2 + 0.1 * (p["a"] - p["b"] - d) ** 2

    found, info = jc.optimize.identify(kinked, {"a": 3.0, "b": 0.1}, jnp.asarray(NORMAL))
    assert info.status == int(jc.Status.KINK)
    assert found["a"] == pytest.approx(1.0, abs=1e-9)
    assert found["b"] == pytest.approx((4.2 - 0.2 * MEAN) / 2.2, abs=1e-5)
    assert info.lower["a"] <= 1.0 <= info.upper["a"]


def test_a_wrong_minimum_is_named_and_another_start_leaves_it():
    """(a^2 - 1)^2 + a / 2 has two minima, the better one below zero."""

    def valleys(p, d):
        return (p["a"] ** 2 - 1.0) ** 2 + 0.5 * p["a"] + 1.0 + 0.0 * d

    _, alone = jc.optimize.identify(
        valleys, {"a": 1.2}, jnp.asarray(NORMAL), search=jc.optimize.SearchSettings(largest=1.0)
    )
    assert alone.status & int(jc.Status.INACCURATE) and alone.score > 1.4
    found, info = jc.optimize.identify(
        valleys,
        {"a": 1.2},
        jnp.asarray(NORMAL),
        search=jc.optimize.SearchSettings(largest=1.0, starts={"a": jnp.array([0.9, -0.5])}),
    )
    assert found["a"] < -0.9 and not info.status & int(jc.Status.INACCURATE)
    np.testing.assert_allclose(info.ends[:, 0], [alone.ends[0, 0], alone.ends[0, 0], found["a"]], rtol=1e-3)
    assert info.scores[0] == alone.score and info.statuses[0] == alone.status


@pytest.mark.parametrize(
    "starts", [{"a": 1.0}, {"a": jnp.ones((2, 2))}, {"a": jnp.ones(0)}, {"b": jnp.ones(2)}]
)
def test_starts_of_another_shape_are_named(starts):
    with pytest.raises(ValueError, match="starts: expected"):
        jc.optimize.identify(
            FAR_STARTS["a large score"][0],
            {"a": 1.0},
            jnp.asarray(NORMAL),
            search=jc.optimize.SearchSettings(starts=starts),
        )


def test_parameters_that_the_scores_do_not_tell_apart_are_singular():
    score = FAR_STARTS["a large score"][0]
    _, info = jc.optimize.identify(
        lambda p, d: score({"a": p["a"] + p["b"]}, d), {"a": 1.5, "b": 2.0}, jnp.asarray(NORMAL)
    )
    assert info.status == int(jc.Status.SINGULAR) and np.isnan(info.covariance).all()


TIMES = jnp.linspace(0.0, 9.0, 40)


def swing_score(params, data):
    return (params["amplitude"] * jnp.sin(params["rate"] * TIMES) - data) ** 2


def test_a_wrong_minimum_of_a_single_start_has_a_lower_score_beside_it():
    """The rate of a swing has a minimum for each number of periods; most starts miss the right one."""
    noise = np.random.default_rng(0).normal(size=40)
    data = jnp.sin(TIMES) + 0.05 * noise
    for rate in (0.8, 1.1, 1.7, 2.0, 3.0):
        start = {"amplitude": 0.7, "rate": rate}
        found, info = jc.optimize.identify(swing_score, start, data)
        if rate < 1.5:
            assert (
                info.status == 0 and info.lower_at is None and found["rate"] == pytest.approx(1.0, abs=0.01)
            )
            accepted = jc.optimize.SearchSettings(largest=1.0)  # asks for no look elsewhere
            alone = jc.optimize.identify(swing_score, start, data, search=accepted)[1]
            assert info.evaluations <= alone.evaluations + 60
            np.testing.assert_array_equal(alone.ends, info.ends)
        else:
            assert info.status & int(jc.Status.INACCURATE)
            assert float(jnp.mean(swing_score(info.lower_at, data))) < info.score
            more = jc.optimize.SearchSettings(
                starts={"amplitude": jnp.array([0.7]), "rate": jnp.array([1.1])}
            )
            again, info = jc.optimize.identify(swing_score, start, data, search=more)
            assert info.status == 0 and float(again["rate"]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("seed", [3, 49])
def test_data_without_noise_have_no_lower_score_beside_the_minimum(seed):
    """A probe may come an eps nearer to the minimum than the search, beyond intervals of no width."""
    rng, times = np.random.default_rng(seed), jnp.linspace(0.0, 1.0, 20)[None]
    slope = rng.uniform(0.5, 2.0)
    data = {"y": jnp.tile(slope * times, (4, 1)), "size": jnp.full(4, 10.0 ** rng.uniform(-6.0, 6.0))}

    def score(params, data):
        return data["size"] * jnp.mean((params["slope"] * times - data["y"]) ** 2, axis=1)

    info = jc.optimize.identify(score, {"slope": slope * rng.uniform(0.4, 2.0)}, data)[1]
    assert info.lower_at is None and not info.status & int(jc.Status.INACCURATE)


def test_a_look_for_a_lower_score_stays_within_the_bounds_and_bears_failed_motions():
    """Two wells; the deeper one lies beyond points without a motion, or beyond the bounds."""

    def wells(params, data):
        x = params["x"]
        value = jnp.minimum((x - 1.0) ** 2 + 0.5, 10.0 * (x - 3.0) ** 2) + 0.01 * data
        return jnp.where((x > 1.5) & (x < 2.4), jnp.nan, value)

    data = jnp.asarray(np.random.default_rng(0).normal(size=9))
    found, info = jc.optimize.identify(wells, {"x": 0.7}, data)
    assert found["x"] == pytest.approx(1.0) and info.status & int(jc.Status.INACCURATE)
    assert 2.4 < float(info.lower_at["x"]) < 3.6
    info = jc.optimize.identify(wells, {"x": 0.7}, data, bounds={"x": (0.0, 2.0)})[1]
    assert info.lower_at is None and not info.status & int(jc.Status.INACCURATE)


def test_a_positive_parameter_by_its_logarithm_or_by_bounds_is_the_same():
    """The rate of a decay from a start ten times too large; both have one minimum, and intervals that agree."""
    times = jnp.linspace(0.1, 3.0, 60)
    data = jnp.exp(-0.7 * times) + 0.01 * np.random.default_rng(0).normal(size=60)

    def score(rate, data):
        return (jnp.exp(-rate * times) - data) ** 2

    by_log, log_info = jc.optimize.identify(
        lambda p, d: score(jnp.exp(p["log_rate"]), d), {"log_rate": jnp.log(7.0)}, data
    )
    by_bounds, info = jc.optimize.identify(
        lambda p, d: score(p["rate"], d), {"rate": 7.0}, data, bounds={"rate": (0.0, 10.0)}
    )
    assert log_info.status == info.status == 0 and not info.at_bound.any()
    assert float(jnp.exp(by_log["log_rate"])) == pytest.approx(float(by_bounds["rate"]), rel=1e-5)
    for side in ("lower", "upper"):
        end = float(jnp.exp(getattr(log_info, side)["log_rate"]))
        assert end == pytest.approx(float(getattr(info, side)["rate"]), rel=2e-3)
    assert float(info.lower["rate"]) < 0.7 < float(info.upper["rate"])

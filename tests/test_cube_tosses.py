"""The tracked cube: flights, impacts and scores on made data and on twenty tosses; the whole run is slow."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw

from benchmarks.cube_tosses import __main__ as command
from benchmarks.cube_tosses import geometry, impacts, laws, orders, report, scores, smoother, tosses
from jaxcontact.algebra import rotations

NOISE = np.array([5e-5] * 3 + [6e-4] * 3)


@pytest.fixture(scope="module", autouse=True)
def _ranks_as_in_numpy():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def noise():
    return impacts.pose_noise(tosses.load())


@pytest.fixture(scope="module")
def twenty():
    return tosses.load(limit=20)


@functools.partial(jax.jit, static_argnums=1)
def spun(rate, rows):
    start = jnp.array([0.5, -0.5, 0.1, 0.7]) / 1.0
    time = (jnp.arange(rows) - rows // 2) * tosses.DT
    q = jax.vmap(lambda t: rotations.quaternion_product(start, rotations.quaternion_exp(rate * t)))(time)
    return q / jnp.linalg.norm(q, axis=1, keepdims=True), time


def flight(v, rows):
    """Poses (rows, 7) and times about the middle of a flight with the velocity v (6,) at time zero."""
    q, time = (np.asarray(x) for x in spun(jnp.asarray(v[3:]), rows))
    p = np.array([0.1, 0.2, 0.3]) + v[:3] * time[:, None] + 0.5 * smoother.FALL * time[:, None] ** 2
    return np.concatenate([p, q], axis=1), time


def many(q, time):
    return np.tile(q, (400, 1, 1)), np.tile(time, (400, 1))


@pytest.mark.slow
def test_a_flight_without_noise_is_found_exactly_and_moved_along_itself():
    v = np.array([1.0, -0.5, 0.7, 9.0, -4.0, 12.0])
    q, time = flight(v, 8)
    found = smoother.fit(*many(q, time), np.ones((400, 8), bool), NOISE)
    np.testing.assert_allclose(found.v[0], v, rtol=1e-9)
    assert found.misfit[0] < 1e-12 and found.freedom[0] == 36
    later = smoother.moved(found, np.full(400, time[-1]))
    np.testing.assert_allclose(later.position[0], q[-1, :3], atol=1e-12)
    np.testing.assert_allclose(abs(later.quaternion[0] @ q[-1, 3:]), 1.0, atol=1e-12)


@pytest.mark.slow
def test_the_covariance_of_velocities_is_that_of_repeated_noise():
    v, rng = np.array([1.0, -0.5, 0.7, 9.0, -4.0, 12.0]), np.random.default_rng(1)
    q, time = many(*flight(v, 8))
    q[..., :3] += NOISE[:3] * rng.normal(size=(400, 8, 3))
    turned = smoother.turned(q[..., 3:].reshape(-1, 4), NOISE[3:] * rng.normal(size=(3200, 3)))
    q[..., 3:] = turned.reshape(400, 8, 4)
    found = smoother.fit(q, time, np.ones(time.shape, bool), NOISE)
    found = smoother.moved(found, np.full(400, 0.01))
    off = found.v - v - np.concatenate([smoother.FALL * 0.01, np.zeros(3)])
    square = np.einsum("ni,nij,nj->n", off, np.linalg.inv(found.covariance[:, 6:, 6:]), off)
    assert square.mean() == pytest.approx(6.0, abs=4 * np.sqrt(12.0 / 400))
    assert (found.misfit / found.freedom).mean() == pytest.approx(1.0, abs=0.05)


def test_the_shipped_file_is_whole_and_others_are_checked(tmp_path):
    whole = tosses.load()
    assert len(whole) == 350 and len(whole.q) == 37231
    with np.load(tosses.SHIPPED) as file:
        arrays = dict(file)
    for change, words in (
        ({"length": arrays["length"] - 1}, "length: expected"),
        ({"state": arrays["state"][:, :12]}, "state: expected finite"),
        ({"state": 2 * arrays["state"]}, "unit quaternions"),
    ):
        np.savez(tmp_path / "bad.npz", **(arrays | change))
        with pytest.raises(ValueError, match=words):
            tosses.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", state=arrays["state"])
    with pytest.raises(ValueError, match="lacks"):
        tosses.load(tmp_path / "bad.npz")


@pytest.mark.long
def test_impacts_of_twenty_tosses_happen_at_the_board_and_lose_energy(twenty, noise):
    assert np.all(noise[:3] < 2e-4) and np.all(noise[3:] < 2e-3)
    found, left = impacts.candidates(twenty, noise)
    kept, counted = impacts.clean(found, left, geometry.Geometry())
    assert len(kept.toss) >= 20
    assert sum(counted.values()) + len(kept.toss) == sum(left.values()) + len(found.toss)
    ratio = (impacts.speed(kept.after) / impacts.speed(kept.before)) ** 2
    assert np.all(ratio < 1.1) and 0.2 < np.median(ratio) < 0.9
    assert np.all((kept.time >= 0) & (kept.time <= (kept.ends - kept.row) * tosses.DT))


def test_folds_are_equal_and_of_whole_tosses():
    part = tosses.folds(351, 2)
    assert sorted(np.bincount(part)) == [175, 176]


def test_the_energy_score_of_normal_samples_is_least_at_the_truth_and_of_one_sample_its_distance():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(1000, 1))
    mean = {
        s: float(np.mean(scores.energy_score(s * rng.normal(size=(1000, 32, 1)), truth))) for s in (0.5, 1, 2)
    }
    assert mean[1] == pytest.approx(1 / np.sqrt(np.pi), abs=0.05) and mean[1] < min(mean[0.5], mean[2])
    one = scores.energy_score(np.ones((1, 1, 3)), np.zeros((1, 3)))
    assert float(one[0]) == pytest.approx(np.sqrt(3.0))


def test_the_bootstrap_draws_tosses_whole():
    values, toss = np.repeat([0.0, 1.0, 2.0, 3.0], 50), np.repeat(np.arange(4), 50)
    mean, low, high = scores.interval(values, toss)
    assert mean == 1.5 and low < 0.6 and high > 2.4  # two hundred values, but four tosses
    ranks = scores.ranks(np.random.default_rng(0).normal(size=(500, 64, 2)), np.zeros((500, 2)))
    assert ranks.mean() < 0.1


def test_the_section_of_a_page_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.replace_section(page, "new")
    report.replace_section(page, "newer")
    assert page.read_text() == f"before\n{report.BEGIN}\n\nnewer\n\n{report.END}\nafter\n"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="expected the marks"):
        report.replace_section(page, "new")


@pytest.mark.slow
def test_a_density_of_the_fit_is_one_of_the_sampler(twenty, noise):
    found = impacts.clean(*impacts.candidates(twenty, noise), geometry.Geometry())[0]
    cases = laws.cases_of(found, geometry.Geometry())
    i = int(np.argmax(cases.several))
    terms = jax.tree.map(lambda leaf: leaf[i], cases.terms).replace(mu=jnp.full(2, 0.2))
    settings = {"impulse_step": laws.STEP * float(cases.stop[i]), "max_steps": laws.STEPS, "restitution": 0.3}
    drawn = {
        power: draw(
            terms,
            cases.v[i],
            num_samples=256,
            selection="lemke",
            density=laws.PowerDensity(*power),
            **settings,
        )
        for power in ((0.2, 3.0), (3.0, 0.2))
    }
    share = {k: np.asarray(s.impulse)[:, 0, 0].mean() for k, s in drawn.items()}
    assert share[0.2, 3.0] > share[3.0, 0.2]


@pytest.mark.slow
def test_the_command_scores_another_file(tmp_path):
    out = tmp_path / "out.json"
    given = ["--data", str(tosses.SHIPPED), "--tosses", "20", "--json", str(out), "--pictures", str(tmp_path)]
    assert command.main(given) == 0
    found = json.loads(out.read_text())
    assert found["score"]["restitution"]["one corner"][0] < found["score"]["simultaneous"]["one corner"][0]
    assert {"set", "density", "compliant"} <= set(found["score"])
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_densities_over_orders_are_uniform_or_shares_where_they_should_be():
    rng = np.random.default_rng(0)
    uniform = jnp.asarray(rng.uniform(size=(5, 3, laws.STEPS, 2)))
    features = orders.Features(jnp.asarray(rng.uniform(size=5)), jnp.asarray(rng.uniform(-1, 1, 5)))
    powers, lasting = orders.DENSITIES["powers"].fractions, orders.DENSITIES["lasting"].fractions
    np.testing.assert_allclose(powers(orders.ZEROS, uniform, features), uniform, rtol=1e-12)
    deep = orders.ZEROS | {"depth": 2.0}
    assert np.all(powers(deep, uniform, features)[..., 1] < uniform[..., 1])  # the higher corner comes later
    np.testing.assert_array_equal(powers(deep, uniform, features)[..., 0], uniform[..., 0])
    shares = np.asarray(lasting(deep, uniform, features))
    np.testing.assert_allclose(shares.sum(axis=-1), 1.0, rtol=1e-12)
    assert np.all(shares == shares[:, :, :1]) and np.all((shares >= 0) & (shares <= 1))
    flat = np.asarray(lasting(orders.ZEROS, uniform, features))
    np.testing.assert_allclose(flat[..., 0, 0], uniform[:, :, 0, 0], rtol=1e-9)

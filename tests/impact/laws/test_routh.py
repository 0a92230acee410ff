"""One step of the set-valued law, all its solutions, and whole samples with given draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference as ref

import jaxcontact as jc
from jaxcontact.impact import RouthStep, outcomes, resolve, routh_step

MASS = 2.0


def model(name):
    found = getattr(jc.models, name)()
    terms = jc.contact_terms(found, found.initial_state())
    return terms, found.initial_state().v, found


def point(mu, dim=2):
    """A point mass over the floor; the last coordinate is the height."""
    unit = jnp.eye(dim)
    return jc.ContactTerms(
        M=MASS * unit,
        J_n=unit[-1:],
        J_t=unit[None, :-1],
        phi=jnp.zeros(1),
        mu=jnp.array([float(mu)]),
        active=jnp.ones(1, bool),
    )


@pytest.fixture(scope="module")
def gait():
    """The compass gait: three solutions of a step, in which the trailing foot lifts, slides or rests."""
    return model("compass_gait")


@pytest.fixture(scope="module")
def draws():
    """Caps (40, 5, 2) and picks (40, 5) for the compass gait."""
    rng = np.random.default_rng(5)
    return jnp.asarray(0.25 * rng.random((40, 5, 2))), jnp.asarray(rng.random((40, 5)))


def approaches(terms, v):
    return bool(np.min(np.asarray(terms.J_n) @ np.asarray(v)) < -1e-8)


# --- one contact


@pytest.mark.long
@pytest.mark.parametrize("selection", ["all", "lemke"])
@pytest.mark.parametrize(
    ("v", "mu", "cap", "expected"),
    [
        ((0.2, -1.0), 0.5, 1.0, (0.0, -0.5)),  # half of the impulse, enough friction to stick
        ((0.5, -1.0), 0.5, 1.0, (0.25, -0.5)),  # slides: mu cap / m
        ((-0.5, -1.0), 0.5, 1.0, (-0.25, -0.5)),
        ((0.5, -1.0), 0.0, 1.0, (0.5, -0.5)),
        ((0.5, -1.0), 0.3, 7.0, (0.2, 0.0)),  # the cap is not reached
        ((0.5, -1.0), 0.3, 2.0, (0.2, 0.0)),  # reached exactly
        ((0.5, -1.0), 0.3, 0.0, (0.5, -1.0)),
        ((0.5, 1.0), 0.3, 1.0, (0.5, 1.0)),  # separates
        ((0.5, 0.0), 0.3, 1.0, (0.5, 0.0)),
        ((0.5, -1.0), 1e5, 1.0, (0.0, -0.5)),
    ],
)
def test_point_mass(v, mu, cap, expected, selection):
    terms, v = point(mu), jnp.array(v)
    v_next, info = routh_step(terms, v, jnp.array([cap]), selection=selection)
    np.testing.assert_allclose(v_next, expected, rtol=0, atol=1e-14)
    impulse = MASS * (np.array(expected) - np.asarray(v))
    np.testing.assert_allclose(info.impulse, [impulse[::-1]], rtol=0, atol=1e-13)
    assert int(info.status) == 0
    assert float(info.residual) < 1e-13
    assert int(info.num_iters) == 1
    assert bool(info.complete) is (selection == "all")
    assert float(info.energy_ratio) == pytest.approx(np.dot(expected, expected) / np.dot(v, v), abs=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("selection", ["all", "lemke"])
def test_at_rest_nothing_happens(selection):
    v_next, info = routh_step(point(0.5), jnp.zeros(2), jnp.ones(1), selection=selection)
    assert np.array_equal(v_next, np.zeros(2))
    assert int(info.status) == 0
    assert float(info.energy_ratio) == 1.0


@jax.jit
def steps_in_space(terms, v, caps):
    """One program for 48 lanes of velocities (48, 3) and caps (48, 1)."""
    step = jax.vmap(lambda v, cap: routh_step(terms, v, cap, selection="lemke"))
    return step(v, caps)


@pytest.mark.slow
def test_step_in_space():
    """Friction takes mu cap / m off the speed along a corner of the polygon, up to sticking."""
    angle = 2 * np.pi * np.arange(48) / 8
    v = jnp.asarray(np.stack([np.cos(angle), np.sin(angle), -1 + 0 * angle], axis=1))
    for mu, cap, left in ((0.3, 0.5, 0.925), (1.0, 1.0, 0.5), (5.0, 1.0, 0.0)):
        v_next, info = steps_in_space(point(mu, 3), v, jnp.full((48, 1), cap, float))
        expected = np.asarray(v) * [left, left, 1 - cap / MASS]
        np.testing.assert_allclose(v_next, expected, rtol=0, atol=1e-13)
        assert not np.any(info.status)
        np.testing.assert_allclose(info.impulse[:, 0, 0], cap, rtol=1e-13)


@pytest.mark.slow
def test_step_in_space_with_a_cap_just_below_the_need():
    """2 N s would stop it; within a part in 200 of that the cap still binds."""
    caps = MASS - jnp.logspace(-7, -1, 48)[:, None]
    v_next, info = steps_in_space(point(0.3, 3), jnp.tile(jnp.array([1.0, 0.0, -1.0]), (48, 1)), caps)
    assert not np.any(info.status)
    np.testing.assert_allclose(v_next[:, 2], caps[:, 0] / MASS - 1.0, rtol=0, atol=1e-9)


@pytest.mark.long
def test_resolve_in_space_ends_after_enough_impulse():
    caps = jnp.full((5, 1), 0.6)
    v = jnp.array([1.0, 0.0, -1.0])
    v_plus, info = resolve(point(0.3, 3), v, caps, jnp.zeros(5), selection="lemke")
    np.testing.assert_allclose(v_plus, [0.7, 0.0, 0.0], atol=1e-13)
    assert (int(info.status), int(info.num_iters)) == (0, 4)  # 2 N s in portions of 0.6
    np.testing.assert_allclose(info.impulse, [[2.0, -0.6, 0.0]], atol=1e-13)


# --- limits of a step


@pytest.mark.long
def test_no_impulse_no_change(gait):
    terms, v, _ = gait
    v_next, info = routh_step(terms, v, jnp.zeros(2))
    np.testing.assert_allclose(v_next, v, rtol=0, atol=1e-15)
    assert not np.any(np.abs(info.impulse) > 1e-15)
    assert int(info.status) == 0


@pytest.mark.slow_cases("compass_gait")
@pytest.mark.parametrize("name", ["compass_gait", pytest.param("rocking_block", marks=pytest.mark.slow)])
def test_without_a_cap_the_solutions_are_those_of_the_simultaneous_law(name):
    terms, v, _ = model(name)
    expected, valid = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())[0]
    expected = np.asarray(expected)[np.asarray(valid)]
    found, valid = jc.impact.outcomes(terms, v, jc.impact.RouthStep(impulse_max=jnp.full(2, 1e3)))[0]
    found = np.asarray(found)[np.asarray(valid)]
    assert len(found) == len(expected)
    assert np.abs(found[:, None] - expected).max(axis=2).min(axis=1).max() < 1e-12
    for pick in (0.1, 0.5, 0.9):
        v_next, _ = routh_step(terms, v, jnp.full(2, 1e3), pick=pick)
        assert np.abs(expected - np.asarray(v_next)).max(axis=1).min() < 1e-12


# --- picks


@pytest.mark.slow
def test_picks_reach_every_solution_in_the_order_of_outcomes(gait):
    terms, v, _ = gait
    caps = jnp.asarray(0.25 * np.random.default_rng(0).random((50, 2)))
    solutions, valid = jax.vmap(
        lambda cap: jc.impact.outcomes(terms, v, jc.impact.RouthStep(impulse_max=cap))[0]
    )(caps)
    assert solutions.shape == (50, 49, 4)
    counts = np.asarray(valid).sum(axis=1)
    assert set(counts) == {1, 3}
    step = jax.jit(jax.vmap(lambda cap, pick: routh_step(terms, v, cap, pick=pick)[0]))
    for pick in (0.0, 0.2, 1 / 3 - 1e-9, 1 / 3 + 1e-9, 0.5, 2 / 3 + 1e-9, 1 - 1e-12):
        v_next = step(caps, jnp.full(50, pick))
        chosen = np.asarray(solutions)[np.arange(50), (pick * counts).astype(int)]
        np.testing.assert_allclose(v_next, chosen, rtol=0, atol=1e-12)
    for k in range(50):  # the valid ones come first
        assert np.asarray(valid)[k, : counts[k]].all()


@pytest.mark.long
def test_solutions_of_a_step_differ_and_obey_the_law(gait):
    terms, v, _ = gait
    cap = np.array([0.1, 0.2])
    solutions, valid = jc.impact.outcomes(terms, v, jc.impact.RouthStep(impulse_max=jnp.asarray(cap)))[0]
    M, J_n, J_t, mu = (np.asarray(a) for a in (terms.M, terms.J_n, terms.J_t[:, 0], terms.mu))
    seen = []
    for pick in (0.1, 0.5, 0.9):
        v_next, info = routh_step(terms, v, jnp.asarray(cap), pick=pick)
        lam = np.asarray(info.impulse)
        worst = ref.physical_residuals(
            M, J_n, J_t, mu, np.asarray(v), np.asarray(v_next), lam[:, 0], lam[:, 1], cap
        )
        assert max(worst.values()) < 1e-12
        seen.append(np.asarray(v_next))
    assert min(np.abs(a - b).max() for i, a in enumerate(seen) for b in seen[:i]) > 1e-3
    assert int(np.asarray(valid).sum()) == 3


# --- whole samples


@pytest.fixture(scope="module")
def resolved(gait, draws):
    terms, v, _ = gait
    return jax.jit(jax.vmap(lambda caps, picks: resolve(terms, v, caps, picks)))(*draws)


@pytest.mark.slow_cases("all")
@pytest.mark.parametrize("selection", ["all", pytest.param("lemke", marks=pytest.mark.slow)])
def test_resolve_is_a_chain_of_steps(gait, draws, resolved, selection):
    terms, v, _ = gait
    step = jax.jit(lambda v, cap, pick: routh_step(terms, v, cap, pick=pick, selection=selection))
    run = jax.jit(jax.vmap(lambda caps, picks: resolve(terms, v, caps, picks, selection=selection)))
    v_plus, info = resolved if selection == "all" else run(*draws)
    for i in range(15):
        now, impulse, count = v, np.zeros((2, 2)), 0
        while approaches(terms, now) and count < 5:
            now, one = step(now, draws[0][i, count], draws[1][i, count])
            impulse, count = impulse + np.asarray(one.impulse), count + 1
        np.testing.assert_allclose(v_plus[i], now, rtol=0, atol=1e-13)
        np.testing.assert_allclose(info.impulse[i], impulse, rtol=0, atol=1e-13)
        assert int(info.num_iters[i]) == count
        bit = int(jc.Status.UNTERMINATED) if approaches(terms, now) else 0
        assert int(info.status[i]) == bit
    assert np.all(info.complete == (selection == "all"))
    assert np.all(info.energy_ratio < 1.0)


@pytest.mark.long
def test_too_few_steps_are_unterminated(gait, draws):
    terms, v, _ = gait
    v_plus, info = resolve(terms, v, 0.01 * draws[0][0], draws[1][0])
    assert int(info.status) == int(jc.Status.UNTERMINATED)
    assert int(info.num_iters) == 5
    assert approaches(terms, v_plus)
    assert 0.0 < float(info.energy_ratio) < 1.0


def test_nothing_approaches_nothing_happens(gait, draws):
    terms, v, _ = gait
    away = v + jnp.linalg.solve(terms.M, terms.J_n[0] + terms.J_n[1]) * 2.0
    v_plus, info = resolve(terms, away, draws[0][0], draws[1][0])
    assert np.array_equal(v_plus, away)
    assert (int(info.status), int(info.num_iters), float(info.energy_ratio)) == (0, 0, 1.0)
    idle = terms.replace(active=jnp.zeros(2, bool))
    v_plus, info = resolve(idle, v, draws[0][0], draws[1][0])
    assert np.array_equal(v_plus, v)
    assert (int(info.status), int(info.num_iters)) == (0, 0)


def test_an_inactive_contact_takes_no_impulse(gait, draws):
    terms, v, _ = gait
    alone = terms.replace(active=jnp.array([True, False]))
    v_plus, info = resolve(alone, v, draws[0][0] + 0.2, draws[1][0])
    assert np.array_equal(info.impulse[1], np.zeros(2))
    planar = (np.asarray(a)[:1] for a in (terms.J_n, terms.J_t[:, 0], terms.mu))
    expected = ref.anitescu_potra_solutions(np.asarray(terms.M), *planar, np.asarray(v))[0]
    np.testing.assert_allclose(v_plus, expected[0], rtol=0, atol=1e-12)


# --- batches and errors


@pytest.mark.long
def test_a_loop_and_a_batch_agree(gait, draws, resolved):
    terms, v, _ = gait
    v_plus, info = resolved
    for i in range(40):
        one, single = resolve(terms, v, draws[0][i], draws[1][i])
        np.testing.assert_allclose(v_plus[i], one, rtol=0, atol=1e-13)
        np.testing.assert_allclose(info.impulse[i], single.impulse, rtol=0, atol=1e-13)
        assert int(info.status[i]) == int(single.status)
        assert int(info.num_iters[i]) == int(single.num_iters)


@pytest.mark.slow
def test_bad_numbers_set_bits_and_leave_the_velocity(gait, draws):
    terms, v, _ = gait
    caps, picks = draws[0][0], draws[1][0]
    run = jax.jit(resolve)
    for bit, args in {
        jc.Status.NONFINITE: (terms, v.at[0].set(jnp.inf), caps),
        jc.Status.INVALID: (terms.replace(mu=-terms.mu), v, caps),
        jc.Status.INVALID | 0: (terms, v, -caps),
        jc.Status.PENETRATION: (terms.replace(phi=terms.phi - 1.0), v, caps),
    }.items():
        v_plus, info = run(*args, picks)
        assert int(info.status) & int(bit)
        assert np.array_equal(v_plus, args[1])
        with pytest.raises(ValueError, match="v:|terms|impulse_max"):
            resolve(*args, picks)
    v_next, info = jax.jit(routh_step)(terms, v, jnp.array([jnp.nan, 0.1]))
    assert int(info.status) == int(jc.Status.NONFINITE)
    assert np.array_equal(v_next, v)
    (_, valid), _ = jax.jit(lambda cap: outcomes(terms, v, RouthStep(impulse_max=cap)))(-caps[0])
    assert not np.any(valid)


def six_contacts():
    unit = jnp.tile(jnp.eye(2)[None], (6, 1, 1))
    return jc.ContactTerms(
        M=jnp.eye(2),
        J_n=unit[:, 1],
        J_t=unit[:, :1],
        phi=jnp.zeros(6),
        mu=jnp.ones(6),
        active=jnp.ones(6, bool),
    )


def four_in_space():
    one = point(0.3, 3)
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 4), one).replace(M=one.M)


@pytest.mark.slow_cases("six", "space")
@pytest.mark.parametrize("terms", [four_in_space(), six_contacts()], ids=["space", "six"])
def test_what_is_not_enumerated_is_refused_with_an_alternative(terms):
    nc, nv = terms.J_n.shape
    v, caps, picks = jnp.zeros(nv), jnp.ones((2, nc)), jnp.zeros(2)
    message = r"spatial contacts|6 contacts"
    for call in (
        lambda: routh_step(terms, v, caps[0]),
        lambda: resolve(terms, v, caps, picks),
        lambda: jc.impact.sample(terms, v - 1, jc.impact.Routh(impulse_step=1.0, max_steps=2), num_samples=4),
        lambda: jc.impact.routh_path(terms, v, caps[0]),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert 'selection="lemke"' in str(caught.value)
        assert "leave contacts out" in str(caught.value)
    assert int(routh_step(terms, v - 1, caps[0], selection="lemke")[1].status) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, v: routh_step(t, v, jnp.ones(3)), r"impulse_max: expected shape \(2,\)"),
        (lambda t, v: routh_step(t, v, jnp.array([1.0, -1.0])), "impulse_max: expected finite numbers >= 0"),
        (
            lambda t, v: routh_step(t, v, jnp.ones(2), selection="visited"),
            "selection: expected one of all, lemke",
        ),
        (lambda t, v: resolve(t, v, jnp.ones(2), jnp.zeros(1)), r"impulse_max: expected shape \(N, nc\)"),
        (lambda t, v: resolve(t, v, jnp.ones((0, 2)), jnp.zeros(0)), "N >= 1"),
        (lambda t, v: resolve(t, v, jnp.ones((3, 2)), jnp.zeros(2)), r"pick: expected shape \(3,\)"),
    ],
)
def test_mistakes_are_named(gait, call, message):
    with pytest.raises(ValueError, match=message):
        call(*gait[:2])

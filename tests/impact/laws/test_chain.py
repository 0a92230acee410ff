"""Impacts of chains by stiffness ratios, against an independent integration with events."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc
from jaxcontact.impact import chain


def balls(masses):
    """Balls in line that touch; contact i is between balls i and i + 1."""
    n = len(masses)
    J_n = jnp.asarray(np.eye(n - 1, n, 1) - np.eye(n - 1, n))
    return jc.ContactTerms(
        M=jnp.diag(jnp.asarray(masses, float)), J_n=J_n, J_t=jnp.zeros((n - 1, 1, n)), phi=jnp.zeros(n - 1),
        mu=jnp.zeros(n - 1), active=jnp.ones(n - 1, bool),
    )  # fmt: skip


def by_springs(masses, stiffness, v):
    """Elastic springs between balls, that only push, until all have left."""
    masses, k = np.asarray(masses), np.asarray(stiffness)
    n = masses.size

    def rates(t, y):
        push = np.maximum(-k * np.diff(y[:n]), 0.0)
        return np.concatenate([y[n:], (np.append(0.0, push) - np.append(push, 0.0)) / masses])

    end = 20.0 / np.sqrt(k.min())
    y = solve_ivp(rates, (0, end), np.concatenate([np.zeros(n), v]), rtol=1e-10, atol=1e-12, max_step=0.02).y[
        :, -1
    ]
    return y[n:]


CASES = {
    "equal": ([1.0, 1.0, 1.0], [1.0, 1.0]),
    "a soft second contact": ([1.0, 1.0, 1.0], [1.0, 0.1]),
    "a stiff second contact": ([1.0, 1.0, 1.0], [1.0, 10.0]),
    "other masses": ([1.0, 2.0, 0.5], [1.0, 0.4]),
}


@pytest.mark.parametrize("case", CASES)
def test_elastic_chains_of_three(case):
    masses, stiffness = CASES[case]
    v = np.array([1.0, 0.0, 0.0])
    v_plus, info = chain(balls(masses), jnp.asarray(v), stiffness=jnp.asarray(stiffness))
    assert int(info.status) == 0 and float(info.energy_ratio) == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(v_plus, by_springs(masses, stiffness, v), atol=2e-5)
    heavy, _ = chain(
        balls(1e6 * np.array(masses)), 1e-3 * jnp.asarray(v), stiffness=1e9 * jnp.asarray(stiffness)
    )
    np.testing.assert_allclose(heavy, 1e-3 * v_plus, atol=1e-12)  # no units


def test_the_limit_of_a_soft_second_contact_is_newtons_cradle():
    terms, v = balls([1.0, 1.0, 1.0]), jnp.array([1.0, 0.0, 0.0])
    v_plus, info = chain(terms, v, stiffness=jnp.array([1.0, 0.01]))
    in_turn, _ = jc.impact.propagate(terms, v)
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, in_turn, atol=2e-3)


def test_restitution_of_one_contact_is_the_coefficient():
    for e in (0.1, 0.5, 0.9):
        v_plus, info = chain(balls([1.0, 3.0]), jnp.array([1.0, 0.0]), stiffness=2.0, restitution=e)
        assert int(info.status) == 0
        assert float(v_plus[1] - v_plus[0]) == pytest.approx(e, rel=1e-3)
        np.testing.assert_allclose(v_plus @ np.array([1.0, 3.0]), 1.0, rtol=1e-12)


@pytest.mark.long
def test_derivatives_by_stiffness_and_velocity():
    terms, h = balls([1.0, 1.0, 1.0]), 1e-2

    def after(ratio, speed):
        v = jnp.array([1.0, 0.0, 0.0]) * speed
        return chain(terms, v, stiffness=jnp.stack([1.0, ratio]), max_steps=2048)[0]

    by_ratio, by_speed = jax.jacfwd(after, (0, 1))(2.0, 1.0)
    ends = [by_springs(np.ones(3), np.array([1.0, 2.0 + d]), np.array([1.0, 0.0, 0.0])) for d in (h, -h)]
    np.testing.assert_allclose(by_ratio, (ends[0] - ends[1]) / (2 * h), atol=2e-3)
    np.testing.assert_allclose(by_speed, after(2.0, 1.0), rtol=1e-9)
    np.testing.assert_allclose(jax.jacrev(after)(2.0, 1.0), by_ratio, rtol=1e-9)


def test_bad_numbers_are_named():
    terms, v = balls([1.0, 1.0, 1.0]), jnp.array([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="stiffness: expected a finite number > 0"):
        chain(terms, v, stiffness=-1.0)
    with pytest.raises(ValueError, match=r"stiffness: expected shape \(\) or \(2,\)"):
        chain(terms, v, stiffness=jnp.ones(3))
    with pytest.raises(ValueError, match=r"restitution: expected numbers in 0.1..1"):
        chain(terms, v, stiffness=1.0, restitution=0.05)
    _, info = chain(terms, v, stiffness=1.0, max_steps=50)
    assert int(info.status) == int(jc.Status.UNTERMINATED)
    status = jax.jit(lambda k: chain(terms, v, stiffness=k, max_steps=50)[1].status)(-1.0)
    assert int(status) & int(jc.Status.INVALID)


@pytest.mark.long
@pytest.mark.parametrize("mass", [1e-6, 1.0, 1e6])
def test_springs_at_rest_push_if_the_direction_presses_them(mass, rng):
    """All at rest, and one at rest beside one that strikes and does not move it: by the law of the direction."""
    law = jc.impact.Chain(stiffness=jnp.array([1.0, 0.3, 2.0]), restitution=0.6, corner="one_sided")
    smooth = law.replace(corner="smooth")
    rows = jnp.array([[1.0, 0.0, 0.2, 0.0], [-0.8, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    terms = jc.ContactTerms(
        M=mass * jnp.diag(jnp.arange(1.0, 5.0)),
        J_n=rows,
        J_t=jnp.zeros((3, 1, 4)),
        phi=jnp.zeros(3),
        mu=jnp.zeros(3),
        active=jnp.ones(3, bool),
    )
    directions = jnp.asarray(rng.normal(size=(40, 4)))

    def rates(v):
        return jax.jit(jax.vmap(lambda d: jax.jvp(lambda v: law(terms, v), (v,), (d,))))(directions)

    (_, info), (exact, _) = rates(jnp.zeros(4))
    assert not np.any(info.status)
    outcomes = jax.jit(jax.vmap(lambda d: smooth(terms, d)[0]))(directions)
    np.testing.assert_allclose(exact, outcomes, atol=1e-12)

    v = jnp.array([-1.0, 1.0, 0.0, 0.0])  # the third contact is alone
    (base, info), (exact, _) = rates(v)
    assert not np.any(info.status)
    np.testing.assert_allclose(base[0], smooth(terms, v)[0], atol=1e-12)
    moved = jax.jit(jax.vmap(lambda d: smooth(terms, v + 1e-7 * d)[0]))(directions)
    difference = (moved - base) / 1e-7
    np.testing.assert_allclose(exact, difference, atol=1e-6)
    linear = directions @ jax.jacfwd(lambda v: smooth(terms, v)[0])(v).T
    assert np.max(np.abs(linear - difference)) > 0.1  # one linear map would not do


@pytest.mark.long
def test_springs_whose_direction_does_not_end_have_no_number():
    law = jc.impact.Chain(stiffness=1.0, max_steps=80, corner="one_sided")
    terms = jc.ContactTerms(
        M=jnp.eye(1), J_n=jnp.ones((1, 1)), J_t=jnp.zeros((1, 1, 1)), phi=jnp.zeros(1), mu=jnp.zeros(1),
        active=jnp.ones(1, bool),
    )  # fmt: skip

    def rate(law, direction):
        return jax.jvp(lambda v: law(terms, v)[0], (jnp.zeros(1),), (jnp.array([direction]),))[1]

    assert rate(law, 1.0) == 1.0 and np.isnan(rate(law, -1.0))  # half a period has a hundred steps
    longer = law.replace(max_steps=120)
    np.testing.assert_allclose(rate(longer, -1.0), 1.0, rtol=1e-6)
    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.grad(lambda v: longer(terms, v)[0][0])(jnp.zeros(1))

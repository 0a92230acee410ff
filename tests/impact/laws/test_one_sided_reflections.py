"""Propagative impacts with `corner="one_sided"`: ties of an order, contacts at rest, mixtures, and jumps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

RULES = ["most_violated", "least_violated", (1, 0)]
CHAIN = np.array([[1.0, -0.5, 0.0], [-0.5, 1.0, -0.5], [0.0, -0.5, 1.0]])  # every order ends at one velocity
PAIR = np.array([[1.0, -0.3], [-0.3, 1.0]])  # the order matters


def make_impact(gram, rates, mass=1.0):
    """Contacts whose unit normals have the products `gram`, which approach at -rates along them."""
    rng = np.random.default_rng(0)
    nc, nv = len(gram), len(gram) + 1
    root = np.linalg.cholesky(mass * (np.eye(nv) + np.diag(np.arange(nv))))
    turn = np.linalg.qr(rng.normal(size=(nv, nv)))[0]
    unit = np.concatenate([np.linalg.cholesky(gram), np.zeros((nc, 1))], axis=1) @ turn
    rows = unit @ root.T * rng.uniform(0.5, 2.0, size=(nc, 1))
    terms = jc.ContactTerms(
        M=jnp.asarray(root @ root.T),
        J_n=jnp.asarray(rows),
        J_t=jnp.zeros((nc, 1, nv)),
        phi=jnp.zeros(nc),
        mu=jnp.zeros(nc),
        active=jnp.ones(nc, bool),
    )
    return terms, jnp.asarray(np.linalg.solve(root.T, np.linalg.pinv(unit) @ rates))


@jax.jit
def rates_and_differences(law, terms, v, directions, h):
    """The forward derivative by v and terms, one-sided differences of second order in h, the info."""
    base, info = law(terms, v)

    def one(direction, change_J, change_M):
        def end(h):
            moved = terms.replace(J_n=terms.J_n + h * change_J, M=terms.M + h * (change_M + change_M.T))
            return law(moved, v + h * direction)[0]

        exact = jax.jvp(end, (0.0,), (1.0,))[1]
        return exact, 4.0 * (end(0.5 * h) - base) / h - (end(h) - base) / h

    return base, info, *jax.vmap(one)(*directions)


def random_directions(terms, v, rng, number=40):
    mass = terms.M[0, 0]
    return (
        jnp.asarray(rng.normal(size=(number, *v.shape))) / jnp.sqrt(mass),
        jnp.asarray(0.1 * rng.normal(size=(number, *terms.J_n.shape))) * jnp.sqrt(mass),
        jnp.asarray(0.1 * rng.normal(size=(number, *terms.M.shape))) * mass,
    )


@pytest.mark.slow_cases("most_violated-1.0", "least_violated-1.0", "(1, 0)-1.0")
@pytest.mark.long
@pytest.mark.parametrize("restitution", [1.0, 0.5])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_ties_whose_orders_agree_follow_the_direction(rule, restitution, rng):
    """By v and terms; three contacts tie, or a tie follows the impact of another one."""
    law = jc.impact.Propagative(order=rule, restitution=restitution, corner="one_sided")
    for gram in (CHAIN, CHAIN[:2, :2], np.eye(2)):
        terms, v = make_impact(gram, -np.ones(len(gram)))
        if isinstance(rule, tuple):
            law = law.replace(order=tuple(range(len(gram)))[::-1])
        base, info, exact, difference = rates_and_differences(
            law, terms, v, random_directions(terms, v, rng), 1e-5
        )
        assert info.status == 0
        np.testing.assert_allclose(exact, difference, atol=1e-7)
        np.testing.assert_allclose(base, law.replace(corner="smooth")(terms, v)[0], atol=1e-14)
    # At right angles contacts that strike together share what each would do alone.
    smooth = jax.jacfwd(lambda v: law.replace(corner="smooth")(terms, v)[0])(v)
    directions = random_directions(terms, v, rng)[0]
    sided = jax.vmap(lambda d: jax.jvp(lambda v: law(terms, v)[0], (v,), (d,))[1])(directions)
    assert isinstance(rule, tuple) or np.max(np.abs(sided - directions @ smooth.T)) > 0.1


@pytest.mark.long
@pytest.mark.parametrize("mass", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_contacts_that_neither_approach_nor_separate_strike_if_the_direction_does(rule, mass, rng):
    """One of them at rest beside one that strikes, both at rest, and a body at rest."""
    for restitution in (1.0, 0.5):
        law = jc.impact.Propagative(order=rule, restitution=restitution, corner="one_sided")
        for rates in ((0.0, -1.0), (0.0, 0.0)):
            terms, v = make_impact(PAIR, np.array(rates), mass)
            moving = v + 0.3 * jnp.linalg.svd(terms.J_n)[2][-1] / np.sqrt(mass)
            for start in (moving, v):
                directions = random_directions(terms, v, rng)
                _, info, exact, difference = rates_and_differences(law, terms, start, directions, 1e-6)
                assert info.status == 0
                np.testing.assert_allclose(exact, difference, atol=1e-7 / np.sqrt(mass))


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES[:2])
def test_ties_whose_orders_end_elsewhere_have_a_note_and_no_number(rule, rng):
    law = jc.impact.Propagative(order=rule, corner="one_sided")
    for gram in (PAIR, PAIR * np.array([[1.0, -1.0], [-1.0, 1.0]])):
        terms, v = make_impact(gram, -np.ones(2))
        _, info, exact, difference = rates_and_differences(
            law, terms, v, random_directions(terms, v, rng), 1e-5
        )
        assert info.status == int(jc.Status.JUMP)
        assert np.all(np.isnan(exact)) and np.max(np.abs(difference)) > 1e3


@pytest.mark.long
def test_reflections_refuse_reverse_mode_and_glue_and_keep_to_their_lane(rng):
    law = jc.impact.Propagative(restitution=0.5, corner="one_sided")
    terms, v = make_impact(CHAIN, -np.ones(3))
    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.grad(lambda v: law(terms, v)[0][0])(v)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jvp(lambda x: jax.jvp(lambda v: law(terms, v)[0], (x,), (x,))[1], (v,), (v,))
    with pytest.raises(ValueError, match="corner: expected 'smooth' with unilateral=False"):
        jc.impact.propagate(terms, v, restitution=0.5, unilateral=False, corner="one_sided")
    lanes = jnp.stack([v, jnp.full_like(v, jnp.nan), v])
    rates = jax.vmap(lambda v: jax.jvp(lambda v: law(terms, v)[0], (v,), (jnp.ones_like(v),))[1])(lanes)
    np.testing.assert_array_equal(rates[0], rates[2])
    assert np.all(np.isfinite(rates[0]))

"""Impact laws with `corner="one_sided"`: their forward derivative at the border of modes, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import ContactTerms

MU = 0.4
SIDED = jc.impact.AnitescuPotra(corner="one_sided")
BOUNCING = jc.impact.Newton(restitution=0.5, corner="one_sided")


def make_impact(kinds, tangents, seed=0, mu=MU):
    """An impact that ends in given modes and borders of them: terms, v, v_plus."""
    rng = np.random.default_rng(seed)
    nc, nv = len(kinds), len(kinds) * (1 + tangents) + 1
    root = rng.normal(size=(nv, nv))
    mass, rows = root @ root.T / nv + np.eye(nv), rng.normal(size=(nc, 1 + tangents, nv))
    lam, u = np.zeros((2, nc, 1 + tangents))
    for c, kind in enumerate(kinds):
        way = rng.normal(size=tangents)
        way /= np.linalg.norm(way)
        load, friction, slip = {
            "opens": (0.0, 0.0, 1.0),
            "sticks": (1.0, 0.5, 0.0),
            "slides": (1.0, -1.0, 0.8),
            "sticks or slides": (1.0, 1.0, 0.0),
            "slides or opens": (0.0, 0.0, 0.8),
            "at rest": (0.0, 0.0, 0.0),
        }[kind]
        lam[c], u[c] = np.append(load, friction * mu * load * way), np.append(kind == "opens", slip * way)
    jacobian = rows.reshape(-1, nv)
    v_plus = np.linalg.lstsq(jacobian, u.ravel(), rcond=None)[0]
    v = v_plus - np.linalg.solve(mass, jacobian.T @ lam.ravel())
    return make_terms(mass, rows, mu), jnp.asarray(v), v_plus


def make_terms(mass, rows, mu):
    nc = rows.shape[0]
    return ContactTerms(
        M=jnp.asarray(mass),
        J_n=jnp.asarray(rows[:, 0]),
        J_t=jnp.asarray(rows[:, 1:]),
        phi=jnp.zeros(nc),
        mu=jnp.full(nc, mu),
        active=jnp.ones(nc, bool),
    )


def zero_change(terms):
    return jax.tree.map(
        lambda x: np.zeros(x.shape, jax.dtypes.float0) if x.dtype == bool else jnp.zeros_like(x), terms
    )


@jax.jit
def rates_and_differences(law, terms, v, changes, directions, h):
    """The forward derivative by directions of terms and v, and one-sided differences of second order in h."""
    base, info = law(terms, v)

    def one(change, direction):
        rates = zero_change(terms).replace(**change)
        exact = jax.jvp(lambda t, v: law(t, v)[0], (terms, v), (rates, direction))[1]

        def slope(h):
            moved = terms.replace(**{name: getattr(terms, name) + h * x for name, x in change.items()})
            return (law(moved, v + h * direction)[0] - base) / h

        coarse, fine = jax.vmap(slope)(jnp.stack([h, 0.5 * h]))
        return exact, 2.0 * fine - coarse

    return base, info.status, *jax.vmap(one)(changes, directions)


BORDERS = ["sticks or slides", "slides or opens", "at rest"]
CASES = [(a, "opens") for a in BORDERS] + [
    ("sticks or slides", "at rest"),
    ("slides or opens", "at rest"),
    ("slides", "sticks or slides"),
    ("sticks", "slides or opens"),
]


@pytest.mark.slow_cases("slides or opens and opens-2")
@pytest.mark.long
@pytest.mark.parametrize("tangents", [1, 2])
@pytest.mark.parametrize("kinds", CASES, ids=" and ".join)
def test_the_forward_derivative_is_the_one_sided_difference_in_a_thousand_directions(kinds, tangents, rng):
    terms, v, v_plus = make_impact(kinds, tangents)
    directions = jnp.asarray(rng.normal(size=(1000, v.shape[0])))
    base, status, exact, difference = rates_and_differences(SIDED, terms, v, {}, directions, 1e-5)
    assert status == 0
    np.testing.assert_allclose(base, v_plus, atol=1e-9)
    size = 1.0 + np.max(np.abs(difference), axis=1)
    error = np.max(np.abs(exact - difference), axis=1) / size
    assert np.quantile(error, 0.98) < 1e-5
    assert (
        np.max(error) < 5e-3
    )  # where a contact passes the tolerance of another border within the difference
    smooth = jax.jacfwd(lambda v: jc.impact.anitescu_potra(terms, v)[0])(v)
    assert np.max(np.abs(directions @ smooth.T - exact)) > 0.1  # one linear map would not do


@pytest.mark.slow_cases("inelastic")
@pytest.mark.long
@pytest.mark.parametrize("law", [SIDED, BOUNCING], ids=["inelastic", "bouncing"])
def test_terms_move_the_outcome_as_their_one_sided_differences_say(law, rng):
    for kinds in (("sticks or slides",), ("at rest",)):
        terms, v, _ = make_impact(kinds, 2, seed=1)
        changes = {
            name: jnp.asarray(0.1 * rng.normal(size=(100, *getattr(terms, name).shape)))
            for name in ("M", "J_n", "J_t", "mu")
        }
        changes["M"] = changes["M"] + jnp.swapaxes(changes["M"], 1, 2)
        directions = jnp.asarray(rng.normal(size=(100, v.shape[0])))
        _, status, exact, difference = rates_and_differences(law, terms, v, changes, directions, 1e-5)
        assert status == 0
        np.testing.assert_allclose(exact, difference, rtol=2e-5, atol=1e-5)


@pytest.mark.long
def test_redundant_contacts_at_rest_follow_the_law_itself(rng):
    """A block at rest on two corners: the directional derivative is the law of the direction."""
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())
    directions = jnp.asarray(rng.normal(size=(200, 3)))
    _, status, exact, _ = rates_and_differences(SIDED, terms, jnp.zeros(3), {}, directions, 1e-5)
    assert status == 0
    outcomes = jax.vmap(lambda d: jc.impact.anitescu_potra(terms, d)[0])(directions)
    np.testing.assert_allclose(exact, outcomes, atol=1e-9)


@pytest.mark.long
def test_where_friction_wedges_a_contact_the_law_jumps_and_says_so():
    """A rod slides on its tip so that friction drives it in: at the least approach it stops at once."""
    root = np.linalg.cholesky(np.array([[1.0, -0.8], [-0.8, 1.0]]))  # u_n and u_t of impulses
    backward = jnp.linalg.solve(jnp.asarray(root), jnp.array([0.0, -1.0]))
    direction = jnp.linalg.solve(jnp.asarray(root), jnp.array([-1.0, 0.0]))
    ends = {}
    for mu in (1.2, 1.3):  # it jams beyond 1 / 0.8 = 1.25
        terms = make_terms(np.eye(2), root[None], mu)
        law = lambda v, terms=terms: SIDED(terms, v)  # noqa: E731
        (_, info), (rates, _) = jax.jvp(law, (backward,), (direction,))
        near = jnp.linalg.norm(law(backward + 1e-6 * direction)[0] - backward)
        ends[mu] = info.status, jnp.all(jnp.isfinite(rates)), near
        assert not jc.Status.failed(info.status)
    assert ends[1.2][:2] == (0, True) and ends[1.2][2] < 1e-4
    assert ends[1.3][:2] == (int(jc.Status.JUMP), False) and ends[1.3][2] > 0.1


@pytest.mark.long
def test_reverse_mode_and_second_derivatives_are_refused_by_name():
    terms, v, _ = make_impact(("at rest",), 2)

    def end(v):
        return SIDED(terms, v)[0]

    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.grad(lambda v: end(v)[0])(v)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jvp(lambda x: jax.jvp(end, (x,), (x,))[1], (v,), (v,))
    d = jnp.arange(1.0, 1.0 + v.shape[0])
    np.testing.assert_allclose(jax.linearize(end, v)[1](d), jax.jvp(end, (v,), (d,))[1], rtol=0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "law",
    [SIDED, BOUNCING, jc.impact.Plastic(corner="one_sided"), jc.impact.Propagative(corner="one_sided"),
     jc.impact.Chain(stiffness=1.0, max_steps=8, corner="one_sided")],
    ids=lambda law: type(law).__name__,
)  # fmt: skip
def test_a_second_derivative_in_a_constant_direction_is_no_silent_zero(law):
    terms, v, _ = make_impact(("at rest",), 1)

    def rate(v):
        return jax.jvp(lambda v: law(terms, v)[0], (v,), (jnp.ones_like(v),))[1]

    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jit(lambda v: jax.jvp(rate, (v,), (v,))).trace(v)


def test_sides_other_words_and_laws_without_the_keyword_are_refused_by_name():
    terms, v, _ = make_impact(("at rest",), 2)
    with pytest.raises(ValueError, match="num_directions: expected None with corner"):
        jc.impact.Poisson(restitution=0.5, num_directions=4, corner="one_sided")(terms, v)
    with pytest.raises(ValueError, match="corner: expected one of smooth, one_sided"):
        jc.impact.AnitescuPotra(corner="sharp")
    with pytest.raises(ValueError, match="corner: expected 'smooth' with unilateral=False"):
        jc.impact.Plastic(unilateral=False, corner="one_sided")(terms, v)
    with pytest.raises(TypeError, match="corner"):
        jc.simulate.Variational(corner="one_sided")
    key, routh = jax.random.key(0), jc.impact.Routh(impulse_step=1.0, corner="one_sided")
    with pytest.raises(ValueError, match="corner: expected 'smooth' with restitution"):
        jc.impact.Routh(restitution=0.5, corner="one_sided")
    terms, v, _ = make_impact(("at rest",), 1)
    with pytest.raises(ValueError, match="impulse_step: expected N s with corner"):
        routh.replace(impulse_step=None)(terms, v, key)
    with pytest.raises(ValueError, match="corner='smooth'.* for many outcomes"):
        jc.impact.sample(terms, v, routh, num_samples=2)


@pytest.mark.long
def test_one_poisoned_lane_leaves_the_others_alone():
    terms, v, _ = make_impact(("sticks or slides",), 2)
    lanes = jnp.stack([v, jnp.full_like(v, jnp.nan), v])
    both = jax.vmap(lambda v: jax.jvp(lambda v: SIDED(terms, v)[0], (v,), (jnp.ones_like(v),)))
    rates = both(lanes)[1]
    np.testing.assert_array_equal(rates[0], rates[2])
    assert np.all(np.isfinite(rates[0]))


EXPANDING = jc.impact.Poisson(restitution=0.6, corner="one_sided")
IN_TURN = jc.impact.Sequential(corner="one_sided")
PLASTIC = jc.impact.Plastic(corner="one_sided")
OTHERS = [
    (EXPANDING, ("sticks or slides", "opens"), MU),
    (EXPANDING, ("slides or opens", "at rest"), MU),
    (IN_TURN, ("sticks or slides", "opens"), MU),
    (IN_TURN, ("sticks", "slides or opens"), MU),
    (IN_TURN, ("slides", "at rest"), MU),
    (PLASTIC, ("sticks", "at rest"), 0.0),
]


@pytest.mark.long
@pytest.mark.parametrize("tangents", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("law", "kinds", "mu"), OTHERS, ids=str)
def test_laws_in_phases_and_in_turn_follow_their_one_sided_differences(law, kinds, mu, tangents, rng):
    terms, v, _ = make_impact(kinds, tangents, mu=mu)
    directions = jnp.asarray(rng.normal(size=(200, v.shape[0])))
    _, status, exact, difference = rates_and_differences(law, terms, v, {}, directions, 1e-5)
    assert status == 0
    error = np.max(np.abs(exact - difference), axis=1) / (1.0 + np.max(np.abs(difference), axis=1))
    assert np.quantile(error, 0.95) < 1e-5
    assert np.max(error) < 5e-3
    smooth = jax.jacfwd(lambda v: law.replace(corner="smooth")(terms, v)[0])(v)
    assert np.max(np.abs(directions @ smooth.T - exact)) > 0.1


@pytest.mark.long
@pytest.mark.parametrize("mass", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("tangents", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_friction_that_stops_a_mass_as_its_expansion_ends(tangents, mass, rng):
    """A point lands at 1 m/s and slides at mu (1 + e) m/s, or at mu, at which compression ends."""
    e, rows = 0.6, np.eye(1 + tangents)[None]
    terms = make_terms(mass * np.eye(1 + tangents), rows, MU)
    directions = jnp.asarray(rng.normal(size=(200, 1 + tangents)))
    for sliding in (MU * (1.0 + e), MU):
        v = jnp.zeros(1 + tangents).at[:2].set(jnp.array([-1.0, sliding]))
        _, status, exact, difference = rates_and_differences(EXPANDING, terms, v, {}, directions, 1e-4)
        assert status == 0
        np.testing.assert_allclose(exact, difference, rtol=0, atol=2e-4 if tangents == 2 else 1e-6)
        if sliding == MU:
            continue
        # Slower, it stops, and faster, it keeps the difference.
        left = directions[:, 1] + MU * (1.0 + e) * directions[:, 0]
        np.testing.assert_allclose(exact[:, 1], jnp.maximum(left, 0.0), rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("law", [EXPANDING, IN_TURN, PLASTIC], ids=str)
def test_contacts_at_rest_follow_the_law_itself_of_any_law(law, rng):
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())
    directions = jnp.asarray(rng.normal(size=(50, 3)))

    def rates(v, direction):
        return jax.jvp(lambda v: law(terms, v), (v,), (direction,))

    lanes = jnp.zeros((50, 3)).at[7].set(jnp.nan)  # one of them poisoned
    (_, info), (exact, _) = jax.jit(jax.vmap(rates))(lanes, directions)
    good = np.arange(50) != 7
    assert not np.any(info.status[good])
    outcomes = jax.jit(jax.vmap(lambda d: law.replace(corner="smooth")(terms, d)[0]))(directions)
    np.testing.assert_allclose(exact[good], outcomes[good], atol=1e-9)
    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.grad(lambda v: law(terms, v)[0][0])(jnp.zeros(3))


@pytest.mark.slow
@pytest.mark.parametrize("rates", [(-1.0, 0.0), (1.0, 0.0), (0.0, 0.0)], ids=["strikes", "opens", "rests"])
def test_steps_of_bounded_impulse_follow_their_one_sided_differences(rates, rng):
    """One contact strikes, opens or rests, the other one slides or rests; steps end in drawn impulses."""
    key = jax.random.key(0)
    smooth = jc.impact.Routh(impulse_step=0.6, max_steps=12)
    law = smooth.replace(corner="one_sided")
    for slips in ((0.3, 0.5), (0.0, 0.0)):
        terms, v, _ = make_impact(("opens", "opens"), 1)
        rows = jnp.stack([terms.J_n, terms.J_t[:, 0]], axis=1)
        asked = jnp.stack([jnp.array(rates), jnp.array(slips)], axis=1)
        v = jnp.linalg.pinv(rows.reshape(4, -1)) @ asked.reshape(-1)
        directions = jnp.asarray(rng.normal(size=(40, v.shape[0])))

        @jax.jit
        def rates_and_values(terms, v, directions):
            def rate(d):
                return jax.jvp(lambda v: law(terms, v, key), (v,), (d,))

            (base, info), (exact, _) = jax.vmap(rate)(directions)
            sides = [
                jax.vmap(lambda d, h=h: smooth(terms, v + h * d, key)[0])(directions) for h in (1e-5, 5e-6)
            ]
            return base, info, exact, *sides

        base, info, exact, coarse, fine = rates_and_values(terms, v, directions)
        assert not np.any(info.status)
        assert np.all(info.num_iters > 0) == (rates[0] < 0)
        np.testing.assert_allclose(base[0], smooth(terms, v, key)[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(exact, (4.0 * fine - 3.0 * base - coarse) / 1e-5, rtol=0, atol=1e-8)
        if rates[0] >= 0:
            slope = jax.jit(jax.jacfwd(lambda v: smooth(terms, v, key)[0]))(v)
            assert np.max(np.abs(directions @ slope.T - exact)) > 0.1
    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.grad(lambda v: law(terms, v, key)[0][0])(v)


@pytest.mark.long
def test_impacts_in_turn_that_accumulate_between_two_modes_have_a_note_and_no_number():
    """Feet strike in turn, ever slower, each with friction that turns the body onto the other one."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(20):
        root, rows = rng.normal(size=(5, 5)), rng.normal(size=(2, 2, 5))
        terms = make_terms(root @ root.T / 5 + np.eye(5), rows, 0.8)
        v = jnp.asarray(rng.normal(size=5))
        law = jc.impact.Sequential(max_impacts=200, corner="one_sided")
        (_, info), (rates, _) = jax.jvp(lambda v, law=law, terms=terms: law(terms, v), (v,), (v,))
        jumps = bool(info.status & int(jc.Status.JUMP))
        assert jumps == bool(jnp.any(jnp.isnan(rates)))
        found += jumps
    assert found

"""Laws in space whose friction cone has sides, with `corner="one_sided"`: corners and edges are modes, too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from tests.impact.laws.test_one_sided_impacts import make_terms
from tests.impact.laws.test_one_sided_impacts import rates_and_differences as rates_of_terms
from tests.impact.laws.test_one_sided_outcomes import (
    check_refusals_and_a_poisoned_lane,
    errors_and_reach,
)

SIDES, MU = 8, 0.4
SIDED = jc.impact.AnitescuPotra(corner="one_sided", num_directions=SIDES)
KINDS = {  # load, weights of two neighbouring corners in friction, their weights in the slip against it
    "opens": (0.0, (0.0, 0.0), (0.0, 0.0)),
    "sticks": (1.0, (0.3, 0.2), (0.0, 0.0)),
    "sticks or slides at a corner": (1.0, (1.0, 0.0), (0.0, 0.0)),
    "sticks or slides at an edge": (1.0, (0.6, 0.4), (0.0, 0.0)),
    "slides at a corner": (1.0, (1.0, 0.0), (0.8, 0.3)),
    "slides at an edge": (1.0, (0.6, 0.4), (0.5, 0.5)),
    "slides at the end of an edge": (1.0, (1.0, 0.0), (0.5, 0.5)),
    "slides or opens": (0.0, (0.0, 0.0), (0.8, 0.3)),
    "slides or opens at an edge": (0.0, (0.0, 0.0), (0.5, 0.5)),
    "at rest": (0.0, (0.0, 0.0), (0.0, 0.0)),
}


def make_sided_impact(kinds, seed=0, mu=MU, sides=SIDES):
    """An impact that ends in given modes of a friction cone with sides: terms, v, v_plus."""
    rng = np.random.default_rng(seed)
    nc, nv = len(kinds), 3 * len(kinds) + 1
    root = rng.normal(size=(nv, nv))
    mass, rows = root @ root.T / nv + np.eye(nv), rng.normal(size=(nc, 3, nv))
    angle = 2.0 * np.pi * np.arange(sides) / sides
    fan = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    jacobian = rows.reshape(-1, nv)
    lam, u = np.zeros((2, nc, 3))
    for c, kind in enumerate(kinds):
        load, friction, slip = KINDS[kind]
        first = rng.integers(sides)
        pair = fan[[first, (first + 1) % sides]]
        lam[c] = np.append(load, mu * load * np.array(friction) @ pair)
        u[c] = np.append(kind == "opens", -np.array(slip) @ pair)
    v_plus = np.linalg.lstsq(jacobian, u.ravel(), rcond=None)[0]
    v = v_plus - np.linalg.solve(mass, jacobian.T @ lam.ravel())
    return make_terms(mass, rows, mu), jnp.asarray(v), v_plus


@jax.jit
def rates_and_differences(law, terms, v, directions, h):
    base, info = law(terms, v)

    def one(direction):
        exact = jax.jvp(lambda v: law(terms, v)[0], (v,), (direction,))[1]
        ends = [law(terms, v + size * direction)[0] for size in (0.5 * h, h)]
        return exact, (4.0 * ends[0] - ends[1] - 3.0 * base) / h

    return base, info.status, *jax.vmap(one)(directions)


def compare(law, terms, v, rng, number=100):
    """Return the largest relative error of the rates in random directions, and the status.

    The outcome is piecewise linear in v: of two steps the one counts that passes no other border.
    """
    directions = jnp.asarray(rng.normal(size=(number, v.shape[0])), v.dtype)
    errors = []
    for h in (1e-5, 1e-3):
        base, status, exact, difference = rates_and_differences(law, terms, v, directions, h)
        size = 1.0 + np.max(np.abs(difference), axis=1, keepdims=True)
        errors.append(np.max(np.abs(exact - difference) / size, axis=1))
    return np.max(np.min(errors, axis=0)), int(status), base


BORDERS = [kind for kind in KINDS if kind not in ("opens", "sticks", "slides at a corner")]


@pytest.mark.long
@pytest.mark.parametrize("other", ["opens", "sticks", "slides at an edge", "at rest"])
def test_the_forward_derivative_is_the_one_sided_difference(other, rng):
    """At every border of one contact, beside each mode of another one."""
    for kind in BORDERS:
        terms, v, v_plus = make_sided_impact((kind, other))
        error, status, base = compare(SIDED, terms, v, rng)
        assert status == 0, kind
        np.testing.assert_allclose(base, v_plus, atol=1e-9)
        assert error < 1e-8, kind


@pytest.mark.long
@pytest.mark.parametrize("mass, sides", [(1e-7, 4), (1e8, 6), (1.0, 16)])
def test_masses_and_the_number_of_sides_do_not_matter(mass, sides, rng):
    terms, v, _ = make_sided_impact(("sticks or slides at a corner",), sides=sides)
    law = SIDED.replace(num_directions=sides)
    error, status, _ = compare(law, terms.replace(M=mass * terms.M), v, rng)
    assert status == 0 and error < 1e-8


@pytest.mark.slow
def test_terms_move_the_outcome_as_their_one_sided_differences_say(rng):
    terms, v, _ = make_sided_impact(("sticks or slides at a corner", "slides or opens at an edge"))
    directions = jnp.asarray(rng.normal(size=(100, v.shape[0])))
    changes = {
        name: jnp.asarray(rng.normal(size=(100, *getattr(terms, name).shape))) for name in ("mu", "J_n")
    }
    change = rng.normal(size=(100, *terms.M.shape))
    changes["M"] = jnp.asarray(change + np.swapaxes(change, 1, 2))
    _, status, exact, difference = rates_of_terms(SIDED, terms, v, changes, directions, 1e-6)
    assert status == 0
    np.testing.assert_allclose(exact, difference, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.0, 2.0), (0.5, 0.7)], ids=str)
def test_a_step_whose_largest_impulses_just_suffice(factors, rng):
    """Also of a contact that may push with nothing at all."""
    for kinds in (
        ("sticks or slides at a corner", "sticks or slides at an edge"),
        ("at rest", "slides at an edge"),
    ):
        terms, v, _ = make_sided_impact(kinds)
        impulse = jnp.maximum(SIDED(terms, v)[1].impulse[:, 0], 0.0)
        law = jc.impact.RouthStep(
            impulse_max=jnp.array(factors) * impulse,
            corner="one_sided",
            selection="lemke",
            num_directions=SIDES,
        )
        error, status, _ = compare(law, terms, v, rng)
        assert status == 0 and error < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("rates", [(-1.0, 0.0), (1.0, 0.0), (0.0, 0.0)], ids=["strikes", "opens", "rests"])
def test_steps_of_bounded_impulse_follow_their_one_sided_differences(rates, rng):
    """One contact strikes, opens or rests, the other one slides or rests; steps end in drawn impulses."""
    key = jax.random.key(0)
    law = jc.impact.Routh(impulse_step=0.15, max_steps=16, corner="one_sided", num_directions=4)

    @jax.jit
    def compare_with_differences(terms, v, directions, h=1e-5):
        ends = [
            jax.vmap(lambda d, size=size: law(terms, v + size * d, key)[0])(directions)
            for size in (0.5 * h, h)
        ]
        rate = jax.vmap(lambda d: jax.jvp(lambda v: law(terms, v, key), (v,), (d,)))
        (base, info), (exact, _) = rate(directions)
        return exact, (4.0 * ends[0] - ends[1] - 3.0 * base) / h, info

    terms, _, _ = make_sided_impact(("opens", "opens"), sides=4)
    rows = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1).reshape(6, -1)
    for slips in ((0.3, 0.1, 0.5, -0.2), (0.0, 0.0, 0.0, 0.0)):
        asked = jnp.array([rates[0], *slips[:2], rates[1], *slips[2:]])
        v = jnp.linalg.pinv(rows) @ asked
        directions = jnp.asarray(rng.normal(size=(40, v.shape[0])))
        exact, difference, info = compare_with_differences(terms, v, directions)
        assert not np.any(info.status)
        assert np.all(info.num_iters > 1) == (rates[0] < 0)
        np.testing.assert_allclose(exact, difference, rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mu, count", [(0.4, 1), (1.5, 3)])
def test_each_outcome_in_space_moves_as_its_one_sided_difference_says(mu, count, rng):
    terms, v, _ = make_sided_impact(("slides at the end of an edge",), mu=mu)
    errors, _, status = errors_and_reach(terms, v, rng, law=SIDED)
    assert status == 0 and len(errors) == count and np.max(errors) < 1e-8


@pytest.mark.long
def test_where_outcomes_branch_there_is_a_note_and_no_number(rng):
    """Friction wedges the contact: near rest some directions have three outcomes."""
    terms, v, _ = make_sided_impact(("at rest",), mu=5.0)
    _, status, exact, _ = rates_and_differences(SIDED, terms, v, jnp.asarray(rng.normal(size=(20, 4))), 1e-5)
    assert status == int(jc.Status.JUMP) and np.all(np.isnan(exact))
    smooth = SIDED.replace(corner="smooth")
    directions = jnp.asarray(rng.normal(size=(60, 4)))
    counts = jax.jit(jax.vmap(lambda d: jnp.sum(jc.impact.outcomes(terms, d, smooth)[0][1])))(directions)
    assert set(np.unique(counts)) == {1, 3}


@pytest.mark.long
def test_refusals_and_a_poisoned_lane():
    terms, v, _ = make_sided_impact(("at rest",))
    check_refusals_and_a_poisoned_lane(lambda v: SIDED(terms, v)[0], v)


@pytest.mark.slow
def test_directions_without_motion_and_contacts_that_take_no_part(rng):
    terms, v, _ = make_sided_impact(("slides at the end of an edge", "sticks or slides at a corner"))
    planar = terms.replace(J_t=terms.J_t.at[:, 1].set(0.0))
    alone = terms.replace(active=jnp.array([True, False]))
    for case in (planar, alone):
        error, status, _ = compare(SIDED, case, v, rng, 30)
        assert status == 0 and error < 1e-8


@pytest.mark.long
def test_single_precision_has_the_rates_of_double_precision(rng):
    terms, v, _ = make_sided_impact(("slides at the end of an edge",))
    directions = jnp.asarray(rng.normal(size=(30, v.shape[0])))

    def rates(dtype):
        few, at = jax.tree.map(lambda x: x if x.dtype == bool else x.astype(dtype), (terms, v))
        return jax.vmap(lambda d: jax.jvp(lambda v: SIDED(few, v)[0], (at,), (d.astype(dtype),))[1])(
            directions
        )

    single = rates(jnp.float32)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, rates(jnp.float64), rtol=0, atol=1e-5)

"""All outcomes of a law with `corner="one_sided"`: the derivative of each, and which of them have none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from tests.impact.laws.test_one_sided_impacts import SIDED, make_impact

NUMBER = 100


@jax.jit
def outcomes_nearby(terms, v, directions, h, law=SIDED):
    """Outcomes, their rates along directions, and those of two displaced velocities."""
    (base, valid), info = jc.impact.outcomes(terms, v, law)
    smooth = law.replace(corner="smooth")

    def rates(d):
        return jax.jvp(lambda v: jc.impact.outcomes(terms, v, law)[0][0], (v,), (d,))[1]

    def displaced(h):
        return jax.vmap(lambda d: jc.impact.outcomes(terms, v + h * d, smooth)[0])(directions)

    return base, valid, info.status, jax.vmap(rates)(directions), displaced(h), displaced(0.5 * h)


def nearest_slope(base, displaced, h):
    """Return the difference quotient (n, nv) of the displaced outcomes that are nearest to one."""
    values, valid = displaced
    apart = np.where(valid[..., None], values - base, np.inf)
    best = np.argmin(np.linalg.norm(apart, axis=2), axis=1)
    return apart[np.arange(len(best)), best] / h


def errors_and_reach(terms, v, rng, h=1e-5, law=SIDED):
    """For each outcome the errors of its rates (n,) and the speeds (n,) with which it moves; the status."""
    directions = jnp.asarray(rng.normal(size=(NUMBER, v.shape[0])), v.dtype)
    found = jax.tree.map(np.asarray, outcomes_nearby(terms, v, directions, h, law))
    base, valid, status, exact, coarse, fine = found
    errors, reach = [], []
    for k in np.flatnonzero(valid):
        slopes = [nearest_slope(base[k], near, size) for near, size in ((coarse, h), (fine, 0.5 * h))]
        difference = 2.0 * slopes[1] - slopes[0]
        errors.append(np.max(np.abs(difference - exact[:, k]), axis=1))
        reach.append(np.linalg.norm(slopes[0], axis=1))
    return np.array(errors), np.array(reach), int(status)


@pytest.mark.long
@pytest.mark.parametrize("kinds", [
    ("sticks or slides", "opens"), ("slides or opens", "sticks"), ("at rest", "at rest"),
    ("sticks or slides", "slides"), ("slides or opens", "slides"), ("at rest", "slides")], ids=" and ".join)  # fmt: skip
def test_each_outcome_moves_as_its_one_sided_difference_says(kinds, rng):
    """Also of three outcomes, of which two are away from borders."""
    if kinds[1] == "slides":
        terms, v, _ = make_impact(kinds, 1, seed=5, mu=1.5)
    else:
        terms, v, _ = make_impact(kinds, 1)
    errors, _, status = errors_and_reach(terms, v, rng)
    assert status == 0 and len(errors) == (3 if kinds[1] == "slides" else 1)
    assert np.max(errors) < 1e-8


@pytest.mark.long
@pytest.mark.parametrize("mass", [1e-6, 1e7])
def test_masses_do_not_matter(mass, rng):
    terms, v, _ = make_impact(("sticks or slides", "slides"), 1, seed=5, mu=1.5)
    errors, _, status = errors_and_reach(terms.replace(M=mass * terms.M), v, rng)
    assert status == 0 and errors.shape == (3, NUMBER) and np.max(errors) < 1e-8


@pytest.mark.long
@pytest.mark.parametrize("kinds, seed", [(("slides or opens", "slides"), 3), (("at rest", "slides"), 3)])
def test_where_an_outcome_ends_or_branches_it_has_a_note_and_no_number(kinds, seed, rng):
    """Two outcomes meet at a border of one contact, while the other one slides: beyond it there is neither."""
    terms, v, v_plus = make_impact(kinds, 1, seed=seed, mu=1.5)
    errors, reach, status = errors_and_reach(terms, v, rng)
    assert status == int(jc.Status.JUMP)
    jumps = np.all(np.isnan(errors), axis=1)
    assert np.sum(jumps) == 1
    assert np.all(errors[~jumps] < 1e-8) and np.all(reach[~jumps] < 100.0)
    (base, valid), _ = jc.impact.outcomes(terms, v, SIDED)
    np.testing.assert_allclose(base[valid][jumps][0], v_plus, atol=1e-9)
    counts = np.sum(
        np.asarray(outcomes_nearby(terms, v, jnp.asarray(rng.normal(size=(NUMBER, len(v)))), 1e-5)[4][1]), 1
    )
    assert len(set(counts)) > 1  # their number differs from side to side


@pytest.mark.slow
@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.0, 2.0)], ids=str)
def test_a_step_whose_largest_impulses_just_suffice(factors, rng):
    """Contacts between rest and an approach that is left; as one of all outcomes, alone, and by the impulses."""
    terms, v, _ = make_impact(("sticks or slides", "slides"), 1)
    caps = jnp.array(factors) * SIDED(terms, v)[1].impulse[:, 0]
    law = jc.impact.RouthStep(impulse_max=caps, corner="one_sided")
    errors, _, status = errors_and_reach(terms, v, rng, law=law)
    assert status == 0 and errors.shape == (1, NUMBER) and np.max(errors) < 1e-8

    def step(caps, v, corner="one_sided"):
        return law.replace(impulse_max=caps, corner=corner)(terms, v)

    @jax.jit
    def rates_and_slopes(by_caps, by_v, h=1e-5):
        (base, info), (rate, _) = jax.jvp(step, (caps, v), (by_caps, by_v))
        ends = [step(caps + size * by_caps, v + size * by_v, "smooth")[0] for size in (0.5 * h, h)]
        return rate, (4.0 * ends[0] - ends[1] - 3.0 * base) / h, info.status

    by_caps, by_v = (jnp.asarray(rng.normal(size=(NUMBER, x.size))) for x in (caps, v))
    rates, slopes, status = jax.vmap(rates_and_slopes)(by_caps, by_v)
    assert not np.any(status)
    np.testing.assert_allclose(rates, slopes, rtol=0, atol=1e-8)


@pytest.mark.long
def test_the_law_itself_says_so_although_its_other_contact_is_at_no_border():
    terms, v, v_plus = make_impact(("at rest", "slides"), 1, seed=3, mu=1.5)
    (value, info), (rate, _) = jax.jvp(lambda v: SIDED(terms, v), (v,), (jnp.ones_like(v),))
    np.testing.assert_allclose(value, v_plus, atol=1e-9)
    assert info.status == int(jc.Status.JUMP) and np.all(np.isnan(rate))


def check_refusals_and_a_poisoned_lane(first, v):
    """Reverse mode and second derivatives are refused; a lane of NaN leaves the others alone."""
    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.grad(lambda v: first(v)[0])(v)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jvp(lambda v: jax.jvp(first, (v,), (v,))[1], (v,), (v,))
    rate = jax.jit(jax.vmap(lambda v: jax.jvp(first, (v,), (jnp.ones_like(v),))[1]))
    lanes = rate(jnp.stack([v, jnp.full_like(v, jnp.nan), v]))
    np.testing.assert_array_equal(lanes[0], lanes[2])
    assert np.all(np.isfinite(lanes[0]))


@pytest.mark.long
def test_reverse_mode_and_a_poisoned_lane():
    terms, v, _ = make_impact(("at rest",), 1)
    check_refusals_and_a_poisoned_lane(lambda v: jc.impact.outcomes(terms, v, SIDED)[0][0][0], v)

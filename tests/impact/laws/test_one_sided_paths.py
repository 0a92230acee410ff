"""`Energetic(corner="one_sided")`: the derivative of Routh's path where contacts reach events together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from tests.impact.laws.test_one_sided_impacts import make_terms, zero_change

NUMBER = 100
STEPS = 1e-5, 1e-4, 1e-3  # of differences; in a short one a contact may approach too slowly to strike


def law(restitution, **more):
    return jc.impact.Energetic(restitution=restitution, corner="one_sided", **more)


@jax.jit
def rates_and_differences(law, terms, v, changes, directions, h):
    """Rates by directions of terms, v, restitution and rates; one-sided differences of second order in h."""
    base, info = law(terms, v)
    smooth = law.replace(corner="smooth")

    def one(change, direction, by_e):
        moves = zero_change(terms).replace(**change)
        exact = jax.jvp(
            lambda t, v, e: law.replace(restitution=e)(t, v)[0],
            (terms, v, law.restitution), (moves, direction, by_e),
        )[1]  # fmt: skip

        def slope(h):
            moved = terms.replace(**{name: getattr(terms, name) + h * x for name, x in change.items()})
            e = law.restitution + h * by_e
            return (smooth.replace(restitution=e)(moved, v + h * direction)[0] - base) / h

        return exact, 2.0 * slope(0.5 * h) - slope(h)

    by_e = 0.1 * directions[:, 0] if law.restitution.ndim == 0 else 0.1 * directions[:, : len(terms.mu)]
    by_e = jnp.where(law.restitution > 0, by_e, 0.0)
    return base, smooth(terms, v)[0], info.status, *jax.vmap(one)(changes, directions, by_e)


def compare(law, terms, v, rng, changes=(), speed=1.0):
    """Return errors (n,) of the rates beside the best of the differences, and the status."""
    law = law.replace(restitution=jnp.asarray(law.restitution, v.dtype))
    directions = jnp.asarray(speed * rng.normal(size=(NUMBER, v.shape[0])))
    moves = {}
    for name in changes:
        x = getattr(terms, name)
        moves[name] = 0.1 * jnp.max(jnp.abs(x)) * jnp.asarray(rng.normal(size=(NUMBER, *x.shape)))
    if "M" in moves:
        moves["M"] = moves["M"] + jnp.swapaxes(moves["M"], 1, 2)
    errors = []
    for h in STEPS:
        base, smooth, status, exact, difference = rates_and_differences(law, terms, v, moves, directions, h)
        np.testing.assert_allclose(base, smooth, rtol=0, atol=1e-12 * speed)
        errors.append(np.max(np.abs(exact - difference), axis=1) / speed)
    return np.min(errors, axis=0), int(status)


def copies(number, mu, mass=1.0, seed=1):
    """Bodies of one contact each, all the same: what happens to one happens to all of them at once."""
    rng = np.random.default_rng(seed)
    root, rows = rng.normal(size=(2, 2)), np.zeros((number, 2, 2 * number))
    for c in range(number):
        rows[c, :, 2 * c : 2 * c + 2] = np.eye(2)
    return make_terms(mass * np.kron(np.eye(number), root @ root.T / 2 + np.eye(2)), rows, mu)


def coupled(speeds, mu, mass=1.0, seed=1):
    """A random body with contacts of these normal and tangential speeds: terms and v."""
    rng = np.random.default_rng(seed)
    number = len(speeds)
    nv = 2 * number + 1
    root, rows = rng.normal(size=(nv, nv)), rng.normal(size=(number, 2, nv))
    v = np.linalg.lstsq(rows.reshape(-1, nv), np.array(speeds, float).ravel(), rcond=None)[0]
    return make_terms(mass * (root @ root.T / nv + np.eye(nv)), rows, mu), jnp.asarray(v)


@pytest.mark.long
@pytest.mark.parametrize("slip", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("restitution", [0.0, 0.6])
def test_bodies_that_do_all_at_once_have_the_derivative_of_the_direction(restitution, slip, rng):
    """Compression, sliding and expansion end together; also by masses, normals, friction and restitution."""
    terms, v = copies(2, 0.4), jnp.tile(jnp.array([-1.0, slip]), 2)
    errors, status = compare(law(restitution), terms, v, rng, ("M", "J_n", "J_t", "mu"))
    assert status == 0 and np.quantile(errors, 0.95) < 1e-8 and np.max(errors) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("inertia", [0.25, 1.0])
@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_a_block_that_falls_flat(restitution, inertia, rng):
    """With inertia 0.25 each corner is the centre of percussion of the other; both come to rest at once."""
    model = jc.models.rocking_block()
    mu = jnp.full(2, 0.0 if inertia == 0.25 else 0.5)
    model = model.replace(params=model.params.replace(inertia=jnp.array([inertia]), mu=mu))
    terms, v = jc.contact_terms(model, model.initial_state()), jnp.array([0.3, -1.0, 0.0])
    errors, status = compare(law(restitution), terms, v, rng)
    assert status == 0 and np.max(errors) < 1e-8
    if inertia == 0.25:
        smooth = law(restitution).replace(corner="smooth")
        directions = jnp.asarray(rng.normal(size=(NUMBER, 3)))
        slope = jax.jit(jax.jacfwd(lambda v: smooth(terms, v)[0]))(v)
        rates = jax.jit(jax.vmap(lambda d: jax.jvp(lambda v: law(restitution)(terms, v)[0], (v,), (d,))[1]))
        assert np.max(np.abs(rates(directions) - directions @ slope.T)) > 1.0  # no linear map


@pytest.mark.long
@pytest.mark.parametrize("speeds", [
    ((0.0, 0.3), (-1.0, 0.5)), ((0.0, 0.0), (-1.0, 0.5)), ((0.0, 0.3), (0.0, -0.2)), ((-1.0, 0.0), (-1.0, 0.5))], ids=str)  # fmt: skip
def test_contacts_at_rest_may_begin_to_strike_or_slide(speeds, rng):
    for mu, restitution in ((0.4, 0.6), (1.0, 0.0)):
        errors, status = compare(law(restitution), *coupled(speeds, mu), rng)
        assert status == 0 and np.quantile(errors, 0.95) < 1e-8 and np.max(errors) < 1e-6


@pytest.mark.long
def test_bodies_at_rest_follow_the_law_itself(rng):
    """At rest the rate in a direction is the outcome of the direction."""
    terms, v = coupled(((0.0, 0.0), (0.0, 0.0)), 0.4)
    directions = jnp.asarray(rng.normal(size=(NUMBER, v.shape[0])))
    rates = jax.jit(jax.vmap(lambda d: jax.jvp(lambda v: law(0.6)(terms, v)[0], (0.0 * v,), (d,))[1]))(
        directions
    )
    outcomes = jax.jit(jax.vmap(lambda d: law(0.6).replace(corner="smooth")(terms, d)[0]))(directions)
    np.testing.assert_allclose(rates, outcomes, rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("mass, speed", [(1e-6, 1.0), (1e7, 1.0), (1.0, 1e-4), (1.0, 1e4)])
def test_units_do_not_matter(mass, speed, rng):
    v = speed * jnp.tile(jnp.array([-1.0, 0.3]), 2)
    errors, status = compare(law(0.6), copies(2, 0.4, mass), v, rng, speed=speed)
    assert status == 0 and np.max(errors) < 1e-8


@pytest.mark.slow
def test_three_bodies_of_which_one_pushes_faster_and_does_not_bounce(rng):
    terms, v = copies(3, 0.4, seed=2), jnp.tile(jnp.array([-1.0, 2.0]), 3)
    impact = law(jnp.array([0.5, 0.5, 0.0]), rates=jnp.array([1.0, 1.0, 2.0]))
    errors, status = compare(impact, terms, v, rng)
    assert status == 0 and np.max(errors) < 1e-8


@pytest.mark.long
def test_where_friction_wedges_a_contact_the_path_jumps_and_says_so():
    """A rod slides on its tip so that friction drives it in: at the least approach it stops at once."""
    root = np.linalg.cholesky(np.array([[1.0, -0.8], [-0.8, 1.0]]))
    backward = jnp.linalg.solve(jnp.asarray(root), jnp.array([0.0, -1.0]))
    for mu, status in ((1.2, 0), (1.3, int(jc.Status.JUMP))):  # it jams beyond 1 / 0.8 = 1.25
        terms = make_terms(np.eye(2), root[None], mu)
        (value, info), (rate, _) = jax.jvp(lambda v, t=terms: law(0.5)(t, v), (backward,), (backward,))
        np.testing.assert_allclose(value, backward, atol=1e-12)
        assert info.status == status and np.all(np.isfinite(rate)) == (status == 0)


@pytest.mark.long
def test_refusals_a_poisoned_lane_and_space():
    terms, v = copies(2, 0.4), jnp.array([-1.0, 0.3, -1.0, 0.3])

    def end(v):
        return law(0.6)(terms, v)[0]

    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.jit(jax.grad(lambda v: end(v)[0])).trace(v)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jit(lambda v: jax.jvp(lambda v: jax.jvp(end, (v,), (jnp.ones(4),))[1], (v,), (v,))).trace(v)
    rates = jax.jit(jax.vmap(lambda v: jax.jvp(end, (v,), (jnp.arange(4.0),))[1]))
    lanes = rates(jnp.stack([v, jnp.full(4, jnp.nan), v]))
    np.testing.assert_array_equal(lanes[0], lanes[2])
    assert np.all(np.isfinite(lanes[0]))
    spatial = jc.contact_terms(jc.models.box_drop_3d(), jc.models.box_drop_3d().initial_state())
    with pytest.raises(ValueError, match="planar"):
        law(0.6)(spatial, jnp.zeros(6))
    with pytest.raises(ValueError, match="corner: expected one of smooth, one_sided"):
        jc.impact.Energetic(restitution=0.5, corner="sharp")

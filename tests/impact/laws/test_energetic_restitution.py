"""Restitution in the set-valued impact: closed forms, energy, propagative outcomes, the same bits at e = 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.problems import random_spd

import jaxcontact as jc
from jaxcontact.impact import propagate_all, resolve
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.sampling.draws import sobol

LANES, STEPS, NV = 32, 24, 4  # of the one program for two contacts
UNTERMINATED = int(jc.Status.UNTERMINATED)


@jax.jit
@jax.vmap
def bounce(terms, v, caps, picks, e):
    return resolve(terms, v, caps, picks, restitution=e)


def two_contacts(M, J_n, J_t, mu, active=(True, True)):
    """Arrays (LANES, ...) of two planar contacts as terms."""
    full = lambda a, *shape: jnp.asarray(np.broadcast_to(np.asarray(a), (LANES, *shape)))  # noqa: E731
    return jc.ContactTerms(
        M=full(M, NV, NV),
        J_n=full(J_n, 2, NV),
        J_t=full(J_t, 2, NV)[:, :, None],
        phi=jnp.zeros((LANES, 2)),
        mu=full(mu, 2),
        active=full(active, 2),
    )


def random_two(rng, friction):
    M = np.stack([random_spd(rng, NV) for _ in range(LANES)])
    J = rng.normal(size=(2, LANES, 2, NV))
    return two_contacts(M, *J, friction * rng.random((LANES, 2))), jnp.asarray(rng.normal(size=(LANES, NV)))


def random_draws(rng, size):
    caps = size * rng.random((LANES, STEPS, 2)) * rng.choice([1.0, 10.0], (LANES, 1, 1))
    return jnp.asarray(caps, float), jnp.asarray(rng.random((LANES, STEPS)), float)


@pytest.mark.slow
@pytest.mark.float32
def test_a_ball_bounces_with_friction(tolerance):
    """v_n+ = -e v_n-, and friction up to mu (1 + e) m |v_n-|, enough to roll or not; whatever the draws."""
    rng = np.random.default_rng(0)
    mass, inertia, radius, mu, e = rng.uniform(0.2, 1.0, (5, LANES))
    M = np.eye(NV) * np.stack([mass, mass, inertia, mass], axis=1)[:, None]
    J_t = np.zeros((LANES, 2, NV))
    J_t[:, :, 0], J_t[:, :, 2] = 1.0, radius[:, None]
    terms = two_contacts(M, np.eye(NV)[[1, 1]], J_t, np.stack([mu, mu], axis=1), (True, False))
    v = rng.normal(size=(LANES, NV))
    v[:, 1] = -rng.uniform(0.1, 1.0, LANES)
    terms = jax.tree.map(lambda a: a if a.dtype == bool else jnp.asarray(a, float), terms)
    restitution = jnp.asarray(np.stack([e, e], axis=1), float)
    v_plus, info = bounce(terms, jnp.asarray(v, float), *random_draws(rng, 0.3), restitution)
    slip = v[:, 0] + radius * v[:, 2]
    needed = slip / (1.0 / mass + radius**2 / inertia)
    limit = mu * (1 + e) * mass * -v[:, 1]
    friction = -np.clip(needed, -limit, limit)
    assert 5 < np.sum(np.abs(needed) < limit) < LANES - 5
    want = v + np.stack([friction / mass, -(1 + e) * v[:, 1], radius * friction / inertia, 0 * e], axis=1)
    assert not np.any(info.status)
    np.testing.assert_allclose(v_plus, want, atol=tolerance(1e-13, 2e-5))
    np.testing.assert_allclose(info.impulse[:, 0, 0], -(1 + e) * mass * v[:, 1], atol=tolerance(1e-13, 2e-5))


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 5.0]))
@settings(max_examples=30)
def test_energy_never_rises(seed, friction):
    rng = np.random.default_rng(seed)
    terms, v = random_two(rng, friction)
    draws = random_draws(rng, 1.0)
    e = rng.random((LANES, 2)) * (rng.random((LANES, 1)) < 0.7)
    e = np.where(rng.random((LANES, 1)) < 0.3, 1.0, e)
    v_plus, info = bounce(terms, v, *draws, jnp.asarray(e))
    status, ratio = np.asarray(info.status), np.asarray(info.energy_ratio)
    assert set(status.tolist()) <= {0, UNTERMINATED}
    assert np.all(ratio <= 1 + 1e-12)
    done = status == 0
    if friction == 0.0:
        elastic = done & np.all(e == 1.0, axis=1)
        np.testing.assert_allclose(ratio[elastic], 1.0, atol=1e-12)
    M, impulse = np.asarray(terms.M), np.asarray(info.impulse)
    J = np.concatenate([np.asarray(terms.J_n)[:, :, None], np.asarray(terms.J_t)], axis=2)
    change = np.einsum("bij,bj->bi", M, np.asarray(v_plus) - np.asarray(v))
    np.testing.assert_allclose(change, np.einsum("bcr,bcrv->bv", impulse, J), atol=1e-8)
    assert np.min(np.einsum("bcv,bv->bc", terms.J_n, v_plus)[done]) >= -1.001e-8
    limit = np.asarray(terms.mu) * impulse[..., 0]
    assert np.all(np.abs(impulse[..., 1]) <= limit + 1e-6 * (1 + limit))
    if friction == 0.0:  # which contact is called the first does not matter
        swapped = jax.tree.map(lambda a: a[:, ::-1] if a.shape[1] == 2 else a, terms)
        other, _ = bounce(swapped, v, draws[0][..., ::-1], draws[1], jnp.asarray(e[:, ::-1]))
        np.testing.assert_allclose(other[done], v_plus[done], atol=1e-7)


@pytest.mark.slow
def test_draws_of_0_and_full_are_the_propagative_outcomes():
    rng = np.random.default_rng(4)
    terms, v = random_two(rng, 0.0)
    found, sequences, valid = jax.jit(
        jax.vmap(lambda t, v: propagate_all(t, v, max_outcomes=2, max_reflections=STEPS // 2))
    )(terms, v)
    known = np.asarray(sequences.status) == 0
    several = 0
    for k in range(2):
        order = np.asarray(sequences.order)[:, k]
        caps = np.repeat(1e4 * (order[:, :, None] == np.arange(2)), 2, axis=1)
        v_plus, info = bounce(terms, v, jnp.asarray(caps), jnp.zeros((LANES, STEPS)), jnp.ones((LANES, 2)))
        these = known & np.asarray(valid)[:, k]
        several += int(np.sum(these)) * k
        assert not np.any(np.asarray(info.status)[these])
        np.testing.assert_allclose(v_plus[these], found[these, k], atol=1e-10)
        assert np.array_equal(info.num_iters[these], 2 * np.asarray(sequences.length)[these, k])
    assert several >= 3  # impacts with two outcomes


# ------------------------------------------------------------------------------------------------------ one contact


def rod(angle, mu):
    """The end of a slender rod at an angle to the floor: normal and tangential motion are coupled."""
    x, y = 0.5 * jnp.cos(angle), -0.5 * jnp.sin(angle)
    return jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, 1.0 / 12.0])),
        J_n=jnp.stack([jnp.zeros(()), jnp.ones(()), x])[None],
        J_t=jnp.stack([jnp.ones(()), jnp.zeros(()), -y])[None, None],
        phi=jnp.zeros(1),
        mu=jnp.reshape(mu, (1,)),
        active=jnp.ones(1, bool),
    )


@jax.jit
@jax.vmap
def rod_outcome(x):
    """One compression and pushes, for x = (angle, mu, v, e)."""
    caps = jnp.array([9.0, 0.05, 9.0, 9.0])[:, None]
    return resolve(rod(x[0], x[1]), x[2:5], caps, jnp.zeros(4), restitution=x[5])


def rod_outcomes(points):
    """Always 32 lanes, for one program."""
    v_plus, info = rod_outcome(jnp.asarray(np.resize(points, (LANES, 6))))
    assert not np.any(info.status)
    return np.asarray(v_plus)[: len(points)]


def by_integration(D, mu, u, e, number=8_000):
    """One compression, whose modes are tried, then restitution in tiny impulses until the work is done."""
    best = None
    for slip in (0, 1, -1):  # rest, and stick or slide
        if slip == 0:
            lam = np.linalg.solve(D, -u)
        else:
            lam = np.array([1.0, -slip * mu]) * -u[0] / (D[0, 0] - slip * mu * D[0, 1])
        out = u + D @ lam
        if lam[0] >= 0 and abs(lam[1]) <= mu * lam[0] + 1e-12 and (slip == 0 or slip * out[1] >= 0):
            best = lam if best is None else best
    work = -best[0] * (u[0] + 0.0) / 2
    lost = -best @ (2 * u + D @ best) / 2
    store = e**2 * work * min(1.0, lost / (e**2 * work))
    u = u + D @ best
    dp = 2.0 * np.sqrt(store) / number
    for _ in range(100 * number):
        sticks = abs(u[1]) <= 4 * dp and abs(D[0, 1]) <= mu * D[1, 1]
        slide = np.sign(u[1]) if abs(u[1]) > 4 * dp else np.sign(D[0, 1])
        step = dp * np.array([1.0, -D[0, 1] / D[1, 1] if sticks else -slide * mu])
        middle = u + 0.5 * D @ step
        store -= dp * middle[0] * (1.0 if middle[0] > 0 else e**2)
        if store < 0:
            return u
        u = u + D @ step
    raise AssertionError("the work is not done")


@pytest.mark.long
def test_a_rod_slides_sticks_or_slides_back():
    """Stronge's coefficient where it differs from Newton's, against tiny steps of impulse."""
    cases = np.array(
        [
            [1.0, 0.3, 1.0, -1.0, 0.0, 0.8],
            [1.0, 0.6, 0.4, -1.0, 1.0, 0.6],
            [-1.0, 0.2, 0.6, -1.0, 0.0, 1.0],
            [0.9, 0.2, 0.05, -1.0, 0.0, 0.9],
            [-0.8, 0.1, 0.02, -1.0, 0.3, 0.7],
        ]
    )
    newton = []
    for x, v_plus in zip(cases, rod_outcomes(cases), strict=True):
        terms = rod(x[0], x[1])
        J = np.concatenate([terms.J_n, terms.J_t[0]])
        before = J @ x[2:5]
        want = by_integration(J @ np.linalg.solve(np.asarray(terms.M), J.T), x[1], before, x[5])
        np.testing.assert_allclose(J @ v_plus, want, atol=2e-3)
        newton.append(abs(-(J @ v_plus)[0] / before[0] - x[5]))
    assert max(newton) > 0.05


@pytest.mark.slow_cases("jacfwd")
@pytest.mark.parametrize("derivative", [jax.jacfwd, pytest.param(jax.jacrev, marks=pytest.mark.slow)])
def test_derivatives_against_differences(derivative):
    """Where the end of the rod slides, and where it slides until it sticks."""
    points = np.array([[1.0, 0.3, 1.0, -1.0, 0.0, 0.8], [1.0, 0.6, 0.6, -1.0, 1.0, 0.7]])
    weight = jnp.array([1.0, -0.7, 0.4])

    def part(x):
        return weight @ rod_outcome(x[None])[0][0]

    shifts = 1e-6 * np.concatenate([np.eye(6), -np.eye(6)])
    values = rod_outcomes((points[:, None] + shifts).reshape(-1, 6)).reshape(2, 2, 6, 3) @ np.asarray(weight)
    want = (values[:, 0] - values[:, 1]) / 2e-6
    got = jax.jit(jax.vmap(derivative(part)))(jnp.asarray(points))
    np.testing.assert_allclose(got, want, atol=1e-7)


# ------------------------------------------------------------------------------------------------------ derivatives


def along(terms, v, caps, e, directions, length):
    """Arguments of a bounce, moved along directions by the lengths (LANES,)."""
    move = lambda a, d: a + length.reshape(-1, *(1,) * (a.ndim - 1)) * d  # noqa: E731
    M, J_n, J_t, mu = (
        move(a, d) for a, d in zip((terms.M, terms.J_n, terms.J_t, terms.mu), directions[:4], strict=True)
    )
    moved = terms.replace(M=M, J_n=J_n, J_t=J_t, mu=mu)
    return moved, *(move(a, d) for a, d in zip((v, caps, e), directions[4:], strict=True))


@jax.jit
def slopes(terms, v, caps, picks, e, directions, length, weight):
    """v_plus and steps taken at a length along directions; its derivative by the length, forward and reverse."""
    few = caps.shape[1]

    def outcome(length):
        moved, v_, caps_, e_ = along(terms, v, caps, e, directions, length)
        law = jax.vmap(lambda t, v, c, p, e: resolve(t, v, c, p, restitution=e))
        return law(moved, v_, caps_, picks[:, :few], e_)

    v_plus, push, info = jax.linearize(outcome, length, has_aux=True)
    pull = jax.linear_transpose(push, length)
    return v_plus, info.num_iters, push(jnp.ones_like(length)), pull(weight)[0]


@pytest.mark.slow
def test_derivatives_of_two_contacts_against_differences():
    """By M, J, mu, v, draws and e at once, where all see the same contact modes nearby; e from 0 to 1, friction."""
    rng = np.random.default_rng(11)
    terms, v = random_two(rng, 0.7)
    caps, picks = random_draws(rng, 1.0)
    caps, e = caps[:, :8], jnp.asarray(rng.uniform(0.2, 0.9, (LANES, 2)))
    normal = lambda a: jnp.asarray(rng.normal(size=a.shape))  # noqa: E731
    spd = normal(terms.M)
    directions = [spd + jnp.swapaxes(spd, 1, 2), *map(normal, (terms.J_n, terms.J_t, terms.mu, v, caps, e))]
    weight = normal(v)
    at = lambda h: slopes(terms, v, caps, picks, e, directions, jnp.full(LANES, h), weight)  # noqa: E731
    middle, steps, forward, reverse = at(0.0)
    h = 1e-6
    near = [at(x) for x in (-2 * h, -h, h, 2 * h)]
    # Even parts tell kinks and changes of mode nearby, which are left out.
    smooth = np.max(np.abs(near[1][0] + near[2][0] - 2 * middle), axis=1) < 1e-8
    smooth &= np.all([np.asarray(n[1]) == steps for n in near], axis=0)
    assert np.sum(smooth) >= LANES - 4 and np.max(np.asarray(steps)[smooth]) > 4
    want = (8.0 * (near[2][0] - near[1][0]) - (near[3][0] - near[0][0])) / (12.0 * h)
    size = np.maximum(1.0, np.max(np.abs(want), axis=1))
    assert np.max(np.abs((want - forward)[smooth]) / size[smooth, None]) < 1e-7
    np.testing.assert_allclose(reverse, np.sum(np.asarray(weight * forward), axis=1), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------- samples


@pytest.fixture(scope="module")
def block():
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())

    def draw_block(num_samples, **options):
        options = {"impulse_step": model.impulse_step, "max_steps": STEPS} | options
        return draw(terms, model.initial_state().v, num_samples=num_samples, **options)

    return terms, model, draw_block


def same_bits(a, b, count):
    for name in ("v_plus", "impulse", "status", "num_iters", "energy_ratio", "residual"):
        assert (
            np.asarray(getattr(a, name))[:count].tobytes() == np.asarray(getattr(b, name))[:count].tobytes()
        )


def resolved(terms, model, seed, e):
    """The first samples by `resolve`; a fourth coordinate at rest, to use the one program for two contacts."""
    wide = lambda a: jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, NV - 3)])  # noqa: E731
    M = jnp.eye(NV).at[:3, :3].set(terms.M)
    lanes = two_contacts(M, wide(terms.J_n), wide(terms.J_t)[:, 0], terms.mu)
    x = np.asarray(sobol(3 * STEPS, seed).uniform(jnp.arange(LANES, dtype=jnp.uint32), 0, 3 * STEPS))
    x = jnp.asarray(x.T.reshape(LANES, STEPS, 3))
    v = jnp.broadcast_to(wide(model.initial_state().v), (LANES, NV))
    e = jnp.broadcast_to(jnp.asarray(e), (LANES, 2))
    v_plus, info = bounce(lanes, v, model.impulse_step * x[..., :2], x[..., 2], e)
    return np.asarray(v_plus)[:, :3], np.asarray(info.num_iters)


@pytest.mark.slow
def test_samples_are_resolve_whatever_the_chunk(block, tmp_path):
    terms, model, draw = block
    e = np.array([0.7, 0.4])
    many = draw(900, restitution=e, seed=2)
    same_bits(draw(300, restitution=e, seed=2, chunk=77), many, 300)
    same_bits(draw(900, restitution=e, seed=2, checkpoint=tmp_path / "run", chunk=500), many, 900)
    with pytest.raises(ValueError, match="restitution"):
        draw(900, restitution=0.5, seed=2, checkpoint=tmp_path / "run")
    assert not np.any(many.status) and np.max(np.asarray(many.energy_ratio)) < 1.0
    v_plus, num_iters = resolved(terms, model, 2, e)
    np.testing.assert_allclose(v_plus, many.v_plus[:LANES], atol=1e-13)
    assert np.array_equal(num_iters, many.num_iters[:LANES])
    # A known e = 0 is the inelastic program itself.
    assert (
        energetic_restitution.check_coefficients(terms, 0.0) is None
        and energetic_restitution.check_coefficients(terms, np.zeros(2)) is None
    )


@pytest.mark.slow
def test_without_restitution_the_set_is_the_inelastic_one(block):
    """The same bits for a known e = 0; the program with stores ends with the same values."""
    terms, model, draw = block
    plain = draw(900, seed=3)
    same_bits(draw(900, restitution=0.0, seed=3), plain, 900)
    v_plus, num_iters = resolved(terms, model, 3, np.zeros(2))
    np.testing.assert_allclose(v_plus, plain.v_plus[:LANES], atol=1e-14)
    assert np.array_equal(num_iters, plain.num_iters[:LANES])


@pytest.mark.slow
def test_mistakes_are_named_and_trouble_sets_bits(block):
    terms, model, draw = block
    for bad, message in (
        (1.2, "restitution: expected numbers in 0..1, got 1.2"),
        (np.nan, "restitution: expected (finite numbers|numbers in 0..1), got (NaN|nan)"),
        (np.ones(3), r"restitution: expected (a number or )?shape .*\(2,\), got (shape )?\(3,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(10, restitution=bad)
        with pytest.raises(ValueError, match=message):
            resolve(terms, model.initial_state().v, jnp.ones((4, 2)), jnp.zeros(4), restitution=bad)
    rng = np.random.default_rng(1)
    lanes, v = random_two(rng, 0.5)
    e = np.full((LANES, 2), 0.5)
    e[0, 0], e[1, 1], e[2] = np.nan, 1.5, -0.1
    v_plus, info = bounce(lanes, v, *random_draws(rng, 1.0), jnp.asarray(e))
    assert np.all(np.asarray(info.status)[:3] & int(jc.Status.INVALID))
    assert np.array_equal(v_plus[:3], v[:3])
    assert not np.any(np.asarray(info.status)[3:] & int(jc.Status.INVALID))
    # What is still in store is told: one draw compresses, and nothing is left for the push.
    short = jnp.zeros((LANES, STEPS, 2)).at[:, 0].set(1e4)
    still = np.asarray(
        bounce(lanes, v, short, jnp.zeros((LANES, STEPS)), jnp.asarray(np.full((LANES, 2), 0.5)))[1].status
    )
    hit = np.min(np.einsum("bcv,bv->bc", lanes.J_n, v), axis=1) < 0
    assert np.array_equal(still == UNTERMINATED, hit)

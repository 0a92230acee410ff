"""What is proved of every impact path, held by random ones: impulse, energy, and the inclusion itself."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import jaxcontact as jc
from jaxcontact.impact import dissipation_bound, impulse_bound, routh_path

EVENTS, PHASES = 16, 4
MODELS = ("rocking_block", "compass_gait", "box_and_wall", "ramone")


def load(name):
    model = getattr(jc.models, name)()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


@functools.partial(jax.jit, static_argnums=(4, 5))
def paths_of(terms, velocities, rates, until, events, together):
    """Paths from velocities (n, nv), so many at a time."""
    follow = functools.partial(routh_path, max_events=events)
    return jax.lax.map(
        lambda one: follow(terms, one[0], one[1], until=one[2]),
        (velocities, rates, until),
        batch_size=together,
    )[1]


def random_paths(terms, v, count, seed=0, events=EVENTS, together=64):
    """Paths from v and, every other one, from a random velocity of the same energy; rates change three times."""
    rng = np.random.default_rng(seed)
    nc, nv = terms.J_n.shape
    speed = np.sqrt(v @ terms.M @ v)
    others = np.linalg.solve(np.linalg.cholesky(terms.M).T, rng.normal(size=(nv, count))).T
    others *= (speed / np.sqrt(np.einsum("ni,ij,nj->n", others, terms.M, others)))[:, None]
    velocities = np.where(np.arange(count)[:, None] % 2, others, np.asarray(v))
    rates = np.maximum(rng.uniform(size=(count, PHASES, nc)) ** rng.choice([1, 4], (count, 1, 1)), 1e-3)
    reach = 0.5 * impulse_bound(terms, v).total
    until = np.sort(rng.uniform(0, reach, (count, PHASES - 1)), axis=1)
    info = paths_of(terms, *map(jnp.asarray, (velocities, rates, until)), events, together)
    return jax.tree.map(np.asarray, info)


def measures(terms, info):
    """s and |v|_M at every break, and which breaks end a piece that took impulse."""
    s = info.path_impulse[..., 0].sum(-1)
    speed = np.sqrt(np.einsum("nki,ij,nkj->nk", info.path, terms.M, info.path))
    return s, speed, np.diff(s, axis=1) > 1e-9


def hold(terms, v, info, ended=0.98):
    s, speed, moved = measures(terms, info)
    assert np.mean(info.status == 0) > ended and moved.sum() > len(s) / 2
    # Theorem 2 and Corollary 1: |v|_M strictly decreases.
    assert np.max(np.diff(speed, axis=1)[moved]) < -1e-12
    assert np.max(np.diff(speed, axis=1)) < 1e-12
    # Proposition 4, from the first velocity and from every later one of the path.
    bound = dissipation_bound(terms)
    begin, left = speed[:, :-1], s[:, -1:] - s[:, :-1]
    assert np.max(left - bound.end * begin) <= 1e-12
    assert bound.end == impulse_bound(terms, v).per_speed
    for k in range(0, len(s), max(1, len(s) // 50)):
        assert s[k, -1] <= impulse_bound(terms, jnp.asarray(info.path[k, 0])).total * (1 + 1e-12)
    # Definition 6 and Theorem 3: between any break and the end of the path.
    share = np.divide(left, begin, out=np.zeros_like(left), where=begin > 1e-9)
    lost = 1 - np.divide(speed[:, -1:], begin, out=np.ones_like(begin), where=begin > 1e-9)
    assert np.min(lost - bound.alpha(share)) > -1e-12
    # Each piece obeys the inclusion (39): its impulse is one that its velocity in the middle allows.
    middle = 0.5 * (info.path[:, 1:] + info.path[:, :-1])
    took = np.diff(info.path_impulse, axis=1)
    u_n, u_t = middle @ terms.J_n.T, middle @ terms.J_t[:, 0].T
    mu, size = np.asarray(terms.mu), np.max(speed)
    pressed = took[..., 0] > 1e-9 * np.max(s)
    assert took[..., 0].min() > -1e-9 * np.max(s)
    assert np.max((u_n / size)[pressed]) < 1e-8
    friction = np.abs(took[..., 1]) - mu * took[..., 0]
    assert np.max(friction / (1 + mu)) < 1e-9 * np.max(s)
    slides = pressed & (np.abs(u_t) > 1e-7 * size)
    assert np.max(
        (np.abs(took[..., 1] + np.sign(u_t) * mu * took[..., 0]) / (1 + mu))[slides]
    ) < 1e-9 * np.max(s)
    return s, speed, bound


@pytest.mark.slow
def test_random_paths_obey_what_is_proved():
    for name in ("rocking_block", "box_and_wall"):  # of equal shapes: one program
        terms, v = load(name)
        hold(terms, v, random_paths(terms, v, 256))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_ten_thousand_random_paths_of_every_model(name):
    terms, v = load(name)
    hold(terms, v, random_paths(terms, v, 10_000))


@pytest.mark.slow
def test_random_paths_of_the_disks():
    """Five contacts, 16807 modes at every event: 64 paths at once would take 30 GB."""
    terms, v = load("disk_stack")
    hold(terms, v, random_paths(terms, v, 64, seed=1, events=40, together=1), ended=0.95)


def test_lemma_3_with_this_rate():
    """Inf s / alpha(s) is the end of the impact: alpha has one jump, from a small parabola to 1."""
    terms, _ = load("rocking_block")
    bound = dissipation_bound(terms)
    s = np.geomspace(1e-3, 1e3, 2000) * bound.end
    ratio = s / bound.alpha(s)
    assert np.min(ratio) == pytest.approx(bound.end, rel=0.01)
    assert np.all(np.diff(bound.alpha(s)) >= 0) and bound.alpha(0.0) == 0.0 and np.all(bound.alpha(s) > 0)


def test_one_frictionless_contact_in_closed_form():
    """A mass m: E = s w - s^2 / 2 m from the speed w / m, of which the bound keeps a part that can be computed."""
    m = 2.0
    terms = jc.ContactTerms(
        M=m * jnp.eye(2), J_n=jnp.array([[0.0, 1.0]]), J_t=jnp.array([[[1.0, 0.0]]]), phi=jnp.zeros(1),
        mu=jnp.zeros(1), active=jnp.ones(1, bool),
    )  # fmt: skip
    bound = dissipation_bound(terms)
    assert bound.end == pytest.approx(2 * np.sqrt(m))
    assert impulse_bound(terms, jnp.array([0.0, -3.0])).total == pytest.approx(2 * 3.0 * m)
    assert impulse_bound(terms, jnp.array([0.0, 3.0])).total == pytest.approx(0.0, abs=1e-12)
    # With |v|_M = 1 and downwards, |v(s)|_M = 1 - s / sqrt(m); the least loss is over a path that ends at rest.
    s = np.linspace(0, np.sqrt(m), 50)
    assert np.all(bound.alpha(s) <= s / np.sqrt(m))
    # x = 2/3, y = 2, c = 1/m, |r|*^2 = m: rho = 6, curvature = 1/3 / 36 / m.
    assert bound.curvature == pytest.approx(1 / (108 * m))
    # The choice of x and y is the best for one contact.
    best = minimize_scalar(lambda x: -(1 - x) * (x / 4) ** 2, bounds=(0.1, 0.9), method="bounded")
    assert best.x == pytest.approx(2 / 3, abs=1e-4)


def test_one_rate_for_several_configurations():
    """Corollary 2: the rate of a set of configurations holds for each of them."""
    model = jc.models.rocking_block()
    several = []
    for width in (0.5, 1.0, 1.5):
        terms = jc.contact_terms(model, model.initial_state())
        several.append(terms.replace(J_n=terms.J_n.at[:, 2].multiply(width)))
    together, alone = dissipation_bound(several), [dissipation_bound(one) for one in several]
    assert together.curvature == min(one.curvature for one in alone)
    assert together.end == max(one.end for one in alone)
    s = np.linspace(0, 3 * together.end, 100)
    assert all(np.all(together.alpha(s) <= one.alpha(s)) for one in alone)


def test_it_is_free_of_units():
    """The same impact in grams, and with another unit of length in the velocity."""
    terms, v = load("rocking_block")
    one, other = dissipation_bound(terms), dissipation_bound(terms.replace(M=1e6 * terms.M))
    assert other.end == pytest.approx(1e3 * one.end)
    assert other.alpha(1e3) == pytest.approx(one.alpha(1.0))
    single = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == jnp.float64 else a, terms)
    assert dissipation_bound(single).curvature == pytest.approx(one.curvature, rel=1e-4)


def test_jammed_contacts_have_no_bound_and_mistakes_are_named():
    terms = jc.ContactTerms(
        M=jnp.eye(2), J_n=jnp.array([[0.0, 1.0], [0.0, -1.0]]), J_t=jnp.array([[[1.0, 0.0]], [[1.0, 0.0]]]),
        phi=jnp.zeros(2), mu=jnp.zeros(2), active=jnp.ones(2, bool),
    )  # fmt: skip
    jammed = impulse_bound(terms, jnp.array([0.0, -1.0]))
    assert np.isinf(jammed.total) and np.isinf(jammed.per_speed) and "not pointed" in jammed.reason
    rate = dissipation_bound(terms)
    assert rate.curvature == 0.0 and np.isinf(rate.end) and np.all(rate.alpha(np.arange(5.0)) == 0)
    with pytest.raises(ValueError, match="terms: expected at least one configuration"):
        dissipation_bound([])
    with pytest.raises(ValueError, match="v"):
        impulse_bound(terms, jnp.zeros(3))


def test_in_space_the_bound_holds_for_small_steps(rng):
    """Euler's method on the inclusion of a box on four corners, sliding by the round cone, in plain NumPy."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    bound, rate = impulse_bound(terms, model.initial_state().v), dissipation_bound(terms)
    M, J_n, J_t, mu = (np.asarray(getattr(terms, n)) for n in ("M", "J_n", "J_t", "mu"))
    move_n, move_t = (
        np.linalg.solve(M, J_n.T).T,
        np.linalg.solve(M, J_t.reshape(-1, 6).T).T.reshape(J_t.shape),
    )
    ds = bound.total / 4000
    for _ in range(5):
        v, s = np.asarray(model.initial_state().v) + 0.3 * rng.normal(size=6), 0.0
        total, begin = impulse_bound(terms, jnp.asarray(v)).total, np.sqrt(v @ M @ v)
        weight = rng.uniform(size=len(mu)) ** 2
        while np.min(J_n @ v) < 0:
            take = weight * (J_n @ v <= 0) / np.sum(weight * (J_n @ v <= 0))
            u_t = J_t @ v
            away = u_t / np.maximum(np.linalg.norm(u_t, axis=1, keepdims=True), 1e-2)
            v = v + ds * (take @ move_n - np.einsum("i,it,itv->v", take * mu, away, move_t))
            s += ds
            assert s <= total
        assert np.sqrt(v @ M @ v) <= begin * (1 - rate.alpha(s / begin)) + 1e-12
        assert s > 0

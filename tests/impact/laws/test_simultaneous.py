"""Restitution of all contacts at once: Newton's, Poisson's and Stronge's law against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact import newton, poisson, routh_path

LAWS = {
    "newton": lambda terms, v, e: newton(terms, v, restitution=e),
    "poisson": lambda terms, v, e: poisson(terms, v, restitution=e),
    "energetic": lambda terms, v, e: routh_path(
        terms, v, jnp.ones_like(terms.phi), restitution=e, max_events=16
    ),
}


def contacts(mass, J_n, J_t, mu):
    J_n = jnp.asarray(J_n, float)
    J_t = jnp.asarray(J_t, float)[:, None] if np.ndim(J_t) == 2 else jnp.asarray(J_t, float)
    nc = J_n.shape[0]
    return jc.ContactTerms(
        M=jnp.asarray(mass, float), J_n=J_n, J_t=J_t, phi=jnp.zeros(nc),
        mu=jnp.broadcast_to(jnp.asarray(mu, float), (nc,)), active=jnp.ones(nc, bool),
    )  # fmt: skip


def chain(masses):
    """Balls in line that touch; contact i is between balls i and i + 1."""
    n = len(masses)
    return contacts(np.diag(masses), np.eye(n - 1, n, 1) - np.eye(n - 1, n), np.zeros((n - 1, n)), 0.0)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_three_balls(law):
    """The first one strikes: at once (-1/3, 2/3, 2/3) e + (1 - e) / 3, without a loss at e = 1."""
    for e in (0.0, 0.4, 1.0):
        v_plus, info = LAWS[law](chain([1.0, 1.0, 1.0]), jnp.array([1.0, 0.0, 0.0]), e)
        at_once = np.array([-1.0, 2.0, 2.0]) / 3.0
        assert int(info.status) == 0
        np.testing.assert_allclose(v_plus, e * at_once + (1 - e) / 3.0, atol=1e-12)
        np.testing.assert_allclose(info.energy_ratio, (1 + 2 * e**2) / 3.0, rtol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("ratio", [0.01, 0.2, 0.4])
def test_three_balls_with_an_impulse_correlation_ratio(ratio):
    """Elastic, dP_2 = ratio dP_1 while the first contact pushes; then the second one alone.

    v_1 = 1 - P_1, v_2 = (1 - ratio) P_1, v_3 = ratio P_1: the first contact ends at P_1 = 2 / (2 - ratio). The
    second has stored the work of its approach, and returns it.
    """
    v_plus, info = routh_path(
        chain([1.0, 1.0, 1.0]), jnp.array([1.0, 0.0, 0.0]), jnp.array([1.0, ratio]), restitution=1.0
    )
    impulse = 2.0 / (2.0 - ratio)
    v_2, v_3 = (1 - ratio) * impulse, ratio * impulse
    stays = np.array([1 - impulse, v_3, v_2])  # two equal balls exchange their speeds, less what they had
    assert int(info.status) == 0
    # Work of the second contact so far: half of (v_2 - v_3) times its impulse, all of it in store.
    closing, stored = v_2 - v_3, 0.5 * (v_2 - v_3) * ratio * impulse
    separating = np.sqrt(closing**2 + 4.0 * stored)  # of two balls of mass 1, whose reduced mass is 1 / 2
    mean = 0.5 * (v_2 + v_3)
    assert stays[0] == pytest.approx(float(v_plus[0]), abs=1e-10)
    np.testing.assert_allclose(v_plus[1:], [mean - 0.5 * separating, mean + 0.5 * separating], atol=1e-10)
    np.testing.assert_allclose(info.energy_ratio, 1.0, rtol=1e-10)


def flat_box(dim, offset=0.0, mu=0.0):
    """A box of 2 kg and 1 m that falls flat on its corners, the floor's edge at `offset`."""
    if dim == 2:
        x = np.array([-0.5 + offset, 0.5])
        J_n = np.stack([0 * x, 1 + 0 * x, x], 1)
        J_t = np.stack([1 + 0 * x, 0 * x, 0.5 + 0 * x], 1)
        return contacts(np.diag([2.0, 2.0, 1 / 3]), J_n, J_t, mu)
    x, y = (a.ravel() for a in np.meshgrid([-0.5 + offset, 0.5], [-0.5, 0.5]))
    one, zero = np.ones(4), np.zeros(4)
    J_n = np.stack([zero, zero, one, y, -x, zero], 1)
    J_t = np.stack(
        [
            np.stack([one, zero, zero, zero, -0.5 * one, -y], 1),
            np.stack([zero, one, zero, 0.5 * one, zero, x], 1),
        ],
        axis=1,
    )
    return contacts(np.diag([2.0] * 3 + [1 / 3] * 3), J_n, J_t, mu)


@pytest.mark.long
@pytest.mark.parametrize(
    "law, dim", [("newton", 2), ("newton", 3), ("poisson", 2), ("poisson", 3), ("energetic", 2)]
)
def test_a_box_that_falls_flat_goes_up_without_turning(law, dim):
    terms = flat_box(dim, mu=0.4)
    v = jnp.zeros(terms.M.shape[0]).at[dim - 1].set(-3.0)
    for e in (0.0, 0.5, 1.0):
        v_plus, info = LAWS[law](terms, v, e)
        assert int(info.status) == 0
        np.testing.assert_allclose(v_plus, -e * v, atol=1e-11)
    off, info = LAWS[law](flat_box(dim, 0.3), v, 1.0)
    assert int(info.status) == 0 and abs(float(info.energy_ratio) - 1.0) < 1e-9
    assert float(jnp.min(flat_box(dim, 0.3).J_n @ off)) > -1e-9


def kane(q=(np.radians(20.0), np.radians(30.0))):
    """The double pendulum of two rods of 1 kg and 1 m whose end strikes the floor (Kane & Levinson 1985)."""
    a, b = q
    cross = 0.5 * np.cos(a - b)
    mass = [[4 / 3, cross], [cross, 1 / 3]]
    return contacts(mass, [[np.sin(a), np.sin(b)]], [[np.cos(a), np.cos(b)]], 0.5)


@pytest.mark.long
def test_kanes_paradox():
    """Newton's law with friction makes energy; so it says. Stronge's never does.

    With u_n+ = -e u_n- and slip that reverses, the end slides back with full friction: two equations.
    """
    terms, v, e = kane(), jnp.array([-0.1, -0.2]), 0.7
    found = {name: law(terms, v, e) for name, law in LAWS.items()}
    D = np.concatenate([terms.J_n, terms.J_t[0]]) @ np.linalg.solve(
        terms.M, np.concatenate([terms.J_n, terms.J_t[0]]).T
    )
    u = np.concatenate([terms.J_n, terms.J_t[0]]) @ v
    stick = np.linalg.solve(D, [-(1 + e) * u[0], -u[1]])
    assert abs(stick[1]) > 0.5 * stick[0]  # friction does not suffice: it slides on, or back
    sign = np.sign(stick[1])
    slide = -(1 + e) * u[0] / (D[0, 0] + sign * 0.5 * D[0, 1])
    expected = np.array([slide, sign * 0.5 * slide])
    v_plus, info = found["newton"]
    np.testing.assert_allclose(info.impulse[0], expected, rtol=1e-9)
    assert float(info.energy_ratio) > 1.0 and int(info.status) == int(jc.Status.ENERGY)
    for name in ("poisson", "energetic"):
        _, info = found[name]
        risen = float(info.energy_ratio) > 1.0 + 1e-9
        assert bool(int(info.status) & int(jc.Status.ENERGY)) == risen
    assert float(found["energetic"][1].energy_ratio) < 1.0 and int(found["energetic"][1].status) == 0


def impulse_path(D, u, mu, e, steps=40_000):
    """Routh's path of one contact by small steps of impulse, with Stronge's end: contact velocities after."""
    u, store, compressed = np.array(u, float), 0.0, False
    size = -2.5 * u[0] / D[0, 0] / steps
    stick = -D[0, 1] / D[1, 1]
    while True:
        if abs(u[1]) > 2 * size * np.abs(D).max():
            friction = -np.sign(u[1]) * mu
        else:
            friction = np.clip(stick, -mu, mu)
            u[1] = 0.0 if abs(stick) <= mu else u[1]
        new = u + size * (D[:, 0] + friction * D[:, 1])
        work = size * 0.5 * (u[0] + new[0])
        store -= work if work > 0 else e**2 * work
        u, compressed = new, compressed or new[0] > 0
        if compressed and store <= 0:
            return u


SLIPS = {
    "stops and sticks": ([[1.0, 0.2], [0.2, 1.0]], [-1.0, 0.3], 0.6),
    "stops in compression and reverses": ([[1.0, 0.7], [0.7, 1.0]], [-1.0, -0.4], 0.3),
    "stops in restitution and reverses": ([[1.0, 0.7], [0.7, 1.0]], [-1.0, -1.1], 0.3),
    "reverses from the other side": ([[1.0, -0.8], [-0.8, 1.2]], [-1.0, 0.5], 0.2),
    "slides on": ([[1.0, 0.5], [0.5, 1.5]], [-1.0, 3.0], 0.4),
    "jams": ([[1.0, 0.9], [0.9, 1.0]], [-1.0, 2.0], 1.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SLIPS)
def test_one_contact_with_restitution_is_exact(case):
    D, u, mu = SLIPS[case]
    terms = contacts(np.linalg.inv(D), [[1.0, 0.0]], [[0.0, 1.0]], mu)
    for e in (0.3, 0.9, 1.0):
        v_plus, info = routh_path(terms, jnp.asarray(u), jnp.ones(1), restitution=e, max_events=16)
        assert int(info.status) == 0 and float(info.energy_ratio) <= 1.0 + 1e-12
        np.testing.assert_allclose(v_plus, impulse_path(np.array(D), u, mu, e), atol=3e-4)


def test_work_of_restitution_is_that_share_of_compression():
    """By the path itself: trapezoids of u_n over the normal impulse."""
    D, u, mu = SLIPS["stops in restitution and reverses"]
    terms = contacts(np.linalg.inv(D), [[1.0, 0.0]], [[0.0, 1.0]], mu)
    _, info = routh_path(terms, jnp.asarray(u), jnp.ones(1), restitution=0.6, max_events=16)
    normal = np.asarray(info.path)[:, 0]
    work = 0.5 * np.diff(np.asarray(info.path_impulse)[:, 0, 0]) * (normal[1:] + normal[:-1])
    assert work[work > 0].sum() == pytest.approx(-0.36 * work[work < 0].sum(), rel=1e-12)


@pytest.mark.long
def test_energy_never_rises_along_an_energetic_path(rng):
    """Random mechanisms of three contacts, any friction, e and rates."""

    @jax.jit
    @jax.vmap
    def outcome(mass, J, mu, e, rates, v):
        terms = jc.ContactTerms(
            M=mass, J_n=J[:, 0], J_t=J[:, 1:], phi=jnp.zeros(3), mu=mu, active=jnp.ones(3, bool)
        )
        v_plus, info = routh_path(terms, v, rates, restitution=e, max_events=48)
        return terms.J_n @ v_plus, info.energy_ratio, info.status

    n = 200
    root = rng.normal(size=(n, 4, 4))
    mass = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(4)
    J, v = rng.normal(size=(n, 3, 2, 4)), rng.normal(size=(n, 4))
    mu, e, rates = rng.uniform(0, 1.5, (n, 3)), rng.uniform(0, 1, (n, 3)), rng.uniform(0.05, 1, (n, 3))
    normal, ratio, status = (np.asarray(a) for a in outcome(mass, J, mu, e, rates, v))
    ended = status == 0
    assert ended.mean() > 0.9
    assert ratio.max() < 1.0 + 1e-9
    assert np.all(normal[ended] > -1e-7 * np.linalg.norm(v[ended], axis=1, keepdims=True) * 10)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_derivatives_of_the_laws(law):
    terms, v = flat_box(2, 0.2, mu=0.3), jnp.array([0.4, -1.0, 0.3])

    def outcome(v, e):
        return LAWS[law](terms, v, e)[0]

    forward = jax.jacfwd(outcome, (0, 1))(v, 0.6)
    reverse = jax.jacrev(outcome, (0, 1))(v, 0.6)
    h = 1e-6
    by_e = (outcome(v, 0.6 + h) - outcome(v, 0.6 - h)) / (2 * h)
    by_v = np.stack([(outcome(v + h * d, 0.6) - outcome(v - h * d, 0.6)) / (2 * h) for d in np.eye(3)], 1)
    for found in (forward, reverse):
        np.testing.assert_allclose(found[0], by_v, atol=1e-7)
        np.testing.assert_allclose(found[1], by_e, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_bad_restitution(law):
    terms, v = flat_box(2), jnp.array([0.0, -1.0, 0.0])
    with pytest.raises(ValueError, match="restitution: expected numbers in 0..1, got 1.5"):
        LAWS[law](terms, v, 1.5)
    with pytest.raises(ValueError, match=r"restitution: expected shape \(\) or \(2,\), got \(3,\)"):
        LAWS[law](terms, v, jnp.ones(3))
    status = jax.jit(jax.vmap(lambda e: LAWS[law](terms, v, e)[1].status))(jnp.array([0.5, 1.5, jnp.nan]))
    assert (np.asarray(status) & int(jc.Status.INVALID) != 0).tolist() == [False, True, True]

"""Contact modes, equilibrium, ambiguity and impacts of the zero-order dynamics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.stability_bodies import ALPHA2, fig2
from scipy.optimize import linprog

import jaxcontact as jc
from jaxcontact.stability import PlanarBiped, contact_modes, impact, is_ambiguous, is_equilibrium, local_terms
from jaxcontact.stability.body import as_terms


@pytest.fixture(scope="module")
def bodies():
    """10^4 random bipeds, and as zero-order terms."""
    rng = np.random.default_rng(1)
    n = 10_000
    many = PlanarBiped(
        alpha=rng.uniform(-1, 1, n), h=rng.uniform(0.2, 2, n), L1=rng.uniform(-2, 0.5, n),
        L2=rng.uniform(0.6, 2, n), phi1=rng.uniform(-1, 1, n), phi2=rng.uniform(-1, 1, n),
        mu1=rng.uniform(0, 2, n), mu2=rng.uniform(0, 2, n), e1=rng.uniform(0, 0.95, n),
        e2=rng.uniform(0, 0.95, n), F=rng.uniform(0.5, 2, n), T=rng.uniform(-0.3, 0.3, n),
    )  # fmt: skip
    return many, jax.tree.map(np.asarray, jax.vmap(as_terms)(many))


@pytest.mark.slow
def test_every_mode_satisfies_the_equations_and_coulombs_law(bodies):
    many, terms = bodies
    table = jax.vmap(contact_modes)(many)
    words = np.array([list(word) for word in table.words])
    force = np.asarray(table.forces)
    normal, tangent = force[..., 0], force[..., 1]
    found = np.asarray(table.consistent)
    assert 0.2 < found.mean() < 0.7
    pushed = np.einsum("bmc,bcv->bmv", normal, terms.J_n) + np.einsum("bmc,bcv->bmv", tangent, terms.J_t)
    scale = 1 + np.abs(force).max((2, 3))[..., None]
    manipulator = np.asarray(table.acceleration) - pushed - terms.force[:, None]  # unit mass matrix
    assert np.max((np.abs(manipulator) / scale)[found]) < 1e-12
    lift = np.einsum("bcv,bmv->bmc", terms.J_n, table.acceleration) / scale
    slide = np.einsum("bcv,bmv->bmc", terms.J_t, table.acceleration) / scale
    mu = terms.mu[:, None]
    for letter, rule in {
        "F": (np.abs(normal) + np.abs(tangent)) / scale,
        "S": np.maximum(np.abs(lift), np.abs(slide)),
        "P": np.maximum(np.abs(lift), np.abs(tangent + mu * normal) / scale),
        "N": np.maximum(np.abs(lift), np.abs(tangent - mu * normal) / scale),
    }.items():
        broken = np.where(words[None] == letter, rule, 0.0).max(-1)
        assert broken[found].max() < 1e-12, letter
    assert np.min((normal / scale)[found]) > -1e-12
    assert np.min(((mu * normal - np.abs(tangent)) / scale)[found]) > -1e-12


@pytest.mark.float32
def test_ten_of_sixteen_modes_are_admissible():
    table = contact_modes(fig2(0.3, 0.2))
    named = {word for word, here in zip(table.words, table.admissible, strict=True) if here}
    assert named == {"FF", "PF", "SF", "NF", "FP", "FS", "FN", "PP", "NN", "SS"}
    at_rest = {word for word, here in zip(table.words, table.at_rest, strict=True) if here}
    assert "PF" in at_rest and "SS" in at_rest


@pytest.mark.slow
def test_ambiguity_region_is_the_analytic_one():
    d, mu1 = (x.ravel() for x in np.meshgrid(np.linspace(0.02, 1.0, 40), np.linspace(0.01, 1.2, 30)))
    still, ambiguous = jax.vmap(lambda d, m: (is_equilibrium(fig2(d, m)), is_ambiguous(fig2(d, m))))(d, mu1)
    expected = (d < np.tan(ALPHA2)) & (mu1 < np.tan(ALPHA2) - d)  # (57), (58) with h = 1
    assert d.size == 1200 and 100 < expected.sum() < 300
    assert bool(jnp.all(still))
    assert np.array_equal(ambiguous, expected)


@pytest.mark.long
def test_equilibrium_is_half_the_sum_of_frictions(rng):
    mu1, mu2, alpha = rng.uniform(0, 1, (3, 500))

    def body(mu1, mu2, alpha):
        return PlanarBiped(
            alpha=alpha, h=1.0, L1=jnp.tan(alpha) - 0.4, L2=jnp.tan(alpha) + 0.4, mu1=mu1, mu2=mu2
        )

    found = jax.vmap(lambda *x: is_equilibrium(body(*x)))(mu1, mu2, alpha)
    assert np.array_equal(found, mu1 + mu2 >= 2 * np.tan(alpha))


def rests(body):
    """Whether forces within the cones hold the body, by a linear program with scaled rows."""
    terms = as_terms(body)
    edges = np.concatenate([terms.J_n + s * terms.mu[:, None] * terms.J_t for s in (1, -1)])
    rows = np.abs(edges).max(0)
    edges = (edges / np.sqrt(1 + np.tile(terms.mu, 2) ** 2)[:, None] / rows).T
    load = -terms.force / rows
    answer = linprog(
        np.zeros(edges.shape[1]), A_eq=edges, b_eq=load / np.abs(load).max(), method="highs",
        options={"primal_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    return answer.status == 0


@pytest.mark.long
@pytest.mark.parametrize("decades", [3, 6])
def test_equilibria_of_bodies_with_parameters_of_many_sizes(decades, rng):
    def sizes():
        return 10 ** rng.uniform(-decades / 2, decades / 2, 150)

    d = sizes()
    middle = rng.uniform(-1.2, 1.2, 150) * d
    bodies = PlanarBiped(
        alpha=rng.uniform(-0.5, 0.7, 150),
        h=sizes(),
        L1=middle - d,
        L2=middle + d,
        mu1=sizes(),
        mu2=sizes(),
        F=sizes(),
    )
    terms = jax.vmap(as_terms)(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (150,)), bodies))
    expected = [rests(jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), terms)) for i in range(150)]
    assert 20 < sum(expected) < 130
    np.testing.assert_array_equal(jax.vmap(is_equilibrium)(terms), expected)


def test_forces_that_are_rounding_do_not_deny_an_equilibrium():
    """Without friction, the force upright within rounding: sin(2 pi) is -2e-16."""
    assert bool(is_equilibrium(PlanarBiped(alpha=2 * np.pi, h=1.0, L1=-1.0, L2=1.0, mu1=0.0, mu2=0.0)))
    assert not bool(is_equilibrium(PlanarBiped(alpha=1e-9, h=1.0, L1=-1.0, L2=1.0, mu1=0.0, mu2=0.0)))


def test_the_static_mode_never_ends():
    """Definition 3 bounds the time in every mode that is consistent; this one is, and does not move."""
    table = contact_modes(fig2(0.5, 0.8))
    still = table.words.index("SS")
    assert bool(table.at_rest[still]) and not bool(is_ambiguous(fig2(0.5, 0.8)))
    np.testing.assert_allclose(table.acceleration[still], 0.0, atol=1e-15)


@pytest.mark.long
def test_an_impact_by_newtons_law_may_raise_kinetic_energy():
    """A foot that slips, hits and sticks: energy by the contact velocity u is u'D^-1 u / 2, least over slip."""
    e, r = 0.95, 1.6
    body = PlanarBiped(alpha=0.0, h=r, L1=-r, L2=r, mu1=0.6, mu2=0.6, e1=e, e2=e)
    terms = as_terms(body)
    rows = np.stack([terms.J_n[0], terms.J_t[0]])
    D = rows @ rows.T
    slip = -D[0, 1] / D[0, 0]
    before = rows.T @ np.linalg.solve(D, [-1.0, slip])
    after, push = impact(body, jnp.asarray(before), 0)
    np.testing.assert_allclose(rows @ after, [e, 0.0], atol=1e-12)
    assert abs(float(push[1])) < 0.6 * float(push[0])
    share = D[0, 1] ** 2 / (D[0, 0] * D[1, 1])
    ratio = float(after @ after) / float(before @ before)
    assert ratio == pytest.approx(e**2 / (1 - share), rel=1e-12) and ratio > 1.85
    contacts = jc.ContactTerms(
        M=jnp.eye(3), J_n=terms.J_n[:1], J_t=terms.J_t[:1, None], phi=jnp.zeros(1), mu=jnp.array([0.6]),
        active=jnp.ones(1, bool),
    )  # fmt: skip
    same, info = jc.impact.newton(contacts, jnp.asarray(before), restitution=e)
    np.testing.assert_allclose(same, after, atol=1e-9)
    assert int(info.status) == int(jc.Status.ENERGY)


@pytest.mark.slow
def test_impacts_obey_newton_and_coulomb(bodies, rng):
    many, terms = bodies
    v = rng.normal(size=(10_000, 3))
    v[:, 1] -= np.maximum(0, np.einsum("bv,bv->b", terms.J_n[:, 0], v)) / terms.J_n[:, 0, 1] * 1.5
    after, impulse = (np.asarray(x) for x in jax.vmap(lambda b, x: impact(b, x, 0))(many, v))
    n, t, mu, e = terms.J_n[:, 0], terms.J_t[:, 0], terms.mu[:, 0], terms.e[:, 0]

    def speed(row, x):
        return np.einsum("bv,bv->b", row, x)

    size = 1 + np.abs(impulse).max(1)
    assert np.all(speed(n, v) < 0) and np.all(np.isfinite(after))
    assert np.max(np.abs(speed(n, after) + e * speed(n, v)) / size) < 1e-12
    pushed = v + impulse[:, :1] * n + impulse[:, 1:] * t
    assert np.max(np.abs(pushed - after) / size[:, None]) < 1e-12
    assert np.min(impulse[:, 0]) >= 0
    assert np.min((mu * impulse[:, 0] - np.abs(impulse[:, 1])) / size) > -1e-12
    slip = speed(t, after)
    sliding = np.abs(slip) > 1e-9 * size
    kinds = [np.sum(~sliding), np.sum(sliding & (slip > 0)), np.sum(sliding & (slip < 0))]
    assert min(kinds) > 500
    against = impulse[:, 1] + np.sign(slip) * mu * impulse[:, 0]
    assert np.max((np.abs(against) / size)[sliding]) < 1e-12
    assert np.array_equal(impact(fig2(0.3, 0.5), jnp.array([1.0, 1.0, 0.0]), 0)[1], [0.0, 0.0])


def test_local_terms_of_the_rocking_block():
    model = jc.models.rocking_block()
    terms = local_terms(model, model.initial_state(), e=0.2)
    assert np.allclose(terms.J_n, [[0, 1, -0.5], [0, 1, 0.5]], atol=1e-14)
    assert np.allclose(terms.J_t, [[1, 0, 1], [1, 0, 1]], atol=1e-14)
    assert np.allclose(terms.force, [0, -9.81, 0], atol=1e-14)
    assert bool(is_equilibrium(terms)) and not bool(is_ambiguous(terms))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mu1": -0.1}, "mu1: expected a finite number >= 0, got -0.1"),
        ({"e2": 1.0}, r"e2: expected restitution in \[0, 1\), got 1"),
        ({"e1": -0.5}, "e1: expected a finite number >= 0, got -0.5"),
        ({"L1": 0.5, "L2": 0.5}, "L1, L2: the feet coincide at 0.5"),
        ({"alpha": np.nan}, "alpha: expected finite numbers"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        contact_modes(fig2(0.3, 0.5).replace(**change))


def test_mistakes_of_local_terms_are_named():
    model = jc.models.rocking_block()
    with pytest.raises(ValueError, match=r"e\[0\]: expected restitution"):
        local_terms(model, model.initial_state(), e=1.5)
    high = model.initial_state().replace(q=model.initial_state().q + 1.0)
    with pytest.raises(ValueError, match="expected 1 to 3 active contacts, got 0"):
        local_terms(model, high)
    spatial = jc.models.box_drop_3d()
    with pytest.raises(ValueError, match="planar"):
        local_terms(spatial, spatial.initial_state())
    with pytest.raises(TypeError, match="PlanarBiped or LocalTerms"):
        contact_modes(model)

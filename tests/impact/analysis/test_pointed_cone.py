"""Pointed friction cones: closed forms, jamming, and equation (77) on sampled impulses."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxcontact.impact.analysis.pointed_cone import pointed_cone


def planar(M, normals, tangents, mu, active=None):
    normals = np.asarray(normals, float)
    nc = len(normals)
    return SimpleNamespace(
        M=np.asarray(M, float),
        J_n=normals,
        J_t=np.asarray(tangents, float)[:, None, :],
        mu=np.broadcast_to(np.asarray(mu, float), (nc,)),
        active=np.ones(nc, bool) if active is None else np.asarray(active),
    )


def rocking_block(mu):
    """Unit mass, 1 wide and 2 high, both lower corners on level ground; v = (x, y, angle)."""
    corners = [(-0.5, -1.0), (0.5, -1.0)]
    return planar(
        np.diag([1.0, 1.0, 5 / 12]),
        [(0, 1, x) for x, _ in corners],
        [(1, 0, -y) for _, y in corners],
        mu,
    )


def wedge(mu, half_angle=0.4):
    """A point mass in a V: faces steep by pi/2 - half_angle, so the normals are nearly opposed."""
    c, s = np.cos(half_angle), np.sin(half_angle)
    return planar(np.diag([2.0, 2.0]), [(c, s), (-c, s)], [(-s, c), (s, c)], mu)


def spatial_ball(mu):
    """A rough ball of unit mass and radius 0.1 in a corner of three mutually orthogonal walls."""
    radius, eye = 0.1, np.eye(3)
    J_n, J_t = np.zeros((3, 6)), np.zeros((3, 2, 6))
    for i in range(3):
        J_n[i, :3] = eye[i]
        for k, t in enumerate((eye[(i + 1) % 3], eye[(i + 2) % 3])):
            J_t[i, k] = np.concatenate([t, np.cross(-radius * eye[i], t)])
    inertia = 0.4 * radius**2
    return SimpleNamespace(
        M=np.diag([1.0] * 3 + [inertia] * 3),
        J_n=J_n,
        J_t=J_t,
        mu=np.full(3, mu),
        active=np.ones(3, bool),
    )


def worst_ratio(terms, r, samples=4000):
    """Smallest r . M^-1 J^T lam / |lam_n|_1 over random impulses of the true Coulomb cone."""
    rng = np.random.default_rng(0)
    nc, nt, _ = terms.J_t.shape
    lam_n = rng.dirichlet(np.full(nc, 0.3), samples) * terms.active
    direction = rng.standard_normal((samples, nc, nt))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    share = np.where(rng.random((samples, nc)) < 0.5, 1.0, rng.random((samples, nc)))
    lam_t = direction * (share * terms.mu * lam_n)[..., None]
    force = lam_n @ terms.J_n + np.einsum("sit,itv->sv", lam_t, terms.J_t)
    total = lam_n.sum(axis=1)
    keep = total > 1e-9
    return np.min((force @ np.linalg.solve(terms.M, r))[keep] / total[keep])


def test_one_frictionless_contact_has_the_closed_form():
    # Point mass 3, normal along y: 1 = r . M^-1 n = r_y / 3, and the unit box allows margin 1.
    terms = planar(np.diag([3.0, 3.0]), [(0, 1)], [(1, 0)], 0.0)
    r, margin = pointed_cone(terms)
    assert r[1] == pytest.approx(3.0, rel=1e-12)
    assert margin == pytest.approx(1.0, rel=1e-12)
    # With friction the generators are (+-mu, 1): the same r_y, r_x = 0, and the sine of atan(1 / mu).
    r, margin = pointed_cone(planar(np.diag([3.0, 3.0]), [(0, 1)], [(1, 0)], 0.75))
    np.testing.assert_allclose(r, [0.0, 3.0], atol=1e-9)
    assert margin == pytest.approx(0.8, rel=1e-9)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 5.0])
def test_rocking_block_on_two_corners_is_pointed(mu):
    terms = rocking_block(mu)
    r, margin = pointed_cone(terms)
    assert margin > 0.05
    generators = np.concatenate([terms.J_n + s * mu * terms.J_t[:, 0] for s in (-1, 1)])
    assert np.min(generators @ np.linalg.solve(terms.M, r)) == pytest.approx(1.0, rel=1e-12)
    assert worst_ratio(terms, r) >= 1.0 - 1e-12


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_opposed_walls_jam(mu):
    terms = planar(np.diag([1.0, 1.0]), [(1, 0), (-1, 0)], [(0, 1), (0, 1)], mu)
    r, margin = pointed_cone(terms)
    assert np.all(np.isnan(r)) and margin == 0.0
    # The mask takes one wall away.
    terms.active = np.array([True, False])
    r, margin = pointed_cone(terms)
    assert margin > 0.5 and worst_ratio(terms, r) >= 1.0 - 1e-12


@pytest.mark.parametrize("half_angle", [0.1, 0.4, 1.2])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_wedge_jams_beyond_the_friction_of_its_angle(half_angle, side):
    # Each cone reaches atan(mu) below its normal at elevation half_angle: they meet at mu = tan.
    for gap in (1e-2, 1e-7):
        terms = wedge(np.tan(half_angle) * (1 + side * gap), half_angle)
        r, margin = pointed_cone(terms)
        assert (margin > 0) == (side < 0)
        if side < 0:
            clearance = half_angle - np.arctan(terms.mu[0])
            assert margin == pytest.approx(np.sin(clearance), rel=1e-6)
            # r grows as 1 / margin, and the rounding of the sampled products with it.
            assert worst_ratio(terms, r) >= 1.0 - 1e-15 / margin
        else:
            assert np.all(np.isnan(r))


def test_units_do_not_matter():
    terms = rocking_block(0.6)
    _, margin = pointed_cone(terms)
    # The angle in units of 1000 rad, and the mass in grams.
    scale = np.diag([1.0, 1.0, 1e3])
    other = planar(scale @ terms.M @ scale * 1e3, terms.J_n @ scale, terms.J_t[:, 0] @ scale, 0.6)
    r_other, margin_other = pointed_cone(other)
    assert margin_other == pytest.approx(margin, rel=1e-9)
    assert worst_ratio(other, r_other) >= 1.0 - 1e-9


def test_spatial_cone_bounds_the_true_one():
    for mu in (0.0, 0.2, 0.6):
        terms = spatial_ball(mu)
        r, margin = pointed_cone(terms)
        assert margin > 0 and worst_ratio(terms, r) >= 1.0 - 1e-9
    # One frictional contact of a point mass: the polygon's corners have slope mu / cos(pi / k).
    terms = SimpleNamespace(
        M=np.diag([2.0] * 3),
        J_n=np.array([[0.0, 0.0, 1.0]]),
        J_t=np.eye(3)[None, :2],
        mu=np.array([0.5]),
        active=np.array([True]),
    )
    for count in (4, 16, 200):
        r, margin = pointed_cone(terms, num_directions=count)
        assert margin == pytest.approx(np.cos(np.arctan(0.5 / np.cos(np.pi / count))), rel=1e-9)
        np.testing.assert_allclose(r, [0.0, 0.0, 2.0], atol=1e-8)


def test_spatial_grasp_between_two_fingers_is_not_pointed():
    terms = spatial_ball(0.3)
    terms.J_n[1] = -terms.J_n[0]
    r, margin = pointed_cone(terms)
    assert np.all(np.isnan(r)) and margin == 0.0


def test_an_impulse_without_effect_is_not_pointed():
    # mu J_t = J_n: one generator of the cone vanishes, so (77) cannot hold.
    r, margin = pointed_cone(planar(np.eye(2), [(0, 1)], [(0, 2)], 0.5))
    assert np.all(np.isnan(r)) and margin == 0.0


def changed(**fields):
    return SimpleNamespace(**{**vars(rocking_block(0.5)), **fields})


@pytest.mark.parametrize(
    "terms, message",
    [
        (changed(active=np.zeros(2, bool)), "expected at least one active contact, got none"),
        (changed(mu=np.array([0.5, -0.1])), "terms.mu: expected at least 0"),
        (changed(mu=np.array([0.5, np.nan])), "terms.mu: expected finite"),
        (changed(mu=np.array([0.5])), r"terms.mu: expected shape \(2,\), got \(1,\)"),
        (changed(M=-np.eye(3)), "positive definite"),
        (changed(M=np.eye(3) + np.triu(np.ones((3, 3)), 1)), "symmetric"),
        (changed(M=np.eye(2)), "terms.J_n: expected shape"),
        (changed(M=np.ones(3)), "terms.M: expected a square"),
        (changed(J_t=np.zeros((2, 3))), "terms.J_t: expected shape"),
    ],
)
def test_wrong_terms_are_named(terms, message):
    with pytest.raises(ValueError, match=message):
        pointed_cone(terms)


def test_wrong_number_of_directions_is_named():
    with pytest.raises(ValueError, match="num_directions: expected at least 3, got 2"):
        pointed_cone(rocking_block(0.5), num_directions=2)
    with pytest.raises((TypeError, ValueError), match="num_directions"):
        pointed_cone(rocking_block(0.5), num_directions=8.0)

"""Certificates under the law of Anitescu and Potra, against every solution of it, motions and other laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.stability_bodies import fig2, fig3, three_feet

import jaxcontact as jc
from jaxcontact.stability import (
    LocalTerms,
    certify,
    chatter_rate,
    check,
    excursion_bounds,
    falsify,
    margin,
    motion_path,
)
from jaxcontact.stability.body import AT_ONCE_LAW, IMPACT_LAW, as_terms

AT_ONCE = jc.impact.AnitescuPotra()


def body_on_slopes(feet, phi, alpha, mu, inertia, mass=2.0):
    """A body on two feet, each on a slope of its own."""
    feet, phi = np.array(feet), np.array(phi)

    def rows(x, y):
        return jnp.asarray(np.stack([x, y, feet[:, 0] * y - feet[:, 1] * x], axis=1))

    return LocalTerms(
        M=jnp.diag(jnp.array([mass, mass, inertia])),
        J_n=rows(-np.sin(phi), np.cos(phi)),
        J_t=rows(np.cos(phi), np.sin(phi)),
        mu=jnp.array(mu),
        e=jnp.zeros(2),
        force=mass * 9.81 * jnp.array([np.sin(alpha), -np.cos(alpha), 0.0]),
    )


def leaning_body():
    """A body that one impact after the other makes grow, and that both contacts at once bring to rest."""
    return body_on_slopes(
        [[-0.4333, -1.1502], [0.1734, -1.2559]], [-0.0775, 0.5793], -0.0855, [1.2639, 0.0711], 0.15
    )


def rocking_body(unit=1.0, weight=1.0):
    """Another, with a certificate for both contacts at once; lengths by `unit`, masses by `weight`."""
    return body_on_slopes(
        unit * np.array([[-0.54, -1.14], [0.45, -1.34]]), [0.37, 0.36], -0.1, [0.45, 0.68],
        0.26 * weight * unit**2, 2.0 * weight,
    )  # fmt: skip


@pytest.mark.long
def test_a_body_that_grows_by_single_impacts_is_proved_stable_with_all_at_once():
    body = rocking_body()
    single, joint = certify(body), certify(body, law=AT_ONCE)
    assert single.verdict == "undecided" and single.law == IMPACT_LAW
    assert joint.verdict == "stable" and joint.law == AT_ONCE_LAW and check(joint)
    assert not check(joint.replace(law=IMPACT_LAW)) and not check(joint.replace(law="another"))
    alone, at_once = falsify(body, num_samples=64), falsify(body, num_samples=64, law=AT_ONCE)
    assert alone.found and alone.growth > 0.02
    assert not at_once.found and at_once.share[1] == 1.0
    assert margin(body) == 0.0 and margin(body, law=AT_ONCE) == joint.residuals["margin"] > 0.009
    assert chatter_rate(body) > 0 > chatter_rate(body, law=AT_ONCE)
    assert 0 < excursion_bounds(joint).delta(0.5) < 0.5


@pytest.mark.long
@pytest.mark.parametrize("body", [rocking_body(), fig2(0.5, 0.8), three_feet(0.3, (0.4, 0.6, 0.4), 0.0)])
def test_functions_fall_over_every_solution_of_the_law(body):
    """All outcomes that `outcomes` lists, from velocities with one contact closed and others that approach."""
    terms, proof = as_terms(body), certify(body, law=AT_ONCE)
    assert proof.verdict == "stable"
    rng, nc = np.random.default_rng(4), len(terms.mu)
    v = rng.normal(size=(600, 3))
    closed = np.asarray(terms.J_n)[np.arange(600) % nc]
    v -= closed * (np.sum(closed * v, axis=1) / np.sum(closed**2, axis=1))[:, None]
    rate = v @ np.asarray(terms.J_n).T
    contacts = jc.ContactTerms(
        M=terms.M, J_n=terms.J_n, J_t=terms.J_t[:, None], phi=jnp.zeros(nc), mu=terms.mu,
        active=jnp.ones(nc, bool),
    )  # fmt: skip

    def list_all(v, touches):
        return jc.impact.outcomes(contacts.replace(active=touches), v, AT_ONCE)[0]

    touches = rate < 1e-12  # contacts that separate are taken as open
    values, valid = jax.jit(jax.vmap(list_all))(v, touches)
    assert np.mean(np.any(valid, axis=1)) > 0.9
    (V,) = proof.V
    still = np.zeros(3)
    before, after = V(still, v)[:, None], V(still, np.asarray(values))
    scale = np.linalg.norm(np.array(V.quadratic, float)) * np.sum(v**2, axis=1)[:, None]
    assert np.all((after <= before + 1e-9 * scale) | ~np.asarray(valid))
    assert np.any((after < before - 1e-3 * scale) & np.asarray(valid))


@pytest.mark.parametrize(("unit", "weight"), [(1e-3, 1.0), (1e3, 1.0), (1.0, 1e7), (1.0, 1e-6)])
def test_the_margin_has_no_units(unit, weight):
    assert margin(rocking_body(unit, weight), law=AT_ONCE) == pytest.approx(0.0097, rel=0.01)


def test_laws_without_restitution_ignore_that_of_the_body():
    body = fig3(0.8, 1.0, e=0.3)
    alone = certify(body, law=jc.impact.Sequential())
    assert alone.verdict == "stable" and alone.law == IMPACT_LAW and not np.any(alone.body.e)
    assert alone.residuals["margin"] == certify(body.replace(e1=0.0, e2=0.0)).residuals["margin"]
    assert certify(body, law=AT_ONCE).verdict == "stable"


def test_other_laws_are_refused_by_name():
    body = fig2(0.5, 0.8)
    for law in (
        jc.impact.Newton(restitution=0.0),
        jc.impact.Routh(impulse_step=0.1, max_steps=9),
        lambda terms, v, key: v,
    ):
        with pytest.raises(ValueError, match=r"law: expected None, jc.impact.AnitescuPotra\(\)"):
            certify(body, law=law)
    with pytest.raises(TypeError, match="law"):
        certify(body, law=0.5)
    for method in ("single", "full", "printed", "return_map"):
        with pytest.raises(ValueError, match="method: expected 'homogeneous' with"):
            certify(body, law=AT_ONCE, method=method)


@pytest.mark.slow
def test_no_motion_grows_where_all_at_once_is_proved():
    """Random bodies: a certificate and a growing motion under the same law would contradict each other."""
    rng, proved, apart = np.random.default_rng(11), 0, 0
    for _ in range(300):
        feet = [
            [-rng.uniform(0.1, 0.6), -rng.uniform(0.8, 1.4)],
            [rng.uniform(0.1, 0.6), -rng.uniform(0.8, 1.4)],
        ]
        body = body_on_slopes(
            feet, rng.uniform(-0.7, 0.7, 2), rng.uniform(-0.3, 0.3), rng.uniform(0.05, 1.3, 2),
            rng.uniform(0.1, 0.5),
        )  # fmt: skip
        try:
            proof = certify(body, law=AT_ONCE)
        except ValueError:
            continue
        if proof.verdict == "stable":
            proved += 1
            assert check(proof) and not falsify(body, num_samples=64, law=AT_ONCE).found
            apart += certify(body).verdict != "stable"
    assert proved > 60 and apart > 3


@pytest.mark.long
def test_the_law_of_impacts_is_named_and_decides():
    body = leaning_body()
    alone = falsify(body, num_samples=64)
    at_once = falsify(body, num_samples=64, law=jc.impact.AnitescuPotra())
    assert alone.found and alone.growth == pytest.approx(0.15917, rel=1e-3) and "by contact" in alone.law
    assert not at_once.found and at_once.share[1] == 1.0 and "AnitescuPotra" in at_once.law
    assert certify(body).law == alone.law
    with pytest.raises(TypeError, match="law"):
        falsify(body, law=0.5)


@pytest.mark.slow
def test_one_contact_after_the_other_is_the_law_named_sequential():
    body = leaning_body()
    both = [falsify(body, num_samples=64, law=law) for law in (None, jc.impact.Sequential())]
    assert both[0].growth == pytest.approx(both[1].growth, rel=1e-9)
    np.testing.assert_array_equal(both[0].share, both[1].share)
    path, _ = motion_path(body, both[0].start, num_events=200, law=jc.impact.AnitescuPotra())
    assert path.log_size[-1] < -5.0

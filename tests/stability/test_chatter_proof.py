"""Proofs by the return map: against motions, against the growth of chatter, and damaged."""

import functools
from fractions import Fraction

import jax
import numpy as np
import pytest
from helpers.stability_bodies import fig2, fig3, three_feet

from jaxcontact.stability import (
    LocalTerms,
    PlanarBiped,
    certify,
    chatter_rate,
    check,
    excursion_bounds,
    falsify,
    is_equilibrium,
    motion_path,
)
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.chatter_map import chatter_map, images
from jaxcontact.stability.falsify import make_starts
from jaxcontact.stability.intervals import Interval, of_fraction
from jaxcontact.stability.motion import zero_order_dynamics
from jaxcontact.stability.rational_modes import exact_terms

# Stable by the return map, but without a quadratic function: slip, stick and cascades of impacts.
BODIES = fig2(0.64, 0.24), fig2(0.8, 0.2), fig2(1.1, 0.08)
SKEWED = fig2(0.64, 0.24).replace(phi1=0.1, phi2=-0.05, h=1.1, mu2=1.2)


@pytest.mark.parametrize("body", BODIES, ids=["slips", "slides", "cascades"])
def test_what_no_quadratic_function_proves(body):
    assert certify(body).verdict == "undecided"
    proof = certify(body, method="return_map")
    assert proof.verdict == "stable" and check(proof)


def test_the_proved_boundary_is_that_of_the_return_map():
    """Varkonyi, Fig. 2 at d = 0.45: the growth of chatter is zero at mu1 = 0.310750."""
    proof = certify(fig2(0.45, 0.31085), method="return_map")
    assert proof.verdict == "stable" and check(proof)
    assert certify(fig2(0.45, 0.305), method="return_map").verdict == "undecided"


@pytest.mark.slow
def test_growth_changes_its_sign_at_that_boundary():
    assert chatter_rate(fig2(0.45, 0.310751)) < 0 < chatter_rate(fig2(0.45, 0.310749))


def test_damaged_proofs_are_refused():
    proof = certify(BODIES[0], method="return_map")
    levels = proof.levels
    cell = int(np.argmax(levels))
    for wrong in (
        np.where(np.arange(len(levels)) == cell, 0.9 * levels, levels),
        np.ones_like(levels),
        -levels,
        np.full_like(levels, np.nan),
        levels[:-4],
        None,
    ):
        assert not check(proof.replace(levels=wrong))
    assert not check(proof.replace(body=as_terms(fig2(0.64, 0.1))))
    assert not check(proof.replace(body=as_terms(fig2(0.64, 0.24).replace(e1=0.1))))
    assert check(proof.replace(levels=3.0 * levels))
    with pytest.raises(ValueError, match="expected one by functions V, got one by the return map"):
        excursion_bounds(proof)


@functools.partial(jax.jit, static_argnums=(1, 2))
def moved(terms, samples, events):
    first = make_starts(zero_order_dynamics(terms), samples, jax.random.key(3))
    return jax.vmap(lambda start: motion_path(terms, start, num_events=events))(first)


def landings(body, samples=64, events=64):
    """(foot that stands, w, s) before landings of random motions, and the same before the next ones."""
    terms = jax.tree.map(np.asarray, as_terms(body))
    path, note = jax.tree.map(np.asarray, moved(terms, samples, events))
    pairs = []
    for lane in range(samples):
        last = None
        for k in np.flatnonzero((note["contact"][lane] >= 0) & (path.outcome[lane] == 0)):
            stands, v = 1 - note["contact"][lane, k], path.v[lane, k] * np.exp(path.log_size[lane, k])
            rates, slips = terms.J_n @ v, terms.J_t @ v
            if path.closed[lane, k, stands] or (last and abs(rates[stands]) < 1e-9 * np.abs(v).max()):
                here = stands, -rates[1 - stands], slips[stands]
                if last is not None and last[0] != stands:
                    pairs.append((last, here))
                last = here
            else:
                last = None
    return pairs


@pytest.mark.long
@pytest.mark.parametrize("body", [BODIES[0], BODIES[2], SKEWED], ids=["slips", "cascades", "skewed"])
def test_the_map_encloses_motions(body):
    """The interval motion of one point holds the next landing, which the motion by events gives."""
    chatter = chatter_map(exact_terms(jax.tree.map(np.asarray, as_terms(body))))
    terms = jax.tree.map(np.asarray, as_terms(body))
    drift = np.linalg.svd(terms.J_n)[2][-1]  # the mass matrix is the unit matrix
    slip, rate = np.abs(terms.J_t @ drift), np.linalg.norm(terms.J_n, axis=1)
    pairs = [
        (foot, w / rate[1 - foot], s / slip[foot], w_next / rate[foot], s_next / slip[1 - foot])
        for (foot, w, s), (_, w_next, s_next) in landings(body)
    ]
    pairs = np.array([pair for pair in pairs if pair[1] > 1e-6 * abs(pair[2])])
    assert len(pairs) > 100
    for foot in range(2):
        _, w, s, *after = pairs[pairs[:, 0] == foot].T
        size, best = np.maximum(w, np.abs(s)), np.full(len(w), np.inf)
        for piece in images(chatter, foot, Interval(w, w), Interval(s, s)):
            if len(piece) == 3:
                off = [np.maximum(x.lo - at, at - x.hi) for x, at in zip(piece[1:], after, strict=True)]
                best = np.where(piece[0], np.minimum(best, np.max(off, axis=0) / size), best)
        assert np.all(best < 1e-6)


def test_intervals_hold_exact_results():
    """Against rational arithmetic, at ends that rounding moves."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = (Fraction(int(x), 7) for x in rng.integers(-20, 20, 2))
        x, y = of_fraction(a), of_fraction(b)
        for exact, found in ((a + b, x + y), (a - b, x - y), (a * b, x * y), (abs(a), x.size())):
            assert Fraction(float(found.lo)) <= exact <= Fraction(float(found.hi))
        if b > 0:
            found = x.over(y)
            assert Fraction(float(found.lo)) <= a / b <= Fraction(float(found.hi))
            found = y.root()
            assert Fraction(float(found.lo)) ** 2 <= b <= Fraction(float(found.hi)) ** 2
    zero = of_fraction(Fraction(0)) * of_fraction(Fraction(1, 3))
    assert zero.lo == zero.hi == 0


def test_proofs_do_not_depend_on_units():
    """Millimetres, grams, and a gap and a slip of one foot measured in units of their own."""
    terms = jax.tree.map(np.asarray, as_terms(BODIES[0]))
    unit, row = np.array([1e-3, 1e-3, 1.0]), np.array([[1e3], [1.0]])
    for body in (
        terms.replace(J_n=terms.J_n * row, J_t=terms.J_t * row),
        LocalTerms(
            M=1e6 * terms.M * unit[:, None] * unit, J_n=1e3 * terms.J_n * unit, J_t=1e3 * terms.J_t * unit,
            mu=terms.mu, e=terms.e, force=1e6 * terms.force * unit,
        ),
    ):  # fmt: skip
        proof = certify(body, method="return_map")
        assert proof.verdict == "stable" and check(proof) and len(proof.levels) < 1000


def test_bodies_that_it_is_not_for():
    for body, reason in (
        (fig3(0.8, 0.6), "two feet without restitution"),
        (three_feet(0.2, (0.6, 0.6, 0.6)), "two feet without restitution"),
        (fig2(0.4, 0.8).replace(mu2=3.0), "friction at contact 1 is beyond what determines a motion"),
    ):
        found = certify(body, method="return_map")
        assert found.verdict == "undecided" and reason in found.report
    assert certify(fig2(0.3, 0.2), method="return_map").verdict == "unstable"


@pytest.mark.slow
def test_no_contradiction_among_random_bodies():
    """Inclined ground, unequal masses: what the return map proves no motion refutes, and it proves most."""
    rng, verdicts = np.random.default_rng(4), []
    for _ in range(400):
        one = PlanarBiped(
            alpha=rng.uniform(-0.6, 0.6), h=rng.uniform(0.3, 1.5), L1=rng.uniform(-1.5, -0.1),
            L2=rng.uniform(0.1, 1.5), phi1=rng.uniform(-0.4, 0.4), phi2=rng.uniform(-0.4, 0.4),
            mu1=rng.uniform(0.1, 1.0), mu2=rng.uniform(0.1, 1.0),
        )  # fmt: skip
        if not is_equilibrium(one):
            continue
        terms = as_terms(one)
        body = LocalTerms(
            M=np.diag(rng.uniform(0.5, 2.0, 3)), J_n=terms.J_n, J_t=terms.J_t, mu=terms.mu, e=terms.e,
            force=terms.force,
        )  # fmt: skip
        if not is_equilibrium(body):
            continue
        proof = certify(body, method="return_map")
        assert check(proof) is (proof.verdict != "undecided")
        assert not (proof.verdict == "stable" and falsify(body, num_samples=64).found)
        verdicts.append(proof.verdict)
    assert len(verdicts) > 100 and verdicts.count("stable") > 0.75 * len(verdicts)

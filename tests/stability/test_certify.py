"""Certificates: what is proved, what is not, and that no damaged one passes."""

import sys
from fractions import Fraction

import jax
import numpy as np
import pytest
from helpers.stability_bodies import energy_and_function_along, fig2, fig3, particle, three_feet

import jaxcontact as jc
from jaxcontact.stability import certify, check, falsify, local_terms, program
from jaxcontact.stability.impact_conditions import conditions, jump_forms
from jaxcontact.stability.lyapunov_basis import family, function_basis
from jaxcontact.stability.rational import Rational, identity, sizes
from jaxcontact.stability.rational_modes import exact_terms, make_function, rate_values

STABLE = {
    "inelastic": fig2(0.5, 0.8),
    "near ambiguity": fig2(0.5, 0.45),
    "elastic": fig3(0.5, 0.8),
    "more elastic": fig3(0.8, 0.6, e=0.4),
    "one elastic foot": fig3(0.6, 0.7).replace(e2=0.0),
    "inclined ground": fig3(0.8, 0.9).replace(phi1=0.1, phi2=-0.05),
}


@pytest.fixture(scope="module")
def certificates():
    return {name: certify(body) for name, body in STABLE.items()}


def test_stable_bodies_are_proved_stable(certificates):
    for name, certificate in certificates.items():
        assert certificate.verdict == "stable", name
        assert certificate.residuals["margin"] > 1e-3
        assert check(certificate)


def test_ambiguous_equilibria_are_proved_unstable():
    certificate = certify(fig2(0.3, 0.2))
    assert (certificate.verdict, certificate.mode) == ("unstable", "PF")
    assert check(certificate)
    assert not check(certificate.replace(body=certify(fig2(0.5, 0.8)).body))


def test_inverse_chatter_is_not_certified():
    certificate = certify(fig2(0.4, 0.3))  # unambiguous, and unstable
    assert certificate.verdict == "undecided"
    assert not check(certificate)


@pytest.mark.slow_cases(
    "elastic", "inclined ground", "inelastic", "more elastic", "near ambiguity", "one elastic foot"
)
@pytest.mark.parametrize("name", STABLE)
def test_no_function_rises_along_motions(certificates, name):
    """The conditions as a simulation sees them: V at the events of 32 random motions."""
    rise, compared = energy_and_function_along(STABLE[name], certificates[name])
    assert compared > 300
    assert rise < 1e-7


def test_no_damaged_certificate_passes(certificates, rng):
    tiny = Fraction(1, 2**70)
    for name, good in certificates.items():
        V = good.V[0]
        for i in range(3):
            bent = tuple(x + tiny * (i == k) for k, x in enumerate(V.linear))
            assert not check(good.replace(V=(V.replace(linear=bent),)))
            moved = tuple(
                tuple(x + (Fraction(1, 1000) if i == r == c else 0) for c, x in enumerate(row))
                for r, row in enumerate(V.quadratic)
            )
            assert not check(good.replace(V=(V.replace(quadratic=moved),))), (name, i)
        assert not check(good.replace(V=(V.replace(linear=tuple(-x for x in V.linear)),)))
        assert not check(good.replace(V=(V.replace(weights=tuple(-x for x in V.weights)),)))
        assert not check(good.replace(V=(V.replace(weights=()),)))
        assert not check(good.replace(V=(V.replace(quadratic=V.quadratic[:2]),)))
        assert not check(good.replace(V=()))
        assert not check(good.replace(V=None))
        assert not check(good.replace(verdict="unstable"))
        assert not check(good.replace(verdict="undecided"))
        assert not check(good.replace(method="trust me"))
        spoiled = good.body.replace(mu=np.array([np.nan, 1.0]))
        assert not check(good.replace(body=spoiled))
        assert not check(good.replace(body=good.body.replace(mu=good.body.mu * 0.1)))
        assert not check(good.replace(body=good.body.replace(J_n=good.body.J_n * (1 + 1e-12))))
    elastic = certificates["elastic"]
    assert elastic.gram
    for key, value in elastic.gram.items():
        assert not check(elastic.replace(gram={**elastic.gram, key: -value - 1.0}))
        assert not check(elastic.replace(gram={**elastic.gram, key: value + 10.0}))
        assert not check(elastic.replace(gram={**elastic.gram, key: np.full_like(value, np.nan)}))
    assert not check(elastic.replace(gram={}))
    assert not check(elastic.replace(V=certificates["inelastic"].V))
    assert not check(elastic.replace(V=(elastic.V[0].replace(turns=((Fraction(0),) * 3,) * 2),)))
    assert not check(elastic.replace(body=elastic.body.replace(e=elastic.body.e * 2)))
    with pytest.raises(TypeError, match="certificate: expected Certificate, got 'a certificate'"):
        check("a certificate")


def test_a_solver_that_lies_convinces_nobody(rng):
    def lie(cost, matrix, rhs, kinds, tolerance):
        return program.ConicSolution(rng.uniform(0.1, 1.0, cost.size), np.zeros(rhs.size), 0.0, "Solved")

    for body in (fig2(0.5, 0.8), fig2(0.4, 0.3), fig3(0.5, 0.8)):
        for _ in range(5):
            assert not check(certify(body, solver=lie))
    assert not check(certify(fig2(0.5, 0.8), method="full", solver=lie))


def test_a_solver_of_the_users_own(certificates):
    """It gets min c x, b - A x in the cones; an answer of its own kind is as good."""
    asked = []

    def solver(cost, matrix, rhs, kinds, tolerance):
        assert matrix.shape == (rhs.size, cost.size)
        rows = [size * (size + 1) // 2 if kind == "semidefinite" else size for kind, size in kinds]
        assert sum(rows) == rhs.size
        asked.append(tolerance)
        return program.clarabel(cost, matrix, rhs, kinds, tolerance)

    found = certify(STABLE["elastic"], solver=solver)
    assert asked and check(found)
    wanted = certificates["elastic"].residuals["margin"]
    assert found.residuals["margin"] == pytest.approx(wanted, rel=1e-7)


def test_one_function_works_for_one_contact_and_fails_for_two():
    for e in (0.0, 0.3):
        single = certify(particle(0.3, 0.5, e), method="single")
        assert single.verdict == "stable" and check(single)
    for body in (fig2(0.5, 0.8), fig2(1.0, 1.2), fig3(0.5, 0.8)):
        assert certify(body, method="single").verdict == "undecided"


def test_the_rocking_block_stands():
    model = jc.models.rocking_block()
    for e in (0.0, 0.3):
        certificate = certify(local_terms(model, model.initial_state(), e=e))
        assert certificate.verdict == "stable" and check(certificate)
        assert len(certificate.V) == 2  # level ground: the drift is bounded to both sides


def test_three_contacts():
    for e in (0.0, 0.3):
        certificate = certify(three_feet(0.3, (0.5, 0.6, 0.7), e))
        assert certificate.verdict == "stable" and check(certificate)
    assert certify(three_feet(0.3, (0.1, 0.35, 0.35))).verdict != "stable"


def test_rows_over_the_basis_are_the_forms_of_its_functions():
    body = exact_terms(certify(fig3(0.5, 0.8)).body)
    rates, jumps = conditions(body, "homogeneous")
    basis = function_basis(body, body.force, one_function=False)
    turned = [basis.function(Rational(row)) for row in identity(len(basis))]
    functions = [make_function(body, *parts) for parts in turned]
    linear, quadratic = basis.functions(basis.lead.floats())
    for k, function in enumerate(functions):
        assert np.array_equal(function.linear.floats(), linear[k])
        assert np.array_equal([q.floats() for q in function.quadratics], quadratic[:, k])
    found = family(body, (rates, jumps), body.force)
    exact = [jump_forms(jumps, function) for function in functions]
    rows = -found.rows(found.numbers)[len(found.at_most) :]
    starts = np.cumsum([0, *(rays**2 for rays in found.rays)])
    for number, jump in list(enumerate(jumps))[::5]:
        tables = [forms[number] for forms in exact]
        size = 2.0 ** -np.array(sizes(jump.table))[: jump.num_rays]
        for i, k in np.ndindex(jump.num_rays, jump.num_rays):
            at = starts[number] + i * jump.num_rays + k
            wanted = np.array([table[i, k].num / table.den for table in tables]) * size[i] * size[k]
            assert np.allclose(rows[at], wanted, atol=1e-13)
            entry = -found.exact_row(len(found.at_most) + at)
            given = [Fraction(x) for x in entry]
            values = [Fraction(table.num[i, k], table.den) for table in tables]
            ratio = {x / y for x, y in zip(values, given, strict=True) if y}
            assert len(ratio) == any(entry) and all(x > 0 for x in ratio)
            assert all((x == 0) == (y == 0) for x, y in zip(values, given, strict=True))
    for rate in rates:
        rows = basis.rate_rows(rate, rate.rays)
        values = [rate_values(rate, function, rate.rays) for function in functions]
        assert np.array_equal(np.sign(rows), np.sign(np.array(values).T))


def test_mistakes_are_named(monkeypatch):
    with pytest.raises(ValueError, match="body: not an equilibrium"):
        certify(fig3(0.5, 0.3))
    with pytest.raises(ValueError, match="body: not an equilibrium"):
        falsify(fig3(0.5, 0.3))
    with pytest.raises(ValueError, match="method: expected one of"):
        certify(fig3(0.5, 0.8), method="hope")
    with pytest.raises(ValueError, match="solver: expected one of clarabel or a callable, got 'hope'"):
        certify(fig3(0.5, 0.8), solver="hope")
    with pytest.raises(ValueError, match="mu1: expected a finite number >= 0"):
        certify(fig3(0.5, 0.8).replace(mu1=-1.0))
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxcontact\[stability\]'"):
        certify(fig2(0.5, 0.8))


@pytest.mark.float32
def test_single_precision_numbers_are_numbers():
    body = jax.tree.map(lambda x: np.float32(x), fig2(0.5, 0.8))
    assert check(certify(body))

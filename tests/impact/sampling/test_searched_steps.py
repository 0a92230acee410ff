"""Steps of more contacts than can be enumerated: searched outcomes beside an enumeration, and whole landings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling import by_steps, lemke_on_host
from jaxcontact.impact.sampling.summary_statistics import tally

pytestmark = pytest.mark.skipif(not lemke_on_host.is_offered(np.zeros(1)), reason="needs machine code")


def random_terms(rng, count, nv=9):
    """Contacts in space with strong friction, whose steps often have several outcomes."""
    root = rng.normal(size=(nv, nv))
    rows = rng.normal(size=(count, 3, nv))
    mass = root @ root.T + 0.3 * np.eye(nv)
    v = -np.linalg.solve(mass, rows[:, 0].sum(axis=0)) + 0.3 * rng.normal(size=nv)
    return jc.ContactTerms(
        M=jnp.asarray(mass), J_n=jnp.asarray(rows[:, 0]), J_t=jnp.asarray(rows[:, 1:]), phi=jnp.zeros(count),
        mu=jnp.asarray(rng.uniform(0.5, 2.0, count)), active=jnp.ones(count, bool),
    ), jnp.asarray(v)  # fmt: skip


@pytest.mark.long
def test_searched_outcomes_are_those_of_an_enumeration(rng):
    """Steps of the compass gait: 64 searches of each find the outcomes of an enumeration, and no others."""
    model = jc.models.compass_gait()
    state = model.initial_state()
    terms, v = jc.contact_terms(model, state), state.v
    all_caps = jnp.asarray(rng.uniform(0.1, 1.0, (40, 2)) * model.impulse_step)
    enumerate_all = jax.jit(
        jax.vmap(lambda caps: jc.impact.outcomes(terms, v, jc.impact.RouthStep(impulse_max=caps))[0])
    )
    values, valid = jax.device_get(enumerate_all(all_caps))
    host = lemke_on_host.LemkeOnHost(terms, v, 2, tries=by_steps.TRIES)
    total = reached = several = 0
    for caps, every, is_valid in zip(all_caps, values, valid, strict=True):
        expected = every[is_valid]
        picks = jnp.asarray(rng.uniform(size=(64, 1)))
        path = host.resolve(ImpactDraws(jnp.broadcast_to(caps, (64, 1, 2)), picks), 64, keeps_path=True)[2]
        apart = np.abs(path[:, 1, None] - expected[None]).max(axis=2) / np.abs(v).max()
        assert apart.min(axis=1).max() < 1e-6
        total, reached = total + len(expected), reached + np.sum(apart.min(axis=0) < 1e-6)
        several += len(expected) > 1
    assert several >= 10 and reached >= 0.98 * total


@pytest.mark.long
def test_six_contacts_in_space_are_sampled(rng):
    """Every sample ends, loses energy and does not depend on its neighbours."""
    terms, v = random_terms(rng, 6, nv=12)
    law = jc.impact.Routh(selection="visited", num_directions=4)
    samples = jc.impact.sample(terms, v, law, num_samples=40)
    assert not np.any(samples.status) and not samples.complete
    assert np.all(np.asarray(samples.energy_ratio) < 1.0)
    assert float(np.min(samples.v_plus @ terms.J_n.T)) > -1e-7
    alone = jc.impact.sample(terms, v, law, num_samples=7, run=jc.Run(chunk=3))
    np.testing.assert_array_equal(samples.v_plus[:7], alone.v_plus)


@pytest.mark.long
def test_a_bound_says_how_many_steps_miss_an_outcome(tmp_path, rng, monkeypatch):
    """Without friction a step has one outcome and nothing is missed: p <= 1 - 0.05^(1/n) of n steps."""
    terms, v = random_terms(rng, 6, nv=12)
    law = jc.impact.Routh(selection="visited", num_directions=4)

    def drawn(mu, count=80, **more):
        at = terms.replace(mu=jnp.full(6, mu))
        return jc.impact.sample(at, v, law, num_samples=count, **more)

    few, many = drawn(0.0), drawn(3.0)
    np.testing.assert_allclose(few.miss_bound, 1.0 - 0.05 ** (1.0 / np.sum(few.searched_again)))
    assert not np.any(few.missed) and many.miss_bound > 1.5 * few.miss_bound
    assert np.any(many.searched_again[:64]) and not np.any(many.searched_again[64:])
    assert np.all(many.missed <= many.searched_again)
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), few, many)
    assert few.miss_bound < both.miss_bound < many.miss_bound
    assert jax.tree.structure(few) == jax.tree.structure(many)  # one program for both

    kept = jc.Run(checkpoint=tmp_path / "kept", chunk=32)
    np.testing.assert_array_equal(drawn(3.0, run=kept).missed, many.missed)
    monkeypatch.setattr(by_steps.BySteps, "resolve", None)  # a finished checkpoint needs no search
    again = drawn(3.0, run=kept)
    assert again.miss_bound == jc.impact.load_samples(tmp_path / "kept").miss_bound == many.miss_bound
    summed = tally(again, terms)
    assert summed.missed == np.sum(many.missed) and (summed + summed).searched_again > summed.searched_again


@pytest.mark.long
def test_further_searches_change_no_outcome(rng):
    terms, v = random_terms(rng, 6, nv=12)
    host = lemke_on_host.LemkeOnHost(terms.replace(mu=jnp.full(6, 3.0)), v, 4, tries=by_steps.TRIES)
    caps, picks = jnp.full((32, 6, 6), 0.3), jnp.asarray(rng.uniform(size=(32, 6)))
    plain = host.resolve(ImpactDraws(caps, picks), 32, keeps_path=True)
    checked = host.resolve(ImpactDraws(caps, picks), 32, keeps_path=True, num_checked=20)
    jax.tree.map(np.testing.assert_array_equal, plain[:3], checked[:3])
    assert not np.any(plain[3]) and np.any(checked[3][0, :20]) and not np.any(checked[3][:, 20:])


@pytest.mark.long
def test_enumerated_steps_are_not_searched_again():
    model = jc.models.compass_gait()
    state = model.initial_state()
    known = jc.impact.sample(jc.contact_terms(model, state), state.v, jc.impact.Routh(), num_samples=8)
    assert known.miss_bound is None and not np.any(known.searched_again)


@pytest.mark.long
def test_without_machine_code_six_contacts_are_refused(rng, monkeypatch):
    terms, v = random_terms(rng, 6)
    monkeypatch.setattr(lemke_on_host, "is_offered", lambda v: False)
    with pytest.raises(ValueError, match='selection="visited": contact modes are enumerated for up to'):
        law = jc.impact.Routh(selection="visited", num_directions=4)
        jc.impact.sample(terms, v, law, num_samples=2)

"""Active contacts alone count: `take`, `touching`, `max_contacts=`, and the memory that a run asks for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, draw_in_jit

import jaxcontact as jc
from jaxcontact import costs

MODEL = jc.models.rocking_block()
TERMS = jc.contact_terms(MODEL, MODEL.initial_state())
V = MODEL.initial_state().v
SETTINGS = {"impulse_step": 0.4, "max_steps": 8, "num_samples": 64}


def beside_others(terms, rng, count=8, places=(2, 5)):
    """The two contacts of the block among candidates that are far away."""
    many = {
        "J_n": jnp.asarray(rng.normal(size=(count, 3))), "J_t": jnp.asarray(rng.normal(size=(count, 1, 3))),
        "phi": jnp.ones(count), "mu": jnp.ones(count), "active": jnp.zeros(count, bool),
    }  # fmt: skip
    return terms.replace(
        **{name: leaf.at[np.array(places)].set(getattr(terms, name)) for name, leaf in many.items()}
    )


def test_take_by_numbers_mask_and_names(rng):
    many = beside_others(TERMS, rng)
    for chosen in ([2, 5], np.array([2, 5]), many.active, np.asarray(many.active)):
        for name in ("M", "J_n", "J_t", "phi", "mu", "active"):
            np.testing.assert_array_equal(getattr(many.take(chosen), name), getattr(TERMS, name))
    traced = jax.jit(lambda index: many.take(index).J_n)(jnp.array([5]))
    np.testing.assert_array_equal(traced, TERMS.J_n[1:])
    model = jc.models.compass_gait()
    terms = jc.contact_terms(model, model.initial_state())
    pair = model.system.structure.pairs[1]
    for name in ([pair], pair[0], [pair[0]]):
        np.testing.assert_array_equal(terms.take(name, model.system).J_n, terms.J_n[1:])
    np.testing.assert_array_equal(terms.take(pair[1], model.system).J_n, terms.J_n)
    box = jc.models.box_drop_3d()
    corners = jc.contact_terms(box, box.initial_state())
    all_of_it = corners.take(list(box.system.structure.pairs[:1]), box.system)
    np.testing.assert_array_equal(all_of_it.J_n, corners.J_n)
    for wrong, words in (
        ([8], "numbers in 0..7"),
        ([0.5], "numbers in 0..7"),
        (["foot"], "names need system="),
    ):
        with pytest.raises(ValueError, match=f"contacts: .*{words}"):
            many.take(wrong)
    with pytest.raises(ValueError, match="contacts: no contact of 'tail'"):
        terms.take(["tail"], model.system)
    with pytest.raises(ValueError, match="system: expected the one with these 8 contacts"):
        many.take(["tail"], model.system)


@pytest.mark.long
@pytest.mark.parametrize("selection", ["lemke", "all"])
def test_samples_count_active_contacts_alone(selection, rng):
    many = beside_others(TERMS, rng)
    expected = draw(TERMS, V, selection=selection, **SETTINGS)
    found = draw(many, V, selection=selection, **SETTINGS)
    np.testing.assert_array_equal(found.v_plus, expected.v_plus)
    np.testing.assert_array_equal(found.impulse[:, np.array([2, 5])], expected.impulse)
    assert found.impulse.shape == (64, 8, 2) and not np.any(np.delete(found.impulse, [2, 5], axis=1))
    lifted = many.replace(active=jnp.zeros(8, bool), phi=jnp.ones(8))
    told = draw(lifted.touching([2, 5]), V, selection=selection, **SETTINGS)
    np.testing.assert_array_equal(told.v_plus, expected.v_plus)
    first = draw(many.touching([2]), V, selection=selection, **SETTINGS)
    alone = draw(TERMS.take([0]), V, selection=selection, **SETTINGS)
    np.testing.assert_array_equal(first.v_plus, alone.v_plus)
    for wrong in ([8], [0.5]):
        with pytest.raises(ValueError, match=r"contacts: expected numbers in 0..7 or a mask \(8,\)"):
            many.touching(wrong)


def test_a_message_speaks_of_the_contacts_that_touch(rng):
    many = beside_others(TERMS, rng, count=20)
    many = many.replace(active=jnp.arange(20) < 7, phi=jnp.where(jnp.arange(20) < 7, 0.0, 1.0))
    with pytest.raises(ValueError, match="planar systems of up to 5 contacts, got 7 contacts"):
        draw(many, V, **SETTINGS)


@pytest.mark.long
def test_max_contacts_of_samples_in_jit(rng):
    many, key = beside_others(TERMS, rng), jax.random.key(4)
    run = jax.jit(lambda terms, v: draw_in_jit(terms, v, key, max_contacts=2, **SETTINGS))
    v_plus, info = run(many, V)
    expected, known = draw_in_jit(TERMS, V, key, **SETTINGS)
    np.testing.assert_allclose(v_plus, expected, atol=1e-12)
    np.testing.assert_allclose(info.impulse[:, np.array([2, 5])], known.impulse, atol=1e-12)
    assert not np.any(info.status)
    _, info = run(many.replace(active=jnp.arange(8) < 3), V)
    assert np.all(np.asarray(info.status) & int(jc.Status.OVERFLOW))


def test_much_memory_is_announced(monkeypatch):
    monkeypatch.setattr(costs, "LARGE_OUTPUT", 1000)
    with pytest.warns(
        jc.impact.MemoryWarning, match="64 samples of .* bytes need 0.0 GB of memory; use reduce="
    ):
        draw(TERMS, V, **SETTINGS)
    key = jax.random.key(4)
    with pytest.warns(jc.impact.MemoryWarning, match="sample_in_jit: 64 samples of .* use several calls"):
        jax.jit(lambda v: draw_in_jit(TERMS, v, key, **SETTINGS)).trace(V)


@pytest.mark.long
def test_routh_without_a_step_takes_the_scale_of_the_impact():
    """The block stops one corner alone by -u_n / D_nn; in other units outcomes are the same."""
    key = jax.random.key(1)
    mobility = np.einsum("cv,vc->c", TERMS.J_n, np.linalg.solve(TERMS.M, np.asarray(TERMS.J_n).T))
    step = float(np.max(-np.asarray(TERMS.J_n @ V) / mobility))
    v_plus, info = jc.impact.Routh()(TERMS, V, key)
    expected, _ = jc.impact.Routh(impulse_step=step, max_steps=64)(TERMS, V, key)
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, expected, atol=1e-12)
    heavy, _ = jc.impact.Routh()(TERMS.replace(M=1e6 * TERMS.M), 1e-3 * V, key)
    np.testing.assert_allclose(heavy, 1e-3 * v_plus, atol=1e-12)
    without = jc.impact.sample(TERMS, V, jc.impact.Routh(), num_samples=16)
    given = jc.impact.Routh(impulse_step=step, max_steps=64)
    np.testing.assert_allclose(
        without.v_plus, jc.impact.sample(TERMS, V, given, num_samples=16).v_plus, atol=1e-12
    )
    still, info = jc.impact.Routh()(TERMS, -V, key)
    np.testing.assert_array_equal(still, -V)
    assert int(info.status) == 0

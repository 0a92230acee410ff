"""`sample_in_jit`: the samples of the host's driver in a program of one's own, with the derivatives of `resolve`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, draw_in_jit
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from scipy.stats import chi2_contingency, ks_2samp

import jaxcontact as jc
from jaxcontact.impact.sampling.draws import Iid

LEVEL = 1e-3  # of the two-sample tests, with fixed seeds
N, STEPS = 12, 6
KEY = jax.random.key(3)


def case(name):
    model = getattr(jc.models, name)()
    return model, jc.contact_terms(model, model.initial_state())


@functools.cache
def gait():
    """The compass gait with both feet approaching: away from kinks."""
    model, terms = case("compass_gait")
    v = model.initial_state().v + 0.3 * jnp.array([0.1, -1.0, 0.2, 0.1])
    assert np.all(terms.J_n @ v < -0.1)
    return model, terms, v


@functools.partial(jax.jit, static_argnames="selection")
def outcomes(terms, v, key, restitution=None, step=0.25, selection="all"):
    return jc.impact.sample_in_jit(
        terms,
        v,
        jc.impact.Routh(impulse_step=step, max_steps=STEPS, restitution=restitution, selection=selection),
        key,
        num_samples=N,
    )


@pytest.mark.slow_cases("box_drop_3d-lemke-None", "compass_gait-all-0.5", "rocking_block-all-None")
@pytest.mark.parametrize(
    ("name", "selection", "restitution"),
    [("rocking_block", "all", None), ("compass_gait", "all", 0.5), ("box_drop_3d", "lemke", None)],
)
def test_the_samples_are_those_of_the_driver(name, selection, restitution):
    model, terms = case(name)
    settings = {"max_steps": STEPS, "num_samples": 20, "selection": selection, "restitution": restitution}
    settings["impulse_step"] = model.impulse_step if selection == "all" else 0.3
    want = draw(terms, model.initial_state().v, seed=KEY, **settings)
    v_plus, info = draw_in_jit(terms, model.initial_state().v, KEY, **settings)
    np.testing.assert_allclose(v_plus, want.v_plus, atol=1e-12)
    np.testing.assert_allclose(info.impulse, want.impulse, atol=1e-12)
    np.testing.assert_allclose(info.energy_ratio, want.energy_ratio, atol=1e-12)
    assert np.array_equal(info.status, want.status) and np.array_equal(info.num_iters, want.num_iters)
    assert np.all(info.complete == want.complete) and v_plus.dtype == want.v_plus.dtype
    assert np.max(info.residual) <= 1e-12


@pytest.mark.long
@pytest.mark.slow_cases("compass_gait")
@pytest.mark.parametrize("name", ["rocking_block", "compass_gait"])
def test_the_distribution_is_that_of_the_driver(name):
    """Independent draws against the driver's own points: shares of outcomes, and each contact velocity."""
    model, terms = case(name)
    settings = {"impulse_step": model.impulse_step, "max_steps": model.max_steps, "num_samples": 2048}
    theirs = draw(terms, model.initial_state().v, seed=5, **settings).v_plus
    ours, info = draw_in_jit(terms, model.initial_state().v, jax.random.key(8), **settings)
    J = np.concatenate([terms.J_n, terms.J_t[:, 0]])
    ours, theirs = (np.asarray(v @ J.T).round(7) + 0.0 for v in (ours, theirs))
    steps = np.asarray(info.num_iters)
    assert steps.min() >= 1 and steps.max() <= model.max_steps
    pvalues = [ks_2samp(a, b, method="asymp").pvalue for a, b in zip(ours.T, theirs.T, strict=True)]
    assert min(pvalues) > LEVEL / len(pvalues)
    kinds, place = np.unique(np.sign(np.concatenate([ours, theirs]).round(5)), axis=0, return_inverse=True)
    table = np.zeros((2, len(kinds)))
    np.add.at(table, ((np.arange(len(place)) >= len(ours)) * 1, place.reshape(-1)), 1)
    table = table[:, table.sum(axis=0) >= 10]
    assert table.shape[1] >= 3 and table.sum() > 0.99 * 2 * len(ours)
    assert chi2_contingency(table).pvalue > LEVEL


@pytest.mark.slow_cases("None")
@pytest.mark.parametrize("restitution", [None, pytest.param(0.5, marks=pytest.mark.slow)])
def test_derivatives_by_everything(restitution):
    """Along one direction of v, step, restitution and all terms: forward, reverse, differences, `resolve`."""
    _, terms, v = gait()
    names = ("M", "J_n", "J_t", "mu")
    flat, rebuilt = ravel_pytree(
        ({name: getattr(terms, name) for name in names}, v, jnp.full(2, 0.25), restitution)
    )

    def given(x):
        numbers, v, step, e = rebuilt(x)
        numbers["M"] = 0.5 * (numbers["M"] + numbers["M"].T)
        return terms.replace(**numbers), v, step, e

    @jax.jit
    def ours(x):
        changed, v, step, e = given(x)
        v_plus, info = outcomes(changed, v, KEY, e, step)
        return jnp.concatenate([v_plus, info.impulse.reshape(N, -1)], axis=1)

    @jax.jit
    def theirs(x):
        changed, v, step, e = given(x)
        drawn = Iid(key=KEY).uniform(jnp.arange(N), 0, 3 * STEPS, v.dtype).T.reshape(N, STEPS, 3)
        resolve = functools.partial(jc.impact.resolve, changed, v, restitution=e)
        v_plus, info = jax.vmap(resolve)(drawn[..., :2] * step[None, None], drawn[..., 2])
        return jnp.concatenate([v_plus, info.impulse.reshape(N, -1)], axis=1)

    rng = np.random.default_rng(0)
    direction = jnp.asarray(rng.normal(size=flat.size) * abs(flat))
    weight = jnp.asarray(rng.normal(size=(N, 8)))
    value, ahead = jax.jit(lambda x: jax.jvp(ours, (x,), (direction,)))(flat)
    value_there, there = jax.jit(lambda x: jax.jvp(theirs, (x,), (direction,)))(flat)
    np.testing.assert_allclose(value, value_there, atol=1e-12)
    np.testing.assert_allclose(ahead, there, atol=1e-10 * float(jnp.max(jnp.abs(ahead))))
    back = jax.jit(jax.grad(lambda x: jnp.sum(weight * ours(x))))(flat)
    np.testing.assert_allclose(back @ direction, jnp.sum(weight * ahead), rtol=1e-9)
    h = 1e-6
    estimate = (ours(flat + h * direction) - ours(flat - h * direction)) / (2 * h)
    np.testing.assert_allclose(ahead, estimate, atol=1e-6 * float(jnp.max(jnp.abs(ahead))))
    assert np.all(np.max(np.abs(ahead), axis=1) > 1e-3)


@pytest.mark.slow
def test_second_derivatives():
    _, terms, v = gait()

    def spread(s):
        return jnp.sum(outcomes(terms.replace(mu=terms.mu * s), s * v, KEY)[0] ** 2)

    second = jax.jit(jax.grad(jax.grad(spread)))
    slope, h = jax.jit(jax.grad(spread)), 1e-5
    np.testing.assert_allclose(second(1.0), (slope(1.0 + h) - slope(1.0 - h)) / (2 * h), rtol=1e-6)


@pytest.mark.slow
def test_worlds_apart_and_a_poisoned_one():
    """A batch over terms is each world alone; a world of bad numbers touches neither values nor gradients."""
    _, terms, v = gait()
    scale = jnp.array([1.0, 1.1, 0.9, 1.2])
    keys = jax.random.split(KEY, 4)
    worlds = terms.replace(**{n: jnp.stack([getattr(terms, n)] * 4) for n in ("J_n", "J_t", "phi", "active")})
    worlds = worlds.replace(M=scale[:, None, None] * terms.M[None], mu=scale[:, None] * terms.mu[None])
    poisoned = worlds.replace(M=worlds.M.at[1, 0, 0].set(jnp.nan))
    many = jax.vmap(outcomes, (0, None, 0))

    @jax.jit
    def slopes(worlds):
        return jax.grad(lambda w: jnp.sum(many(w, v, keys)[0] ** 2), allow_int=True)(worlds).mu

    v_plus, info = jax.jit(many)(worlds, v, keys)
    for i in (0, 3):
        alone, told = outcomes(jax.tree.map(lambda x, i=i: x[i], worlds), v, keys[i])
        np.testing.assert_allclose(v_plus[i], alone, atol=1e-12)
        assert np.array_equal(info.status[i], told.status)
    v_bad, info_bad = jax.jit(many)(poisoned, v, keys)
    kept = np.array([0, 2, 3])
    assert np.array_equal(v_bad[kept], v_plus[kept]) and np.array_equal(
        info_bad.status[kept], info.status[kept]
    )
    assert np.all(info_bad.status[1] == int(jc.Status.NONFINITE)) and np.all(v_bad[1] == v[None])
    np.testing.assert_allclose(slopes(poisoned)[kept], slopes(worlds)[kept], rtol=1e-12)
    assert np.all(slopes(poisoned)[1] == 0)


@pytest.mark.slow
def test_within_scan_and_shard_map():
    _, terms, v = gait()
    keys = jax.random.split(KEY, 2)
    want = outcomes(terms, v, keys[1])[0]
    _, scanned = jax.jit(lambda: jax.lax.scan(lambda c, key: (c, outcomes(terms, v, key)[0]), 0, keys))()
    np.testing.assert_allclose(scanned[1], want, atol=1e-12)
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    sharded = jax.shard_map(
        lambda v: jax.vmap(lambda v: outcomes(terms, v, keys[1])[0])(v),
        mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"), check_vma=False,
    )  # fmt: skip
    np.testing.assert_allclose(jax.jit(sharded)(v[None])[0], want, atol=1e-12)


@pytest.mark.slow
def test_nothing_approaches():
    """Then v_plus is v, without a step; the derivative is that of `resolve`: the identity."""
    _, terms, v = gait()
    v_plus, info = outcomes(terms, -v, KEY)
    assert np.all(v_plus == -v[None]) and not np.any(info.status) and not np.any(info.num_iters)
    slope = jax.jvp(lambda v: outcomes(terms, v, KEY)[0], (-v,), (v,))[1]
    np.testing.assert_allclose(slope, jnp.broadcast_to(v, slope.shape), atol=1e-12)


@pytest.mark.long
def test_too_few_steps_are_unterminated():
    _, terms, v = gait()
    _, info = outcomes(terms, v, KEY, None, 1e-3)
    assert np.all(info.status == int(jc.Status.UNTERMINATED)) and np.all(info.num_iters == STEPS)


@pytest.mark.parametrize(("step", "bit"), [(-1.0, "INVALID"), (0.0, "INVALID"), (np.nan, "NONFINITE")])
def test_a_bad_step_inside_jit(step, bit):
    _, terms, v = gait()
    v_plus, info = outcomes(terms, v, KEY, None, step)
    assert np.all(info.status == int(jc.Status[bit])) and np.all(v_plus == v[None])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"selection": "visited"}, ValueError, "selection: expected one of all, lemke"),
        ({"impulse_step": 0.0}, ValueError, "impulse_step"),
        ({"impulse_step": jnp.ones(3)}, ValueError, "impulse_step"),
        ({"max_steps": 0}, ValueError, "max_steps"),
        ({"num_samples": 2.5}, ValueError, "num_samples"),
        ({"restitution": 1.5}, ValueError, "restitution"),
        ({"key": None}, TypeError, "key"),
        ({"key": jnp.zeros(3)}, TypeError, "key"),
    ],
)
def test_mistakes_are_named(settings, error, message):
    _, terms, v = gait()
    given = {"key": KEY, "impulse_step": 0.25, "max_steps": 3, "num_samples": 4} | settings
    with pytest.raises(error, match=message):
        draw_in_jit(terms, v, given.pop("key"), **given)


@pytest.mark.long
@pytest.mark.float32
def test_single_precision(tolerance):
    model, terms = case("compass_gait")
    v_plus, info = jc.impact.sample_in_jit(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        KEY,
        num_samples=N,
    )
    assert v_plus.dtype == model.initial_state().v.dtype and not np.any(info.status & int(jc.Status.STALLED))
    assert np.max(info.energy_ratio) <= 1.0 + tolerance(1e-12, 1e-5)

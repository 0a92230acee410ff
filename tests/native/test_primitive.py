"""`jc.simd` inside `jit`, `scan`, `vmap` and derivatives, against `jax.vmap` of the same function."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxcontact as jc

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(13, 3)), RNG.normal(size=(3, 3))
N = np.arange(13) % 5


def world(x, n):
    """A loop, a branch, integers, bits and a matrix."""
    y = lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ W) + 0.1 * i, x)
    z = lax.cond(x[0] > 0, lambda: jnp.sin(y), lambda: y * n)
    return {"z": z, "n": n + 1, "b": y > 0}


def only_z(x, n):
    return world(x, n)["z"]


def same(found, expected, rtol=1e-12, atol=1e-12):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        single = a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-5 if single else rtol, atol=1e-5 if single else atol)


@pytest.mark.parametrize("size", [1, 4, 7, 300])
def test_results_in_jit_have_the_bits_of_those_outside(size):
    many, x, n = jc.simd(world), np.resize(X, (size, 3)), np.resize(N, size)
    for a, b in zip(*map(jax.tree.leaves, (jax.jit(many)(x, n), many(x, n))), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.long
@pytest.mark.float32
def test_in_scan_and_vmap():
    many, plain = jc.simd(only_z), jax.vmap(only_z)

    def motion(by):
        return lambda x: lax.scan(lambda c, n: (by(c, N + n), c[0]), x, jnp.arange(4))

    same(jax.jit(motion(many))(jnp.asarray(X)), motion(plain)(jnp.asarray(X)))
    xs = jnp.asarray(RNG.normal(size=(2, 13, 3)))
    same(jax.vmap(many, (0, None))(xs, N), jax.vmap(plain, (0, None))(xs, N))
    turned = jnp.moveaxis(xs, 0, 2)
    same(jax.jit(jax.vmap(many, (2, None), 1))(turned, N), jax.vmap(plain, (2, None), 1)(turned, N))
    ns = jnp.stack([N, N + 1])
    same(jax.vmap(many, (None, 0))(X, ns), jax.vmap(plain, (None, 0))(jnp.asarray(X), ns))
    twice = jax.vmap(jax.vmap(many, (0, None)), (None, 0))
    same(twice(xs, ns), jax.vmap(jax.vmap(plain, (0, None)), (None, 0))(xs, ns))


def losses(by):
    """Of all arguments, of what is closed over, and of both."""

    def of_weights(weights, x):
        return jnp.sum(by(lambda x, n: jnp.sin(only_z(x, n) @ weights))(x, N) ** 2)

    return {
        "arguments": lambda x: jnp.sum(by(only_z)(x, N) ** 3),
        "closed over": lambda x: of_weights(x[:3], X),
        "both": lambda x: of_weights(x[:3], x),
        "a part": lambda x: jnp.sum(by(world)(x, N)["z"][:4, 0]),
        "twice": lambda x: jnp.sum(by(only_z)(by(only_z)(x, N), N)),
        "of a batch": lambda x: jnp.sum(jax.vmap(by(only_z), (0, None))(jnp.stack([x, 2 * x]), N) ** 2),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", losses(jc.simd))
def test_derivatives(name):
    found, expected = losses(jc.simd)[name], losses(jax.vmap)[name]
    x, along = jnp.asarray(X), jnp.asarray(RNG.normal(size=X.shape))
    for of in (
        lambda f: jax.grad(f)(x),
        lambda f: jax.jit(jax.value_and_grad(f))(x),
        lambda f: jax.jvp(f, (x,), (along,)),
        lambda f: jax.linearize(f, x)[1](along),
        lambda f: jax.jvp(jax.grad(f), (x,), (along,))[1],
    ):
        same(of(found), of(expected), 1e-10, 1e-10)


@pytest.mark.long
def test_higher_derivatives_and_jacobians():
    x = jnp.asarray(X[:2])
    for of in (
        lambda by: jax.jacfwd(lambda x: by(only_z)(x, N[:2]))(x),
        lambda by: jax.jacrev(lambda x: by(only_z)(x, N[:2]))(x),
        lambda by: jax.hessian(lambda x: jnp.sum(by(only_z)(x, N[:2]) ** 2))(x),
        lambda by: jax.jacrev(jax.jacrev(lambda x: jnp.sum(by(only_z)(x, N[:2]) ** 2)))(x),
        lambda by: jax.grad(jax.checkpoint(lambda x: jnp.sum(by(only_z)(x, N[:2]))))(x),
    ):
        same(of(jc.simd), of(jax.vmap), 1e-10, 1e-10)


def test_rules_of_the_function_itself_hold():
    """Of `custom_vjp`, which has no forward mode, and of a loop, which has no reverse mode."""

    @jax.custom_vjp
    def odd(x):
        return x * x

    odd.defvjp(lambda x: (x * x, x), lambda x, c: (7.0 * c,))
    gradient = jax.grad(lambda x: jnp.sum(jc.simd(odd)(x)))(jnp.asarray(X))
    np.testing.assert_array_equal(gradient, np.full(X.shape, 7.0))
    halved = lambda x: lax.while_loop(lambda c: c[0] > 0.1, lambda c: 0.5 * c, x)  # noqa: E731
    x = jnp.abs(jnp.asarray(X))
    same(jax.jvp(jc.simd(halved), (x,), (x,)), jax.jvp(jax.vmap(halved), (x,), (x,)))
    with pytest.raises(ValueError, match="[Rr]everse-mode"):
        jax.jit(jax.grad(lambda x: jnp.sum(jc.simd(halved)(x))))(x)


def test_keys():
    def draw(key, x):
        return jax.random.uniform(key, (2,)) * x, jax.random.fold_in(key, 3)

    keys = jax.random.split(jax.random.key(1), 13)
    for found, expected in zip(
        jax.jit(jc.simd(draw))(keys, X[:, 0]), jax.vmap(draw)(keys, X[:, 0]), strict=True
    ):
        assert found.dtype == expected.dtype
        if jnp.issubdtype(found.dtype, jax.dtypes.prng_key):
            found, expected = jax.random.key_data(found), jax.random.key_data(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    same(
        jax.grad(lambda x: jnp.sum(jc.simd(draw)(keys, x)[0]))(X[:, 0]),
        jax.grad(lambda x: jnp.sum(jax.vmap(draw)(keys, x)[0]))(X[:, 0]),
    )


def test_all_kinds_of_numbers_cross_the_border():
    kinds = (
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.uint32,
        np.uint64,
        np.float32,
        np.float64,
        np.bool_,
    )
    arrays = [(100 * X).astype(kind) for kind in kinds]

    def function(*arrays):
        doubled = [~a if a.dtype == bool else a + a for a in arrays]
        return doubled, [a.astype(float) for a in arrays], jnp.zeros((0, 2)), arrays[0][0]

    same(jax.jit(jc.simd(function))(*arrays), jax.vmap(function)(*arrays))


def test_without_a_rule_it_runs_by_xla():
    values = lambda x: jnp.linalg.svd(x, compute_uv=False)  # noqa: E731
    x = RNG.normal(size=(5, 3, 3))
    with pytest.warns(UserWarning, match="no rule for the JAX primitive 'svd'; it runs as jax.vmap"):
        found = jax.jit(jc.simd(values))(x)
    np.testing.assert_allclose(found, jax.vmap(values)(x), rtol=1e-12)


def test_one_program_serves_all_sizes_and_traces():
    traces = []

    def function(x):
        traces.append(1)
        return jnp.sin(x)

    many = jc.simd(function)
    for size in (3, 5, 9):
        jax.jit(lambda x: 2 * many(x))(np.ones((size, 2)))
    assert len(traces) == 2  # for what it returns, and for the program


def test_a_long_batch_is_shared_by_threads():
    x = RNG.normal(size=(20_011, 3))
    run = jax.jit(lambda x: jc.simd(only_z)(x, jnp.zeros(len(x), int)))
    for _ in range(20):
        found = run(x)
    same(found, jax.vmap(only_z)(jnp.asarray(x), jnp.zeros(len(x), int)))


def test_export_names_it():
    exported = jax.export.export(jax.jit(jc.simd(jnp.sin)))
    with pytest.raises(ValueError, match="jaxcontact_simd"):
        exported(jax.ShapeDtypeStruct((3,), np.float64))


def test_other_platforms_get_the_program_of_xla():
    lowered = jax.jit(jc.simd(jnp.sin)).trace(jnp.ones(3)).lower(lowering_platforms=("cuda",))
    assert "sine" in lowered.as_text() and "jaxcontact_simd" not in lowered.as_text()


SEVERAL_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(np.arange(24.0).reshape(12, 2), NamedSharding(mesh, P("i")))
many = jc.simd(lambda x: jnp.sin(x).sum())
np.testing.assert_allclose(jax.jit(many)(x), np.sin(x).sum(1))
split = jax.shard_map(many, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
np.testing.assert_allclose(jax.jit(split)(x), np.sin(x).sum(1))
for device in jax.devices():
    np.testing.assert_allclose(jax.jit(many)(jax.device_put(np.ones((3, 2)), device)), np.sin(np.ones((3, 2))).sum(1))
"""


@pytest.mark.long
def test_several_devices(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL_DEVICES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]

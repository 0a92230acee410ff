"""Draws: pure functions of the sample number, stratified, and as good as a published sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import qmc

from jaxcontact.impact.sampling import draws
from jaxcontact.impact.sampling.draws import Iid, Sobol, sobol

FLOATS = ["float32"] + (["float64"] if jax.config.jax_enable_x64 else [])
DTYPE = FLOATS[-1]


def numbers(start, stop):
    return jnp.arange(start, stop, dtype=jnp.uint32)


def bits(array):
    return np.asarray(array).tobytes()


def unscrambled(d):
    plain = jnp.asarray(draws._direction_numbers(64)[:d])
    return Sobol(directions=plain, shift=jnp.zeros(d, jnp.uint32))


SOURCES = {
    "sobol": lambda: sobol(40, 7),
    "iid": lambda: Iid(key=jax.random.key(7)),
    "iid raw": lambda: Iid(key=jax.random.PRNGKey(7)),
    "iid rbg": lambda: Iid(key=jax.random.key(7, impl="rbg")),
}


@pytest.fixture(params=[pytest.param(k, marks=[pytest.mark.slow] * k.startswith("iid r")) for k in SOURCES])
def source(request):
    return SOURCES[request.param]()


@pytest.mark.slow_cases("iid", "sobol")
def test_same_bits_in_any_chunk_dimension_range_and_transformation(source):
    index = numbers(1000, 1300)
    whole = jax.jit(lambda s, i: s.uniform(i, 0, 40, DTYPE))(source, index)
    assert whole.shape == (40, 300) and whole.dtype == DTYPE
    assert bits(source.uniform(index, 0, 2, DTYPE)) == bits(whole[:2])
    for a, b, start, count in [(0, 1, 1, 2), (17, 219, 5, 3), (299, 300, 39, 1)]:
        piece = source.uniform(index[a:b], start, count, DTYPE)
        assert bits(piece) == bits(whole[start : start + count, a:b])
    jitted = jax.jit(lambda s, i, k: s.uniform(i, k, 3, DTYPE))
    start = (3 * jnp.arange(300) % 38).astype(jnp.int32)
    expected = np.stack([whole[start + k, jnp.arange(300)] for k in range(3)])
    assert bits(jitted(source, index, start)) == bits(expected)
    assert bits(jitted(source, index[7:31], start[7:31])) == bits(expected[:, 7:31])
    assert bits(jitted(source, index, jnp.int32(6))) == bits(whole[6:9])
    mapped = jax.vmap(lambda i, k: source.uniform(i, k, 3, DTYPE), out_axes=1)
    assert bits(mapped(index, start)) == bits(expected)
    fixed = jax.vmap(lambda i: source.uniform(i, 4, 3, DTYPE), out_axes=1)
    assert bits(fixed(index)) == bits(whole[4:7])
    grid = jitted(source, index.reshape(3, 100), start.reshape(3, 100))
    assert grid.shape == (3, 3, 100) and bits(grid) == bits(expected)


def test_a_new_seed_has_other_points_and_does_not_recompile():
    traces = []

    @jax.jit
    def points(s, i):
        traces.append(1)
        return s.uniform(i, 0, 5, DTYPE)

    index = numbers(0, 4096)
    first, again, second = (points(sobol(5, seed), index) for seed in (3, 3, 4))
    assert len(traces) == 1
    assert bits(first) == bits(again)
    assert np.mean(np.asarray(first) == np.asarray(second)) < 1e-3
    # Not a shift of one another either: Matousek's matrices differ too.
    words = [np.asarray(p * 2.0**23).astype(np.uint32) for p in (first, second)]
    for j in range(5):
        assert len(np.unique(words[0][j] ^ words[1][j])) > 100


def test_direction_numbers_do_not_depend_on_how_many_are_asked_for():
    np.testing.assert_array_equal(draws._direction_numbers(64), draws._direction_numbers(128)[:64])
    reversed_bits = [0.5, 0.25, 0.75, 0.125, 0.625]  # van der Corput, zero skipped
    np.testing.assert_array_equal(
        np.asarray(unscrambled(1).uniform(numbers(0, 5), 0, 1, "float32"))[0],
        np.asarray(reversed_bits, np.float32) + np.float32(2.0**-24),
    )


def test_number_of_primitive_polynomials_is_eulers_phi_over_the_degree():
    counts = [len(draws._primitive_polynomials(degree)) for degree in range(1, 12)]
    assert counts == [1, 1, 2, 2, 6, 6, 18, 16, 48, 60, 176]
    assert list(draws._primitive_polynomials(4)) == [0b10011, 0b11001]


@pytest.mark.parametrize("make", [lambda: sobol(12, 3), lambda: Iid(key=jax.random.key(3))])
def test_epochs_are_other_numbers_of_the_same_quality(make):
    source, index = make(), numbers(0, 1023)
    assert source.epoch(0) is source
    found = [np.asarray(source.epoch(k).uniform(index, 0, 12, DTYPE)) for k in (0, 1, 2)]
    assert bits(make().epoch(2).uniform(index, 0, 12, DTYPE)) == bits(found[2])
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.mean(found[one] == found[other]) < 1e-3
    if not source.independent:  # but for the point left out, every 1/1024 of an axis holds one
        for values in found:
            assert all(len(np.unique(np.floor(1024 * row))) == 1023 for row in values)


@pytest.mark.parametrize("make", [lambda: unscrambled(60), lambda: sobol(200, 0), lambda: sobol(200, 1)])
@pytest.mark.parametrize("k", [4, 8])
def test_aligned_blocks_are_stratified_in_every_dimension(make, k):
    s = make()
    d = s.shift.shape[0]
    for block in (1, 2, 5, 1000):  # Sobol points block 2^k, ..., (block + 1) 2^k - 1
        x = s.uniform(numbers((block << k) - 1, ((block + 1) << k) - 1), 0, d, "float32")
        cells = np.sort(np.floor(np.asarray(x) * 2**k).astype(int), axis=1)
        np.testing.assert_array_equal(cells, np.broadcast_to(np.arange(2**k), (d, 2**k)))


def test_quality_of_a_pair_agrees_with_counting_points_in_boxes():
    m = max(draws._LEVELS)
    plain = draws._direction_numbers(64)[[3, 9]].astype(np.int64)
    place = np.arange(31, 31 - m, -1)
    matrices = (plain[:, None, :m] >> place[:, None] & 1).astype(np.int32)
    inverse = np.zeros(m, np.int32)
    for row in range(m - 1, -1, -1):
        inverse[row] = np.bitwise_xor.reduce(
            inverse[row + 1 :] * matrices[0, row, row + 1 :], initial=1 << row
        )
    found = draws._pair_quality(matrices[1:], inverse[None])[:, 0, 0]

    def counted(m):
        i = np.arange(2**m)
        words = [np.bitwise_xor.reduce((i[:, None] >> np.arange(m) & 1) * v[:m], axis=1) for v in plain]
        for t in range(m + 1):
            boxes = [
                (words[0] >> (32 - p)) * 2 ** (m - t - p) + (words[1] >> (32 - (m - t - p)))
                for p in range(m - t + 1)
            ]
            if all(np.all(np.bincount(b, minlength=2 ** (m - t)) == 2**t) for b in boxes):
                return t

    assert list(found) == [counted(level) for level in draws._LEVELS]


def squared_discrepancies(x):
    """Squared centred discrepancy of every pair of columns of x (n, d)."""
    n, d = x.shape
    a = np.abs(x - 0.5)
    single = 1.0 + 0.5 * a - 0.5 * a**2
    double = 1.0 + 0.5 * (a[:, None] + a[None] - np.abs(x[:, None] - x[None]))
    double = double.reshape(n * n, d)
    total = (13 / 12) ** 2 - 2 / n * single.T @ single + double.T @ double / n**2
    return total[np.triu_indices(d, 1)]


@pytest.mark.slow_cases("256", "512")
@pytest.mark.parametrize("n", [256, 512])
def test_two_dimensional_projections_are_as_good_as_the_published_ones(n):
    draw = jax.jit(lambda s, i: s.uniform(i, 0, 60, DTYPE))
    ours = [np.asarray(draw(sobol(60, k), numbers(n - 1, 2 * n - 1)), np.float64).T for k in range(3)]
    theirs = [qmc.Sobol(60, scramble=True, rng=k).random(n) for k in range(3)]
    iid = np.random.default_rng(0).random((n, 60))
    np.testing.assert_allclose(
        squared_discrepancies(iid)[0], qmc.discrepancy(iid[:, :2], method="CD"), rtol=1e-8
    )
    reference = np.mean(squared_discrepancies(iid))
    ours, theirs = (np.mean([squared_discrepancies(x) for x in each], axis=0) for each in (ours, theirs))
    assert np.mean(ours) < 2.0 * np.mean(theirs)
    assert np.mean(ours) < 0.15 * reference
    assert np.quantile(ours, 0.95) < 0.5 * reference


@pytest.mark.slow
def test_integral_of_a_smooth_product_converges_faster_than_monte_carlo():
    d, n = 30, 2**14
    weight = 1.0 / (1.0 + np.arange(d))

    def error(source):
        x = np.asarray(source.uniform(numbers(0, n), 0, d, DTYPE), np.float64)
        return np.mean(np.prod(1.0 + weight[:, None] * (x - 0.5), axis=0)) - 1.0

    monte_carlo = np.sqrt((np.prod(1.0 + weight**2 / 12.0) - 1.0) / n)
    errors = np.array([error(sobol(d, seed)) for seed in range(10)])
    assert np.sqrt(np.mean(errors**2)) < 0.05 * monte_carlo
    iid = np.array([error(Iid(key=jax.random.key(seed))) for seed in range(10)])
    assert 0.4 * monte_carlo < np.sqrt(np.mean(iid**2)) < 1.8 * monte_carlo


def test_scrambled_means_are_unbiased():
    # x^2 over 8 points: its expectation over seeds is 1/3 though each point set has an error.
    mean = jax.jit(lambda s: jnp.mean(s.uniform(numbers(7, 15), 0, 4, DTYPE) ** 2))
    means = [float(mean(sobol(4, seed))) for seed in range(300)]
    assert abs(np.mean(means) - 1.0 / 3.0) < 4.0 * np.std(means) / np.sqrt(300)
    assert np.std(means) < 0.01  # 0.3 / sqrt(32) = 0.053 if the points were independent


@pytest.mark.parametrize("dtype", [*FLOATS, "float16", "bfloat16"])
def test_never_zero_or_one(dtype):
    # The extreme words, by direction numbers of a single bit: XORs of them reach 0 and 2^32 - 1.
    single = Sobol(
        directions=jnp.asarray(2 ** np.arange(32, dtype=np.uint32)[None]), shift=jnp.zeros(1, jnp.uint32)
    )
    index = jnp.asarray([2**32 - 1, 2**32 - 2, 0, 2**31 - 1, 2**31 - 2], jnp.uint32)
    for start in (0, jnp.zeros(5, jnp.int32)):
        x = single.uniform(index, start, 1, dtype)[0]
        assert x.dtype == jnp.dtype(dtype)
        assert bool(jnp.all((x > 0) & (x < 1)))
        n = min(32, jnp.finfo(dtype).nmant)
        assert float(x[0]) == 2.0 ** -(n + 1) and float(x[1]) == 1.0 - 2.0 ** -(n + 1)
        assert float(x[3]) == 0.5 + 2.0 ** -(n + 1) and float(x[4]) == 0.5 - 2.0 ** -(n + 1)


def test_float32_is_the_leading_bits_of_float64():
    for make in SOURCES.values():
        wide = np.asarray(make().uniform(numbers(0, 500), 0, 3, "float64"))
        short = make().uniform(numbers(0, 500), 0, 3, "float32")
        assert short.dtype == jnp.float32
        np.testing.assert_array_equal(np.floor(wide * 2**23), np.floor(np.asarray(short) * 2.0**23))


@pytest.mark.long
def test_lanes_outside_the_dimensions_are_nan_and_the_others_untouched():
    s = sobol(6, 0)
    start = jnp.asarray([-1, 0, 4, 5, 6, 2**31 - 1], jnp.int32)
    x = np.asarray(s.uniform(jnp.zeros(6, jnp.uint32), start, 2, "float32"))
    np.testing.assert_array_equal(
        np.isnan(x), [[True, False, False, False, True, True], [True, False, False, True, True, True]]
    )
    np.testing.assert_array_equal(x[:, 2], s.uniform(jnp.uint32(0), 4, 2, "float32"))
    narrow = s.uniform(jnp.zeros(1, jnp.uint32), jnp.asarray([4], jnp.uint8), 2, "float32")
    assert bits(narrow[:, 0]) == bits(x[:, 2])


@pytest.mark.long
def test_iid_is_uniform_and_independent_over_samples_and_dimensions():
    x = np.asarray(Iid(key=jax.random.key(1)).uniform(numbers(0, 20000), 0, 10, DTYPE), np.float64)
    n = x.size
    assert abs(x.mean() - 0.5) < 4 * np.sqrt(1 / 12 / n)
    assert abs(x.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / n)
    correlation = np.corrcoef(x) - np.eye(10)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(20000)
    serial = [np.corrcoef(row[:-1], row[1:])[0, 1] for row in x]
    assert np.abs(serial).max() < 4.5 / np.sqrt(20000)
    if DTYPE == "float64":  # n^2 / 2^33 = 4.7 coincidences are expected among 32-bit words
        assert n - len(np.unique(x)) < 20
    other = Iid(key=jax.random.key(2)).uniform(numbers(0, 200), 0, 10, DTYPE)
    assert not np.any(np.asarray(other) == x[:, :200].astype(DTYPE))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: sobol(0, 1), ValueError, "num_dimensions: expected at least 1, got 0"),
        (lambda: sobol(2.0, 1), TypeError, "num_dimensions: expected an integer, got 2.0"),
        (lambda: sobol(True, 1), TypeError, "num_dimensions"),
        (lambda: sobol(2, -1), ValueError, "seed: expected at least 0, got -1"),
        (lambda: sobol(2, None), TypeError, "seed: expected an integer, got None"),
        (lambda: sobol(3, 0).uniform(numbers(0, 2), 2, 2, "float32"), ValueError, "3 dimensions"),
        (lambda: sobol(3, 0).uniform(numbers(0, 2), -1, 2, "float32"), ValueError, "start"),
        (lambda: sobol(3, 0).uniform(numbers(0, 2), 0, 0, "float32"), ValueError, "count"),
        (lambda: sobol(3, 0).uniform(numbers(0, 2), 0, 1.0, "float32"), TypeError, "count"),
        (lambda: sobol(3, 0).uniform(numbers(0, 2), 0, 1, "int32"), TypeError, "dtype"),
        (lambda: sobol(3, 0).uniform(jnp.zeros(2), 0, 1, "float32"), TypeError, "index"),
        (lambda: sobol(3, 0).uniform(numbers(0, 2), jnp.zeros(2), 1, "float32"), TypeError, "start"),
        (
            lambda: sobol(3, 0).uniform(numbers(0, 2), jnp.zeros(3, jnp.int32), 1, "float32"),
            ValueError,
            "start: expected shape",
        ),
        (
            lambda: Iid(key=jnp.zeros(3, jnp.uint32)).uniform(numbers(0, 2), 0, 1, "float32"),
            TypeError,
            "key",
        ),
        (
            lambda: Iid(key=jax.random.key(0, impl="unsafe_rbg")).uniform(numbers(0, 2), 0, 1, "float32"),
            ValueError,
            "threefry2x32 or rbg, got unsafe_rbg",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()

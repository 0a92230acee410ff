"""Random numbers of the sampled impact sets: points of the unit cube, pure functions of the sample number.

A chunk drawn alone has the same bits as within the whole, for every tile, device count or resume. `Sobol`
(quasi-random, errors near 1/n for smooth quantities; entry `sobol`) and `Iid` (independent) share `uniform`.
Sample numbers have 32 bits: `epoch` gives the draws for the next 2^32 samples, so that no point repeats.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record

_BITS = 32  # of sample numbers and of coordinates
_LEVELS = (12, 11, 10, 9, 8, 7)  # pairs of dimensions are compared as sets of 2^m points for these m
_CANDIDATES = 8  # minimum number of sets of initial numbers tried per dimension
_CANDIDATE_PAIRS = 1024  # minimum number of pairs examined per dimension: early dimensions have more choice
_WINDOW = 256  # preceding dimensions that a candidate is compared with
_SEARCHED = 2048  # dimensions for which several sets are tried; rare late steps of impacts use others
_DIGIT = 4  # bits of the index resolved by one table look-up


PERIOD = 2**_BITS  # number of samples of an epoch: all 32-bit sample numbers


class Sobol(Record):
    """A scrambled Sobol sequence in base 2; make one with `sobol`.

    Attributes:
        directions: (d, 32) uint32; row j holds the direction numbers of dimension j, the one for the
            lowest bit of the index first, bit 31 worth 1/2.
        shift: (d,) uint32, the digital shift.
    """

    directions: jax.Array
    shift: jax.Array
    independent: ClassVar[bool] = False

    def epoch(self, number: int) -> Sobol:
        """Return the sequence of epoch `number`, for samples from `number` 2^32 on: scrambled once more."""
        if number == 0:
            return self
        rng = np.random.default_rng([number, *np.asarray(self.shift).tolist()])
        return _scrambled(np.asarray(self.directions), rng)

    def uniform(
        self, index: jax.Array, start: int | jax.Array, count: int, dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        """Compute coordinates start, ..., start + count - 1 of the points numbered `index`.

        Point i is x_j = shift_j XOR_c b_c directions_jc with b the bits of i + 1: the zero point of
        the unscrambled sequence is skipped. So the samples 2^k - 1, ..., 2^(k+1) - 2 form a net.

        Args:
            index: (...) sample numbers, integer; taken modulo 2^32, see `epoch`.
            start: first dimension; an int, or an integer array () or (...), one per lane.
            count: number of dimensions, at least 1, static.
            dtype: floating dtype of the result.

        Returns:
            (count, ...) in the open interval (0, 1), of 32 bits or the dtype's mantissa if that is
            shorter. NaN if an array `start` leaves the dimensions 0, ..., d - 1.

        Raises:
            TypeError, ValueError: a wrong dtype, shape or count, or an int `start` out of range.

        Derivative: none; piecewise constant in integers.
        """
        index, start, count, dtype = _check_numbers(index, start, count, dtype)
        size = self.directions.shape[0]
        number = index + jnp.uint32(1)
        if isinstance(start, int):
            if start + count > size:
                raise ValueError(
                    f"start + count: expected at most the {size} dimensions of this sequence, "
                    f"got start={start}, count={count}"
                )
            # The program's size does not grow with count. (One expression per dimension would share
            # the masks and run up to twice as fast, in a program of 64 operations per dimension.)
            stop, tail = start + count, (1,) * index.ndim
            word = jnp.broadcast_to(self.shift[start:stop].reshape(-1, *tail), (count, *index.shape))
            for c in range(_BITS):
                mask = -(number >> c & 1)
                word = word ^ (self.directions[start:stop, c].reshape(-1, *tail) & mask[None])
            return _unit(word, dtype)
        # Lanes at dimensions of their own: look-ups of four bits of the index at a time, in tables of
        # 512 bytes per dimension that stay in cache and that XLA hoists out of a loop. A one-hot select
        # and 32 gathers of direction numbers are slower; bytes for nibbles are faster to look up, but
        # their tables cost 8 times as much to build and to keep in cache.
        groups = self.directions.reshape(size, _BITS // _DIGIT, _DIGIT)
        table = jnp.zeros((size, _BITS // _DIGIT, 1), jnp.uint32)
        for bit in range(_DIGIT):
            table = jnp.concatenate([table, table ^ groups[:, :, bit, None]], axis=-1)
        table = table.reshape(-1)
        digits = [
            (number >> (_DIGIT * g) & (2**_DIGIT - 1)).astype(jnp.int32) + (g << _DIGIT)
            for g in range(_BITS // _DIGIT)
        ]
        first = start.astype(jnp.int32)[None]
        offset = jnp.arange(count, dtype=jnp.int32).reshape((count,) + (1,) * index.ndim)
        inside = (first >= 0) & (first < size - offset)
        dimension = jnp.where(inside, first + offset, 0)
        row = dimension * (_BITS // _DIGIT << _DIGIT)
        word = self.shift.at[dimension].get(mode="promise_in_bounds")
        for digit in digits:
            word = word ^ table.at[row + digit[None]].get(mode="promise_in_bounds")
        return jnp.where(inside, _unit(word, dtype), jnp.nan)


class Iid(Record):
    """Independent uniform numbers, addressed like a `Sobol` sequence of any dimension.

    Attributes:
        key: a JAX key: typed (threefry2x32 or rbg), or raw (2,) uint32, which means threefry2x32.
    """

    key: jax.Array
    independent: ClassVar[bool] = True

    def epoch(self, number: int) -> Iid:
        """Return the numbers of epoch `number`, for samples from `number` 2^32 on: those of another key."""
        if number == 0:
            return self
        return Iid(key=jax.random.fold_in(jax.random.fold_in(self.key, PERIOD - 1), number))

    def uniform(
        self, index: jax.Array, start: int | jax.Array, count: int, dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        """Compute coordinates start, ..., start + count - 1 of the samples numbered `index`.

        Coordinate j of sample i is the first word of fold_in(fold_in(key, i), j): one block of the
        counter-based generator, a function of the key, i and j alone.

        Args:
            index: (...) sample numbers, integer; taken modulo 2^32, see `epoch`.
            start: first dimension; an int or an integer array () or (...), one per lane.
            count: number of dimensions, at least 1, static.
            dtype: floating dtype of the result.

        Returns:
            (count, ...) in the open interval (0, 1), of 32 bits or the dtype's mantissa if that is
            shorter.

        Raises:
            TypeError, ValueError: a wrong dtype, shape, count or key.

        Derivative: none; piecewise constant in integers.
        """
        index, start, count, dtype = _check_numbers(index, start, count, dtype)
        key = self.key
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.shape != (2,) or key.dtype != jnp.uint32:
                raise TypeError(
                    "key: expected a typed JAX key or a raw (2,) uint32 one, "
                    f"got {key.dtype} of shape {key.shape}"
                )
            key = jax.random.wrap_key_data(key, impl="threefry2x32")
        elif key.shape != () or str(jax.random.key_impl(key)) not in ("threefry2x32", "rbg"):
            # The fold_in of other generators is not the same under vmap as lane by lane.
            raise ValueError(
                "key: expected one key of threefry2x32 or rbg, "
                f"got {jax.random.key_impl(key)} of shape {key.shape}"
            )

        def word(sample: jax.Array, coordinate: jax.Array) -> jax.Array:
            return jax.random.key_data(jax.random.fold_in(sample, coordinate)).reshape(-1)[0]

        first = jnp.broadcast_to(jnp.asarray(start).astype(jnp.uint32), index.shape).reshape(-1)
        coordinates = first[None] + jnp.arange(count, dtype=jnp.uint32)[:, None]
        samples = jax.vmap(jax.random.fold_in, (None, 0))(key, index.reshape(-1))
        words = jax.vmap(jax.vmap(word), (None, 0))(samples, coordinates)  # in one call: each has a cost
        return _unit(words.reshape(count, *index.shape), dtype)


def sobol(num_dimensions: int, seed: int) -> Sobol:
    """Make a Sobol sequence with Matousek's linear scramble and a digital shift.

    Each dimension's generator matrix is multiplied by a random lower triangular matrix over GF(2)
    with unit diagonal and its points are shifted by a random word (Matousek 1998, On the L2-discrepancy
    for anchored boxes): every point is uniform in the cube, and means over 2^k points are unbiased.

    Args:
        num_dimensions: d, at least 1. Sequences of different d and one seed are different.
        seed: integer, at least 0; the same seed gives the same bits.

    Returns:
        A `Sobol` record; only its arrays depend on the seed, so a new seed does not recompile.

    Raises:
        TypeError, ValueError: an argument that is not an integer, or out of range.

    Derivative: none.

    >>> sobol(3, seed=0).uniform(np.arange(5, dtype=np.uint32), start=1, count=2, dtype="float32").shape
    (2, 5)
    """
    num_dimensions = _check_integer("num_dimensions", num_dimensions, 1)
    rng = np.random.default_rng(_check_integer("seed", seed, 0))
    return _scrambled(_direction_numbers(-(-num_dimensions // 64) * 64)[:num_dimensions], rng)


def _scrambled(plain: np.ndarray, rng: np.random.Generator) -> Sobol:
    """Make the sequence with direction numbers (d, 32), randomly scrambled and shifted."""
    words = rng.integers(0, 2**32, (_BITS + 1, len(plain)), dtype=np.uint32)
    scrambled = np.zeros_like(plain)
    for row in range(_BITS):
        bit = 1 << (_BITS - 1 - row)
        # Row `row` of the matrix: a one on the diagonal, random entries at the more valuable bits.
        entries = (words[row] & np.uint32(2**32 - 2 * bit)) | np.uint32(bit)
        parity = np.bitwise_count(entries[:, None] & plain) & 1
        scrambled |= parity.astype(np.uint32) * np.uint32(bit)
    return Sobol(**jax.device_put({"directions": scrambled, "shift": words[-1]}))


def _unit(word: jax.Array, dtype: np.dtype) -> jax.Array:
    """Return the centre of the interval named by the leading bits of a word: exact, never 0 or 1."""
    bits = min(_BITS, jnp.finfo(dtype).nmant)
    return ((word >> (_BITS - bits)).astype(dtype) + 0.5) * 2.0**-bits


def _check_integer(name: str, value: object, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r} of type {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {value}")
    return int(value)


def _check_numbers(
    index: PyTree, start: PyTree, count: object, dtype: jax.typing.DTypeLike
) -> tuple[jax.Array, int | jax.Array, int, np.dtype]:
    dtype = jax.dtypes.canonicalize_dtype(dtype)  # float64 means float32 if x64 is off
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype: expected a floating dtype, got {dtype}")
    index = jnp.asarray(index)
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise TypeError(f"index: expected an integer array, got {index.dtype}")
    if isinstance(start, int | np.integer):
        start = _check_integer("start", start, 0)
    else:
        start = jnp.asarray(start)
        if not jnp.issubdtype(start.dtype, jnp.integer):
            raise TypeError(f"start: expected an int or an integer array, got {start.dtype}")
        if start.shape not in ((), index.shape):
            raise ValueError(f"start: expected shape () or that of index, {index.shape}, got {start.shape}")
        start = jnp.broadcast_to(start, index.shape)
    return index.astype(jnp.uint32), start, _check_integer("count", count, 1), dtype


@functools.cache
def _direction_numbers(size: int) -> np.ndarray:
    """Find unscrambled direction numbers (size, 32): van der Corput, then one primitive polynomial each.

    The initial numbers of a dimension, up to _SEARCHED, are the best of a few random sets: the set with the
    smallest sum of 4^t over its pairs with preceding dimensions and over the levels, where t is the quality
    parameter; the squared discrepancy of a pair grows as 4^t. Dimension j is the same for every size.
    """
    polynomials: list[tuple[int, int]] = []
    degree = 0
    while len(polynomials) < size - 1:
        degree += 1
        polynomials += [(degree, int(p)) for p in _primitive_polynomials(degree)]
    place = np.arange(_BITS - 1, -1, -1)
    level = max(_LEVELS)
    chosen = np.empty((size, _BITS), np.int64)
    chosen[0] = 1 << place
    inverses = np.empty((size, level), np.int32)
    inverses[0] = 1 << np.arange(level)
    for j in range(1, size):
        degree, polynomial = polynomials[j - 1]
        rng = np.random.default_rng([20240229, j])
        tried = max(_CANDIDATES, _CANDIDATE_PAIRS // j) if j < _SEARCHED else 1
        odd = 2 * rng.integers(0, 1 << np.arange(degree), (tried, degree)) + 1
        v = np.empty((tried, _BITS), np.int64)
        v[:, :degree] = odd << place[:degree]
        lags = [lag for lag in range(1, degree + 1) if polynomial >> (degree - lag) & 1]
        for c in range(degree, _BITS):
            v[:, c] = np.bitwise_xor.reduce(v[:, [c - lag for lag in lags]], axis=1)
            v[:, c] ^= v[:, c - degree] >> degree
        if tried == 1:
            chosen[j] = v[0]
            continue
        matrices = v[:, None, :level] >> place[:level, None] & 1
        t = _pair_quality(matrices.astype(np.int32), inverses[max(0, j - _WINDOW) : j])
        best = np.argmin(np.sum(4.0**t, axis=(0, 2)))
        chosen[j] = v[best]
        for row in range(level - 1, -1, -1):  # the matrix is upper triangular with unit diagonal
            above = inverses[j, row + 1 :] * matrices[best, row, row + 1 :]
            inverses[j, row] = np.bitwise_xor.reduce(above, initial=1 << row)
    return chosen.astype(np.uint32)


def _primitive_polynomials(degree: int) -> np.ndarray:
    """List all primitive polynomials over GF(2) of one degree, as ascending bit masks.

    p is primitive exactly if x has order 2^degree - 1 modulo p.
    """
    if degree == 1:
        return np.array([3])
    p = np.arange(1 << degree | 1, 2 << degree, 2)

    def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        product = np.zeros_like(p)
        for bit in range(degree - 1, -1, -1):
            product <<= 1
            product ^= p * (product >> degree & 1)
            product ^= a * (b >> bit & 1)
        return product

    def power_of_x(exponent: int) -> np.ndarray:
        result, square = np.ones_like(p), np.full_like(p, 2)
        while exponent:
            result = times(result, square) if exponent & 1 else result
            square = times(square, square)
            exponent >>= 1
        return result

    order = (1 << degree) - 1
    p_is_primitive = power_of_x(order) == 1
    rest, factor = order, 3  # the order is odd
    while rest > 1:
        if rest % factor:
            factor += 2
            continue
        p_is_primitive &= power_of_x(order // factor) != 1
        while rest % factor == 0:
            rest //= factor
    return p[p_is_primitive]


def _pair_quality(matrices: np.ndarray, inverses: np.ndarray) -> np.ndarray:
    """Compute the quality t of 2^m points in the plane of a candidate and an earlier dimension, m in _LEVELS.

    With A the candidate's generator matrix times the inverse of the earlier one, leading m x m blocks,
    t = m + 1 - min (q + top(b A)) over the row vectors b whose last nonzero entry is the q-th, with
    top(a) the place of the last nonzero entry of a. Eliminating the top entry of each row from the
    rows below it finds the minimum. t = 0: every dyadic box of area 2^-m holds one point.

    Args:
        matrices: (candidates, level, level) generator matrices over GF(2).
        inverses: (earlier, level) inverses of such matrices, each row packed, first column lowest.

    Returns:
        (levels, candidates, earlier) integers, 0 the best and m the worst.
    """
    level = matrices.shape[-1]
    product = np.zeros((level, len(matrices), len(inverses)), np.int32)
    for k in range(level):
        product ^= matrices[:, :, k].T[:, :, None] * inverses[:, k]
    t = np.empty((len(_LEVELS), *product.shape[1:]), np.int32)
    for i, m in enumerate(_LEVELS):
        rows = product[:m] & ((1 << m) - 1)
        smallest_sum = np.full_like(t[i], 2 * m)
        for q in range(m):
            top = np.frexp(rows[q].astype(np.float32))[1]
            smallest_sum = np.minimum(smallest_sum, q + 1 + top)
            rows[q + 1 :] ^= rows[q] * (rows[q + 1 :] >> (top - 1) & 1)
        t[i] = m + 1 - smallest_sum
    return t

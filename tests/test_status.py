"""Status words: bits, their two families, their names."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact import Status
from jaxcontact.status import flag

BITS = [bit for bit in Status if bit]


def test_every_bit_is_either_a_failure_or_a_note():
    everything = functools.reduce(operator.or_, BITS)
    assert everything == Status.FAILURES | Status.NOTES
    assert Status.FAILURES & Status.NOTES == 0
    notes = {Status.GRAZING, Status.SIMULTANEOUS, Status.ZENO, Status.WIDE_BAND, Status.KINK}
    notes |= {Status.UNTIMED, Status.JUMP}
    assert notes == {bit for bit in BITS if bit & Status.NOTES}
    assert len({int(bit) for bit in BITS}) == len(BITS)
    assert all(int(bit).bit_count() == 1 and int(bit) < 2**32 for bit in BITS)


@pytest.mark.parametrize("bit", BITS, ids=lambda bit: bit.name)
def test_describe_names_each_bit(bit):
    assert Status.describe(bit) == bit.name
    assert Status.describe(int(bit)) == bit.name
    assert Status.describe(np.uint32(bit)) == bit.name
    assert Status.describe(flag(True, bit)) == bit.name


def test_describe_of_nothing_and_of_many():
    assert Status.describe(0) == Status.describe(np.zeros(0, np.uint32)) == "SUCCESS"
    assert Status.describe(jnp.zeros((2, 3), jnp.uint32)) == "SUCCESS"
    words = np.array([[1, 0], [2, 1 << 18]], np.uint32)
    assert Status.describe(words) == "MAX_ITERS|STALLED|ZENO"
    assert Status.describe(Status.FAILURES) == "|".join(bit.name for bit in BITS if bit & Status.FAILURES)


@pytest.mark.float32
def test_flag_is_a_word_to_be_combined_under_jit_and_vmap():
    @jax.jit
    @jax.vmap
    def word(x):
        return flag(x < 0, Status.INVALID) | flag(~jnp.isfinite(x), Status.NONFINITE)

    words = word(jnp.array([1.0, -1.0, jnp.nan, -jnp.inf]))
    assert words.dtype == jnp.uint32
    assert words.tolist() == [0, Status.INVALID, Status.NONFINITE, Status.INVALID | Status.NONFINITE]
    assert flag(False, Status.ZENO).dtype == jnp.uint32
    assert int(flag(False, Status.ZENO)) == 0
    assert int(flag(True, Status.ZENO)) == 1 << 18

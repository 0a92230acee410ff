"""Loops and branches against JAX's own, with worlds that take different ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxcontact as jc
from jaxcontact.native import rules_control
from tests.helpers.by_lanes import close

COUNTS = np.array([0, 3, 1, 7, 2, 2, 5, 11, 0])
REAL = np.linspace(-1.0, 2.0, 9)


@pytest.fixture(params=["written out", "as they are"])
def small_programs(request, monkeypatch):
    """Small loops and branches are written out; with limits of zero they are loops and branches."""
    if request.param == "as they are":
        monkeypatch.setattr(rules_control, "UNROLLED", 0)
        monkeypatch.setattr(rules_control, "CHOSEN", 0)
    return request.param


def collatz(n):
    """Turns and largest number until n is one; the numbers change places in each turn."""

    def turn(carry):
        k, number, high, low, other = carry
        then = jnp.where(number % 2 == 0, number // 2, 3 * number + 1)
        return k + 1, then, jnp.maximum(high, then), other, low + 1

    return lax.while_loop(lambda c: c[1] > 1, turn, (0, n, n, 10 * n, -n))


@pytest.mark.float32
def test_worlds_leave_a_loop_at_their_time():
    close(collatz, COUNTS)


@pytest.mark.float32
def test_a_loop_on_a_batch_of_a_world(small_programs):
    """Each of them ends at its time, and an empty batch at once."""

    def halvings(x, n):
        return lax.while_loop(lambda c: c[1] > n, lambda c: (c[0] + 1, 0.5 * c[1]), (0, x))

    def function(x, n):
        several = jax.vmap(halvings, (0, None))(jnp.abs(x), 0.1 * n)
        in_rows = jax.vmap(jax.vmap(halvings, (0, None)), (0, None))(jnp.outer(x, x), 0.3)
        return several, in_rows, jax.vmap(halvings, (0, None))(x[:0], 1.0)

    close(function, np.outer(REAL, [1.0, -2.0, 7.0]), 1 + COUNTS)


@pytest.mark.float32
def test_loops_in_loops(small_programs):
    def function(n, x):
        def outer(i, total):
            inner = lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] * 0.5 + x), (0, total))
            return inner[1] + jnp.sin(total)

        return lax.fori_loop(0, n, outer, x), lax.fori_loop(2, 5, outer, x)

    close(function, COUNTS, REAL)


@pytest.mark.float32
def test_scans_read_and_write_rows(small_programs):
    table = jnp.arange(12.0).reshape(6, 2)

    def function(x, rows):
        def turn(carry, row):
            total, k = carry
            total = total + row[0] @ row[1] - row[2].sum()
            return (total, k + 1), (total * x, k > 2, jnp.ones(2))

        same = jnp.full((6, 2), x)  # rows that do not differ
        forward = lax.scan(turn, (x, 0), (table, rows, same))
        return forward, lax.scan(turn, (x, 0), (table, rows, same), reverse=True)

    close(function, REAL, np.random.default_rng(0).normal(size=(9, 6, 2)), rtol=1e-12)


@pytest.mark.float32
def test_a_map_carries_nothing(small_programs):
    def function(x, rows):
        return lax.map(lambda row: lax.cond(row[0] > x, lambda: row * x, lambda: -row), rows)

    close(function, REAL, np.random.default_rng(0).normal(size=(9, 6, 2)), rtol=1e-12)


@pytest.mark.float32
def test_loops_around_loops_with_rows(small_programs):
    def function(n, x):
        def turn(carry, row):
            outer = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + row * c[0]), (0, carry))
            inner, steps = lax.scan(lambda c, r: (c + r * row, c), outer[1], jnp.arange(3.0))
            return inner, steps

        return lax.scan(turn, x, jnp.linspace(0.0, 1.0, 4))

    close(function, COUNTS, REAL, rtol=1e-12)


@pytest.mark.float32
def test_a_loop_reads_rows_that_another_has_written(small_programs):
    """In order, backwards, every other one, beside numbers of elsewhere, and inside of further loops."""

    def function(x, y):
        def write(c, r):
            return 0.9 * c + jnp.sin(r), (c, jnp.stack([r, c * c]), c > 0.3)

        _, (single, pairs, bits) = lax.scan(write, x, y)

        def read(c, row):
            a, b, bit = row
            return jnp.where(bit, 0.5 * c + a, c - b[0] * b[1]), c

        backwards = jax.tree.map(jnp.flip, (single, pairs[:, 0], bits))
        mixed = jnp.stack([jnp.concatenate([single[:3], y[3:]]), 2.0 * pairs[:, 1]], axis=1)
        crossed = jnp.concatenate([single[:4], pairs[4:, 0]])
        return (
            lax.scan(read, x, (single, pairs, bits)),
            lax.scan(read, x, (single, pairs, bits), reverse=True),
            lax.scan(lambda c, row: (c * row[0] + row[1], row[2]), x, backwards),
            lax.scan(lambda c, row: (c + row, c), x, single[1::2]),
            lax.scan(read, x, (crossed, mixed, bits)),
            lax.fori_loop(0, 3, lambda i, c: lax.scan(read, c, (single, pairs, bits))[0], x),
        )

    close(function, REAL, np.random.default_rng(0).normal(size=(9, 8)), rtol=1e-12)


@pytest.mark.float32
def test_a_loop_writes_rows_in_every_turn_of_another(small_programs):
    def function(x, y):
        def outer(c, shift):
            end, rows = lax.scan(lambda c, r: (0.5 * c + r + shift, c), c, y)
            back, others = lax.scan(lambda c, r: (c - 0.3 * r, c * r), end, rows, reverse=True)
            return back, others

        return lax.scan(outer, x, jnp.linspace(0.0, 1.0, 4))

    close(function, REAL, np.random.default_rng(0).normal(size=(9, 6)), rtol=1e-12)


def test_the_gradient_of_a_longer_loop_is_no_larger_program(program_sizes, monkeypatch):
    """What a loop keeps for the reverse mode stays in its tables; copies would be operations of each step."""
    monkeypatch.setattr(rules_control, "UNROLLED", 0)

    def end(x, length):
        def step(y, _):
            return jnp.tanh(y @ jnp.arange(9.0).reshape(3, 3) / 9.0), None

        return jnp.sum(lax.scan(step, x, length=length)[0])

    x = np.random.default_rng(1).normal(size=(9, 3))
    for length in (10, 100):
        found = jc.simd(jax.grad(lambda x, length=length: end(x, length)), nan=False)(x)
        expected = jax.vmap(jax.grad(lambda x, length=length: end(x, length)))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert program_sizes[0] == program_sizes[1]


@pytest.mark.float32
def test_branches(small_programs):
    def function(n, x):
        many = lax.switch(n, [jnp.sin, jnp.cos, lambda y: y * y, lambda y: 0 * y], x)
        two = lax.cond(x > 0, lambda: (jnp.sqrt(jnp.abs(x)), n), lambda: (x, n + 1))
        return many, two, lax.cond(n > 100, lambda: x, lambda: -x)

    close(function, COUNTS, REAL)


@pytest.mark.float32
def test_a_loop_ends_by_a_table_that_differs_between_worlds(small_programs):
    """Its first entry is the same in all worlds."""

    def function(x):
        total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(x)])
        place = lax.while_loop(lambda i: total[i] < 4.0, lambda i: i + 1, 0)

        def turn(carry):
            i, row = carry
            return i + 1, lax.dynamic_slice(total, (i,), (2,))

        pair = lax.while_loop(lambda c: (c[1][1] < 3.0) & (c[0] < 11), turn, (0, jnp.zeros(2)))
        alike = lax.while_loop(lambda i: jnp.arange(12)[i] < 5, lambda i: i + 1, 0)
        return place, pair, alike

    close(function, np.random.default_rng(0).exponential(size=(13, 12)))


@pytest.mark.float32
def test_a_branch_by_an_argument_by_a_row_and_in_a_loop(small_programs):
    def looped(y):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, y))[1]

    def function(flag, flags, x):
        def turn(carry, flag):
            return lax.cond(flag, looped, jnp.sin, carry), flag

        rows = lax.scan(turn, x, flags)
        while_ = lax.while_loop(lambda c: flag & (c[1] < 4), lambda c: (c[0] * 2, c[1] + 1), (x, 0))
        return lax.cond(flag, looped, jnp.cos, x), rows, while_

    flags = np.random.default_rng(0).uniform(size=(9, 5)) < 0.5
    close(function, REAL > 0, flags, REAL)


def test_a_loop_in_a_branch_does_not_wait_for_worlds_that_are_not_there(small_programs):
    def down(n):  # ends only for n >= 0
        return lax.while_loop(lambda c: c[0] != 0, lambda c: (c[0] - 1, c[1] + c[0]), (n, 0))[1]

    def function(n):
        return lax.cond(n >= 0, down, lambda n: n, n)

    found = jc.simd(function)(np.array([3, -1, 5, -7, 0]))
    np.testing.assert_array_equal(found, [6, -1, 15, -7, 0])


def test_a_poisoned_world_keeps_no_other():
    def function(x):
        return lax.while_loop(
            lambda c: (c[1] > 1e-9) & (c[0] < 100), lambda c: (c[0] + 1, 0.5 * c[1]), (0, x)
        )

    x = np.array([1.0, np.nan, 3.0, np.inf, 0.1])
    turns, rest = jc.simd(function)(x)
    alone = [jax.jit(function)(each) for each in x]
    np.testing.assert_array_equal(turns, [each[0] for each in alone])
    np.testing.assert_array_equal(rest, [each[1] for each in alone])


def test_what_a_loop_does_not_change_is_known(program_sizes):
    """Zeros that a loop carries stay zeros: the product inside it has three terms, not nine."""

    def function(zero, x):
        matrix = jnp.diag(x) + zero

        def turn(carry):
            k, matrix, y = carry
            return k + 1, 0.5 * matrix, matrix @ y

        return lax.while_loop(lambda c: c[2][0] > 0.01, turn, (0, matrix, x))[2]

    x = np.arange(2.0, 29.0).reshape(9, 3)
    found = jc.simd(lambda x: function(0.0, x), nan=False)(x)
    np.testing.assert_allclose(found, jc.simd(function, nan=False)(np.zeros(9), x), rtol=1e-14)
    assert program_sizes[0] < 0.6 * program_sizes[1]


def test_what_both_branches_leave_is_known(program_sizes, monkeypatch):
    """Zeros of a matrix that a branch changes elsewhere stay zeros, and entries that it leaves stay the same."""
    monkeypatch.setattr(rules_control, "CHOSEN", 0)

    def function(zero, x):
        matrix = jnp.diag(x) + zero
        matrix = lax.cond(x[0] > 10.0, lambda m: m.at[0, 0].add(jnp.sum(x**2)), lambda m: m, matrix)
        return matrix @ jnp.sin(x)

    x = np.arange(2.0, 56.0).reshape(9, 6)
    found = jc.simd(lambda x: function(0.0, x), nan=False)(x)
    np.testing.assert_allclose(found, jax.vmap(lambda x: function(0.0, x))(x), rtol=1e-14)
    np.testing.assert_allclose(found, jc.simd(function, nan=False)(np.zeros(9), x), rtol=1e-14)
    assert program_sizes[0] < 0.6 * program_sizes[1]


@pytest.mark.float32
def test_gradients(small_programs):
    def loss(x):
        def turn(state, push):
            y = jnp.tanh(state @ jnp.arange(9.0).reshape(3, 3) / 9.0) + push
            return y, y @ y

        end, costs = lax.scan(turn, x, jnp.linspace(0.0, 1.0, 5)[:, None] * x[None])
        return costs.sum() + end[0]

    x = np.random.default_rng(1).normal(size=(9, 3))
    close(jax.value_and_grad(loss), x, rtol=1e-11, atol=1e-12)
    close(jax.jacfwd(jax.grad(loss)), x, rtol=1e-10, atol=1e-11)


def test_loops_in_loops_are_run_a_few_times_each(monkeypatch):
    """An inner loop begins with what held of it in the run before, so depth does not multiply the runs."""
    made, find_needed = [], jc.native.machine_code.find_needed

    def watched(ops, results):
        made.append(len(ops.op))
        return find_needed(ops, results)

    def nested(depth, x):
        if not depth:
            return jnp.sin(x)
        return jax.lax.while_loop(lambda y: jnp.abs(y) > 0.5**depth, lambda y: nested(depth - 1, y) / 2, x)

    monkeypatch.setattr(jc.native.machine_code, "find_needed", watched)
    for depth in (3, 6):
        x = np.linspace(0.1, 3.0, 5)
        expected = jax.vmap(lambda x, depth=depth: nested(depth, x))(x)
        np.testing.assert_allclose(jc.simd(lambda x, depth=depth: nested(depth, x))(x), expected, rtol=1e-14)
    assert made[1] < 4 * made[0]


def test_the_outermost_loop_is_interpreted_once(monkeypatch):
    """Arrays of floats that it changes are taken to change, so that its body is not run to find that out."""
    outermost = []
    inside = rules_control._run_in_block

    def counted(program, body, going):
        outermost.append(program.ops.now.parent is None)
        return inside(program, body, going)

    monkeypatch.setattr(rules_control, "_run_in_block", counted)
    monkeypatch.setattr(rules_control, "UNROLLED", 0)

    def function(q, v):
        def step(carry, _):
            q, v, t = carry
            v = lax.fori_loop(0, 40, lambda _, v: v - 0.01 * jnp.sin(q), v)
            return (q + 0.01 * v, v, t + 0.01), q[0]

        return lax.scan(step, (q, v, 0.0), None, length=100)

    q, v = np.arange(12.0).reshape(4, 3), np.ones((4, 3))
    (end, _, t), path = jc.simd(function)(q, v)
    expected, of_path = jax.vmap(function)(q, v)
    np.testing.assert_allclose(end, expected[0], rtol=1e-12)
    np.testing.assert_allclose(path, of_path, rtol=1e-12)
    np.testing.assert_allclose(t, 1.0, rtol=1e-12)
    assert sum(outermost) == 1

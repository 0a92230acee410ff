"""The flow with `corner="one_sided"`: its forward derivative, what it refuses, and its linear pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import ess

SIDED = ess.Settings(eps=1e-2, corner="one_sided", max_steps=64, max_events=8)
END = 3.0


def speeds(t, x, signs, control, params):  # each wheel on the sand drags on all of them
    return 1.0 - params["drag"] @ (signs > 0) + control


def edge(x, params):
    return x - params["edge"]


def axle(n, seed=0):
    """Wheels that reach the sand together: model, start, control."""
    drag = np.random.default_rng(seed).uniform(0.01, 0.05, (n, n))
    params = {"drag": jnp.asarray(drag), "edge": jnp.zeros(n)}
    model = jc.Model(system=ess.EventSystem(speeds, edge), params=params)
    return model, -jnp.ones(n), jnp.zeros(n)


def end_by_hand(x, drag, edges, control, duration):
    """The end of the wheels: fields are constant between crossings."""
    x, on, left = np.array(x), np.zeros(len(x), bool), duration
    while True:
        rate = 1.0 - drag @ on + control
        wait = np.where(on, np.inf, (edges - x) / rate)
        k = int(np.argmin(wait))
        if wait[k] >= left:
            return x + left * rate
        x, on[k], left = x + wait[k] * rate, True, left - wait[k]


@pytest.mark.long
def test_the_forward_derivative_is_the_one_sided_difference_by_every_argument(rng):
    model, x0, control = axle(4)

    def end(x, params, control, t0, t1):
        return ess.flow(model.replace(params=params), x, t0, t1, settings=SIDED, control=control)[0]

    arguments = (x0, model.params, control, jnp.array(0.0), jnp.array(END))
    rates = jax.jit(lambda d: jax.jvp(end, arguments, d)[1])
    r = 1e-7
    for _ in range(20):
        d = jax.tree.map(lambda a: jnp.asarray(0.3 * rng.normal(size=jnp.shape(a))), arguments)
        moved = jax.tree.map(lambda a, b: np.asarray(a + r * b), arguments, d)
        ends = [
            end_by_hand(
                a[0], np.asarray(a[1]["drag"]), np.asarray(a[1]["edge"]), np.asarray(a[2]), a[4] - a[3]
            )
            for a in (moved, arguments)
        ]
        np.testing.assert_allclose(rates(d), (ends[0] - ends[1]) / r, rtol=0, atol=2e-6)


@pytest.mark.long
def test_reverse_mode_and_second_derivatives_are_refused_by_name():
    model, x0, control = axle(2)

    def end(x):
        return ess.flow(model, x, 0.0, END, settings=SIDED, control=control)[0]

    for reverse in (lambda x: jax.grad(lambda x: end(x)[0])(x), lambda x: jax.vjp(end, x)[1](x)):
        with pytest.raises(NotImplementedError, match="ess.b_derivative .* corner='smooth'"):
            reverse(x0)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jvp(lambda x: jax.jvp(end, (x,), (x,))[1], (x0,), (x0,))
    d = jnp.array([1.0, -0.5])
    exact = ess.b_derivative(model, x0, d, 0.0, END, settings=SIDED, control=control)[0]
    np.testing.assert_array_equal(jax.linearize(end, x0)[1](d), exact)
    np.testing.assert_array_equal(
        jax.vmap(lambda d: jax.jvp(end, (x0,), (d,))[1])(jnp.stack([d, -d]))[0], exact
    )
    with pytest.raises(ValueError, match="corner: expected one of"):
        ess.flow(model, x0, 0.0, END, settings=SIDED.replace(corner="both"))


@pytest.mark.long
def test_the_forward_derivative_passes_loops_and_branches():
    """Two motions after each other, in a scan and in branches: the chain rule of one-sided rates."""
    model, x0, control = axle(2)
    d = jnp.array([1.0, -0.5])

    def end(x, edge):
        moved = model.replace(params={**model.params, "edge": edge * jnp.ones(2)})
        return ess.flow(moved, x, 0.0, END, settings=SIDED, control=control)[0]

    edges = jnp.array([0.0, 4.0])

    @jax.jit
    def in_scan(x):
        return jax.lax.scan(lambda x, edge: (end(x, edge), None), x, edges)[0]

    @jax.jit
    def in_branches(x):
        return jax.lax.cond(x[0] < 0, lambda x: end(x, 0.0), lambda x: x, x)

    def by_hand(x):
        drag = np.asarray(model.params["drag"])
        for edge in np.asarray(edges):
            x = end_by_hand(x, drag, edge * np.ones(2), np.zeros(2), END)
        return x

    r = 1e-7
    exact = jax.jvp(in_scan, (x0,), (d,))[1]
    np.testing.assert_allclose(exact, (by_hand(x0 + r * d) - by_hand(x0)) / r, rtol=0, atol=2e-6)
    rate, _ = ess.b_derivative(model, x0, d, 0.0, END, settings=SIDED, control=control)
    np.testing.assert_allclose(jax.jvp(in_branches, (x0,), (d,))[1], rate, rtol=0, atol=1e-12)
    for function in (in_scan, in_branches):
        with pytest.raises(NotImplementedError, match="corner='smooth'"):
            jax.grad(lambda x, function=function: function(x)[0])(x0)


def jump_to(x, k, params):
    return jnp.where(k == 0, x.at[1].multiply(2.0), x.at[1].add(1.0))


@pytest.mark.long
def test_jumps_that_do_not_commute_have_no_rate():
    model, x0, control = axle(2)
    model = model.replace(system=ess.EventSystem(speeds, edge, jump=jump_to))

    def end(x):
        return ess.flow(model, x, 0.0, 1.5, settings=SIDED, control=control)

    (x1, info), (dx1, _) = jax.jvp(end, (x0,), (jnp.array([1.0, 0.0]),))
    assert info.status & jc.Status.SIMULTANEOUS and np.all(np.isfinite(x1)) and np.all(np.isnan(dx1))
    with pytest.raises(ValueError, match="SIMULTANEOUS"):
        ess.one_sided_jacobian(model, x0, 0.0, 1.5, settings=SIDED, control=control)


@pytest.mark.long
@pytest.mark.parametrize("n", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_linear_pieces_are_products_of_saltation_matrices_and_cover_all_directions(n, rng):
    model, x0, control = axle(n, seed=1)
    pieces, info = ess.one_sided_jacobian(model, x0, 0.0, END, settings=SIDED, control=control)
    assert (
        len(pieces.jacobians)
        == len(set(map(tuple, np.asarray(pieces.orders))))
        == np.prod(np.arange(1, n + 1))
    )
    assert int(info.largest_corner) == n
    for matrix, order in list(zip(pieces.jacobians, np.asarray(pieces.orders)))[::29]:
        exact = ess.ordering_map(model, jnp.zeros(n), order[:n], crossed=jnp.zeros(n, bool), control=control)
        np.testing.assert_allclose(matrix, exact, atol=1e-10)
    for d in rng.normal(size=(20, n)):
        rate, _ = ess.b_derivative(model, x0, jnp.asarray(d), 0.0, END, settings=SIDED, control=control)
        np.testing.assert_allclose(pieces.rate(jnp.asarray(d)), rate, atol=1e-10)
        assert np.sum(np.all(pieces.conditions @ d >= 0, axis=1)) == 1


@pytest.mark.long
def test_more_orders_than_can_be_listed_are_refused():
    model, x0, control = axle(8)
    with pytest.raises(ValueError, match="expected at most 5040 orders of crossing at corners, got 40320"):
        ess.one_sided_jacobian(model, x0, 0.0, END, settings=SIDED, control=control)


@pytest.mark.long
def test_pieces_along_controls_and_away_from_corners():
    model, x0, control = axle(2)
    basis = ess.Direction(x=jnp.zeros((2, 2)), control=jnp.eye(2))
    pieces, _ = ess.one_sided_jacobian(model, x0, 0.0, END, settings=SIDED, basis=basis, control=control)
    d = jnp.array([0.3, -1.0])
    direction = ess.Direction(x=jnp.zeros(2), control=d)
    rate, _ = ess.b_derivative(model, x0, direction, 0.0, END, settings=SIDED, control=control)
    np.testing.assert_allclose(pieces.rate(d), rate, atol=1e-12)
    apart = x0.at[1].add(0.3)
    pieces, _ = ess.one_sided_jacobian(model, apart, 0.0, END, settings=SIDED, control=control)
    smooth = jax.jacrev(
        lambda x: ess.flow(model, x, 0.0, END, settings=SIDED.replace(corner="smooth"), control=control)[0]
    )(apart)
    assert pieces.jacobians.shape == (1, 2, 2) and pieces.conditions.shape == (1, 0, 2)
    np.testing.assert_allclose(pieces.jacobians[0], smooth, atol=1e-12)

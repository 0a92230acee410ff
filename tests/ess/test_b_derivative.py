"""The B-derivative: 40-digit differences at corners, all orders of six guards, its limits, two balls."""

import itertools
from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.ess_systems import CORNER, TIGHT, corner_params
from scipy.linalg import expm

import jaxcontact as jc
from jaxcontact.ess import DormandPrince, EventSystem, b_derivative, flow, ordering_map, saltation_matrix

DIGITS = 40
T_CORNER, T_END = 0.25, 0.5
SHARP = DormandPrince(rtol=1e-13, atol=1e-14)


# --------------------------------------------------------------- affine fields in 40-digit arithmetic

decimals = np.vectorize(lambda a: Decimal(float(a)), otypes=[object])


def matrix_exp(A, s):
    """exp(A s) by its series, in decimals."""
    n = len(A)
    total = term = decimals(np.eye(n))
    for k in range(1, 200):
        term = term @ A * (s / k)
        total = total + term
        if max(abs(a) for a in term.ravel()) < Decimal(10) ** -(DIGITS + 12):
            return total
    raise AssertionError


class Affine:
    """Fields A_s y + b_s through the corner 0 at T_CORNER, everything in decimals, y = (x, 1)."""

    def __init__(self, params):
        self.m, self.n = np.shape(params["normals"])
        self.normals = decimals(params["normals"])
        self.parts = {k: decimals(params[k]) for k in ("A", "A_k", "b", "b_k")}

    def generator(self, crossed):
        p, signs = self.parts, [Decimal(1) if c else Decimal(-1) for c in crossed]
        block = decimals(np.zeros((self.n + 1, self.n + 1)))
        block[: self.n, : self.n] = p["A"] + sum(s * a for s, a in zip(signs, p["A_k"]))
        block[: self.n, self.n] = p["b"] + sum(s * b for s, b in zip(signs, p["b_k"]))
        return block

    def start(self):
        """The state at time 0 from which the corner is reached."""
        one = np.append(decimals(np.zeros(self.n)), Decimal(1))
        return (matrix_exp(self.generator([False] * self.m), -Decimal(T_CORNER)) @ one)[: self.n]

    def end(self, displacement, into, out):
        """The state at T_END of the trajectory from start + displacement, and its order of crossing.

        All crossings happen within a tiny time s of T_CORNER, so three terms of the series are exact.
        """
        y = into @ np.append(displacement + self.start_, Decimal(1))
        s, crossed, order = Decimal(0), [False] * self.m, []

        def move(G, y, w):
            first = G @ y
            second = G @ first
            third = G @ second
            return (
                y + w * first + w * w / 2 * second + w**3 / 6 * third,
                first + w * second + w * w / 2 * third,
            )

        for _ in range(self.m):
            G, waits = self.generator(crossed), {}
            for k in range(self.m):
                if not crossed[k]:
                    w = Decimal(0)
                    for _ in range(4):
                        z, rate = move(G, y, w)
                        w -= (self.normals[k] @ z[: self.n]) / (self.normals[k] @ rate[: self.n])
                    waits[k] = w
            k = min(waits, key=waits.get)
            y, s = move(G, y, waits[k])[0], s + waits[k]
            crossed[k] = True
            order.append(k)
        y, _ = move(self.generator(crossed), y, -s)
        return (out @ y)[: self.n], order

    def one_sided(self, directions, r=Decimal(10) ** -18):
        self.start_ = self.start()
        into = matrix_exp(self.generator([False] * self.m), Decimal(T_CORNER))
        out = matrix_exp(self.generator([True] * self.m), Decimal(T_END) - Decimal(T_CORNER))
        base, _ = self.end(decimals(np.zeros(self.n)), into, out)
        found = [self.end(r * decimals(d), into, out) for d in directions]
        return np.array([[float(a) for a in (x - base) / r] for x, _ in found]), [o for _, o in found]


@pytest.mark.slow_cases("3")
@pytest.mark.parametrize(
    "m", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(6, marks=pytest.mark.slow)]
)
def test_corners_equal_one_sided_differences_in_forty_digits(m):
    getcontext().prec = DIGITS + 10
    rng = np.random.default_rng(m)
    params = corner_params(rng, m, m, spread=0.6, linear=0.5)
    affine = Affine(params)
    x0 = jnp.asarray(affine.start().astype(float))
    directions = rng.normal(size=(100, m))
    exact, orders = affine.one_sided(directions)
    numbers = jax.tree.map(jnp.asarray, params)
    run = jax.jit(
        jax.vmap(
            lambda d: b_derivative(
                jc.Model(system=CORNER, params=numbers),
                x0,
                d,
                0.0,
                T_END,
                settings=jc.ess.Settings(eps=1e-6, ode=SHARP, max_events=8),
            )
        )
    )
    found, info = run(jnp.asarray(directions))
    assert np.all(np.asarray(info.status) == 0)
    assert np.all(np.asarray(info.num_corners) == 1) and np.all(np.asarray(info.largest_corner) == m)
    assert np.array_equal(np.asarray(info.order)[:, :m], orders)
    assert np.abs(np.asarray(found) - exact).max() <= 1e-10
    # Positively homogeneous, piecewise linear, not linear.
    scaled, _ = run(jnp.asarray(3.7 * directions))
    assert np.abs(np.asarray(scaled) - 3.7 * np.asarray(found)).max() <= 1e-12
    back, _ = run(jnp.asarray(-directions))
    assert np.abs(np.asarray(found) + np.asarray(back)).max() > 1e-3
    assert len({tuple(o) for o in orders}) >= min(m * (m - 1), 20)


# ------------------------------------------------------------------------------ orders, many guards


def straight_corner(rng, n, m):
    """m guards through the origin of an n-dimensional space, fields constant for each mask."""
    params = corner_params(rng, n, m, spread=0.5)
    return params, jax.tree.map(jnp.asarray, params)


@pytest.mark.slow
def test_all_orders_of_six_guards_agree_with_brute_force():
    n = m = 6
    params, numbers = straight_corner(np.random.default_rng(7), n, m)

    def field(crossed):
        return params["b"] + np.where(crossed, 1.0, -1.0) @ params["b_k"]

    orders = np.array(list(itertools.permutations(range(m))))
    # One direction per order: displaced by well-separated times of arrival at the guards.
    arrival = np.argsort(orders, axis=1).astype(float)
    first = params["normals"] @ field(np.zeros(m, bool))
    directions = np.linalg.solve(params["normals"], (-(arrival + 1.0) * first).T).T

    def polygons(d):
        """Ends (r, 720, n) of displaced polygons relative to the trajectory for every order, and which are consistent."""
        y, s = np.repeat(d[:, None], len(orders), axis=1), np.zeros((len(d), len(orders)))
        crossed, good = np.zeros((len(orders), m), bool), np.ones(s.shape, bool)
        rows = np.arange(len(orders))
        for k in orders.T:
            f = params["b"] + np.where(crossed, 1.0, -1.0) @ params["b_k"]
            waits = -(y @ params["normals"].T) / (f @ params["normals"].T)
            wait = waits[:, rows, k]
            good &= np.all(crossed | (waits >= wait[..., None] - 1e-12), axis=2)  # no other one comes first
            y, s = y + wait[..., None] * f, s + wait
            crossed[rows, k] = True
        return y - s[..., None] * field(np.ones(m, bool)), good

    x0 = jnp.asarray(-0.1 * field(np.zeros(m, bool)))
    run = jax.jit(
        jax.vmap(
            lambda d: b_derivative(
                jc.Model(system=CORNER, params=numbers),
                x0,
                d,
                0.0,
                0.2,
                settings=jc.ess.Settings(eps=1e-3, max_steps=64),
            )
        )
    )
    found, info = run(jnp.asarray(directions))
    taken = np.asarray(info.order)[:, :m]
    assert np.all(np.asarray(info.largest_corner) == m)
    maps = jax.jit(
        jax.vmap(lambda o: ordering_map(jc.Model(system=CORNER, params=numbers), jnp.zeros(n), o))
    )(jnp.asarray(orders))
    maps = {tuple(o): np.asarray(a) for o, a in zip(orders, maps)}
    assert np.array_equal(taken, orders)  # every one of the 720
    for d, got, order in zip(directions, np.asarray(found), taken):
        assert np.abs(got - maps[tuple(order)] @ d).max() < 1e-11
    for part in np.split(np.arange(len(orders)), 8):
        ends, good = polygons(directions[part])
        assert np.array_equal(np.argmax(good, axis=1), part) and np.all(good.sum(axis=1) == 1)
        assert np.abs(ends[good] - np.asarray(found)[part]).max() < 1e-11


@pytest.mark.slow
def test_a_hundred_guards_through_one_corner():
    n = m = 100
    params, numbers = straight_corner(np.random.default_rng(3), n, m)
    x0 = jnp.asarray(-0.1 * (params["b"] - params["b_k"].sum(0)))
    direction = jnp.asarray(np.random.default_rng(4).normal(size=n))
    dx, info = b_derivative(
        jc.Model(system=CORNER, params=numbers),
        x0,
        direction,
        0.0,
        0.2,
        settings=jc.ess.Settings(eps=1e-3, max_events=128, max_steps=160),
    )
    assert int(info.status) == 0 and int(info.largest_corner) == m
    order = np.asarray(info.order)[:m]
    assert sorted(order) == list(range(m))
    assert (
        np.abs(
            ordering_map(jc.Model(system=CORNER, params=numbers), jnp.zeros(n), jnp.asarray(order))
            @ direction
            - dx
        ).max()
        < 1e-10
    )
    r = 1e-7
    options = {"settings": jc.ess.Settings(eps=1e-3, max_events=128, max_steps=160)}

    def difference(numbers):
        ahead, _ = flow(jc.Model(system=CORNER, params=numbers), x0 + r * direction, 0.0, 0.2, **options)
        return (ahead - flow(jc.Model(system=CORNER, params=numbers), x0, 0.0, 0.2, **options)[0]) / r

    assert np.abs(difference(numbers) - dx).max() < 1e-6
    # Half of them through a second corner in the same run.
    between = params["b"] + np.where(np.arange(m) < 50, 1.0, -1.0) @ params["b_k"]
    numbers["offsets"] = jnp.asarray(np.where(np.arange(m) < 50, 0.0, params["normals"] @ (0.05 * between)))
    dx, info = b_derivative(jc.Model(system=CORNER, params=numbers), x0, direction, 0.0, 0.2, **options)
    assert int(info.status) == 0 and int(info.num_corners) == 2 and int(info.largest_corner) == 50
    assert set(np.asarray(info.order)[:50]) == set(range(50))
    assert np.abs(difference(numbers) - dx).max() < 1e-6


# ------------------------------------------------------------------- between corners: jvp, saltation


@pytest.mark.slow
def test_between_corners_it_is_the_derivative_of_the_flow():
    model = jc.models.affine_3d()
    d = jnp.array([0.3, -0.5, 0.8])
    dp = jax.tree.map(lambda a: 0.1 * jnp.ones_like(a), model.params)

    def both(eps):
        def end(x, p):
            return flow(model.replace(params=p), x, 0.0, 0.5, settings=jc.ess.Settings(eps=eps, ode=TIGHT))[0]

        tangent = jax.jvp(end, (model.initial_state(), model.params), (d, dp))[1]
        one, info = b_derivative(
            model,
            model.initial_state(),
            jc.ess.Direction(x=d, params=dp),
            0.0,
            0.5,
            settings=jc.ess.Settings(eps=eps, ode=TIGHT),
        )
        return tangent, one, info

    widths = np.array([1e-2, 1e-3, 1e-4, 1e-6])
    tangent, one, info = jax.jit(jax.vmap(both))(jnp.asarray(widths))
    assert np.all(np.asarray(info.num_corners) == 0) and np.all(np.asarray(info.status) == 0)
    gap = np.abs(np.asarray(tangent) - np.asarray(one)).max(axis=1)
    slope = np.polyfit(np.log(widths[:3]), np.log(gap[:3]), 1)[0]
    assert 1.9 < slope < 2.1
    assert gap[3] < 1e-8


@pytest.mark.slow
def test_between_corners_it_is_the_product_of_saltation_matrices(rng):
    n = m = 3
    x0 = jnp.asarray(-0.3 * np.ones(n))
    options = {"settings": jc.ess.Settings(eps=1e-6, ode=TIGHT, max_steps=96)}
    directional = jax.jit(
        jax.vmap(
            lambda d, p: b_derivative(jc.Model(system=CORNER, params=p), x0, d, 0.0, 1.0, **options),
            (0, None),
        )
    )
    forward = jax.jit(
        jax.jacfwd(lambda x, p: flow(jc.Model(system=CORNER, params=p), x, 0.0, 1.0, **options)[0])
    )
    for linear, tolerance in ((0.0, 1e-12), (0.5, 1e-8)):  # constant fields, affine fields
        params = corner_params(rng, n, m, spread=0.5, linear=linear)
        numbers = jax.tree.map(jnp.asarray, params) | {"offsets": jnp.array([0.0, 0.1, 0.2])}
        trajectory = jc.ess.integrate(jc.Model(system=CORNER, params=numbers), x0, 0.0, 1.0, **options)
        product, t = np.eye(n), 0.0
        assert int(trajectory.num_events) == m
        rows = np.append(np.asarray(trajectory.event_rows)[:m], trajectory.num_rows - 1)
        for k, row in zip(np.append(np.asarray(trajectory.order)[:m], -1), rows):
            before = np.asarray(trajectory.crossed)[row - 1]
            A = params["A"] + np.tensordot(np.where(before, 1.0, -1.0), params["A_k"], 1)
            product = expm(A * (float(trajectory.t[row]) - t)) @ product
            t = float(trajectory.t[row])
            if k >= 0:
                one = saltation_matrix(
                    jc.Model(system=CORNER, params=numbers), trajectory.x[row], k, jnp.asarray(before)
                )
                product = np.asarray(one) @ product
        columns, info = directional(jnp.eye(n), numbers)
        assert np.all(np.asarray(info.num_corners) == 0)
        assert np.abs(np.asarray(columns).T - product).max() < tolerance
        assert np.abs(np.asarray(forward(x0, numbers)) - product).max() < tolerance


@pytest.mark.slow
def test_at_a_tie_the_plain_gradient_is_that_of_one_order(rng):
    params, numbers = straight_corner(rng, 2, 2)
    x0 = jnp.asarray(-0.1 * (params["b"] - params["b_k"].sum(0)))
    jacobian = np.asarray(
        jax.jit(
            jax.jacrev(
                lambda x: flow(
                    jc.Model(system=CORNER, params=numbers), x, 0.0, 0.2, settings=jc.ess.Settings(eps=1e-3)
                )[0]
            )
        )(x0)
    )
    maps = [
        np.asarray(ordering_map(jc.Model(system=CORNER, params=numbers), jnp.zeros(2), o))
        for o in ([0, 1], [1, 0])
    ]
    assert min(np.abs(jacobian - a).max() for a in maps) < 1e-12
    assert np.abs(maps[0] - maps[1]).max() > 1e-2


# ------------------------------------------------------------------------------- jumps: elastic balls


def balls_field(t, x, signs, control, params):
    """Two balls on a line, x = (x1, x2, v1, v2), free."""
    return jnp.concatenate([x[2:], jnp.zeros(2)])


def balls_guards(x, params):
    """Ball 1 (left) meets ball 2 (right); ball 2 meets the wall."""
    return jnp.stack([x[0] + params["d"] - x[1], x[1] - params["wall"]])


def balls_jump(x, k, params):
    swap = jnp.stack([x[0], x[1], x[3], x[2]])
    bounce = jnp.stack([x[0], x[1], x[2], -x[3]])
    return jnp.where(k == 0, swap, bounce)


BALLS = EventSystem(balls_field, balls_guards, rearm=np.ones((2, 2), bool), jump=balls_jump)
ROOM = {"d": 0.2, "wall": 1.0}


@jax.jit
def balls_rates(x, t1, eps):
    """B-derivative along every axis."""

    def rate(d):
        return b_derivative(
            jc.Model(system=BALLS, params=ROOM),
            x,
            d,
            0.0,
            t1,
            settings=jc.ess.Settings(eps=eps, max_steps=32),
        )

    return jax.vmap(rate)(jnp.eye(4))


@pytest.mark.slow
def test_two_balls_swap_and_so_does_the_derivative():
    x0 = jnp.array([0.0, 0.6, 1.0, -0.5])
    t1 = 0.5
    # Elastic, equal masses: each leaves with the other's velocity; positions: x1(t) follows ball 2's line - d.
    swap = np.array([[0, 1, 0, t1], [1, 0, t1, 0], [0, 0, 0, 1], [0, 0, 1, 0]], float)
    end = np.array([0.6 - 0.2 - 0.5 * t1, 0.0 + 0.2 + 1.0 * t1, -0.5, 1.0])

    def run(x, t1, eps):
        return flow(
            jc.Model(system=BALLS, params=ROOM), x, 0.0, t1, settings=jc.ess.Settings(eps=eps, max_steps=32)
        )

    @jax.jit
    def with_jacobian(x, t1, eps):
        def pair(x):
            x1, info = run(x, t1, eps)
            return x1, (x1, info)

        return jax.jacrev(pair, has_aux=True)(x)

    for eps in (1e-2, 1e-6):
        jacobian, (x1, info) = with_jacobian(x0, t1, eps)
        assert int(info.status) == 0 and int(info.num_events) == 1
        assert abs(float(info.event_times[0]) - 0.4 / 1.5) < 1e-15
        assert np.abs(np.asarray(x1) - end).max() < 1e-15
        assert np.abs(np.asarray(jacobian) - swap).max() < 1e-14
        assert np.abs(np.asarray(balls_rates(x0, t1, eps)[0]).T - swap).max() < 1e-14
    # The time of impact, 0.2667 s, is in it: without its derivative this, just after it, would not be the swap.
    swap[0, 3] = swap[1, 2] = 0.27
    assert np.abs(np.asarray(with_jacobian(x0, 0.27, 1e-6)[0]) - swap).max() < 1e-13


@pytest.mark.slow
def test_two_balls_at_a_wall_keep_their_energy_and_say_that_order_matters():
    speeds = np.random.default_rng(5).uniform(0.3, 1.0, (50, 2))
    speeds[:, 1] *= np.sign(np.random.default_rng(6).uniform(-1, 1, 50))
    meet = 0.5  # both guards at once: ball 2 touches the wall as ball 1 touches ball 2
    speeds[:, 1] = np.abs(speeds[:, 1])
    speeds[:, 0] += 1.0
    starts = np.stack([0.8 - speeds[:, 0] * meet, 1.0 - speeds[:, 1] * meet, *speeds.T], axis=1)

    @jax.jit
    @jax.vmap
    def run(x):
        return flow(jc.Model(system=BALLS, params=ROOM), x, 0.0, 1.5, settings=jc.ess.Settings(eps=1e-4))

    ends, info = run(jnp.asarray(starts))

    def energy(x):
        return 0.5 * np.sum(np.asarray(x)[:, 2:] ** 2, axis=1)

    assert np.abs(energy(ends) - energy(starts)).max() < 1e-13
    assert np.all(np.asarray(info.status) & int(jc.Status.SIMULTANEOUS))
    assert not np.any(np.asarray(info.status) & int(jc.Status.FAILURES))
    assert np.all(np.asarray(ends)[:, 1] <= 1.0 + 1e-9)
    # There is no B-derivative, and the status says so.
    _, info = balls_rates(jnp.asarray(starts[0]), 1.5, 1e-4)
    assert np.all(np.asarray(info.status) == int(jc.Status.SIMULTANEOUS))
    # Apart by a little, the two orders end differently; no bit then.
    apart = starts.copy()
    apart[:, 0] -= 0.05
    _, info = run(jnp.asarray(apart))
    assert not np.any(np.asarray(info.status))


@pytest.mark.long
def test_named_errors_and_tangents_of_params():
    model = jc.models.affine_3d()
    arguments = (model, model.initial_state())
    with pytest.raises(ValueError, match="direction: expected"):
        b_derivative(*arguments, jnp.ones(2), 0.0, 0.5, settings=jc.ess.Settings(eps=1e-3))
    with pytest.raises(ValueError, match="direction.params: expected"):
        direction = jc.ess.Direction(x=jnp.ones(3), params={"x": 1.0})
        b_derivative(*arguments, direction, 0.0, 0.5, settings=jc.ess.Settings(eps=1e-3))
    with pytest.raises(ValueError, match="order: expected"):
        ordering_map(*arguments, [0.5])


def test_rescaled_guards():
    model = jc.models.affine_3d()
    scaled = jc.ess.rescale_guards(model, model.initial_state()[None], eps=1e-3).system
    again = jc.ess.rescale_guards(model, model.initial_state()[None], eps=1e-3).system
    assert scaled == again and hash(scaled) == hash(again)
    mask = model.system.guards(model.initial_state(), model.params) >= 0
    f = scaled.xdot(jnp.array(0.0), model.initial_state(), mask, None, model.params)
    assert np.allclose(
        np.abs(scaled.guard_rates(model.initial_state(), f, model.params)[1]), 1e-3, rtol=1e-12
    )
    with pytest.raises(ValueError, match="states: expected"):
        jc.ess.rescale_guards(model, model.initial_state(), eps=1e-3)

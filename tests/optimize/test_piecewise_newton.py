"""Steps over the linear pieces of a cost: minima at kinks in closed form, beside plain gradient descent."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxcontact as jc
from jaxcontact import ess
from jaxcontact.optimize import PiecewiseNewton, trajectory
from jaxcontact.optimize.piecewise_newton import shortest_beyond


def valley(z):
    """The bent valley of Lewis & Overton, with a kink along its bottom; least, 0, at (1, 1)."""
    return 8.0 * jnp.abs(z[1] - z[0] ** 2) + (1.0 - z[0]) ** 2


def valley_pieces(z):
    x, y = np.asarray(z)
    beyond, slope = y - x**2, np.array([-2.0 * x, 1.0])
    side = np.array([1.0, -1.0]) * (1.0 if beyond >= 0 else -1.0)
    return ess.LinearPieces(
        jacobians=(8.0 * side[:, None] * slope + np.array([-2.0 * (1.0 - x), 0.0]))[:, None],
        conditions=side[:, None, None] * slope,
        orders=np.int32(side)[:, None],
        offsets=8.0 * (side[:, None] * beyond - np.abs(beyond)),
        margins=side[:, None] * beyond,
    )


def descend(function, z, motions):
    """Steepest descent with halved steps: the cost at its end."""
    both = jax.jit(jax.value_and_grad(function))
    (value, gradient), step = both(z), 0.1
    for _ in range(motions):
        new = z - step * gradient
        at, slope = both(new)
        if at <= value - 1e-4 * step * jnp.sum(gradient**2):
            z, value, gradient, step = new, at, slope, 2.0 * step
        else:
            step *= 0.5
    return float(value)


@pytest.mark.parametrize("start", [(-1.2, 1.0), (3.0, -2.0), (0.0, 0.0)])
def test_the_end_of_a_kinked_valley_is_found_where_the_gradient_stalls(start):
    start = jnp.array(start)
    z, info = trajectory(valley, start, optimizer=PiecewiseNewton(valley_pieces), scale=1.0)
    assert info.status == 0 and info.cost < 1e-10 and info.evaluations < 120
    np.testing.assert_allclose(z, 1.0, atol=1e-5)
    assert np.all(np.diff(info.costs) <= 0)
    assert descend(valley, start, 1000) > 1e-2


def test_a_kink_that_costs_neither_way_is_left():
    """min x^2 / 2 - |x|: from the top of the kink to either side, at 1."""

    def pieces(z):
        side = np.array([1.0, -1.0]) * (1.0 if z[0] >= 0 else -1.0)
        return ess.LinearPieces(
            jacobians=(np.asarray(z) - side)[:, None, None],
            conditions=side[:, None, None],
            orders=np.int32(side)[:, None],
            offsets=np.abs(np.asarray(z)) - side[:, None] * np.asarray(z),
            margins=side[:, None] * np.asarray(z),
        )

    for at in (0.0, 1e-3, -0.4):
        z, info = trajectory(
            lambda z: 0.5 * z[0] ** 2 - jnp.abs(z[0]), jnp.array([at]), optimizer=PiecewiseNewton(pieces)
        )
        assert info.status == 0 and info.cost == pytest.approx(-0.5)
        np.testing.assert_allclose(jnp.abs(z), 1.0, atol=1e-6)


def test_pieces_that_do_not_fit_and_ends_without_one():
    three = PiecewiseNewton(lambda z: valley_pieces(z[:2]))
    with pytest.raises(ValueError, match=r"pieces: expected jacobians of shape \(p, 1, 3\)"):
        trajectory(lambda z: valley(z) + z[2] ** 2, jnp.ones(3), optimizer=three)
    with pytest.raises(ValueError, match="optimizer: PiecewiseNewton takes no constraints"):
        trajectory(valley, jnp.zeros(2), optimizer=three, constraints=lambda z: z[:1])
    good = PiecewiseNewton(valley_pieces)
    _, info = trajectory(valley, jnp.array([3.0, -2.0]), optimizer=good, num_steps=3)
    assert info.status == int(jc.Status.MAX_ITERS)

    def ahead(z):  # blind to the other side: no step descends from the kink
        pieces = valley_pieces(z)
        return jax.tree.map(lambda a: a[:1], pieces).replace(conditions=np.zeros((1, 1, 2)))

    _, info = trajectory(valley, jnp.zeros(2), optimizer=PiecewiseNewton(ahead))
    assert info.status == int(jc.Status.KINK)


def test_a_killed_search_resumes_to_the_same_bits(tmp_path):
    settings = {"optimizer": PiecewiseNewton(valley_pieces), "scale": 1.0}
    start = jnp.array([3.0, -2.0])
    whole, info = trajectory(valley, start, **settings)

    def kill(done, total, at):
        if done == 11:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        trajectory(valley, start, run=jc.Run(checkpoint=path, progress=kill), **settings)
    resumed, again = trajectory(valley, start, run=jc.Run(checkpoint=path), **settings)
    np.testing.assert_array_equal(again.path, info.path)
    np.testing.assert_array_equal(resumed, whole)


def test_the_shortest_vector_beyond_half_spaces(rng):
    """Its conditions of Karush, Kuhn and Tucker, of random half spaces; none where they exclude each other."""
    for _ in range(50):
        rows, least = rng.normal(size=(6, 3)), rng.normal(size=6) - 0.5
        found = shortest_beyond(rows, least)
        if found is None:
            continue
        y, multipliers = found
        np.testing.assert_allclose(rows.T @ multipliers, y, atol=1e-9)
        assert np.all(rows @ y >= least - 1e-9) and np.all(multipliers >= -1e-9)
        np.testing.assert_allclose(multipliers * (rows @ y - least), 0.0, atol=1e-9)
    assert shortest_beyond(np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])) is None


PLATE = {}  # made outside of jit
END, PENALTY, HEAT = 0.4, 1.0, 6.7e-7


def plate():
    return PLATE.setdefault("model", jc.models.pressed_plate())


def at_end(x1, z):
    return 100.0 * (x1[0] + HEAT * jnp.sum(z[:3] ** 2) + PENALTY * x1[1] ** 2)


def plate_cost(z):
    settings = ess.Settings(eps=1e-6, max_steps=32, max_events=3)
    x0 = plate().initial_state().at[1].set(z[3])
    return at_end(ess.flow(plate(), x0, 0.0, END, settings=settings, control={"push": z[:3]})[0], z)


def plate_pieces(z):
    settings = ess.Settings(eps=1e-6, max_steps=32, max_events=3, corner_tol=0.05)
    x0 = plate().initial_state().at[1].set(z[3])
    basis = ess.Direction(x=jnp.zeros((4, 2)).at[3, 1].set(1.0), control={"push": jnp.eye(4)[:, :3]})
    pieces, info = ess.one_sided_jacobian(
        plate(), x0, 0.0, END, settings=settings, basis=basis, control={"push": z[:3]}
    )
    return pieces.of_cost(*jax.grad(at_end, (0, 1))(info.x1, z))


@pytest.mark.slow
def test_pieces_near_a_tie_are_those_of_the_tie_moved(rng):
    """Displaced costs across the kink, with an error of second order in the distance to it."""
    plate()
    cost = jax.jit(plate_cost)
    errors = []
    for size in (1.0, 0.25):
        z = jnp.array([240.0, 240.0 + size, 239.0 + size, 0.01 * size])
        pieces, used, error = plate_pieces(z), set(), 0.0
        for d in rng.normal(size=(40, 4)) * np.array([4.0, 4.0, 4.0, 0.03]) * size:
            piece = int(np.argmax(np.min(pieces.conditions @ d + pieces.margins, axis=1)))
            expected = cost(z) + pieces.offsets[piece, 0] + pieces.jacobians[piece, 0] @ d
            error, used = max(error, abs(float(expected - cost(z + d)))), used | {piece}
        assert len(used) == 2
        errors.append(error)
    assert errors[1] < errors[0] / 8
    level, _ = ess.one_sided_jacobian(
        plate(), jnp.array([0.1, 0.0]), 0.0, END, settings=ess.Settings(eps=1e-6, max_steps=32, max_events=3, corner_tol=1e-6),
        control={"push": jnp.full(3, 240.0)},
    )  # fmt: skip
    np.testing.assert_allclose(level.offsets, 0.0, atol=1e-12)
    np.testing.assert_allclose(level.margins, 0.0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("start", [(240.0, 240.0, 240.0, 0.0), (200.0, 250.0, 260.0, 0.03)])
def test_the_pressed_plate_becomes_level_in_fewer_motions_than_by_the_gradient(start):
    """The best plate is level, at the tie of three landings; its cost in closed form."""
    model = plate()
    drag, crush = float(model.params["drag"]), float(model.params["crush"])
    push = np.linspace(250.0, 275.0, 250001)
    level = -(END - 0.1 * drag / (3 * push)) * 3 * (push - crush) / drag + HEAT * 3 * push**2
    scale, start = jnp.array([240.0, 240.0, 240.0, 1.0]), jnp.array(start)
    z, info = trajectory(plate_cost, start, optimizer=PiecewiseNewton(plate_pieces), scale=scale)
    assert info.status == 0 and info.cost == pytest.approx(100.0 * level.min(), abs=1e-9)
    assert info.evaluations < 150
    np.testing.assert_allclose(z, [*np.full(3, push[level.argmin()]), 0.0], atol=1e-3)
    assert descend(lambda s: plate_cost(s * scale), start / scale, 300) > info.cost + 1e-3
    _, adam = trajectory(plate_cost, start, optimizer=optax.adam(0.01), scale=scale, num_steps=150)
    assert adam.costs.min() > info.cost + 1e-5

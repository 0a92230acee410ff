"""Optimisation along constraints, its checkpoint, and descent where the derivative is one-sided."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import lsq_linear

import jaxcontact as jc
from jaxcontact.io.state_file import save_state
from jaxcontact.optimize import AugmentedLagrangian, OneSided, one_sided_descent, trajectory

TARGET = np.array([1.0, -2.0, 3.0])


def cost(z):
    return jnp.sum((z["a"] - TARGET) ** 2)


def on_the_sphere(z):
    return jnp.stack([jnp.sum(z["a"] ** 2) - 4.0])


def start():
    return {"a": jnp.array([1.5, 0.7, 0.4])}


@pytest.mark.float32
def test_nearest_point_of_a_sphere():
    tol = 1e-9 if jax.config.jax_enable_x64 else 1e-5
    z, info = trajectory(
        cost, start(), optimizer=optax.adam(optax.cosine_decay_schedule(0.1, 400)),
        constraints=on_the_sphere, num_steps=400, tol=tol,
    )  # fmt: skip
    assert info.status == 0
    assert info.residual <= tol
    np.testing.assert_allclose(z["a"], 2.0 * TARGET / np.linalg.norm(TARGET), atol=2e-3)
    assert info.costs.shape == info.residuals.shape == (401,)
    assert info.path.shape == (401, 3)
    np.testing.assert_allclose(np.sum((info.path - TARGET) ** 2, axis=1), info.costs, rtol=1e-5)
    assert info.evaluations >= 401 and info.corners == 0


def test_a_killed_run_goes_on_to_the_same_end(tmp_path):
    settings = {"optimizer": optax.adam(0.05), "constraints": on_the_sphere, "num_steps": 30}
    whole, all_of_it = trajectory(cost, start(), **settings)

    def kill(done, total, at):
        if done == 17:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        trajectory(cost, start(), run=jc.Run(checkpoint=path, progress=kill), **settings)
    seen = []
    resumed, info = trajectory(
        cost, start(), run=jc.Run(checkpoint=path, progress=lambda i, n, at: seen.append(i)), **settings
    )
    assert seen[0] == 11
    assert info.costs.size == 31
    np.testing.assert_array_equal(info.path, all_of_it.path)
    np.testing.assert_array_equal(np.asarray(resumed["a"]), np.asarray(whole["a"]))
    path.write_bytes(b"PK no")
    with pytest.raises(ValueError, match="cannot be read"):
        trajectory(cost, start(), run=jc.Run(checkpoint=path), **settings)


def test_runs_of_other_lengths_share_a_checkpoint(tmp_path):
    """A longer one goes on, a shorter one returns what it finds without the file, which stays as it is."""
    path, settings = tmp_path / "run.npz", {"optimizer": optax.adam(0.05), "constraints": on_the_sphere}
    trajectory(cost, start(), num_steps=13, run=jc.Run(checkpoint=path), **settings)
    for num_steps in (16, 7, 0):
        before = path.read_bytes()
        found, info = trajectory(cost, start(), num_steps=num_steps, run=jc.Run(checkpoint=path), **settings)
        alone, all_of_it = trajectory(cost, start(), num_steps=num_steps, **settings)
        assert (path.read_bytes() == before) == (num_steps < 13)
        for name in ("cost", "residual", "slope", "costs", "residuals", "path"):
            np.testing.assert_array_equal(getattr(info, name), getattr(all_of_it, name), err_msg=name)
        np.testing.assert_array_equal(found["a"], alone["a"])


def target_moved_by(shift):
    return lambda z: jnp.sum((z["a"] - (TARGET + shift)) ** 2)


def under_another_name():
    renamed = {"objective": target_moved_by(0.0), "constraints": on_the_sphere}
    return {name: lambda z, f=f: f({"a": z["b"]}) for name, f in renamed.items()}


OTHER_RUNS = {
    "another objective": ({"objective": lambda z: jnp.sum(z["a"] ** 4)}, "objective and constraints"),
    "another number in its closure": ({"objective": target_moved_by(1e-9)}, "objective and constraints"),
    "other constraints": ({"constraints": lambda z: z["a"][:1] - 1.0}, "objective and constraints"),
    "another learning rate": ({"optimizer": optax.sgd(0.04)}, "optimizer"),
    "another optimizer": ({"optimizer": optax.adam(0.05)}, "optimizer"),
    "another start": ({"controls0": {"a": jnp.array([1.5, 0.7, 0.5])}}, "controls0"),
    "other names": ({"controls0": {"b": start()["a"]}} | under_another_name(), "controls0"),
    "other data": (
        {"about": {"data": "Tuesday"}},
        r'about \({"data": "Monday"} there, {"data": "Tuesday"} now\)',
    ),
    "no name": ({"about": None}, r'about \({"data": "Monday"} there, null now\)'),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "run.npz"
    settings = {"objective": target_moved_by(0.0), "controls0": start(), "optimizer": optax.sgd(0.05)}
    settings |= {
        "constraints": on_the_sphere,
        "num_steps": 3,
        "run": jc.Run(checkpoint=path, about={"data": "Monday"}),
    }
    trajectory(**settings)
    return settings


@pytest.mark.parametrize("change", OTHER_RUNS)
def test_a_checkpoint_of_another_run_is_refused_by_name(stored, change):
    changes, names = OTHER_RUNS[change]
    if "about" in changes:
        changes = {"run": dataclasses.replace(stored["run"], **changes)}
    before = stored["run"].checkpoint.read_bytes()
    with pytest.raises(ValueError, match=rf"of another run and was left as it is; these differ: {names}$"):
        trajectory(**stored | changes)
    assert stored["run"].checkpoint.read_bytes() == before


def test_a_checkpoint_of_another_version_is_refused_by_name(stored, monkeypatch):
    monkeypatch.setattr(jc, "__version__", "0.0.9")
    with pytest.raises(ValueError, match=r'these differ: version \("0.1.0" there, "0.0.9" now\)$'):
        trajectory(**stored)


def test_a_checkpoint_of_the_first_format_is_refused_by_name(stored, tmp_path):
    path = tmp_path / "old.npz"
    save_state(path, {"version": "0"}, {"costs": np.ones(1), "visited": np.ones((1, 3))})
    with pytest.raises(
        ValueError, match=r'these differ: format \(null there, "jaxcontact optimisation, 8" now'
    ):
        trajectory(**stored | {"run": jc.Run(checkpoint=path)})


def test_the_same_functions_written_again_are_the_same_run(stored):
    """Other objects at other addresses: what they compute is compared."""
    trajectory(**stored | {"objective": target_moved_by(0.0), "optimizer": optax.sgd(0.05)})


def test_wrong_input_is_named():
    sgd = optax.sgd(0.1)
    with pytest.raises(ValueError, match="OneSided"):
        trajectory(cost, start(), optimizer=OneSided(sgd, lambda z, d: 0.0), constraints=on_the_sphere)
    with pytest.raises(ValueError, match="num_steps"):
        trajectory(cost, start(), optimizer=sgd, num_steps=-1)
    with pytest.raises(ValueError, match="tol: expected finite numbers, got NaN or inf"):
        trajectory(cost, start(), optimizer=sgd, tol=float("nan"))
    with pytest.raises(ValueError, match="scale: expected a finite number > 0"):
        trajectory(cost, start(), scale=0.0)
    with pytest.raises(ValueError, match="bounds: expected a pair"):
        trajectory(cost, start(), optimizer=AugmentedLagrangian(bounds={"a": (2.0, 3.0)}))


@pytest.mark.parametrize(
    "optimizer", [AugmentedLagrangian(slope=1e-8), optax.sgd(0.05)], ids=["quasi-Newton", "sgd"]
)
def test_a_search_from_small_noise_is_that_from_zeros(optimizer):
    """Without bounds and `scale` the controls have one size, whatever the start's entries."""

    def bent(z):
        u = jnp.concatenate([z["a"], z["b"][None]])
        return jnp.sum((u - jnp.arange(1.0, 5.0)) ** 2) + jnp.sum(jnp.cos(3.0 * u))

    def search(noise, **arguments):
        entries = noise * np.random.default_rng(0).normal(size=4)
        z = {"a": jnp.asarray(entries[:3]), "b": jnp.asarray(entries[3])}
        return trajectory(bent, z, optimizer=optimizer, num_steps=40, **arguments)[1]

    zeros, noise, alike = search(0.0), search(1e-7), search(1e-7, scale=1.0)
    np.testing.assert_allclose(noise.path[:9], zeros.path[:9], atol=1e-4)
    assert noise.cost == pytest.approx(zeros.cost, abs=1e-6)
    np.testing.assert_array_equal(alike.path, noise.path)
    # Beyond 1 the size is the root mean square of the leaf: such controls search in parts of it.
    large = trajectory(
        lambda z: jnp.sum(z**2), jnp.array([3.0, -5.0]), optimizer=optax.sgd(0.25), num_steps=1
    )[1]
    np.testing.assert_allclose(large.path[1], np.array([3.0, -5.0]) * (1.0 - 0.5 * 17.0))


def test_a_checkpoint_with_another_scale_is_refused(stored):
    with pytest.raises(ValueError, match="these differ: scale$"):
        trajectory(**stored | {"scale": 2.0})


@pytest.mark.parametrize("integers", [3, np.array([3, 4]), True], ids=["number", "array", "bool"])
def test_integer_controls_are_refused_by_their_place(integers):
    with pytest.raises(TypeError, match=r"controls0\['b'\]: expected floats, which a gradient can move, got"):
        trajectory(lambda z: z["a"] + jnp.sum(z["b"]), {"a": 1.0, "b": integers}, optimizer=optax.sgd(0.1))


def test_the_best_point_visited_is_returned():
    """Steps of length 2.1 |x| leave the minimum: the start is the best; a growing rate passes the minimum."""
    off = optax.sgd(1.05)
    z, info = trajectory(lambda z: jnp.sum(z**2), jnp.array([1.0]), optimizer=off, num_steps=5)
    assert float(z[0]) == 1.0 and info.cost == 1.0 and info.best_step == 0 and info.costs[-1] > 2.0
    assert info.slope == pytest.approx(2.0)
    growing = optax.sgd(lambda i: 0.1 * 1.5**i)
    z, info = trajectory(cost, start(), optimizer=growing, num_steps=14)
    assert info.cost == info.costs.min() == info.costs[info.best_step] < 1e-3 * info.costs[-1]
    z, info = trajectory(cost, start(), optimizer=growing, constraints=on_the_sphere, num_steps=14)
    nearest = 2.0 * TARGET / np.linalg.norm(TARGET)
    assert info.status == 0 and info.best_step < 14
    assert np.linalg.norm(z["a"] - nearest) < 0.2 * np.linalg.norm(info.path[-1] - nearest)


def test_steps_into_failed_motions_are_shortened():
    def fails_beyond(z):
        return jnp.where(z["a"][0] > 1.0, jnp.nan, -z["a"][0])

    z, info = trajectory(fails_beyond, {"a": jnp.array([0.5])}, optimizer=optax.sgd(3.0), num_steps=1)
    assert 0.5 < float(z["a"][0]) <= 1.0
    assert np.all(np.diff(info.costs) < 0)


# Two guards met together: x1 is 1 + a + 2 max(a - b, 0) + 2/3 max(b - a, 0) for the start (-1 + a, -1 + b).
def two_guard_field(t, x, signs, control, params):
    first, second = signs[0] > 0, signs[1] > 0
    return jnp.stack([jnp.where(first ^ second, 3.0, 1.0), jnp.ones_like(x[1])])


def two_guards(x, params):
    return x


TWO = jc.ess.EventSystem(two_guard_field, two_guards)


def final(z):
    x1, _ = jc.ess.flow(
        jc.Model(system=TWO, params=None), z - 1.0, 0.0, 2.0, settings=jc.ess.Settings(eps=1e-3, max_steps=48)
    )
    return x1[0]


def final_rate(z, d):
    dx1, _ = jc.ess.b_derivative(
        jc.Model(system=TWO, params=None),
        z - 1.0,
        d,
        0.0,
        2.0,
        settings=jc.ess.Settings(eps=1e-3, max_steps=48),
    )
    return dx1[0]


@pytest.mark.slow
def test_the_plain_gradient_stalls_at_a_tie_where_the_b_derivative_descends():
    gradient = np.array(
        [3.0, -2.0]
    )  # of the order that automatic differentiation takes, the lower index first
    line = np.array(
        [0.0, 1e-5, 1e-4, 1e-3, 1e-2]
    )  # a line search along it finds nothing, however short the step
    along = -jnp.asarray(line)[:, None] * gradient[None, :]
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(final)))(along)
    np.testing.assert_allclose(values[0], 1.0, atol=1e-12)
    np.testing.assert_allclose(gradients[0], gradient, atol=1e-9)
    assert np.all(np.asarray(values)[1:] > values[0])
    # Down -d, d = (0.5, 0.5) the shortest of the hull of (3, -2) and (1/3, 2/3), stays at the tie.
    z, sharp = trajectory(final, jnp.zeros(2), optimizer=OneSided(optax.sgd(0.01), final_rate), num_steps=5)
    np.testing.assert_allclose(z, -0.025, atol=1e-6)
    np.testing.assert_allclose(np.diff(sharp.costs), -0.005, atol=1e-6)
    assert sharp.corners == 5 and sharp.evaluations == 6 + 3 * 5


def pressed(push, tilt, end=0.4):
    """The pressed plate's end, from landing to landing along straight lines in NumPy, small tilts."""
    places, x, t, landed = np.array([0.2, 0.0, -0.2]), np.array([0.1, tilt]), 0.0, np.zeros(3, bool)
    while True:
        force = 100.0 * landed - push
        v = np.array([np.sum(force) / 1e3, np.sum(force * places) / (1e3 * 0.04 / 3.0)])
        wait = np.where(landed, np.inf, -(x[0] + places * x[1]) / (v[0] + places * v[1]))
        k = np.argmin(wait)
        if t + wait[k] > end:
            return x + (end - t) * v
        x, t, landed[k] = x + wait[k] * v, t + wait[k], True


@pytest.mark.slow
def test_the_tie_of_a_pressed_plate():
    model = jc.models.pressed_plate()
    settings = jc.ess.Settings(eps=1e-6, max_steps=32, max_events=3)

    def end(z):
        x0 = model.initial_state().at[1].set(z[3])
        return jc.ess.flow(model, x0, 0.0, 0.4, settings=settings, control={"push": z[:3]})[0]

    def end_rate(z, d):
        x0, dx0 = model.initial_state().at[1].set(z[3]), jnp.zeros(2).at[1].set(d[3])
        return jc.ess.b_derivative(
            model, x0, jc.ess.Direction(x=dx0, control={"push": d[:3]}), 0.0, 0.4,
            settings=settings, control={"push": z[:3]},
        )[0]  # fmt: skip

    level = jnp.array([240.0, 240.0, 240.0, 0.0])
    value, jacobian = jax.jit(lambda z: (end(z), jax.jacfwd(end)(z)))(level)
    np.testing.assert_allclose(value, pressed(np.full(3, 240.0), 0.0), atol=1e-12)
    gradient = np.asarray(jacobian[0]) * np.array([240.0, 240.0, 240.0, 1.0])
    heat = np.append(np.full(3, 2.0 * 6.7e-7 * 240.0**2), 0.0)
    directions = np.concatenate([np.eye(4)[3:], -np.eye(4)[3:], -(gradient + heat)[None]])
    rates = jax.jit(jax.vmap(end_rate, (None, 0)))(level, directions * np.array([240.0, 240.0, 240.0, 1.0]))
    for d, rate in zip(directions, np.asarray(rates), strict=True):
        r = 1e-6
        displaced = pressed(240.0 * (1.0 + r * d[:3]), r * d[3])
        np.testing.assert_allclose(rate, (displaced - np.asarray(value)) / r, atol=1e-5)
    # A tilt raises the plate either way. Which order the plain gradient takes at the tie is up to rounding.
    assert rates[0, 0] > 6e-3 and rates[1, 0] > 6e-3


def test_components_that_cancel_are_zero():
    pieces = [np.array([1.0, 3.0]), np.array([1.0, -3.0000000001])]
    d, _ = one_sided_descent(
        lambda d: float(max(p @ d for p in pieces)), lambda d: max(pieces, key=lambda p: p @ d), pieces[0]
    )
    assert d[1] == 0.0 and d[0] == pytest.approx(-1.0)


def test_descent_of_a_smooth_function_takes_one_evaluation_and_a_minimum_none():
    g = np.array([1.0, -2.0])
    d, calls = one_sided_descent(lambda d: float(g @ d), lambda d: g, g)
    np.testing.assert_allclose(d, -g)
    assert calls == 1
    d, _ = one_sided_descent(lambda d: float(np.sum(np.abs(d))), np.sign, np.array([1.0, 1.0]))
    np.testing.assert_array_equal(d, 0.0)


def test_descent_along_a_concave_kink():
    # -|d_0| + d_1: the hull of its gradients holds (0, 1), along which less is gained than across.
    def rate(d):
        return float(-abs(d[0]) + 0.1 * d[1])

    d, _ = one_sided_descent(rate, lambda d: np.array([-np.sign(d[0]), 0.1]), np.array([1.0, 0.1]))
    assert rate(d) < -0.9 * np.linalg.norm(d) ** 2 < 0


# The augmented Lagrangian
def bowl(z):
    return 1e3 * jnp.sum((z["a"] - TARGET) ** 2)


@pytest.mark.float32
@pytest.mark.parametrize("scale", [None, 3.0, {"a": jnp.array([1.0, 2.0, 3.0])}])
def test_an_augmented_lagrangian_finds_the_nearest_point_of_a_sphere(scale):
    tol = 1e-9 if jax.config.jax_enable_x64 else 1e-5
    for at in (start(), {"a": jnp.zeros(3) + 1e-3}):
        z, info = trajectory(bowl, at, constraints=on_the_sphere, scale=scale, tol=tol)
        assert info.status == 0 and info.residual <= tol and info.corners == 0
        atol = 1e-4 if jax.config.jax_enable_x64 else 1e-3
        np.testing.assert_allclose(z["a"], 2.0 * TARGET / np.linalg.norm(TARGET), atol=atol)
        assert scale is None or info.costs.size < 60


@pytest.mark.float32
def test_a_search_without_steps_left_says_so():
    z, info = trajectory(bowl, start(), constraints=on_the_sphere, num_steps=4, tol=1e-4)
    assert info.status == int(jc.Status.MAX_ITERS) and info.slope > 1.0


def test_a_search_from_zeros_at_zero_cost_reaches_bent_constraints_first():
    """min |u|^2 so that sum of sin(3 u + k) = 9 and sum u = 2: feasible within few steps, cost 0 at the start."""
    phase = jnp.arange(40.0)

    def misses(u):
        return jnp.stack([jnp.sum(jnp.sin(3 * u + phase)) - 9.0, 100 * (jnp.sum(u) - 2.0)])

    ends = [
        trajectory(lambda u: jnp.mean(u**2), u0, constraints=misses, scale=1.0, num_steps=60, tol=1e-8)[1]
        for u0 in (jnp.zeros(40), 0.02 * jax.random.normal(jax.random.key(0), (40,)))
    ]
    for info in ends:
        assert info.status == 0 and info.residuals[12] < 1e-2
    assert ends[1].cost == pytest.approx(ends[0].cost, rel=1e-3)


def test_an_augmented_lagrangian_keeps_bounds_and_units():
    """min |x - t|^2 on the plane sum x = 1, x <= 1/2: closed form (0, 1/2, 1/2) for t = (0, 2, 2)."""
    target = jnp.array([0.0, 2.0, 2.0])
    for unit in (1.0, 1e6, 1e-6):  # of the constraint
        z, info = trajectory(
            lambda z: jnp.sum((z - target) ** 2), jnp.zeros(3),
            constraints=lambda z, unit=unit: unit * (jnp.sum(z) - 1.0)[None],
            optimizer=AugmentedLagrangian(bounds=(-1.0, 0.5)), tol=1e-9 * unit,
        )  # fmt: skip
        assert info.status == 0
        np.testing.assert_allclose(z, [0.0, 0.5, 0.5], atol=1e-4)
        assert np.all(info.path <= 0.5) and info.slope < 1e-3


def test_a_killed_augmented_lagrangian_resumes_to_the_same_bits(tmp_path):
    def rough(z):
        x, y, w = z["a"]
        return (1 - x) ** 2 + 100 * (y - x**2) ** 2 + w**2

    whole, all_of_it = trajectory(rough, start(), constraints=on_the_sphere)
    assert all_of_it.status == 0 and all_of_it.costs.size > 18

    def kill(done, total, at):
        if done == 17:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        trajectory(rough, start(), constraints=on_the_sphere, run=jc.Run(checkpoint=path, progress=kill))
    seen = []
    run = jc.Run(checkpoint=path, progress=lambda i, n, at: seen.append(i))
    resumed, info = trajectory(rough, start(), constraints=on_the_sphere, run=run)
    assert seen[0] == 11
    np.testing.assert_array_equal(info.path, all_of_it.path)
    np.testing.assert_array_equal(resumed["a"], whole["a"])


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_a_minimum_on_many_kinks_is_found_though_the_curvature_becomes_singular(seed):
    """min sum |A x - 1| + x.x / 2, as a quadratic program with a bound for each term."""
    matrix = np.random.default_rng(seed).normal(size=(5, 5))
    _, info = trajectory(
        lambda x: jnp.sum(jnp.abs(jnp.asarray(matrix) @ x - 1)) + 0.5 * x @ x,
        jnp.arange(1.0, 6.0),
        num_steps=500,
    )
    # The dual is max -|A^T y|^2 / 2 - sum y over |y_i| <= 1; with A^T y = -x, a least-squares problem.
    inverse = np.linalg.solve(matrix, np.ones(5))
    dual = lsq_linear(matrix.T, -inverse, (-1, 1), tol=1e-14)
    assert info.cost == pytest.approx(0.5 * inverse @ inverse - dual.cost, rel=1e-6)


def test_a_kink_is_named_and_failed_motions_are_avoided():
    z, info = trajectory(lambda z: jnp.abs(z[0]) + 2 * jnp.abs(z[1] - 1) + z[1] ** 2, jnp.array([0.7, -0.4]))
    np.testing.assert_allclose(z, [0.0, 1.0], atol=1e-3)
    assert info.corners > 0 and info.status == int(jc.Status.KINK)
    z, info = trajectory(lambda z: jnp.where(z[0] > 1, jnp.nan, (z[0] - 3) ** 2), jnp.array([0.5]))
    assert 0.9 < float(z[0]) <= 1.0

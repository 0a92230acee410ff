"""Variational integrator: closed forms of bounces, slides and turns, invariants, notes, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

import jaxcontact as jc
from jaxcontact.simulate.variational.event_search import narrow_search, start_search

G = 9.81


def ball_forces(structure, q, v, params):
    c = params.constants
    return jnp.stack([-c["stiffness"] * q[0] - c["damping"] * v[0], 0.0 * q[1], 0.0 * q[2]])


def ball_drive(structure, state, params):
    lift = params.constants["ramp"] * state.t
    return jnp.stack([0.0 * lift, lift, 0.0 * lift])


BALL = jc.System(
    jc.Structure(
        dim=2,
        bodies=("ball",),
        num_positions=3,
        shapes=(
            jc.Disc(name="rim", body="ball", radius="radius"),
            jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("rim", "floor"),),
    ),
    jc.free_poses,
    ball_forces,
    drive=ball_drive,
)
MASS, INERTIA, RADIUS, MU = 2.0, 0.1, 0.5, 0.3


def ball(height=1.0, vx=0.0, vy=0.0, spin=0.0, **constants):
    numbers = {"radius": RADIUS, "stiffness": 0.0, "damping": 0.0, "ramp": 0.0} | constants
    params = jc.Params(
        mass=jnp.array([MASS]),
        inertia=jnp.array([INERTIA]),
        mu=jnp.array(MU, float),
        gravity=jnp.array([0.0, -G]),
        constants={name: jnp.array(value, float) for name, value in numbers.items()},
    )
    state = jc.State(q=jnp.array([0.0, RADIUS + height, 0.0]), v=jnp.array([vx, vy, spin]), t=jnp.zeros(()))
    return jc.Model(system=BALL, params=params), state


def run(problem, dt=0.01, **settings):
    """300 steps whatever their length: one program for all tests."""
    stepper = jc.simulate.Variational(max_impacts=64, **settings)
    return jc.simulate.variational(*problem, stepper, dt=dt, duration=300 * dt)


@pytest.mark.slow
@pytest.mark.float32
def test_elastic_ball_returns_at_the_times_of_the_closed_form(tolerance):
    found = run(ball())
    fall = np.sqrt(2.0 / G)
    assert int(found.impacts.count) == 3
    np.testing.assert_allclose(
        np.asarray(found.impacts.t)[:3], fall * np.array([1.0, 3.0, 5.0]), rtol=0, atol=tolerance(1e-12, 1e-5)
    )
    energy = 0.5 * np.sum(np.asarray(found.states.v) ** 2, axis=1) + G * np.asarray(found.states.q)[:, 1]
    np.testing.assert_allclose(energy, energy[0], rtol=tolerance(1e-13, 1e-5))
    assert not np.any(np.asarray(found.status)) and found.notes == []
    np.testing.assert_allclose(
        np.asarray(found.impacts.impulse)[:3, 0], 2 * MASS * G * fall, rtol=tolerance(1e-13, 1e-5)
    )
    assert np.all(np.isnan(np.asarray(found.impacts.t)[3:]))


@pytest.mark.slow
def test_chatter_turns_plastic_and_the_ball_rolls_on():
    """Restitution 1/2: bounces shrink to nothing at 3 times the first fall; then it slides until it rolls."""
    found = run(ball(vx=1.0), restitution=0.5)
    fall = np.sqrt(2.0 / G)
    status = np.asarray(found.status)
    assert jc.Status.describe(status) == "ZENO" and np.sum(status != 0) == 1
    count = int(found.impacts.count)
    t = np.asarray(found.impacts.t)[:count]
    assert np.asarray(found.impacts.plastic)[:count].tolist() == [False] * (count - 1) + [True]
    # Bounce k takes 2 fall / 2^k; the last one is the first shorter than dt.
    np.testing.assert_allclose(np.diff(t), 2 * fall / 2.0 ** np.arange(1, count), atol=1e-12)
    assert np.diff(t)[-1] < 0.01 < np.diff(t)[-2] and t[-1] < 3 * fall
    assert len(found.notes) == 1 and "ZENO" in found.notes[0]
    after = np.asarray(found.states.t) > t[-1]
    np.testing.assert_allclose(np.asarray(found.states.q)[after, 1], RADIUS, atol=1e-11)
    assert np.all(np.asarray(found.contacts)[after])
    np.testing.assert_allclose(np.asarray(found.impulse)[-1, 0, 0], MASS * G * 0.01, rtol=1e-11)
    rolling = MASS * RADIUS**2 / (INERTIA + MASS * RADIUS**2)
    np.testing.assert_allclose(np.asarray(found.states.v)[-1], [rolling, 0.0, -rolling / RADIUS], atol=1e-12)


@pytest.mark.slow
def test_sliding_friction_is_coulomb_until_the_ball_rolls():
    found = run(ball(height=0.0, vx=2.0))
    t, v = np.asarray(found.states.t), np.asarray(found.states.v)
    stop = 2.0 / (MU * G * (1.0 + MASS * RADIUS**2 / INERTIA))
    slides = t < stop - 0.01
    assert 5 < slides.sum() < 20
    np.testing.assert_allclose(v[slides, 0], 2.0 - MU * G * t[slides], atol=1e-12)
    np.testing.assert_allclose(v[slides, 2], -MASS * MU * G * RADIUS / INERTIA * t[slides], atol=1e-11)
    rolling = 2.0 * MASS * RADIUS**2 / (INERTIA + MASS * RADIUS**2)
    np.testing.assert_allclose(v[-10:, 0], rolling, atol=1e-12)
    assert not np.any(np.asarray(found.status)) and int(found.impacts.count) == 0


@pytest.mark.slow
def test_a_growing_pull_lifts_the_ball():
    """At the time when it exceeds the weight, wherever in a step that is; from then on exact but for h^2."""
    ramp = 40.0
    start = MASS * G / ramp
    errors = []
    for dt in (0.01, 0.005, 0.013):
        found = run(ball(height=0.0, ramp=ramp, vx=2.0), dt=dt)
        early = np.asarray(found.states.t) < 1.0
        t, y = np.asarray(found.states.t)[early], np.asarray(found.states.q)[early, 1] - RADIUS
        flown = np.maximum(t - start, 0.0)
        np.testing.assert_allclose(
            np.asarray(found.states.v)[early, 1], ramp * flown**2 / (2.0 * MASS), rtol=0, atol=1e-13
        )
        closed = np.asarray(found.contacts)[early, 0]
        assert np.all(closed[t < start]) and not np.any(closed[t > start + dt])
        errors.append(np.max(np.abs(y - ramp * flown**3 / (6.0 * MASS))))
        assert not np.any(np.asarray(found.status)) and int(found.impacts.count) == 0
    assert errors[0] < 1e-4 and 3.9 < errors[0] / errors[1] < 4.1


def on_the_hill(structure, q, params):
    return jnp.stack([q, jnp.zeros_like(q)]), jnp.zeros_like(q)


HILL = jc.System(
    jc.Structure(
        dim=2,
        bodies=("ball", "hill"),
        num_positions=2,
        shapes=(
            jc.Disc(name="rim", body="ball", radius="small"),
            jc.Disc(name="top", body="hill", radius="large"),
        ),
        pairs=(("rim", "top"),),
    ),
    on_the_hill,
)


@pytest.mark.slow
def test_a_ball_that_slides_off_a_hill_lets_go_where_two_thirds_of_its_height_are_left():
    """Without friction; the flight from there on, by closed form, is met at second order."""
    params = jc.Params(
        mass=jnp.array([1.0, 1.0]), inertia=jnp.array([1.0, 1.0]), mu=jnp.array(0.0),
        gravity=jnp.array([0.0, -G]), constants={"small": jnp.array(0.25), "large": jnp.array(0.75)},
    )  # fmt: skip
    first, last = 0.3, np.arccos((2.0 * np.cos(0.3)) / 3.0)
    time, error = quad(lambda a: 1.0 / np.sqrt(2.0 * G * (np.cos(first) - np.cos(a))), first, last, limit=200)
    assert error < 1e-7
    state = jc.State(q=jnp.array([np.sin(first), np.cos(first)]), v=jnp.zeros(2), t=jnp.array(0.0))
    speed = np.sqrt(2.0 * G * (np.cos(first) - np.cos(last)))
    flown = 0.8 - time
    assert flown > 0.1
    exact = [
        np.sin(last) + speed * np.cos(last) * flown,
        np.cos(last) - speed * np.sin(last) * flown - 0.5 * G * flown**2,
    ]
    errors = []
    for dt in (0.02, 0.01, 0.005):
        found = jc.simulate.variational(
            jc.Model(system=HILL, params=params),
            state,
            jc.simulate.Variational(max_impacts=4),
            dt=dt,
            duration=0.8,
        )
        assert not np.any(np.asarray(found.status)) and int(found.impacts.count) == 0
        closed = np.asarray(found.contacts)[:, 0]
        assert abs(np.asarray(found.states.t)[closed].max() - time) < 1.5 * dt
        errors.append(np.max(np.abs(np.asarray(found.states.q)[-1] - exact)))
    assert 3.6 < errors[0] / errors[1] < 4.4 and 3.6 < errors[1] / errors[2] < 4.4


@pytest.mark.long
def test_spring_and_damper_converge_at_second_order():
    problem = ball(height=5.0, vx=1.0, stiffness=30.0, damping=1.5)
    rate, decay = np.sqrt(30.0 / MASS - (0.75 / MASS) ** 2), 0.75 / MASS
    errors = []
    for dt in (0.02, 0.01):
        x = np.asarray(run(problem, dt=dt).states.q)[round(1.0 / dt), 0]
        errors.append(abs(x - np.exp(-decay) * np.sin(rate) / rate))
    assert errors[1] < 1e-4 and 3.8 < errors[0] / errors[1] < 4.2


@pytest.mark.long
def test_bad_numbers_and_starts_are_named():
    model, state = ball()
    below = run(ball(height=-1e-3))
    assert int(below.status[0]) & jc.Status.PENETRATION
    for name, value in {"mass": [jnp.nan], "mu": -1.0, "inertia": [-1.0]}.items():
        with pytest.raises(ValueError, match=f"params.{name}: expected"):
            run((model.replace(params=model.params.replace(**{name: jnp.array(value)})), state))
    with pytest.raises(ValueError, match=r"params.mass: .*moves"):
        run((model.replace(params=model.params.replace(mass=jnp.zeros(1))), state))
    with pytest.raises(ValueError, match="state.q: expected finite"):
        run((model, state.replace(q=state.q.at[0].set(jnp.nan))))
    for restitution in (2.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="restitution: expected"):
            run((model, state), restitution=restitution)
    with pytest.raises(ValueError, match="zeno: expected"):
        run((model, state), zeno=-1.0)
    with pytest.raises(ValueError, match="dt: expected a finite number > 0"):
        run((model, state), dt=0.0)
    with pytest.raises(ValueError, match="duration: expected (a finite number > 0|finite numbers|a number)"):
        jc.simulate.variational(model, state, dt=0.1, duration=float("nan"))
    with pytest.raises(ValueError, match="order: expected"):
        run((model, state), order="first")
    with pytest.raises(ValueError, match="order: expected"):
        run((model, state), order=(1,))


@pytest.mark.slow
def test_bad_numbers_in_a_batch_are_those_of_their_lane():
    model, state = ball(height=0.01)  # lands after 0.045 s

    def status(x, mass, mu, restitution, zeno):
        begin = state.replace(q=state.q.at[0].set(x))
        given = model.params.replace(mass=mass[None], mu=mu)
        found = jc.simulate.variational(
            model.replace(params=given),
            begin,
            jc.simulate.Variational(restitution=restitution, zeno=zeno, max_impacts=4),
            dt=0.01,
            duration=0.1,
        )
        return found.status[0], found.status[-1]

    good = np.array([0.0, MASS, MU, 1.0, 0.01])
    bad = [
        (0, np.nan),
        (1, 0.0),
        (1, -1.0),
        (1, np.nan),
        (2, -1.0),
        (3, 2.0),
        (3, -1.0),
        (3, np.nan),
        (4, -1.0),
    ]
    lanes = np.stack([good, *(np.where(np.arange(5) == k, value, good) for k, value in bad), good])
    first, last = jax.jit(jax.vmap(status))(*jnp.asarray(lanes.T))
    for found in (np.asarray(first), np.asarray(last)):
        assert found[0] == found[-1] == 0
        assert np.all(found[1:-1] & (jc.Status.NONFINITE | jc.Status.INVALID))


def outcome(z):
    """Last row and a time of impact, by (params, q, v, restitution); 300 steps, as `run`."""
    params, q, v, restitution = z
    found = run(
        (jc.Model(system=BALL, params=params), jc.State(q=q, v=v, t=jnp.zeros(()))),
        dt=0.006,
        restitution=restitution,
    )
    last = found.states
    return jnp.concatenate([last.q[-1], last.v[-1], found.impacts.t[1:2], found.impulse[-1, 0]])


@jax.jit
def slopes(z, along):
    """Value, derivative along a direction, and all derivatives by the transpose of that."""
    value, push = jax.linearize(outcome, z)
    pull = jax.linear_transpose(push, z)
    return value, push(along), jax.vmap(lambda weight: pull(weight)[0])(jnp.eye(len(value)))


@pytest.mark.slow
def test_derivative_moves_the_times_of_impact():
    """Height and speed at the end after two bounces, by drop height, restitution and gravity, closed form."""
    model, state = ball(height=1.2)
    z = (model.params, state.q, state.v, jnp.array(0.8, float))
    value, _, slope = slopes(z, z)

    def exact(h, e, g):
        fall = jnp.sqrt(2.0 * h / g)
        second = fall * (1.0 + 2.0 * e)
        speed = e**2 * g * fall
        left = 1.8 - second
        return jnp.stack([speed * left - 0.5 * g * left**2, speed - g * left, second])

    rows = jnp.array([1, 4, 6])
    np.testing.assert_allclose(
        value[rows], exact(1.2, 0.8, G) + jnp.array([RADIUS, 0.0, 0.0]), rtol=0, atol=1e-12
    )
    by_params, by_q, _, by_restitution = slope
    found = jnp.stack([by_q[:, 1], by_restitution, -by_params.gravity[:, 1]], axis=1)[rows]
    np.testing.assert_allclose(found, jnp.stack(jax.jacfwd(exact, (0, 1, 2))(1.2, 0.8, G), 1), atol=1e-10)


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("lifted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_derivative_both_ways_is_that_of_central_differences(lifted):
    """By all numbers of a ball: bounces, chatter, sliding on a spring; or a pull that lifts it off the floor."""
    if lifted:
        model, state = ball(height=0.0, vx=2.0, ramp=40.0)
    else:
        model, state = ball(vx=3.0, stiffness=0.5, damping=0.2)
    z, back = jax.flatten_util.ravel_pytree((model.params, state.q, state.v, jnp.array(0.5)))
    along = jnp.asarray(np.random.default_rng(3).normal(size=z.shape))
    value, forward, slope = slopes(back(z), back(along))
    known = np.isfinite(np.asarray(value))
    assert np.sum(~known) == lifted  # no impact
    reverse = jnp.concatenate([x.reshape(len(value), -1) for x in jax.tree.leaves(slope)], axis=1)
    np.testing.assert_allclose(forward, reverse @ along, rtol=1e-12, atol=1e-12)
    # What would lift it, or press it into the floor, is left alone while it rests there.
    names = back(jnp.arange(len(z), dtype=float))
    held = [int(names[0].constants["radius"]), int(names[1][1]), int(names[2][1])] if lifted else []
    for k in set(range(len(z))) - set(held):
        step = jnp.zeros_like(z).at[k].set(1e-5)
        central = (outcome(back(z + step)) - outcome(back(z - step))) / 2e-5
        np.testing.assert_allclose(reverse[known, k], central[known], rtol=0, atol=1e-6)
    if not lifted:
        found = run((model, state), dt=0.006, restitution=0.5)
        assert jc.Status.describe(found.status) == "ZENO" and int(found.impacts.count) > 6
        slides = np.asarray(found.impulse)[:, 0]
        slides = (slides[:, 0] > 0) & (np.abs(np.abs(slides[:, 1]) - MU * slides[:, 0]) < 1e-12)
        assert slides.sum() > 10


@pytest.mark.slow
def test_derivative_is_nan_where_impacts_are_too_many_to_keep():
    def late(height):
        model, state = ball()
        state = state.replace(q=state.q.at[1].set(RADIUS + height))
        return jc.simulate.variational(
            model, state, jc.simulate.Variational(max_impacts=1), dt=0.02, duration=2.0
        ).states

    height, one = jnp.array(1.0), jnp.array(1.0)
    states, along = jax.jit(lambda h: jax.jvp(late, (h,), (one,)))(height)
    assert np.all(np.isfinite(states.q)) and np.isnan(along.q[-1, 1])


SPINNER = jc.System(jc.Structure(dim=3, bodies=("body",), num_positions=7, quaternions=(3,)), jc.free_poses)
PRINCIPAL = np.array([0.1, 0.2, 0.35])


def spin(steps, dt=0.01):
    params = jc.Params(
        mass=jnp.array([2.0]),
        inertia=jnp.asarray(PRINCIPAL)[None],
        mu=jnp.zeros(0),
        gravity=jnp.zeros(3),
        constants={},
    )
    state = jc.State(
        q=jnp.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
        v=jnp.array([1.0, -0.5, 0.2, 0.2, 3.0, 0.1]),
        t=jnp.array(0.0),
    )
    return jc.simulate.variational(
        jc.Model(system=SPINNER, params=params),
        state,
        jc.simulate.Variational(max_impacts=1),
        dt=dt,
        duration=steps * dt,
    )


def check_spin(steps):
    found = spin(steps)
    turn = jax.vmap(jc.rotations.quaternion_matrix)(found.states.q[:, 3:])
    omega = np.asarray(found.states.v)[:, 3:]
    momentum = np.einsum("tij,tj->ti", np.asarray(turn), PRINCIPAL * omega)
    np.testing.assert_allclose(momentum, np.broadcast_to(PRINCIPAL * omega[0], momentum.shape), atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(found.states.v)[:, :3], [[1.0, -0.5, 0.2]] * (steps + 1), atol=1e-12
    )
    energy = omega**2 @ PRINCIPAL
    drift = np.abs(energy / energy[0] - 1.0)
    # Bounded: no larger in the second half than in the first.
    half = steps // 2
    assert drift.max() < 1e-4 and drift[half:].max() < 1.05 * drift[:half].max()
    return found


@pytest.mark.slow
def test_free_body_keeps_its_angular_momentum_and_follows_eulers_equations():
    found = check_spin(2000)

    def rhs(t, y):
        turn = np.asarray(jc.rotations.quaternion_rate_map(jnp.asarray(y[:4]))) @ y[4:]
        return np.concatenate([turn, -np.cross(y[4:], PRINCIPAL * y[4:]) / PRINCIPAL])

    true = solve_ivp(rhs, (0.0, 1.0), [1, 0, 0, 0, 0.2, 3.0, 0.1], rtol=1e-9, atol=1e-10).y[:4, -1]
    coarse = np.linalg.norm(np.asarray(found.states.q)[100, 3:] - true)
    assert coarse < 1e-3


@pytest.mark.slow
def test_angular_momentum_and_energy_over_100000_steps():
    check_spin(100_000)


@functools.cache
def cradle(masses, duration):
    model = jc.models.swinging_cradle(masses)
    stepper = jc.simulate.Variational(max_impacts=64)
    found = jc.simulate.variational(model, model.initial_state(), stepper, dt=0.2, duration=duration)
    x = np.asarray(found.states.q) - 0.1 * np.arange(3)
    energy = 0.5 * (np.asarray(found.states.v) ** 2 + 4 * np.pi**2 * x**2) @ np.asarray(masses)
    return found, energy


EQUAL, UNEQUAL = (1.0, 1.0, 1.0), (1.0, 2.0, 3.0)


@pytest.mark.slow_cases("masses0-1000")
@pytest.mark.parametrize(
    ("masses", "impacts"),
    [
        (UNEQUAL, 1_000),
        pytest.param(UNEQUAL, 10_000, marks=pytest.mark.slow),
        pytest.param(EQUAL, 10_000, marks=pytest.mark.slow),
    ],
)
def test_elastic_cradle_keeps_its_energy_over_thousands_of_impacts(masses, impacts):
    found, energy = cradle(masses, 0.56 * impacts)
    assert int(found.impacts.count) > impacts
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)
    assert jc.Status.describe(found.status) == "SIMULTANEOUS"
    if masses == EQUAL:  # the balls at the ends take turns, the one between stays
        plus = np.asarray(found.impacts.v_plus)
        assert np.max(np.abs(plus[::2, :2])) < 1e-11 < 1.0 < plus[::2, 2].min()


@pytest.mark.slow
def test_momentum_goes_through_the_reset_maps_in_the_order_on_record():
    """Equation (30): p_plus = p_minus times the reset maps, with M and normals at the configuration of impact."""
    masses = np.array(UNEQUAL)
    found, _ = cradle(UNEQUAL, 560.0)
    normals = np.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]])
    impacts = found.impacts
    assert int(impacts.count) > 50
    for i in range(50):
        v = np.asarray(impacts.v_minus[i])
        order = [k for k in np.asarray(impacts.order[i]) if k >= 0]
        for k in order:
            u = normals[k]
            v = v - 2.0 * (u @ v) / (u @ (u / masses)) * u / masses
        np.testing.assert_allclose(impacts.v_plus[i], v, atol=1e-14)
        kick = masses * (np.asarray(impacts.v_plus[i]) - np.asarray(impacts.v_minus[i]))
        np.testing.assert_allclose(kick, np.asarray(impacts.impulse[i]) @ normals, atol=1e-13)
        assert abs(kick.sum()) < 1e-14  # along (1, 1, 1) no contact pushes


def inelastic(terms, v, key):
    return jc.impact.anitescu_potra(terms, v)


@pytest.mark.slow
def test_a_law_of_the_users_own():
    """Inelastic impact with friction: the ball lands, sticks to the floor and rolls."""
    found = jc.simulate.variational(
        *ball(vx=1.0), jc.simulate.Variational(impact=inelastic), dt=0.02, duration=0.6
    )
    rolling = MASS * RADIUS**2 / (INERTIA + MASS * RADIUS**2)
    assert int(found.impacts.count) == 1
    np.testing.assert_allclose(found.impacts.v_plus[0], [rolling, 0.0, -rolling / RADIUS], atol=1e-12)
    np.testing.assert_allclose(found.states.v[-1], [rolling, 0.0, -rolling / RADIUS], atol=1e-12)


@pytest.mark.slow
def test_closing_one_corner_is_no_event_of_the_other():
    """A corner 9.8e-10 m up stays closed; closing it pushes the other one, which has just left, below the floor."""
    model = jc.models.rocking_block(all_corners=True)
    off = 9.8e-10
    # The block is 1 m wide and 2 m high and turns about its right corner.
    state = model.initial_state().replace(
        q=jnp.array([0.0, 1.0 + off / 2.0, off]), v=1.6e-5 * jnp.array([1.0, 0.5, -1.0])
    )
    found = jc.simulate.variational(
        model, state, jc.simulate.Variational(restitution=0.5, max_impacts=8), dt=2e-3, duration=2e-3
    )
    assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)
    assert int(found.info.num_iters[0]) < 16
    fall = 0.5 * G / (5.0 / 12.0 + 1.25)  # about the corner that stays, for a width of 1 m
    np.testing.assert_allclose(found.impacts.t[0], 2.0 * 1.6e-5 / fall, rtol=1e-3)


def test_bounces_of_a_chatter_are_at_their_times():
    """With restitution 1/2 bounce k is at 3 - 2^(2 - k) falls; each is found in a few trials."""
    found = run(ball(), dt=0.006, restitution=0.5)
    bounces = np.sqrt(2.0 / G) * (3.0 - 2.0 ** (1.0 - np.arange(9)))
    np.testing.assert_allclose(found.impacts.t[:9], bounces, rtol=0, atol=1e-13)
    assert int(jnp.max(found.info.num_iters)) <= 8


@pytest.mark.slow_cases("0.01")
@pytest.mark.long
@pytest.mark.parametrize("speed", [1e-2, 1e-4, 1e-5])
def test_the_shortest_bounce_is_found_in_a_few_trials(speed):
    """A ball that leaves slowly is back after 2 v / g, a small part of the step, and has gone up by v^2 / 2g."""
    found = jc.simulate.variational(
        *ball(height=0.0, vy=speed),
        jc.simulate.Variational(restitution=0.0, max_impacts=4),
        dt=0.1,
        duration=0.1,
    )
    assert int(found.impacts.count) == 1 and int(found.info.num_iters[0]) <= 7
    np.testing.assert_allclose(found.impacts.t[0], 2.0 * speed / G, atol=2e-13)


def sweeping_tip(depth):
    """A rod of 1 m turns about a hinge at 5 rad/s; its tip would dip below the floor by `depth`."""
    structure = jc.Structure(
        dim=2, bodies=("tip",), num_positions=1, pairs=(("tip", "floor"),),
        shapes=(jc.Disc(name="tip", body="tip", radius="radius"), jc.HalfSpace(name="floor", normal=(0.0, 1.0))),
    )  # fmt: skip

    def poses(structure, q, params):
        height = 1.0 + params.constants["radius"] - params.constants["depth"]
        return jnp.stack([jnp.sin(q[0]), height - jnp.cos(q[0])])[None], q

    params = jc.Params(
        mass=jnp.array([1.0]), inertia=jnp.array([0.1]), mu=jnp.array(0.0), gravity=jnp.zeros(2),
        constants={"radius": jnp.array(0.01), "depth": depth},
    )  # fmt: skip
    start = jc.State(q=jnp.array([-0.6]), v=jnp.array([5.0]), t=jnp.zeros(()))
    return jc.simulate.variational(
        jc.Model(system=jc.System(structure, poses), params=params),
        start,
        jc.simulate.Variational(max_impacts=4),
        dt=0.1,
        duration=0.3,
    )


@pytest.mark.slow
def test_a_gap_that_closes_and_opens_within_a_step_is_found():
    """A tip sweeps the floor within a step of 0.5 rad, at arccos(1 - depth) before the lowest point."""
    sweep = jax.jit(sweeping_tip)
    for depth in (1e-1, 1e-3, 1e-6, 1e-9):
        found = sweep(jnp.array(depth))
        assert not np.any(np.asarray(found.status)) and int(found.impacts.count) == 1
        angle = 2.0 * np.arcsin(np.sqrt(0.5 * depth))
        np.testing.assert_allclose(found.impacts.t[0], (0.6 - angle) / 5.0, atol=1e-9 * angle + 1e-14 / angle)
        np.testing.assert_allclose(found.states.v[-1], -5.0, rtol=1e-12)
    for depth in (-1e-8, -1e-3):
        found = sweep(jnp.array(depth))
        assert not np.any(np.asarray(found.status)) and int(found.impacts.count) == 0
        np.testing.assert_allclose(found.states.q[:, 0], -0.6 + 0.5 * np.arange(4), atol=1e-12)
        assert int(jnp.max(found.info.num_iters)) <= 6


def test_an_event_that_no_rate_tells_of_is_taken_as_it_is():
    """A load that is zero within round-off and does not fall: no step of Newton's method goes on from there."""
    zero, high = jnp.zeros(()), jnp.asarray(0.1)
    search = start_search(high, 1)._replace(
        suspects=jnp.array([True]), tries=jnp.int32(5), h=jnp.asarray(0.05)
    )
    none, closed = jnp.zeros(1), jnp.array([True])
    after, whole, located = narrow_search(search, none, none + 1e-3, none > 0, none + jnp.inf, closed, zero)
    assert bool(located) and not bool(whole) and np.isfinite(float(after.h))


@pytest.mark.slow
def test_batch_is_the_single_runs():
    model, state = ball()
    heights = jnp.array([0.5, 1.0, 1.7])

    def end(height):
        start = state.replace(q=state.q.at[1].set(RADIUS + height))
        return jc.simulate.variational(
            model, start, jc.simulate.Variational(max_impacts=8), dt=0.02, duration=2.0
        ).states.q[-1]

    together = jax.vmap(end)(heights)
    for k, height in enumerate(heights):
        np.testing.assert_allclose(together[k], end(height), atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_rocking_block_comes_to_rest_on_both_corners(restitution):
    """Tilted by 0.15 rad, dropped by 1 mm: it rocks, slides, chatters, and loses no step."""
    model = jc.models.rocking_block(all_corners=True)
    tilt = 0.15
    q = jnp.array([0.0, 0.5 * np.sin(tilt) + np.cos(tilt) + 1e-3, tilt])
    found = jc.simulate.variational(
        model,
        model.initial_state().replace(q=q, v=jnp.zeros(3)),
        jc.simulate.Variational(restitution=restitution),
        dt=1e-3,
        duration=5.0,
    )
    assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)
    v, height = np.asarray(found.states.v), np.asarray(found.states.q)[:, 1]
    mass, inertia = float(model.params.mass[0]), float(model.params.inertia[0])
    energy = 0.5 * mass * np.sum(v[:, :2] ** 2, axis=1) + 0.5 * inertia * v[:, 2] ** 2 + mass * G * height
    assert (
        np.max(np.diff(energy)) < 1e-6 * energy[0]
    )  # that of the midpoint rule while it turns about a corner
    if restitution < 1.0:
        assert np.asarray(found.contacts)[-1].tolist() == [True, True, False, False]
        np.testing.assert_allclose(v[-1], 0.0, atol=1e-12)
        np.testing.assert_allclose(found.states.q[-1, 1:], [1.0, 0.0], atol=1e-11)
        np.testing.assert_allclose(np.asarray(found.impulse)[-1, :, 0].sum(), mass * G * 1e-3, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_disks_dropped_beside_the_middle_lose_no_step(restitution):
    """Five frictional contacts, redundant ones too: at rest without restitution, a hundred impacts with 1/2."""
    model = jc.models.disk_stack()
    start = model.initial_state()
    aside = start.replace(v=start.v.at[6].set(0.05)) if restitution else start
    for dt in (0.01, 0.005):
        found = jc.simulate.variational(
            model,
            aside,
            jc.simulate.Variational(restitution=restitution, max_impacts=256),
            dt=dt,
            duration=2.0,
        )
        assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)
        if restitution == 0.0:
            np.testing.assert_allclose(found.states.v[-1], 0.0, atol=1e-12)
        else:
            assert int(found.impacts.count) > 100


def bounces_of_half_a_stack(restitution, shortest):
    """Find the impacts of the stack from (x, y) of the right disk and the height of the top one alone.

    By mirror symmetry the masses are 2, 2 and 1. Impacts reflect the fastest approach, then the next one, and
    mix with the plastic impact; one less than `shortest` after that of a contact is plastic, and ends the
    list if it is on the floor. Rows: time, velocities.
    """
    mass, fall = np.array([2.0, 2.0, 1.0]), np.array([0.0, -G, -G])
    q, v, t = np.array([1.0, 1.0, 1.0 + np.sqrt(3.0)]), np.array([0.0, 0.0, -1.0]), 0.0
    last, times = np.full(2, -np.inf), np.linspace(0.0, 0.2, 20001)[1:]

    def gaps(q):
        return np.array([q[1] - 1.0, np.hypot(q[0], q[2] - q[1]) - 2.0])

    def plastic(v, rows):
        outcomes = [v]
        for chosen in ([0], [1], [0, 1])[: 2 * len(rows) - 1]:
            n = rows[chosen]
            push = np.linalg.solve(n @ (n / mass).T, -n @ v)
            outcomes.append(v + (n / mass).T @ push if np.all(push >= 0) else v)
        (v_plus,) = (x for x in outcomes if np.all(rows @ x > -1e-12))
        return v_plus

    def elastic(v, rows):
        rows = rows / np.sqrt(np.sum(rows**2 / mass, axis=1, keepdims=True))
        while np.min(rows @ v) < -1e-12:
            row = rows[np.argmin(rows @ v)]
            v = v - 2.0 * (row @ v) * row / mass
        return v

    found = []
    while True:
        rows = np.array([[0.0, 1.0, 0.0], np.array([q[0], q[1] - q[2], q[2] - q[1]]) / 2.0])
        near = np.abs(gaps(q)) < 1e-9
        strikes = near & (rows @ v < -1e-9)
        soon, end, dead = np.any(t - last[strikes] < shortest), elastic(v, rows[near]), plastic(v, rows[near])
        energy = [mass @ x**2 for x in (v, dead, end - dead)]
        cross = mass @ (dead * (end - dead))
        lost = restitution**2 * (energy[0] - energy[1])
        mixed = (np.sqrt(cross**2 + energy[2] * lost) - cross) / energy[2]
        v = dead if soon else dead + mixed * (end - dead)
        last[strikes] = t
        found.append([t, *v])
        if soon and strikes[0]:
            return np.array(found)

        def ahead(s, q=q, v=v):
            return gaps(q[:, None] + v[:, None] * s + 0.5 * fall[:, None] * s**2)

        first = np.argmax(np.any(ahead(times) < 0.0, axis=0))
        before, after = times[first - 1] if first else 0.0, times[first]
        for _ in range(60):
            middle = 0.5 * (before + after)
            before, after = (before, middle) if np.any(ahead(middle) < 0.0) else (middle, after)
        q, v, t = q + v * before + 0.5 * fall * before**2, v + fall * before, t + before


@pytest.mark.slow
def test_a_disk_dropped_in_the_middle_of_two_strikes_both_at_once():
    """The motion stays mirror symmetric; its impacts are those of half of the stack."""
    model = jc.models.disk_stack()
    right = bounces_of_half_a_stack(0.5, 0.01)
    assert len(right) == 8
    found = jc.simulate.variational(
        model,
        model.initial_state(),
        jc.simulate.Variational(restitution=0.5, max_impacts=32),
        dt=0.01,
        duration=0.2,
    )
    assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)
    np.testing.assert_allclose(found.impacts.t[:8], right[:, 0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        np.asarray(found.impacts.v_plus)[:8, [3, 4, 7]], right[:, 1:], rtol=0, atol=1e-8
    )
    mirrored = found.states.v @ np.asarray(model.symmetry.velocity).T
    np.testing.assert_allclose(found.states.v, mirrored, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_a_box_dropped_flat_on_four_corners_loses_no_step(restitution):
    """Redundant contacts in space, from 2 cm: at rest without restitution, chatter on single corners with 1/2."""
    model = jc.models.box_drop_3d(all_corners=True)
    state = model.initial_state().replace(
        q=model.initial_state().q.at[2].add(0.01), v=model.initial_state().v.at[2].set(0.0)
    )
    found = jc.simulate.variational(
        model, state, jc.simulate.Variational(restitution=restitution, max_impacts=256), dt=1e-3, duration=1.0
    )
    assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)
    if restitution < 1.0:
        assert np.asarray(found.contacts)[-1].tolist() == [True] * 4 + [False] * 4
        np.testing.assert_allclose(found.states.v[-1], 0.0, atol=1e-12)


@pytest.mark.slow
def test_a_chatter_that_is_cut_short_keeps_its_friction():
    """A block falls flat with e = 0.5 while it slides: the contacts carry its weight m g T, and friction mu m g T."""
    mu, end, g, steps = 0.15, 0.5, 9.81, 40
    block = jc.models.rocking_block()
    model = block.replace(params=block.params.replace(mu=jnp.full(2, mu)))
    start = block.initial_state().replace(q=jnp.array([0.0, 1.05, 0.0]), v=jnp.array([2.0, 0.0, 0.0]))
    law = jc.impact.Newton(restitution=0.5)
    path = jc.simulate.rollout(
        model, start, jnp.zeros((steps, 3)), stepper=jc.simulate.Variational(impact=law), dt=end / steps
    )
    assert np.any(np.asarray(path.impacts.plastic))
    np.testing.assert_allclose(path.states.v[-1], [2.0 - mu * g * end, 0.0, 0.0], atol=1e-12)
    event = jc.simulate.EventDriven(impact=law)
    exact = jc.simulate.rollout(model, start, jnp.zeros((steps, 3)), stepper=event, dt=end / steps)
    np.testing.assert_allclose(path.states.q[-1], exact.states.q[-1], atol=1e-10)

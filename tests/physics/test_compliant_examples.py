"""The examples of Drumwright's paper against closed forms, an accurate ODE solver and linear theory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import compliant_reference as reference
from scipy.linalg import expm

import jaxcontact as jc

ALPHA = np.radians(15.0)


def nothing(params, state, info):
    return jnp.zeros(1)


@functools.partial(jax.jit, static_argnames=("cone", "measure"))
def advance(model, state, steps, dt, cone, measure):
    def step(state, lam):
        tau = jnp.zeros_like(state.v)
        return jc.compliant.step(
            model,
            state,
            tau,
            dt=dt,
            settings=jc.compliant.Settings(cone=cone),
            memory=jc.compliant.StepMemory(forces=lam),
        )

    def again(_, carry):
        state, last, status, largest = carry
        state, info = step(state, last.lam)
        return state, info, status | info.status, jnp.maximum(largest, measure(model.params, state, info))

    rows = jax.eval_shape(jc.constraint_terms, model, state).phi
    kinds = jax.eval_shape(step, state, rows)
    _, blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kinds)
    lowest = jnp.full_like(measure(model.params, state, blank), -jnp.inf)
    return jax.lax.fori_loop(0, steps, again, (state, blank, blank.status, lowest))


def march(model, steps, dt, *, state=None, cone="associated", measure=nothing):
    """Last state, last info and the largest of `measure` over the steps, all of which succeed.

    One compiled function serves any number of steps of any size.
    """
    state = model.initial_state() if state is None else state
    state, info, status, largest = jax.tree.map(np.asarray, advance(model, state, steps, dt, cone, measure))
    assert jc.Status.describe(status) == "SUCCESS"
    return state, info, largest


# --- mass, spring and damper: Figures 1 to 3


def stretched(structure, q, params):
    return q[:1], q[1:]


def on_a_line(structure, q, params):
    return jnp.stack([q, jnp.zeros_like(q)], axis=1), jnp.zeros(1, q.dtype)


SPRING = jc.System(jc.Structure(dim=2, bodies=("mass",), num_positions=1), on_a_line, constraints=stretched)


def spring(k, b):
    params = jc.Params(
        mass=jnp.ones(1),
        inertia=jnp.zeros(1),
        mu=jnp.array(0.0),
        gravity=jnp.zeros(2),
        constants={},
        material=jc.compliant.Material(stiffness=jnp.array(k), damping=jnp.array(b)),
    )
    return jc.Model(
        system=SPRING, params=params, initial=jc.State(q=jnp.ones(1), v=jnp.zeros(1), t=jnp.array(0.0))
    )


@pytest.mark.long
@pytest.mark.parametrize(("k", "b"), [(1e6, 0.0), (1e6, 1.0), (1e6, 2.1e5), (1e12, 0.0), (0.0, 1e12)])
@pytest.mark.parametrize("h", [1e-5, 1e-2])
def test_a_spring_is_implicit_euler(k, b, h):
    """Fig. 3 and far beyond: equal to 1e-13 of the amplitude, the deviation never grows."""
    x, v = reference.implicit_euler(k, b, 1.0, h, 1.0, 0.0, 100)
    for steps in (1, 2, 10, 100):
        state, _, _ = march(spring(k, b), steps, h)
        np.testing.assert_allclose(state.q[0], x[steps], rtol=0, atol=1e-13)
        np.testing.assert_allclose(state.v[0], v[steps], rtol=0, atol=1e-13 * max(1.0, np.abs(v).max()))
        assert np.abs(state.q[0]) <= 1.0


def test_half_the_step_has_a_quarter_of_the_error():
    """Theorem 1: one step of a damped spring against the matrix exponential."""
    k, b, start = 100.0, 1.0, np.array([1.0, 0.0])
    errors = []
    for h in 1e-4 * 0.5 ** np.arange(4):
        exact = expm(h * np.array([[0.0, 1.0], [-k, -b]])) @ start
        state, _, _ = march(spring(k, b), 1, h)
        errors.append(np.abs(np.array([state.q[0], state.v[0]]) - exact))
    ratio = np.array(errors[:-1]) / errors[1:]
    np.testing.assert_allclose(ratio, 4.0, atol=0.1)


def test_the_other_two_euler_schemes_are_not_stable():
    """Figs. 1 and 2, and the boundary b = 10, where explicit Euler keeps the amplitude."""

    def growth(matrix):
        return np.abs(np.linalg.eigvals(matrix)).max()

    explicit = functools.partial(reference.explicit_euler_matrix, 1e6, m=1.0, h=1e-5)
    assert growth(explicit(b=1.0)) > 1.0 and growth(explicit(b=2.1e5)) > 1.0
    assert growth(explicit(b=10.0)) == pytest.approx(1.0, abs=1e-12) and growth(explicit(b=2e5)) < 1.0
    semi = functools.partial(reference.semi_implicit_euler_matrix, b=1.0, m=1.0, h=1e-3)
    assert growth(semi(1e6)) < 1.0 < growth(semi(1e7))


# --- the pendulum held by a joint: Figure 4


def deviation_and_energy(params, state, info):
    x, y, angle = state.q
    kinetic = 0.5 * (
        params.mass[0] * (state.v[0] ** 2 + state.v[1] ** 2) + params.inertia[0] * state.v[2] ** 2
    )
    away = jnp.hypot(x - jnp.sin(angle), y + jnp.cos(angle))
    return jnp.stack([away, jnp.abs(kinetic + 9.81 * y), jnp.max(jnp.abs(info.lam))])


def test_deviation_of_a_stiff_joint_grows_as_the_cube_of_the_step():
    """Fig. 4 has the square: its rows are those of the start of a step with their change to its end."""
    model, deviation, energy = jc.models.pendulum_joint(), {}, {}
    for h in (0.1, 1e-3, 1e-4):
        _, _, largest = march(model, round(1 / h), h, measure=deviation_and_energy)
        deviation[h], energy[h], force = largest
        assert force < 100.0  # N; 3 m g at the lowest point of a swing, and some at h = 0.1
    assert deviation[0.1] < 0.2  # m
    assert deviation[1e-4] == pytest.approx(1e-3 * deviation[1e-3], rel=1e-2)
    # The paper says that energy is kept "to precisely zero"; its error is of first order.
    assert energy[1e-4] == pytest.approx(0.1 * energy[1e-3], rel=0.02)
    assert 1e-3 < energy[1e-4] < 2e-3


# --- bodies that turn, whose Jacobians and gyroscopic forces change with the configuration


def energy(params, state, info):
    linear, angular = state.v[:3], state.v[3:]
    kinetic = params.mass[0] * linear @ linear + angular @ (params.inertia[0] * angular)
    return 0.5 * kinetic - params.mass[0] * params.gravity @ state.q[:3]


@pytest.mark.slow
def test_energy_of_a_spinning_body_swings_with_the_square_of_the_step():
    """A cube with three moments of inertia: in free spin about its middle axis, and tossed on the floor.

    The midpoint rule keeps its momentum; forces of the start of a step gave 1.1 % of energy at 2 ms.
    """
    model = jc.models.tossed_cube()
    inertia = model.params.inertia * jnp.array([[1.0, 2.0, 2.5]])
    rises = {}
    for name, spin, gravity in (("free", [1.0, 8.0, 2.0], 0.0), ("tossed", [0.5, -2.0, 0.3], -9.81)):
        params = model.params.replace(inertia=inertia, gravity=jnp.array([0.0, 0.0, gravity]))
        state = model.initial_state().replace(v=jnp.array([0.0, 0.0, 0.0, *spin]))
        before = energy(params, state, None)
        for h, time in ((2e-3, 1.0), (1e-3, 1.0), (1e-3, 4.0)):
            steps = round(time / h)
            largest = march(model.replace(params=params), steps, h, state=state, measure=energy)[2]
            rises[name, h, time] = float(largest / before - 1.0)
    assert rises["free", 2e-3, 1.0] < 5e-6 and rises["tossed", 2e-3, 1.0] < 1e-10
    assert rises["free", 1e-3, 1.0] == pytest.approx(rises["free", 2e-3, 1.0] / 4.0, rel=1e-3)
    for name in ("free", "tossed"):  # it does not grow
        assert rises[name, 1e-3, 4.0] == pytest.approx(rises[name, 1e-3, 1.0], rel=1e-3, abs=1e-12)


# --- the pendulum against a limit: Figure 6


@pytest.mark.long
def test_rebound_from_a_limit_appears_as_the_step_resolves_it():
    """Half a period of a spring by implicit Euler returns exp(-pi omega h / 2) of the speed."""
    model = jc.models.pendulum_limit()
    inertia = 1.005  # 1 kg at 1 m, and the disc of 0.1 m
    omega, speed = np.sqrt(1e12 / inertia), np.sqrt(2 * 9.81 / inertia)
    state = model.initial_state().replace(q=jnp.array([1e-7]), v=jnp.array([-speed]))
    rebound = {h: march(model, 500, h, state=state)[0].v[0] / speed for h in (1e-8, 1e-7, 1e-5, 1e-3)}
    assert rebound[1e-8] == pytest.approx(np.exp(-np.pi * omega * 1e-8 / 2), abs=1e-4)
    assert rebound[1e-7] == pytest.approx(np.exp(-np.pi * omega * 1e-7 / 2), abs=1e-3)
    assert 0.0 <= rebound[1e-5] < 0.01 and -1e-2 < rebound[1e-3] < 1e-5  # a dead impact


def fall(params, state, info):
    return jnp.stack([-state.v[0], -state.q[0]])


@pytest.mark.long
def test_a_pendulum_falls_on_its_limit_and_stays():
    """From the horizontal, with steps of 10 ms: speed sqrt(2 m g l / I) to first order, then rest."""
    state, _, (fastest, deepest) = march(jc.models.pendulum_limit(), 500, 0.01, measure=fall)
    assert fastest == pytest.approx(np.sqrt(2 * 9.81 / 1.005), rel=0.02)
    assert np.abs(state.q).max() < 1e-10 and np.abs(state.v).max() < 1e-8
    assert deepest < 1e-9


# --- the cube on an elastic foundation: Tables 1 and 2, Figure 7

# Depth and quaternion x, y after 1 s; by foundation_ode(number, 1e7, load, rtol=1e-9), converged to 1e-7.
ACCURATE = {
    (900, 5.0): (-8.34800226e-06, 8.15978536e-07, -1.26101069e-06),
    (900, 50.0): (-1.25250595e-05, 8.86324320e-06, -1.34042056e-05),
    (100, 5.0): (-8.33372728e-06, 8.29283548e-07, -1.32647573e-06),
    (100, 50.0): (-1.25176231e-05, 8.86003489e-06, -1.34333904e-05),
}


def settled(model, h):
    """Depth and quaternion x, y of the cube after 1 s."""
    z, x, y = march(model, round(1 / h), h)[0].q[[2, 4, 5]]
    return np.array([z - 0.5, x, y])


def error(model, h, expected):
    """Relative to the deflection."""
    return np.linalg.norm(settled(model, h) - expected) / np.linalg.norm(expected)


@pytest.mark.long
def test_a_block_that_tips_over_comes_to_rest_on_its_side():
    """Rocked over by 5 rad/s: on its two lower corners alone it would fall through the floor."""
    model = jc.models.rocking_block(all_corners=True)
    law = jc.compliant.Material(
        stiffness=jnp.array(1e5), damping=jnp.array(1e3), friction_damping=jnp.array(1e3)
    )
    state = model.initial_state().replace(v=jnp.array([0.0, 0.0, -5.0]))
    states, info = jc.compliant.rollout(
        model.replace(params=model.params.replace(material=law)), state, jnp.zeros((200, 3)), dt=0.01
    )
    assert not np.any(np.asarray(info.status))
    depth = 9.81 / (2 * 1e5)  # of both corners under half the weight each
    np.testing.assert_allclose(states.q[-1, 1:], [0.5 - depth, -np.pi / 2], atol=1e-8)
    np.testing.assert_allclose(states.v[-1], 0.0, atol=1e-8)
    corners = 0.5 * np.array([[-1, -2], [1, -2], [-1, 2], [1, 2]])
    turn = jax.vmap(jc.rotations.planar_matrix)(states.q[:, 2])
    height = np.asarray(states.q[:, 1])[:, None] + np.einsum("tj,cj->tc", np.asarray(turn)[:, 1], corners)
    # A damper B alone stops a corner, of at most 1 kg, that lands at |v| within |v| / B.
    assert height.min() > -np.abs(np.diff(height, axis=0)).max() / 0.01 / 1e3


def test_reference_of_the_foundation():
    found = reference.foundation_ode(900, 1e7, 5.0, rtol=1e-6)
    np.testing.assert_allclose(found, ACCURATE[900, 5.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", [(900, 50.0), (100, 5.0), (100, 50.0)])
def test_other_references_of_the_foundation(case):
    found = reference.foundation_ode(case[0], 1e7, case[1])
    np.testing.assert_allclose(found, ACCURATE[case], rtol=1e-4)


@pytest.mark.long
def test_foundation_of_rubber_is_first_order():
    """900 elements damp the first deflection within 1 s: 9e-6 of the deflection at 10 ms, half of it at 5."""
    model = jc.models.box_on_foundation(900, 1e7, 5.0)
    errors = [error(model, h, ACCURATE[900, 5.0]) for h in (2e-2, 1e-2, 5e-3)]
    assert errors[1] < 1e-5
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 2.0, atol=0.05)


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "bound"),
    [
        ((900, 50.0), 2e-4),
        pytest.param((100, 5.0), 7e-3, marks=pytest.mark.slow),
        pytest.param((100, 50.0), 8e-3, marks=pytest.mark.slow),
    ],
)
def test_foundation_that_still_swings(case, bound):
    """What the step damps and the truth does not: 0.7 % of the first deflection after 1 s on 100 elements.

    With 900 elements and 50 N, elements that let go and touch again stir up 0.01 %.
    """
    model = jc.models.box_on_foundation(case[0], 1e7, case[1])
    for h in (2e-2, 1e-2):
        assert error(model, h, ACCURATE[case]) < bound


@pytest.mark.long
@pytest.mark.parametrize("number", [pytest.param(100, marks=pytest.mark.slow), 900])
@pytest.mark.parametrize("load", [5.0, 50.0])
def test_foundation_of_steel_is_in_balance(number, load):
    model = jc.models.box_on_foundation(number, 1e11, load)
    assert error(model, 1e-2, reference.foundation_at_rest(number, 1e11, load, 1.0)) < 1e-6


def test_part_of_the_foundation_lets_go_under_the_heavy_load():
    model = jc.models.box_on_foundation(900, 1e7, 50.0)
    _, info, _ = march(model, 100, 1e-2)
    assert 0.05 < np.mean(info.lam == 0.0) < 0.5
    assert info.lam.sum() == pytest.approx(8 * 9.81 + 50.0, rel=1e-2)


# --- the box on the incline: Figure 9


@pytest.mark.long
@pytest.mark.slow_cases("0.0", "0.125")
@pytest.mark.parametrize("mu", [0.0, 0.125, 0.25])
def test_box_slides_as_far_as_a_rigid_one(mu):
    model = jc.models.box_on_incline(mu)
    state, info, _ = march(model, 100, 0.01)
    moved = state.q[:3] - np.asarray(model.initial_state().q[:3])
    downhill = np.array([np.cos(ALPHA), 0.0, -np.sin(ALPHA)])
    rigid = 0.5 * 9.81 * (np.sin(ALPHA) - mu * np.cos(ALPHA))
    assert moved @ downhill == pytest.approx(rigid, rel=0.02)
    assert abs(moved[1]) < 1e-9
    lam = info.lam.reshape(4, 3)
    assert lam[:, 0].sum() == pytest.approx(9.81 * np.cos(ALPHA), rel=1e-2)
    rubbing = np.linalg.norm(lam[:, 1:], axis=1)
    np.testing.assert_allclose(rubbing, mu * lam[:, 0], rtol=1e-6, atol=1e-9)


@pytest.mark.slow_cases("0.25")
@pytest.mark.parametrize("mu", [pytest.param(0.125, marks=pytest.mark.slow), 0.25])
def test_coulomb_friction_does_not_lift_a_sliding_box(mu):
    """The same distance, pressed in as deep as the box at rest."""
    model = jc.models.box_on_incline(mu)
    state, _, _ = march(model, 100, 0.01, cone="coulomb")
    moved = state.q[:3] - np.asarray(model.initial_state().q[:3])
    rigid = 0.5 * 9.81 * (np.sin(ALPHA) - mu * np.cos(ALPHA))
    assert moved @ np.array([np.cos(ALPHA), 0.0, -np.sin(ALPHA)]) == pytest.approx(rigid, rel=0.02)
    assert moved @ np.array([np.sin(ALPHA), 0.0, np.cos(ALPHA)]) == pytest.approx(-3.16e-7, rel=0.02)


@pytest.mark.long
def test_the_associated_cone_lifts_a_sliding_box():
    """By the artifact of h mu |v_t|, here 1.7 mm at 1.3 m/s with mu = 0.125."""
    state, info, _ = march(jc.models.box_on_incline(0.125), 100, 0.01)
    speed = np.linalg.norm(state.v[:3])
    np.testing.assert_allclose(info.gap, 0.01 * 0.125 * speed, rtol=0.02)


@pytest.mark.long
@pytest.mark.parametrize("steps", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_sticking_box_does_not_creep(steps):
    model = jc.models.box_on_incline(0.375)
    state, _, _ = march(model, steps, 0.01)
    moved = np.linalg.norm(state.q[:3] - np.asarray(model.initial_state().q[:3]))
    assert moved < 1e-6  # m, in 100 s, of which it sinks in by 0.3e-6


# --- stacks of spheres: Figure 10


@pytest.mark.slow_cases("10")
@pytest.mark.parametrize("number", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 30, 100))])
def test_spheres_dropped_in_line_come_to_rest(number):
    state, _, _ = march(jc.models.sphere_stack(number), 500, 0.01)
    q = state.q.reshape(number, 7)
    np.testing.assert_allclose(q[:, :2], 0.0, atol=1e-12)
    np.testing.assert_allclose(q[:, 2], reference.stack_under_its_weight(q[:, 0]), rtol=0, atol=1e-10)
    assert np.abs(state.v).max() < 1e-8


@pytest.mark.slow_cases("10")
@pytest.mark.parametrize("number", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_stack_out_of_line_falls_at_the_rate_of_linear_theory(number):
    rate, x, angle = reference.stack_mode(number)
    h, steps = 0.02 / rate, 200  # to exp(4) times the offset
    x, angle = 1e-6 * x, 1e-6 * angle
    model = jc.models.sphere_stack(number)
    q, v = np.zeros((number, 7)), np.zeros((number, 6))
    q[:, 0], q[:, 2] = x, reference.stack_under_its_weight(x)
    q[:, 3], q[:, 5] = np.cos(angle / 2), np.sin(angle / 2)
    v[:, 0], v[:, 4] = rate * x, rate * angle
    state = jc.State(q=jnp.array(q.ravel()), v=jnp.array(v.ravel()), t=jnp.array(0.0))
    found = march(model, steps, h, state=state)[0].q.reshape(number, 7)[:, 0]
    far = np.abs(x).argmax()
    grown = found[far] / x[far]
    assert np.log(grown) / (rate * h * steps) == pytest.approx(1.0, abs=2e-3)  # of first order in h
    np.testing.assert_allclose(found / grown, x, rtol=0, atol=2e-9)

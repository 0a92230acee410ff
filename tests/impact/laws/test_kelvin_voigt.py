"""Compliant impacts: closed forms, and the rocking block against the sampled set (Halm & Posa, Fig. 12)."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxcontact as jc
from jaxcontact import Params, State, Structure, System

G = 9.81
FLOOR = {dim: jc.HalfSpace(name="floor", normal=(0.0,) * (dim - 1) + (1.0,)) for dim in (2, 3)}
STIFFNESS, ZETA = 1e6, 5.0  # of the softer contact, N/m; the paper's choice
LIMIT_ANGLE = np.deg2rad(1e-2)

END, SOLVER = ("duration", "stop_speed", "min_impulse"), ("method", "rtol", "atol", "max_steps")


def kelvin_voigt(model, state, stiffness, damping_ratio, **options):
    """`jc.impact.kelvin_voigt` with the settings of its records among the options."""
    end, solver = ({name: options.pop(name) for name in names if name in options} for names in (END, SOLVER))
    records = {"end": jc.impact.ImpactEnd(**end), "solver": jc.impact.StiffSolver(**solver)}
    return jc.impact.kelvin_voigt(model, state, stiffness, damping_ratio, **records, **options)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def height_only(structure, q, params):
    return jnp.stack([jnp.zeros_like(q[0]), q[0]])[None], jnp.zeros(1, q.dtype)


def point_in_space(structure, q, params):
    return q[None], jnp.eye(3, dtype=q.dtype)[None]


def free_body(structure, q, params):
    return q[None, :3], jc.rotations.quaternion_matrix(q[3:7])[None]


def explosive(structure, q, v, params):
    return jnp.log(q + params.constants["room"])


def bouncer(forces=None):
    """A mass that moves vertically above a floor."""
    structure = Structure(
        dim=2,
        bodies=("mass",),
        num_positions=1,
        shapes=(jc.Point(name="tip", body="mass"), FLOOR[2]),
        pairs=(("tip", "floor"),),
    )
    return System(structure, height_only, forces)


def spatial(shape, num_positions, quaternions, poses):
    return System(
        Structure(
            dim=3,
            bodies=("body",),
            num_positions=num_positions,
            quaternions=quaternions,
            shapes=(shape, FLOOR[3]),
            pairs=((shape.name, "floor"),),
        ),
        poses,
    )


def make_params(dim, mass=2.0, inertia=0.1, mu=0.0, **constants):
    return Params(
        mass=jnp.array([mass]),
        inertia=jnp.array([inertia]) if dim == 2 else jnp.full((1, 3), inertia),
        mu=jnp.asarray(mu),
        gravity=jnp.array([0.0] * (dim - 1) + [-G]),
        constants={name: jnp.asarray(value) for name, value in constants.items()},
    )


def make_state(q, v):
    return State(q=jnp.asarray(q, float), v=jnp.asarray(v, float), t=jnp.array(0.0))


def test_overdamped_mass_in_closed_form():
    """m phi'' + c phi' + k phi = -m g: path, end and impulse of a mass without friction, to 1e-6."""
    m, k, zeta, v0 = 2.0, 1e6, 5.0, -0.4
    params, state = make_params(2, m), make_state([0.0], [v0])
    v_plus, info = kelvin_voigt(jc.Model(system=bouncer(), params=params), state, k, zeta)
    c = 2 * zeta * np.sqrt(k * m)
    slow, fast = np.sort(np.roots([m, c, k]))[::-1]
    rest = -m * G / k
    a, b = np.linalg.solve([[1, 1], [slow, fast]], [-rest, v0])

    def depth(t):
        return rest + a * np.exp(slow * t) + b * np.exp(fast * t)

    def speed(t):
        return a * slow * np.exp(slow * t) + b * fast * np.exp(fast * t)

    stop = -1e-3 * m / k
    end = brentq(lambda t: speed(t) - stop, 0, 0.1, xtol=1e-15)
    t = np.asarray(info.time)
    assert int(info.status) == 0
    np.testing.assert_allclose(info.duration, end, rtol=1e-6)
    np.testing.assert_allclose(v_plus, [stop], rtol=1e-6)
    np.testing.assert_allclose(info.v_path[:, 0], speed(t), atol=1e-6 * abs(v0))
    np.testing.assert_allclose(info.q_path[:, 0], depth(t), atol=1e-6 * abs(depth(end)))
    np.testing.assert_allclose(info.impulse, [m * (stop - v0) + m * G * end], rtol=1e-6)
    np.testing.assert_allclose(info.impulse_path[:, 0], m * (speed(t) - v0) + m * G * t, atol=1e-6)
    assert float(info.first_contact_share) == 1.0


def test_paper_damping_of_a_unit_mass_is_per_root_of_k():
    """`mass` is the one of the damping: with mass=1 a heavy body gets the printed 2 zeta sqrt(k)."""
    k, v0 = 1e6, -0.4
    params, state = make_params(2, 3.0), make_state([0.0], [v0])
    _, info = kelvin_voigt(jc.Model(system=bouncer(), params=params), state, k, 5.0, mass=1.0)
    _, same = kelvin_voigt(
        jc.Model(system=bouncer(), params=params),
        state,
        k,
        5.0 / np.sqrt(3.0),
        stop_speed=1e-9,
    )
    np.testing.assert_allclose(info.duration, same.duration, rtol=1e-7)
    np.testing.assert_allclose(info.impulse, same.impulse, rtol=1e-9)


@pytest.mark.long
def test_sliding_in_space_in_closed_form():
    """A point that slides all through the impact: the friction impulse is -mu Lambda_n along the slip."""
    system = spatial(jc.Point(name="tip", body="body"), 3, (), point_in_space)
    params, state = make_params(3, 2.0, mu=0.3), make_state([0, 0, 0], [3.0, -4.0, -1.0])
    v_plus, info = kelvin_voigt(jc.Model(system=system, params=params), state, 1e7, 5.0)
    assert int(info.status) == 0
    lost = 0.3 * float(info.impulse[0]) / 2.0
    np.testing.assert_allclose(v_plus[:2], np.array([3.0, -4.0]) * (1 - lost / 5.0), rtol=1e-9)
    np.testing.assert_allclose(
        info.impulse, 2.0 * (1.0 + float(v_plus[2]) + G * float(info.duration)), rtol=1e-9
    )


@pytest.mark.slow
def test_ball_sticks_in_space():
    """A rough ball on a quaternion: the contact point is stopped, 5/7 of the tangential velocity is left.

    Held to 1e-7 m/s: the slip of the stuck point is a share of slip_speed, and the turn of 1e-3 rad
    during the impact does not matter to a ball.
    """
    radius, m = 0.1, 2.0
    system = spatial(jc.Sphere(name="ball", body="body", radius="radius"), 7, (3,), free_body)
    params = make_params(3, m, inertia=0.4 * m * radius**2, mu=1.0, radius=radius)
    turn = np.array([0.8, 0.1, -0.5, 0.3])
    q = np.concatenate([[0, 0, radius], turn / np.linalg.norm(turn)])
    v_plus, info = kelvin_voigt(
        jc.Model(system=system, params=params), make_state(q, [0.3, -0.4, -2.0, 0, 0, 0]), 1e8, 5.0
    )
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus[:2], np.array([0.3, -0.4]) * 5 / 7, atol=1e-7)
    assert abs(float(v_plus[2])) < 1e-9


def block_run(stiffness, angle=0.0, **options):
    """Contact normal velocities J_n v+ (2,), at the block before impact, and info of one impact."""
    model = jc.models.rocking_block()
    state = tilted(model, angle)
    v_plus, info = kelvin_voigt(model, state, stiffness, ZETA, **options)
    return np.asarray(jc.contact_terms(model, state).J_n @ v_plus), info


def tilted(model, angle):
    """The block turned by `angle` and raised until its lower corner touches, at the same total energy."""
    q, v = np.array(model.initial_state().q), np.array(model.initial_state().v)
    q[2] = angle
    lowest = jc.contact_terms(model, model.initial_state().replace(q=jnp.asarray(q))).phi.min()
    q[1] -= float(lowest)
    v[1] = -np.sqrt(v[1] ** 2 - 2 * G * (q[1] - float(model.initial_state().q[1])))
    return make_state(q, v)


def stiffnesses(exponent):
    """Both corners at a ratio 10^exponent, the softer one at 1e6 N/m."""
    return STIFFNESS * 10.0 ** np.array([max(exponent, 0.0), max(-exponent, 0.0)])


def sample_block(num_samples):
    """Sampled J_n v+ (n, 2) of the flat block."""
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())
    found = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        num_samples=num_samples,
    )
    assert not np.any(np.asarray(found.status))
    return np.asarray(found.v_plus) @ np.asarray(terms.J_n).T


def longest():
    """The largest normal velocity of the set, of one corner stopped before the other: 0.21 v0."""
    return 0.21 * -float(jc.models.rocking_block().initial_state().v[1])


def check_stiffness_ratios(exponents):
    """Every outcome lies on the two legs of the set: one corner at rest, the other below the maximum.

    Tolerances: during an impact of 5e-4 s a corner at rest turns with the block, which changes its
    normal velocity by 5e-6 m/s at most; 1e-5 m/s is allowed.
    """
    outcomes = []
    for exponent in exponents:
        u, info = block_run(stiffnesses(exponent))
        assert int(info.status) == 0
        outcomes.append(u)
    outcomes = np.array(outcomes)
    assert np.max(np.min(np.abs(outcomes), axis=1)) < 1e-5
    assert outcomes.min() > -1e-5
    assert outcomes.max() <= longest()
    # Mirror images: the stiffer corner is stopped first, and lifts when the other one is.
    np.testing.assert_allclose(outcomes, outcomes[::-1, ::-1], atol=1e-8)
    return outcomes


def check_angles(angles):
    """Outcomes on the same two legs, at most 3 % longer than the set.

    Until the second corner lands, 1e-3 s after the first, gravity speeds it up by some 2 %: so much
    larger is the velocity with which the first corner lifts, as in the paper. Corners at rest turn with
    the block for longer than above: 2e-5 m/s, of which 1e-4 m/s is allowed.
    """
    outcomes, shares = [], []
    for angle in angles:
        u, info = block_run(STIFFNESS, angle)
        assert int(info.status) == 0
        outcomes.append(u)
        shares.append(float(info.first_contact_share))
    outcomes = np.array(outcomes)
    assert np.max(np.min(np.abs(outcomes), axis=1)) < 1e-4
    assert outcomes.min() > -1e-4
    assert outcomes.max() <= 1.03 * longest()
    np.testing.assert_allclose(outcomes, outcomes[::-1, ::-1], atol=1e-8)
    return outcomes, np.array(shares)


def lift(outcomes):
    """Where on the two legs an outcome lies: 1 where corner A lifts the most, -1 where B does."""
    return (outcomes[:, 0] - outcomes[:, 1]) / longest()


@pytest.mark.slow
def test_block_at_stiffness_ratios():
    """Five outcomes are members of the sampled set.

    A member: nearer to a sample than the widest hole between two samples, which are sparse towards
    the ends of the set (2.3e-3 m/s of its 0.093 m/s).
    """
    outcomes = check_stiffness_ratios([-5.0, -1.0, 0.0, 1.0, 5.0])
    samples = sample_block(2**14)
    hole = np.diff(np.sort(lift(samples))).max() * longest()
    assert hole < 2.5e-3
    distance = np.linalg.norm(samples - outcomes[:, None], axis=-1).min(axis=1)
    assert distance.max() < hole
    np.testing.assert_allclose(lift(outcomes)[[2, 4]], [0.0, 0.9879], atol=2e-4)


def test_block_at_angles():
    outcomes, shares = check_angles([-LIMIT_ANGLE, 0.0, LIMIT_ANGLE])
    # At the ends the impacts are nearly in sequence: the paper says 99.9992 %.
    np.testing.assert_allclose(shares, [0.999992, 0.0, 0.999992], atol=1e-6)
    np.testing.assert_allclose(lift(outcomes), [-1.0183, 0.0, 1.0183], atol=1e-3)


@pytest.mark.slow
def test_block_at_all_stiffness_ratios():
    """All 51 outcomes are properly contained in the sampled set and cover it without a wide hole."""
    along = lift(check_stiffness_ratios(np.linspace(-5.0, 5.0, 51)))
    samples = lift(sample_block(2**18))
    assert samples.min() < along.min()
    assert samples.max() > along.max()
    assert np.all(np.diff(along) > 0)
    assert np.diff(along).max() < 0.1
    assert along[-1] > 0.98


@pytest.mark.slow
def test_block_at_all_angles():
    """51 outcomes cover all of the set and 1.8 % more, without a wide hole."""
    outcomes, shares = check_angles(np.linspace(-LIMIT_ANGLE, LIMIT_ANGLE, 51))
    along = lift(outcomes)
    assert np.all(np.abs(np.diff(along)) < 0.13)
    assert np.all(np.diff(np.abs(along[25:])) > 0)
    assert np.all(np.diff(shares[25:]) > 0)
    assert 1.01 < along.max() < 1.02


@pytest.mark.long
def test_solvers_agree():
    """BDF at the default tolerances against Radau at tighter ones: 1e-7 of the drop speed."""
    u, _ = block_run(stiffnesses(2.0))
    other, _ = block_run(stiffnesses(2.0), method="Radau", rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(u, other, atol=1e-7 * 0.44)


def test_runs_compile_once():
    module = importlib.import_module("jaxcontact.impact.laws.stiff_impact")
    block_run(stiffnesses(0.0))
    before = [f._cache_size() for f in (module.state_rate, module.state_rate_jacobian, module.approach_rates)]
    block_run(stiffnesses(3.0), 1e-4, slip_speed=1e-9, mass=2.0)
    assert before == [
        f._cache_size() for f in (module.state_rate, module.state_rate_jacobian, module.approach_rates)
    ]


def test_penetration_within_the_tolerance_carries_no_force():
    params = make_params(2)
    touching = kelvin_voigt(jc.Model(system=bouncer(), params=params), make_state([0.0], [-0.4]), 1e9, 5.0)[1]
    below = kelvin_voigt(jc.Model(system=bouncer(), params=params), make_state([-5e-7], [-0.4]), 1e9, 5.0)[1]
    np.testing.assert_allclose(below.impulse, touching.impulse, rtol=1e-8)


def test_an_approach_that_is_no_number_ends_no_impact(monkeypatch):
    module = importlib.import_module("jaxcontact.impact.laws.stiff_impact")
    monkeypatch.setattr(module, "approach_rates", lambda *_: np.nan)
    model = jc.Model(system=bouncer(), params=make_params(2))
    _, info = kelvin_voigt(model, make_state([0.0], [-0.4]), 1e6, 5.0, duration=1e-3, min_impulse=0.0)
    assert jc.Status.UNTERMINATED & int(info.status)


def test_nothing_approaches():
    v_plus, info = kelvin_voigt(
        jc.Model(system=bouncer(), params=make_params(2)), make_state([0.0], [0.1]), 1e6, 5.0
    )
    assert (int(info.status), float(info.duration), float(info.impulse[0])) == (0, 0.0, 0.0)
    np.testing.assert_array_equal(v_plus, [0.1])
    assert info.time.shape == (1,)


def test_least_impulse_of_a_contact_that_takes_no_part():
    """A tilted block lands on one corner; the other is out of reach and needs no impulse.

    A corner of apparent mass (M^-1)_nn^-1 is stopped; the impulse, 0.33 N s, is that of one rigid
    contact but for gravity and the turn during 4e-4 s, 1 %.
    """
    model = jc.models.rocking_block()
    raised = 0.5 * np.sin(0.2) + np.cos(0.2)
    state = make_state([0.0, raised, 0.2], [0.0, -0.4, 0.0])
    params = model.params.replace(mu=jnp.zeros(2))
    _, info = kelvin_voigt(model.replace(params=params), state, STIFFNESS, ZETA)
    J_n = np.asarray(jc.contact_terms(model.replace(params=params), state).J_n)[0]
    assert int(info.status) == 0
    assert float(info.impulse[1]) == 0.0
    np.testing.assert_allclose(info.impulse[0], 0.4 / (1.0 + J_n[2] ** 2 / (5 / 12)), rtol=0.02)
    assert float(info.first_contact_share) == 1.0


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"duration": 1e-5}, jc.Status.UNTERMINATED),
        ({"max_steps": 5}, jc.Status.UNTERMINATED | jc.Status.MAX_ITERS),
        ({"min_impulse": 10.0, "duration": 1e-3}, jc.Status.UNTERMINATED),
    ],
)
def test_status_of_an_impact_cut_short(options, bits):
    v_plus, info = kelvin_voigt(
        jc.Model(system=bouncer(), params=make_params(2)), make_state([0.0], [-0.4]), 1e6, 5.0, **options
    )
    assert int(info.status) == int(bits)
    assert np.all(np.isfinite(v_plus))


@pytest.mark.parametrize(
    ("room", "bits"),
    [
        (1e-5, jc.Status.UNTERMINATED | jc.Status.STALLED),  # the force ceases to exist on the way
        (0.0, jc.Status.UNTERMINATED | jc.Status.NONFINITE),  # or is infinite from the start
    ],
)
def test_status_of_forces_that_fail(room, bits):
    model = jc.Model(system=bouncer(explosive), params=make_params(2, room=room))
    _, info = kelvin_voigt(model, make_state([0.0], [-0.4]), 1e6, 5.0)
    assert int(info.status) == int(bits)


def test_float32_inputs_are_computed_in_float64():
    model = jc.models.rocking_block()
    want, _ = kelvin_voigt(model, model.initial_state(), stiffnesses(2.0), ZETA)
    with jax.enable_x64(False):
        model = jc.models.rocking_block()
        v_plus, info = kelvin_voigt(model, model.initial_state(), stiffnesses(2.0), ZETA)
        assert v_plus.dtype == info.impulse.dtype == jnp.float32
    np.testing.assert_allclose(v_plus, want, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stiffness": -1.0}, "stiffness: expected finite numbers > 0"),
        ({"stiffness": np.ones(3)}, r"stiffness: expected a number or shape \(1,\), got shape \(3,\)"),
        ({"stiffness": np.nan}, "stiffness: expected finite"),
        ({"damping_ratio": -0.1}, "damping_ratio: expected a finite number >= 0"),
        ({"damping_ratio": np.ones(2)}, r"damping_ratio: expected shape \(\), got"),
        ({"mass": 0.0}, "mass: expected a finite number > 0"),
        ({"slip_speed": 0.0}, "slip_speed: expected"),
        ({"duration": -1.0}, "duration: expected"),
        ({"stop_speed": -1.0}, "stop_speed: expected a finite number >= 0"),
        ({"min_impulse": np.inf}, "min_impulse: expected finite"),
        ({"rtol": 0.0}, "rtol: expected"),
        ({"atol": -1.0}, "atol: expected"),
        ({"max_steps": 0}, "max_steps: expected an integer >= 1"),
        ({"method": "LSODA"}, "method: expected one of BDF, Radau"),
        ({"state": make_state([0.0], [np.nan])}, r"state\.v: expected finite"),
        ({"state": make_state([np.nan], [0.0])}, r"state\.q: expected finite"),
        ({"state": make_state([-1e-3], [-0.4])}, "contact 0 penetrates by 0.001 m"),
        ({"state": make_state([0.0, 1.0], [-0.4])}, r"state\.q: expected shape \(1,\)"),
        ({"model": jc.Model(system=bouncer(), params=make_params(2, mu=-0.5))}, "friction must be >= 0"),
        (
            {"model": jc.Model(system=bouncer(), params=make_params(2, mass=np.inf))},
            "params: expected finite",
        ),
    ],
)
def test_mistakes_are_named(change, message):
    good = {
        "model": jc.Model(system=bouncer(), params=make_params(2)),
        "state": make_state([0.0], [-0.4]),
        "stiffness": 1e6,
        "damping_ratio": 5.0,
    }
    with pytest.raises(ValueError, match=message):
        kelvin_voigt(**(good | change))


def test_traced_arguments_are_refused():
    state = make_state([0.0], [-0.4])
    with pytest.raises(ValueError, match="kelvin_voigt: a driver for the host"):
        jax.jit(
            lambda v: kelvin_voigt(
                jc.Model(system=bouncer(), params=make_params(2)), dataclasses.replace(state, v=v), 1e6, 5.0
            )[0]
        )(state.v)


@pytest.mark.slow
def test_a_robot_from_a_file_lands_as_the_same_mass_on_a_spring():
    """Its force ranges are infinite, which is no bad number; m = 2 kg falls on k = 1e4 N/m, overdamped."""
    pytest.importorskip("mujoco")
    model = jc.load_mjcf(
        """<mujoco><option gravity="0 0 0"/><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 0.1">
        <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.1" mass="2"/>
        </body></worldbody></mujoco>""",
        planar=True,
    )
    assert np.isinf(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model.params.tree)])).any()
    state = model.initial_state().replace(v=jnp.array([0.0, -1.0]))
    _, info = kelvin_voigt(model, state, 1e4, 5.0, mass=2.0, duration=1.0)
    np.testing.assert_allclose(float(np.sum(info.impulse)), 2.0, rtol=1e-3)  # it comes to rest
    bad = model.params.replace(tree=jax.tree.map(lambda leaf: leaf * np.nan, model.params.tree))
    with pytest.raises(ValueError, match="params: expected numbers, got NaN"):
        kelvin_voigt(model.replace(params=bad), state, 1e4, 5.0)

"""What holds joints: closed loops, couplings, tendons and dry friction, beside MuJoCo's rows and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import BILATERAL, DRY, LIMIT

mujoco = pytest.importorskip("mujoco")

INERTIA = '<inertial pos="0 0 -0.2" mass="0.5" diaginertia="0.01 0.02 0.015"/>'
TIED = f"""
<mujoco>
  <worldbody>
    <body name="one" pos="0 0 1"><joint name="a" axis="0 1 0.2" ref="0.1"/>{INERTIA}
      <body name="two" pos="0 0 -0.4"><joint name="b" type="ball"/>{INERTIA}</body></body>
    <body name="three" pos="0.3 0 1"><freejoint/>{INERTIA}
      <body name="four" pos="0 0.1 -0.3"><joint name="c" axis="1 0 0"/><joint name="d" type="slide" axis="0 0 1"/>
        {INERTIA}</body></body>
  </worldbody>
  <tendon>
    <fixed name="s"><joint joint="a" coef="0.5"/><joint joint="d" coef="-2"/></fixed>
    <fixed name="t"><joint joint="c" coef="1.5"/></fixed>
  </tendon>
  <equality>
    <connect body1="two" body2="four" anchor="0.1 0.05 -0.3"/>
    <joint joint1="c" joint2="a" polycoef="0.1 0.5 -0.3 0.2 0.7"/>
    <weld body1="three" body2="one" relpose="0.1 0.2 -0.3 0.8 0.1 0.5 -0.2" anchor="0.2 0 0.1"/>
    <tendon tendon1="s" tendon2="t" polycoef="0 1 0.5 0 0"/>
    <connect body1="three" anchor="0 0 0.2"/>
    <joint joint1="d" polycoef="0.05 0 0 0 0"/>
    <weld body1="one" active="false"/>
  </equality>
</mujoco>"""


@pytest.mark.long
def test_rows_of_loops_are_those_of_mujoco(rng):
    """Deviations and Jacobians of MuJoCo's equalities; a weld's angles are half of ours, to first order."""
    mj = mujoco.MjModel.from_xml_string(TIED)
    with pytest.warns(jc.io.mjcf.IgnoredOptionWarning, match="equalities that are not active"):
        model = jc.load_mjcf(TIED)
    data = mujoco.MjData(mj)
    terms = jax.jit(lambda s: jc.constraint_terms(model, s))
    for _ in range(3):
        data.qpos[:] = mj.qpos0 + 0.3 * rng.normal(size=mj.nq)
        data.qvel[:] = rng.normal(size=mj.nv)
        mujoco.mj_normalizeQuat(mj, data.qpos)
        mujoco.mj_forward(mj, data)
        state = model.initial_state().replace(q=jnp.asarray(data.qpos), v=jnp.asarray(data.qvel))
        found = terms(state)
        assert found.kind == (BILATERAL,) * 15
        # Ours first have the loops between bodies: two connects and a weld; MuJoCo's have the order of the file.
        order = [*range(3), *range(4, 7), *range(11, 14), 3, 10, 14]
        rows = [*range(3), *range(3, 6), *range(9, 12), 12, 13, 14]
        J = np.array(data.efc_J).reshape(-1, mj.nv)
        np.testing.assert_allclose(found.G[np.array(rows)], J[order], atol=1e-12)
        np.testing.assert_allclose(found.phi[np.array(rows)], data.efc_pos[order], atol=1e-12)


@pytest.mark.long
def test_welded_axes_are_parallel_and_their_rows_the_derivative_of_their_deviations(rng):
    """phi' = G v and phi'' = G v' + Gdot v along a motion, by differences."""
    model = quiet(TIED)
    state = model.initial_state().replace(
        q=model.initial_state().q + 0.2 * jnp.asarray(rng.normal(size=model.initial_state().q.size)),
        v=jnp.asarray(rng.normal(size=model.initial_state().v.size)),
    )

    @jax.jit
    def terms(h):
        q = jc.retract(model, state.q, h * state.v)
        found = jc.constraint_terms(model, state.replace(q=q))
        return found.phi, found.G @ state.v, found.gdot_v

    step = 1e-5
    (before, slow, _), (after, fast, _), (_, speed, drift) = terms(-step), terms(step), terms(0.0)
    np.testing.assert_allclose((after - before) / (2 * step), speed, atol=1e-8)
    np.testing.assert_allclose((fast - slow) / (2 * step), drift, atol=1e-7)


def quiet(text, **settings):
    """The model of a text, whatever is ignored of it."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jc.load_mjcf(text, **settings)


# A coupler of 2 kg on two parallel cranks of 0.5 m and 0.01 kg m^2 each, which balance about their pivots.
PARALLELOGRAM = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="left"><joint axis="0 -1 0"/><inertial pos="0 0 0" mass="0.3" diaginertia="0.01 0.01 0.01"/>
      <body name="coupler" pos="0 0 -0.5"><joint axis="0 -1 0"/>
        <inertial pos="0.2 0 0" mass="2" diaginertia="0.1 0.1 0.1"/></body></body>
    <body name="right" pos="0.4 0 0"><joint axis="0 -1 0"/>
      <inertial pos="0 0 0" mass="0.3" diaginertia="0.01 0.01 0.01"/></body>
  </worldbody>
  <equality><connect body1="coupler" body2="right" anchor="0.4 0 0"/></equality>
</mujoco>"""


@pytest.mark.slow_cases("False", "True")
@pytest.mark.parametrize("planar", [False, True])
def test_a_parallelogram_swings_as_a_pendulum(planar):
    """(m l^2 + 2 I) a'' = -m g l sin a, and the loop stays closed."""
    model = jc.load_mjcf(PARALLELOGRAM, planar=planar)
    law = model.params.material.replace(stiffness=jnp.array(1e14), damping=jnp.array(0.0))
    params, start = model.params.replace(material=law), 0.6
    state = model.initial_state().replace(q=jnp.array([start, -start, start]))
    step = jax.jit(lambda s, dt: jc.compliant.step(model.replace(params=params), s, jnp.zeros(3), dt=dt))
    after, info = step(state, 1e-4)
    assert int(info.status) == 0
    fall = -9.81 / 0.52 * np.sin(start)
    np.testing.assert_allclose(after.v / 1e-4, [fall, -fall, fall], rtol=1e-5)
    states, infos = jax.jit(
        lambda s: jc.compliant.rollout(model.replace(params=params), s, jnp.zeros((300, 3)), dt=2e-3)
    )(state)
    assert not np.any(infos.status)
    assert float(jnp.max(jnp.abs(infos.gap[:, : 2 if planar else 3]))) < 2e-6
    np.testing.assert_allclose(states.q[-1, 2], states.q[-1, 0], atol=1e-5)
    height = 9.81 * (1 - np.cos(states.q[:, 0]))
    np.testing.assert_allclose(height + 0.26 * states.v[:, 0] ** 2, 9.81 * (1 - np.cos(start)), rtol=0.03)


SLIDER = """
<mujoco><option gravity="0 0 0"/>
  <worldbody><body><joint type="slide" axis="1 0 0" frictionloss="2"/>
    <inertial pos="0 0 0" mass="0.5" diaginertia="0.1 0.1 0.1"/></body></worldbody></mujoco>"""


@pytest.mark.long
@pytest.mark.parametrize("cone", ["associated", "coulomb"])
def test_dry_friction_sticks_and_slides(cone):
    """Held below 2 N; above, (F - 2) / m; a push of 1 m/s stops after v / (2 / m) at rest."""
    model = jc.load_mjcf(SLIDER)
    assert jc.constraint_terms(model, model.initial_state()).kind == (DRY,)

    @jax.jit
    def motion(force, v):
        state = model.initial_state().replace(v=v[None])
        controls = jnp.full((100, 1), force)
        return jc.compliant.rollout(
            model, state, controls, dt=0.01, settings=jc.compliant.Settings(cone=cone)
        )

    for force, start, speed, place in (
        (1.9, 0.0, 0.0, 0.0),
        (3.0, 0.0, 2.0, 2.0 * 0.01 * 5050 / 100),
        (0.0, 1.0, 0.0, 0.01 * (1 - 0.04) / 0.04 / 2),
        (-3.0, 1.0, -2.0 * 0.9, None),
    ):
        states, info = motion(jnp.array(force), jnp.array(start))
        assert not np.any(info.status)
        np.testing.assert_allclose(states.v[-1, 0], speed, atol=3e-8)
        if place is not None:
            np.testing.assert_allclose(states.q[-1, 0], place, atol=3e-8)


@pytest.mark.slow
def test_dry_friction_has_exact_derivatives():
    """While sliding dv/dF = T / m and dv/dc = -T / m; while stuck nothing moves."""
    model = jc.load_mjcf(SLIDER)

    def speed(force, dry):
        params = model.params.replace(tree=model.params.tree.replace(dry_friction=dry[None]))
        controls = jnp.full((10, 1), force)
        return jc.compliant.rollout(model.replace(params=params), model.initial_state(), controls, dt=0.01)[
            0
        ].v[-1, 0]

    slopes = jax.jit(jax.grad(speed, argnums=(0, 1)))
    np.testing.assert_allclose(slopes(3.0, jnp.array(2.0)), [0.2, -0.2], rtol=1e-9)
    np.testing.assert_allclose(slopes(1.0, jnp.array(2.0)), [0.0, 0.0], atol=1e-7)


STRUNG = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body><joint name="a" axis="0 1 0" frictionloss="0.2"/>
      <inertial pos="0 0 -0.3" mass="0.5" diaginertia="0.01 0.01 0.01"/>
      <body pos="0 0 -0.6"><joint name="b" axis="0 1 0"/>
        <inertial pos="0 0 -0.3" mass="0.5" diaginertia="0.01 0.01 0.01"/></body></body>
  </worldbody>
  <tendon>
    <fixed name="band" stiffness="30" damping="0.5" springlength="-0.1 0.2">
      <joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
    <fixed name="strap" limited="true" range="-0.4 0.5" frictionloss="0.3"><joint joint="b" coef="2"/></fixed>
  </tendon>
</mujoco>"""


@pytest.mark.slow
def test_tendons_pull_as_those_of_mujoco_and_energy_falls(rng):
    mj, model = mujoco.MjModel.from_xml_string(STRUNG), jc.load_mjcf(STRUNG)
    data = mujoco.MjData(mj)
    for q in ([0.5, -0.2], [0.1, 0.1], [-0.6, 0.4]):
        data.qpos[:], data.qvel[:] = q, rng.normal(size=2)
        mujoco.mj_forward(mj, data)
        state = model.initial_state().replace(q=jnp.array(q), v=jnp.asarray(data.qvel))
        passive = data.qfrc_bias - jc.bias(model, state)
        np.testing.assert_allclose(passive, data.qfrc_passive, atol=1e-12)
        below = jc.constraint_terms(model, state)
        assert below.kind == (DRY, DRY, LIMIT, LIMIT)
        np.testing.assert_allclose(below.dry, [0.2, 0.3])
        np.testing.assert_allclose(below.phi[2:], [2 * q[1] + 0.4, 0.5 - 2 * q[1]])
        np.testing.assert_allclose(below.G, [[1, 0], [0, 2], [0, 2], [0, -2]], atol=1e-15)
    states, info = jc.compliant.rollout(model, state, jnp.zeros((800, 2)), dt=0.01)
    assert not np.any(info.status)

    def energy(s):
        return jc.kinetic_energy(model, s) + jc.potential_energy(model, s)

    course = np.asarray(jax.vmap(energy)(states))
    # The limit's own spring gives back what it took: 100 J at most 1 mm deep.
    assert np.all(np.diff(course) < 2e-2 * (course[0] - course[-1]))
    assert np.max(np.abs(states.v[-1])) < 1e-6


def test_what_has_no_rows_for_loops_says_so():
    slider = jc.load_mjcf(SLIDER)
    with pytest.raises(ValueError, match="planar: a weld"):
        welded = '<weld body1="coupler" body2="right"/>'
        jc.load_mjcf(PARALLELOGRAM.replace("<equality>", f"<equality>{welded}"), planar=True)
    with pytest.raises(ValueError, match="formulation: 'min_norm' has no dry friction"):
        jc.compliant.step(
            slider,
            slider.initial_state(),
            jnp.zeros(1),
            dt=0.01,
            settings=jc.compliant.Settings(formulation="min_norm"),
        )


def striking_parallelogram(extra=""):
    """The coupler of the parallelogram with a ball on it that touches a floor; `extra` equalities."""
    floor = '<geom type="plane" size="1 1 1" pos="0 0 -0.55"/>'
    text = PARALLELOGRAM.replace("<worldbody>", f"<worldbody>{floor}").replace(
        '<inertial pos="0.2 0 0" mass="2"',
        '<geom type="sphere" size="0.05" pos="0.1 0 0" mass="0"/><inertial pos="0.2 0 0" mass="2"',
    )
    return jc.load_mjcf(text.replace("<equality>", f"<equality>{extra}"), contacts="world")


TWICE = '<connect body1="coupler" body2="right" anchor="0.4 0 0"/>'


@pytest.mark.long
@pytest.mark.parametrize("extra", ["", TWICE], ids=["one loop", "the same loop twice"])
def test_an_impact_of_a_closed_loop_is_that_of_minimal_coordinates(extra):
    """The parallelogram has one angle: mass m l^2 + 2 I, and the ball moves by l (cos, sin) of it."""
    model, start = striking_parallelogram(extra), 0.6
    q = jnp.array([start, -start, start])
    state = model.initial_state().replace(q=q, v=-1.3 * jnp.array([1.0, -1.0, 1.0]))
    terms = jc.contact_terms(model, state)
    mu = jnp.array([0.3])  # with 1, Newton's law has no solution: friction drives the ball in
    terms = terms.replace(phi=jnp.zeros(1), mu=mu, active=jnp.ones(1, bool))
    minimal = jc.ContactTerms(
        M=jnp.array([[2 * 0.25 + 2 * 0.01]]), J_n=jnp.array([[0.5 * np.sin(start)]]),
        J_t=jnp.array([[[0.5 * np.cos(start)], [0.0]]]), phi=jnp.zeros(1), mu=mu, active=jnp.ones(1, bool),
    )  # fmt: skip
    loop = jc.terms.constraint_terms(model, state)
    G = np.asarray(loop.G)[np.array(loop.kind) == BILATERAL]
    for law in (jc.impact.AnitescuPotra(), jc.impact.Newton(restitution=0.6), jc.impact.Propagative()):
        v_plus, info = law(terms, state.v)
        expected, known = law(minimal, state.v[:1])
        assert int(info.status) == int(known.status) == 0
        np.testing.assert_allclose(v_plus, expected[0] * np.array([1.0, -1.0, 1.0]), atol=1e-12)
        np.testing.assert_allclose(info.impulse[:, 0], known.impulse[:, 0], rtol=1e-10)
        assert np.abs(G @ np.asarray(v_plus)).max() < 1e-12


@pytest.mark.long
def test_derivatives_of_terms_with_a_loop():
    """By the angle along which the loop stays closed, and by a mass."""
    model = striking_parallelogram(TWICE)

    def delassus(angle, mass):
        params = model.params.replace(mass=model.params.mass.at[1].set(mass))
        state = model.initial_state().replace(q=angle * jnp.array([1.0, -1.0, 1.0]))
        terms = jc.contact_terms(model.replace(params=params), state)
        return terms.J_n[0] @ jnp.linalg.solve(terms.M, terms.J_n[0])

    def expected(angle, mass):  # the ball weighs nothing
        return (0.5 * np.sin(angle)) ** 2 / (mass * 0.25 + 0.02)

    angle, mass, h = 0.6, 2.0, 1e-6
    np.testing.assert_allclose(delassus(angle, mass), expected(angle, mass), rtol=1e-10)
    for derivative in (jax.jacfwd, jax.jacrev):
        by_angle, by_mass = derivative(delassus, (0, 1))(angle, mass)
        slope = (expected(angle + h, mass) - expected(angle - h, mass)) / (2 * h)
        np.testing.assert_allclose(by_angle, slope, rtol=1e-7)
        np.testing.assert_allclose(by_mass, -0.25 / 0.52 * expected(angle, mass), rtol=1e-8)


@pytest.mark.long
def test_a_coupled_slider_moves_its_partner():
    """Slides with x_2 = 2 x_1: the impact of the first sees m_1 + 4 m_2."""
    model = jc.load_mjcf(
        """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
        <body pos="0 0 0.1"><joint name="a" type="slide" axis="0 0 1"/><geom type="sphere" size="0.1" mass="1"/></body>
        <body pos="1 0 0.5"><joint name="b" type="slide" axis="0 0 1"/><geom type="sphere" size="0.1" mass="3"/></body>
        </worldbody><equality><joint joint1="b" joint2="a" polycoef="0 2 0 0 0"/></equality></mujoco>""",
        contacts="world",
    )
    state = model.initial_state().replace(v=jnp.array([-1.0, -2.0]))
    terms = jc.contact_terms(model, state)
    v_plus, info = jc.impact.anitescu_potra(terms, state.v)
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, 0.0, atol=1e-14)
    np.testing.assert_allclose(info.impulse[:, 0].sum(), 13.0, rtol=1e-12)


@pytest.mark.long
def test_a_four_bar_under_a_strong_motor_opens_less_than_mujocos():
    """300 N m turn the left rod by half a radian in 0.03 s; the two ends that coincide part by 4 mm in MuJoCo."""
    rod = '<inertial pos="0 0 -.25" mass=".4" diaginertia=".00833 .00833 1e-5"/>'
    text = f"""<mujoco><option timestep="0.0005"/><worldbody><body><joint axis="0 1 0"/>{rod}
    <body name="bar" pos="0 0 -.5"><joint axis="0 1 0"/><inertial pos=".4 0 0" mass="1" diaginertia="1e-3 .06 .06"/>
    </body></body><body name="right" pos=".8 0 0"><joint axis="0 1 0"/>{rod}</body></worldbody>
    <equality><connect body1="bar" body2="right" anchor=".8 0 0"/></equality>
    <actuator><motor joint="joint_0"/></actuator></mujoco>""".replace(
        "<joint axis", '<joint name="joint_0" axis', 1
    )
    mj = mujoco.MjModel.from_xml_string(text)
    data, start = mujoco.MjData(mj), np.array([0.6, -0.6, 0.6])
    data.qpos[:], data.ctrl[:] = start, 300.0
    theirs = []
    for _ in range(60):
        mujoco.mj_step(mj, data)
        theirs.append(data.qpos.copy())
    model = jc.load_mjcf(mj)
    state = model.initial_state().replace(q=jnp.asarray(start))
    states, info = jc.compliant.rollout(model, state, jnp.full((60, 1), 300.0), dt=mj.opt.timestep)

    def opening(q):
        a, b, c = np.asarray(q).T
        across = 0.5 * np.sin(c) - 0.5 * np.sin(a) + 0.8 * np.cos(a + b) - 0.8
        return np.max(np.hypot(across, 0.5 * np.cos(c) - 0.5 * np.cos(a) - 0.8 * np.sin(a + b)))

    assert not np.any(np.asarray(info.status))
    assert opening(states.q) < opening(np.array(theirs)) < 5e-3
    np.testing.assert_allclose(states.q[-1, 0], theirs[-1][0], atol=0.02)

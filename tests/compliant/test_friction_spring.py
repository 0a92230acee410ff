"""Tangential springs in series with friction (Drumwright, eqs 86-98, Fig. 8), and damping by depth (section 4.1)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.compliant_reference import implicit_euler
from scipy.optimize import brentq

import jaxcontact as jc

MASS, STIFF, STEP = 2.0, 800.0, 2e-4  # 20 rad/s
STEPS = 8000  # one program for all
WEIGHT = MASS * 9.81


def upright(structure, q, params):
    return q[None], jnp.zeros(1, q.dtype)


FOOT = jc.System(
    jc.Structure(
        dim=2,
        bodies=("block",),
        num_positions=2,
        shapes=(
            jc.Points(name="foot", body="block", at="feet", count=1),
            jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("foot", "floor"),),
    ),
    upright,
)
SPRING = jc.compliant.FrictionSpring(stiffness=jnp.array(STIFF), damping=jnp.array(0.0))


def block(spring=SPRING, mu=1.0, speed=0.01, height=-WEIGHT / 1e5):
    """A block of 2 kg that does not turn, on a floor of 1e5 N/m."""
    params = jc.Params(
        mass=jnp.array([MASS]), inertia=jnp.ones(1), mu=jnp.array(mu), gravity=jnp.array([0.0, -9.81]),
        constants={"feet": jnp.zeros((1, 2))},
        material=jc.compliant.Material(stiffness=jnp.array(1e5), damping=jnp.array(50.0), friction_spring=spring),
    )  # fmt: skip
    state = jc.State(q=jnp.array([0.0, height]), v=jnp.array([speed, 0.0]), t=jnp.array(0.0))
    return jc.Model(system=FOOT, params=params, initial=state)


def roll(model, push=0.0, **options):
    """States and infos under horizontal forces, a number or (STEPS,), every step a success."""
    tau = jnp.zeros((STEPS, 2)).at[:, 0].set(push)
    states, infos = jc.compliant.rollout(model, model.initial_state(), tau, dt=STEP, **options)
    assert not np.any(infos.status)
    return states, infos


@pytest.mark.parametrize("cone", ["associated", pytest.param("coulomb", marks=pytest.mark.slow)])
def test_a_block_that_sticks_swings_on_its_spring(cone):
    """At sqrt(K_r / m), and as implicit Euler does to round-off."""
    states, infos = roll(block(), settings=jc.compliant.Settings(cone=cone))
    x = np.asarray(states.q[:, 0])
    down = np.flatnonzero((x[:-1] > 0) & (x[1:] <= 0))
    times = STEP * (down + x[down] / (x[down] - x[down + 1]))
    np.testing.assert_allclose(2 * np.pi / np.diff(times), np.sqrt(STIFF / MASS), rtol=1e-2)
    expected, _ = implicit_euler(STIFF, 0.0, MASS, STEP, 0.0, 0.01, STEPS)
    np.testing.assert_allclose(x, expected[1:], rtol=0, atol=1e-13)
    np.testing.assert_allclose(infos.stretch[:, 0, 0], x, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_what_sticks_does_not_creep():
    """Half the friction bound on a damped spring: at rest at F / K_r, not a step further; a damper creeps."""
    force = 0.5 * WEIGHT
    damped = jc.compliant.FrictionSpring(stiffness=jnp.array(STIFF), damping=jnp.array(80.0))
    states, _ = roll(block(damped, speed=0.0), force)
    np.testing.assert_allclose(states.q[7000:, 0], force / STIFF, rtol=1e-9)
    no_memory = jc.compliant.FrictionSpring(stiffness=jnp.array(0.0), damping=jnp.array(80.0))
    crept, infos = roll(block(no_memory, speed=0.0), force)
    np.testing.assert_allclose(crept.q[-1, 0] - crept.q[-2, 0], STEP * force / 80.0, rtol=1e-6)
    law = block().params.material.replace(friction_spring=None, friction_damping=jnp.array(80.0))
    model = block(speed=0.0)
    same, _ = roll(model.replace(params=model.params.replace(material=law)), force)
    np.testing.assert_array_equal(same.q, crept.q)  # a spring of no stiffness is the damper of old


@pytest.mark.long
def test_a_spring_is_stretched_to_the_bound_while_the_block_slides_and_gives_it_back():
    """mu m g / K_r; let go, the block slides on, and then swings about the tip that its foot slid to."""
    mu, push = 0.3, np.where(np.arange(STEPS) < 2000, 2 * 0.3 * WEIGHT, 0.0)
    damped = SPRING.replace(damping=jnp.array(50.0))
    states, infos = roll(block(damped, mu=mu, speed=0.0), push)
    bound = mu * WEIGHT
    lam, stretch = np.asarray(infos.lam), np.asarray(infos.stretch)[:, 0, 0]
    sliding = slice(1000, 2000)
    np.testing.assert_allclose(lam[sliding, 1], -bound, rtol=2e-3)
    own = STIFF * stretch[sliding] + 50.0 * np.diff(stretch)[999:1999] / STEP
    np.testing.assert_allclose(own, bound, rtol=2e-3)
    np.testing.assert_allclose(stretch[1999], bound / STIFF, rtol=0.02)
    assert np.all(np.abs(lam[:, 1]) <= mu * lam[:, 0] * (1 + 1e-9) + 1e-12)
    slid = np.asarray(states.q[:, 0]) - stretch
    rigid = 0.5 * mu * 9.81 * 0.4**2 * 2  # sped up by mu g for 0.4 s, slowed down by as much
    np.testing.assert_allclose(slid[1999], rigid / 2, rtol=0.03)
    np.testing.assert_allclose(slid[6000:], slid[-1], rtol=0, atol=1e-12)  # the tip sticks again
    np.testing.assert_allclose(states.q[-1, 0], rigid, rtol=0.05)
    held = 0.5 * MASS * np.asarray(states.v[6000:, 0]) ** 2 + 0.5 * STIFF * stretch[6000:] ** 2
    assert np.all(np.diff(held) <= 1e-15)
    assert stretch[3000:].min() < -1e-4 < stretch[3000]  # it swung back


def share_of_hops(stiffness, cone):
    """Share of steps in the air while the block is pushed over the floor; K_r in units of mu^2 K_n."""
    push = np.where(np.arange(STEPS) < 2000, 2 * 0.3 * WEIGHT, 0.0)
    spring = SPRING.replace(stiffness=jnp.array(stiffness * 0.3**2 * 1e5))
    _, infos = roll(block(spring, mu=0.3, speed=0.0), push, settings=jc.compliant.Settings(cone=cone))
    return np.mean(np.asarray(infos.lam)[:2000, 0] == 0.0)


def test_a_soft_spring_that_slides_hops_in_the_associated_cone():
    """It yields by mu^2 / K_r against the normal: without a damper that much beyond 1 / K_n makes it hop."""
    assert share_of_hops(0.1, "associated") > 0.2 and share_of_hops(1.0, "associated") == 0.0


@pytest.mark.slow
def test_a_soft_spring_that_slides_does_not_hop_under_exact_friction():
    assert share_of_hops(0.1, "coulomb") == 0.0


@pytest.mark.long
def test_a_spring_without_contact_goes_back_to_zero():
    """At once without a damper, by its own damper otherwise."""
    bent = jnp.array([[1e-3]])
    _, infos = roll(block(height=20.0), memory=jc.compliant.StepMemory(stretch=bent))
    assert infos.stretch[0, 0, 0] == 0.0
    damped = jc.compliant.FrictionSpring(stiffness=jnp.array(STIFF), damping=jnp.array(8.0))
    _, infos = roll(block(damped, height=20.0), memory=jc.compliant.StepMemory(stretch=bent))
    expected = 1e-3 / (1 + STEP * STIFF / 8.0) ** np.arange(1, 51)
    np.testing.assert_allclose(infos.stretch[:50, 0, 0], expected, rtol=1e-12)


@pytest.mark.slow
def test_the_stepper_carries_the_springs():
    model = block()
    expected, _ = roll(model)
    trajectory = jc.simulate.rollout(
        model, model.initial_state(), jnp.zeros((30, 2)), stepper=jc.simulate.Compliant(), dt=STEP
    )
    np.testing.assert_array_equal(trajectory.states.q[1:], expected.q[:30])


def four_feet(spring):
    """A block on a slope, in space; redundant feet share its weight."""
    model = jc.models.box_on_incline(0.6)
    law = jc.compliant.Material(stiffness=jnp.array(1e5), damping=jnp.array(20.0), friction_spring=spring)
    return model.replace(params=model.params.replace(material=law))


SPATIAL = jc.compliant.FrictionSpring(stiffness=jnp.array(500.0), damping=jnp.array(5.0))


@pytest.mark.slow
def test_four_feet_in_space_hold_a_box():
    model = four_feet(SPATIAL)
    tau = jnp.zeros((300, 6))
    states, infos = jc.compliant.rollout(model, model.initial_state(), tau, dt=0.01)
    assert not np.any(infos.status)
    share = 9.81 * np.sin(np.radians(15.0)) / 4
    np.testing.assert_allclose(np.linalg.norm(infos.stretch[-1], axis=1), share / 500.0, rtol=0.1)
    np.testing.assert_allclose(states.v[-1], 0.0, atol=1e-6)


@pytest.mark.slow
def test_springs_of_contacts_that_a_step_does_not_see_let_go():
    model, tau = four_feet(SPATIAL), jnp.zeros((4, 6))
    fewer = jc.compliant.Newton(max_iters=20)
    _, seen = jc.compliant.rollout(
        model, model.initial_state(), tau, dt=0.01, settings=jc.compliant.Settings(solver=fewer, max_contacts=2), memory=jc.compliant.StepMemory(stretch=jnp.full((4, 2), 1e-3)),
    )  # fmt: skip
    loose = ~np.asarray(seen.seen[0])
    assert loose.sum() == 2
    np.testing.assert_allclose(seen.stretch[0][loose], 1e-3 / (1 + 0.01 * 500.0 / 5.0), rtol=1e-12)


def end_of_block(stiffness, dtype=jnp.float64):
    """Where the block and its spring are after 0.1 s."""
    model = block(SPRING.replace(stiffness=stiffness))
    params, state = jax.tree.map(lambda a: jnp.asarray(a, dtype), (model.params, model.initial_state()))
    states, infos = jc.compliant.rollout(
        model.replace(params=params), state, jnp.zeros((50, 2), dtype), dt=2e-3
    )
    return states.q[-1, 0] + infos.stretch[-1, 0, 0]


@pytest.mark.slow
def test_derivatives_through_springs():
    end = end_of_block
    slope, difference = jax.grad(end)(STIFF), (end(STIFF + 0.5) - end(STIFF - 0.5))
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


@pytest.mark.slow
def test_batches_and_single_precision_of_springs():
    end = end_of_block
    np.testing.assert_allclose(jax.jvp(end, (STIFF,), (1.0,))[1], jax.grad(end)(STIFF), rtol=1e-9)
    batch = jax.vmap(end)(jnp.array([STIFF, jnp.nan, 2 * STIFF]))
    np.testing.assert_allclose(batch[jnp.array([0, 2])], [end(STIFF), end(2 * STIFF)], rtol=1e-12)
    np.testing.assert_allclose(end(jnp.float32(STIFF), jnp.float32), end(STIFF), rtol=1e-4)


@pytest.mark.long
def test_bad_springs_are_named():
    model, tau = block(), jnp.zeros(2)

    def step(model, **options):
        return jc.compliant.step(model, model.initial_state(), tau, dt=STEP, **options)[1]

    law = model.params.material.replace(friction_spring=None)
    with pytest.raises(ValueError, match="stretch: expected None"):
        step(
            model.replace(params=model.params.replace(material=law)),
            memory=jc.compliant.StepMemory(stretch=jnp.zeros((1, 1))),
        )
    with pytest.raises(ValueError, match="stretch: expected shape"):
        step(model, memory=jc.compliant.StepMemory(stretch=jnp.zeros((2, 1))))
    with pytest.raises(ValueError, match=r"material\.friction_spring\.stiffness"):
        step(block(SPRING.replace(stiffness=jnp.ones(3))))
    with pytest.raises(ValueError, match="stiffness: expected a finite number >= 0"):
        SPRING.replace(stiffness=jnp.array(-1.0))
    bad = jax.tree.map(lambda x: x, SPRING)
    object.__setattr__(bad, "stiffness", jnp.array(-1.0))  # as a traced number may be
    controls = jnp.zeros((STEPS, 2))
    _, info = jc.compliant.rollout(
        model.replace(params=block(bad).params), model.initial_state(), controls, dt=STEP
    )
    assert np.all(np.asarray(info.status) & jc.Status.INVALID)
    with pytest.raises(ValueError, match="friction_spring"):
        events = jc.ess.from_system(model, drag=True)
        events.system.field(0.0, jnp.zeros(4), jnp.ones(2), None, model.params)


# --- damping by depth


def restitution(s):
    """Of Hunt and Crossley's law, from its implicit relation."""
    if s == 0.0:
        return 1.0
    most = min(1.0, (1 - 1e-12) / s)  # slower than that it leaves, for the force never pulls
    return brentq(lambda e: s - np.log1p(s) + e * s + np.log1p(-e * s), 0.0, most, xtol=1e-14)


def bounced(share, dt, exponent=1.0, num_steps=120):
    """Restitution of a drop of 1 m/s, s = coefficient v / K = `share`, weightless."""
    stiff = 1e4
    law = jc.compliant.Material(
        stiffness=jnp.array(stiff if exponent == 1.0 else 0.0),
        damping=jc.compliant.HuntCrossley(coefficient=share * stiff, exponent=exponent),
        potential=None if exponent == 1.0 else jc.compliant.Hertz(modulus=0.75 * stiff, radius=1.0),
    )
    model = block(None, mu=0.0, speed=0.0, height=0.0)
    params = model.params.replace(material=law, gravity=jnp.zeros(2))
    state = model.initial_state().replace(v=jnp.array([0.0, -1.0]))
    tau = jnp.zeros((num_steps, 2))
    states, infos = jc.compliant.rollout(model.replace(params=params), state, tau, dt=dt)
    return states.v[-1, 1], jnp.max(infos.status), states.q[-1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [1.0, 1.5])
def test_damping_by_depth_has_the_restitution_of_hunt_and_crossley(exponent):
    """The implicit relation of the restitution, whatever the exponent; the error is of first order."""
    shares, dts = np.array([0.0, 0.1, 0.5, 2.0, 10.0]), np.array([1e-4, 5e-5])
    given = jnp.array([(dt, share) for dt in dts for share in (*shares, -1.0)])
    speed, status, height = jax.vmap(
        lambda x: bounced(x[1], x[0], exponent, num_steps=2400 if exponent == 1.0 else 5000)
    )(given)
    status = np.asarray(status).reshape(2, -1)
    assert np.all(status[:, -1] & jc.Status.INVALID)  # damping below zero
    assert not np.any(status[:, :-1]) and np.all(height.reshape(2, -1)[:, :-1] > 0)
    coarse, fine = np.asarray(speed).reshape(2, -1)[:, :-1]
    expected = np.array([restitution(s) for s in shares])
    np.testing.assert_allclose(fine, expected, atol=6e-3)
    np.testing.assert_allclose(2 * fine - coarse, expected, atol=2e-4)
    assert np.all(np.diff(expected) < 0)


@pytest.mark.slow
def test_damping_by_depth_is_differentiable():
    slope = jax.grad(lambda s: bounced(s, 1e-3)[0])(0.5)
    difference = (bounced(0.5001, 1e-3)[0] - bounced(0.4999, 1e-3)[0]) / 2e-4
    np.testing.assert_allclose(slope, difference, rtol=1e-5)

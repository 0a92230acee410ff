"""Derivatives of compliant steps against central differences, in stick, slip and separation."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.mechanics.configuration import retract
from jaxcontact.terms import NORMAL, TANGENT

MODES = {
    "slip": (0.2, [0.3, 0.1, 0.0, 0.05, 0.0, 0.2]),
    "stick": (0.8, [0.0] * 6),
    "separation": (0.3, [0.1, 0.0, 1.0, 0.1, 0.2, 0.3]),
}


@functools.cache
def incline():
    """A box on an incline, and one step of it as a function of what may be differentiated by."""
    model = jc.models.box_on_incline(0.25)
    law = jc.compliant.Material(
        stiffness=jnp.array(1e6), damping=jnp.array(10.0), friction_damping=jnp.array(1e6)
    )

    def advance(v, tau, mass, mu, law, size, turn):
        params = model.params.replace(
            mass=mass, mu=mu, material=law, constants={**model.params.constants, "size": size}
        )
        q = retract(model.system, model.initial_state().q, turn)
        state, _ = jc.compliant.step(
            model.replace(params=params), model.initial_state().replace(q=q, v=v), tau, dt=0.01
        )
        return jnp.concatenate([state.q, state.v])

    return model, law, jax.jit(advance), jax.jit(lambda x, dx: jax.jvp(advance, x, dx)[1])


def point_of(mode):
    """Where to differentiate: velocity, forces, masses, friction, law, size, and a change of configuration."""
    model, law, *_ = incline()
    mu, v = MODES[mode]
    return (
        jnp.array(v), jnp.zeros(6), model.params.mass, jnp.full_like(model.params.mu, mu), law,
        model.params.constants["size"], jnp.zeros(6),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.slow_cases("slip")
@pytest.mark.parametrize("mode", MODES)
def test_step_agrees_with_central_differences(mode, rng):
    _, _, advance, tangent = incline()
    x = point_of(mode)
    for k in range(len(x)):
        dx = tuple(
            jax.tree.map(lambda a, on=(i == k): on * a * rng.normal() if on else jnp.zeros_like(a), each)
            for i, each in enumerate(x)
        )
        if k in (0, 1, 6):
            dx = tuple(jnp.asarray(rng.normal(size=6)) if i == k else d for i, d in enumerate(dx))
        found = tangent(x, dx)
        errors = []
        for step in (1e-3, 1e-4, 1e-5, 1e-6):
            ahead, behind = (
                advance(*jax.tree.map(lambda a, d, s=s: a + s * d, x, dx)) for s in (step, -step)
            )
            errors.append(np.max(np.abs((ahead - behind) / (2 * step) - found)))
        assert min(errors) < 1e-7 * max(np.max(np.abs(found)), 1e-2)


@pytest.mark.slow
def test_the_reverse_mode_is_the_transpose_of_the_forward_mode(rng):
    """By everything at once, in every mode: w . (J dx) = (J^T w) . dx."""
    _, _, advance, tangent = incline()
    reverse = jax.jit(lambda x, w: jax.vjp(advance, *x)[1](w))
    for mode in MODES:
        x, w = point_of(mode), jnp.asarray(rng.normal(size=13))
        dx = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)) * (1.0 + jnp.abs(a)), x)
        back = sum(jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (reverse(x, w), dx)), strict=True))
        np.testing.assert_allclose(w @ tangent(x, dx), back, rtol=1e-9)


@pytest.mark.slow
def test_long_rollouts_have_finite_reverse_gradients():
    model = jc.models.box_on_incline(0.25)

    def distance(v, mu):
        params = model.params.replace(mu=mu)
        tau = jnp.zeros((1000, 6))
        states, _ = jc.compliant.rollout(
            model.replace(params=params), model.initial_state().replace(v=v), tau, dt=0.001
        )
        return states.q[-1, 0]

    at = (model.initial_state().v, jnp.full_like(model.params.mu, 0.2))
    value, slopes = jax.jit(jax.value_and_grad(distance, argnums=(0, 1)))(*at)
    assert np.isfinite(value) and all(np.all(np.isfinite(g)) for g in slopes)
    # Sliding for one second: d distance / d mu = -g cos(15 deg) / 2 along the slope.
    total = np.sum(slopes[1])
    np.testing.assert_allclose(abs(total), 0.5 * 9.81 * np.cos(np.radians(15.0)), rtol=0.1)


# --- second derivatives


def on_feet(velocity, x, cone, law, phi):
    """v+ and forces of a mass on the floor; x = (speed to one side, mass, friction)."""
    num = len(phi)
    G = jnp.tile(jnp.eye(3)[jnp.array([2, 0, 1])], (num, 1))
    terms = jc.ConstraintTerms(
        G=G,
        phi=jnp.zeros((num, 3)).at[:, 0].set(jnp.asarray(phi)).ravel(),
        gdot_v=jnp.zeros(3 * num),
        mu=jnp.broadcast_to(x[2], (num,)),
        kind=(NORMAL, TANGENT, TANGENT) * num,
    )
    push = x[1] * jnp.array([0.0, 0.0, -9.81])
    problem = jc.compliant.Problem(
        M=x[1] * jnp.eye(3), v=velocity.at[1].add(x[0]), f=push, terms=terms, material=law, dt=jnp.array(0.01)
    )
    lam, info = jc.compliant.solve(problem, settings=jc.compliant.Settings(cone=cone))
    v = velocity.at[1].add(x[0]) + 0.01 * jnp.linalg.solve(problem.M, push + G.T @ lam)
    return jnp.concatenate([v, jnp.sum(lam.reshape(num, 3), axis=0)]), info.status


SOFT = jc.compliant.Material(stiffness=1e5, damping=10.0, friction_damping=1e3)
SECOND = {
    "one foot": ("associated", SOFT, [-1e-4]),
    "two stiff feet": ("associated", jc.compliant.Material(stiffness=1e9, damping=1.0), [-1e-8, -3e-8]),
    "Hertz": (
        "associated",
        jc.compliant.Material(potential=jc.compliant.Hertz(modulus=1e7, radius=0.1)),
        [-1e-3],
    ),
    "pyramid": ("pyramid", SOFT, [-1e-4]),
    "coulomb": ("coulomb", SOFT, [-1e-4]),
}


@pytest.mark.slow_cases("one foot")
@pytest.mark.parametrize(
    "name", [name if name == "one foot" else pytest.param(name, marks=pytest.mark.slow) for name in SECOND]
)
def test_second_derivatives_agree_with_differences_of_the_first(name):
    """Forward over reverse and reverse over forward, sliding and sticking."""
    cone, law, phi = SECOND[name]

    def total(x, velocity):
        found, status = on_feet(velocity, x, cone, law, phi)
        return found @ jnp.array([1.0, -0.5, 0.3, 0.01, 0.02, -0.03]), status

    gradient = jax.grad(total, has_aux=True)
    first = jax.jit(gradient)
    both = jax.jit(
        lambda *at: (
            jax.jacfwd(gradient, has_aux=True)(*at)[0],
            jax.jacrev(jax.jacfwd(total, has_aux=True), has_aux=True)(*at)[0],
        )
    )
    x = jnp.array([0.3, 1.2, 0.25])
    for velocity in (jnp.array([1.0, 0.0, -0.05]), jnp.array([0.0, -0.3, -0.05])):
        assert int(first(x, velocity)[1]) == 0
        mixed, other = both(x, velocity)
        ahead, behind = ([first(x + d, velocity)[0] for d in h * np.eye(3)] for h in (5e-5, -5e-5))
        truth = np.subtract(ahead, behind) / 1e-4
        np.testing.assert_allclose(mixed, truth, rtol=0, atol=1e-6 * np.max(np.abs(truth)))
        np.testing.assert_allclose(other, mixed, rtol=0, atol=1e-8 * np.max(np.abs(truth)))


@pytest.mark.slow
@pytest.mark.parametrize("scan", [False, True])
def test_second_derivatives_of_several_steps(scan):
    """A box on Hertz corners that slides; friction by friction."""
    model = jc.models.box_on_incline(0.2)
    start = model.initial_state().replace(v=jnp.array(MODES["slip"][1]))

    def place(mu):
        params, state = model.params.replace(mu=jnp.broadcast_to(mu, model.params.mu.shape)), start
        if scan:
            tau = jnp.zeros((3, 6))
            return jc.compliant.rollout(model.replace(params=params), state, tau, dt=0.01)[0].q[-1, 0]
        for _ in range(2):
            state, _ = jc.compliant.step(model.replace(params=params), state, jnp.zeros(6), dt=0.01)
        return state.q[0]

    first, mu, h = jax.jit(jax.grad(place)), jnp.array(0.2), 3e-4  # rounding of the first derivative is 1e-15
    truth = (first(mu + h) - first(mu - h)) / (2 * h)
    for second in (jax.jacfwd(jax.grad(place)), jax.grad(jax.grad(place)), jax.grad(jax.jacfwd(place))):
        np.testing.assert_allclose(jax.jit(second)(mu), truth, rtol=1e-6)


PENDULUM = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 1"><joint type="ball"/>
<geom type="sphere" size="0.1"/><body name="foot" pos="0 0 -0.5"><joint axis="0 1 0"/>
<geom type="sphere" size="0.1"/></body></body></worldbody>
<equality><connect body1="foot" anchor="0 0 0"/></equality></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize("max_contacts", [None, 1])
def test_a_gradient_has_few_kinematics_of_each_step(max_contacts):
    """Cosines of the joints' angles in the loops of a gradient: of the steps, and of the way back.

    A step has kinematics at its start, three times in its middle, in the loop of its search, and at its end.
    The way back computes them again, and their derivatives have one more cosine, that of the sines.
    The ball has a gyroscopic force, the loop and the contacts have rows and rates: all need the kinematics.
    """
    pytest.importorskip("mujoco")
    model = jc.load_mjcf(PENDULUM)
    angles = (len(model.structure.tree.joints), 1)

    def lean(v):
        start, controls = model.initial_state().replace(v=v), jnp.zeros((3, model.num_controls))
        states, _ = jc.compliant.rollout(
            model, start, controls, dt=0.01, settings=jc.compliant.Settings(max_contacts=max_contacts)
        )
        return states.q[-1, 0]

    def cosines(jaxpr):
        found = [e for e in equations(jaxpr) if e.primitive.name == "cos"]
        return sum(e.invars[0].aval.shape == angles for e in found)

    program = jax.make_jaxpr(jax.grad(lean))(model.initial_state().v).jaxpr
    loops = [e.params["jaxpr"].jaxpr for e in equations(program) if e.primitive.name == "scan"]
    forward, back = (count for count in map(cosines, loops) if count)
    assert forward <= 6 and back <= 17


def equations(jaxpr):
    """All equations of a program, also of the programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from equations(inner)

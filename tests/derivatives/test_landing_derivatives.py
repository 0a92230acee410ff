"""Derivatives of the outcomes of random landings of robots by state, parameters and draws, beside differences.

Each landing is differentiated along one random direction of everything at once, forward and reverse.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.mechanics.configuration import retract

STEP = 1e-6  # of the differences
SMOOTH = 1e-3  # difference of the two one-sided slopes, relative to 1 + slope, below which a point is no kink
WRONG = 1e-4  # error of a derivative, relative to 1 + slope
LEG = """<body name="thigh{s}" pos="0 {y} 0"><joint axis="1 0 0"/><joint axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.45" size="0.05" mass="5" contype="0" conaffinity="0"/>
<body name="shank{s}" pos="0 0 -0.45"><joint axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04" mass="3" contype="0" conaffinity="0"/>
<body name="foot{s}" pos="0 0 -0.45"><joint axis="1 0 0"/><joint axis="0 1 0"/>
<geom type="box" size="0.1 0.05 0.02" pos="0.03 0 -0.03" mass="1" friction="0.7"/></body></body></body>"""
HUMANOID = f"""<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" friction="0.7"/>
<body name="trunk" pos="0 0 1"><freejoint/>
<geom type="box" size="0.15 0.2 0.3" pos="0 0 0.25" mass="20" contype="0" conaffinity="0"/>
{LEG.format(s="l", y=0.1)}{LEG.format(s="r", y=-0.1)}</body></worldbody></mujoco>"""


@functools.cache
def robot(name):
    """A robot, where it stands, and the numbers of the contacts that land."""
    if name == "half_cheetah":
        model = jc.models.half_cheetah()
        state, _ = jc.place_on_ground(model, model.initial_state(), contacts=["hind_foot", "fore_foot"])
        return model, state, np.flatnonzero(jc.contact_terms(model, state).active)
    if name == "quadruped":
        model = jc.models.quadruped()
        return model, model.initial_state(), np.arange(4)
    model = jc.load_mjcf(HUMANOID, contacts="world")
    state, _ = jc.place_on_ground(model, model.initial_state())
    terms = jc.contact_terms(model, state)
    return model, state, np.flatnonzero(np.asarray(terms.phi) < 1e-3)


def varied(name, point):
    """The terms and the velocity of a landing moved by `point`, with the same contacts touching."""
    model, state, touching = robot(name)
    params = model.params.replace(
        mass=model.params.mass * jnp.exp(point["mass"]), mu=model.params.mu * jnp.exp(point["mu"])
    )
    moved = state.replace(q=retract(model.system, state.q, point["q"]))
    terms = jc.contact_terms(model.replace(params=params), moved).take(touching)
    return terms.replace(phi=jnp.zeros(touching.size), active=jnp.ones(touching.size, bool)), point["v"]


def landing(name, rng, max_steps):
    """A random landing: joints off by up to 0.2 rad, a fall of about 1 m/s, caps for every step."""
    model, _, touching = robot(name)
    nv, spatial = model.structure.num_velocities, model.structure.dim == 3
    v = 0.3 * rng.normal(size=nv)
    v[2 if spatial else 1] -= 1.0
    q = rng.uniform(-0.2, 0.2, nv)
    q[: 6 if spatial else 3] *= 0.2
    return {
        "q": q,
        "v": v,
        "mass": np.zeros(model.params.mass.shape),
        "mu": rng.uniform(-0.7, 0.3, model.params.mu.shape),
        "caps": rng.uniform(0.5, 4.0, (max_steps, touching.size)),
    }


def end_of_orders(name, settings, point):
    """The outcome of the impulse order with these caps."""
    terms, v = varied(name, point)
    picks = jnp.zeros(point["caps"].shape[0])
    v_plus, info = jc.impact.resolve(terms, v, point["caps"], picks, **settings)
    return v_plus, info.status & ~jnp.uint32(int(jc.Status.UNTERMINATED))


def all_solutions(name, sides, point):
    """All solutions of the simultaneous law, one after the other, and zeros after them."""
    terms, v = varied(name, point)
    law = jc.impact.AnitescuPotra(num_directions=sides)
    (values, valid), info = jc.impact.outcomes(terms, v, law)
    return jnp.where(valid[:4, None], values[:4], 0.0).ravel(), info.status + 1000 * jnp.sum(valid).astype(
        jnp.uint32
    )


@functools.cache
def checks(function, name, settings):
    """Value, status, forward and reverse derivative along a direction, and the outcomes on both sides."""
    settings = dict(settings) if isinstance(settings, tuple) else settings

    def along(point, direction, covector):
        f = functools.partial(function, name, settings)
        value, slope, status = jax.jvp(f, (point,), (direction,), has_aux=True)
        pulled = jax.vjp(f, point, has_aux=True)[1](covector)[0]
        dot = sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), pulled, direction)))
        sides = [f(jax.tree.map(lambda x, d, h=h: x + h * d, point, direction)) for h in (STEP, -STEP)]
        return value, slope, dot, status, sides

    return jax.jit(along)


def count_wrong(function, name, settings, number, max_steps, seed=0):
    """Numbers of landings that failed, that lie at a kink, and whose derivative is wrong with status 0."""
    rng = np.random.default_rng(seed)
    along = checks(function, name, settings)
    failed = kinks = wrong = 0
    for _ in range(number):
        point = landing(name, rng, max_steps)
        direction = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), point)
        size = {"half_cheetah": 9, "quadruped": 18}.get(name, 16)
        covector = rng.normal(size=size * (4 if function is all_solutions else 1))
        value, slope, dot, status, ((up, up_status), (down, down_status)) = jax.device_get(
            along(point, direction, covector)
        )
        if status % 1000:
            failed += 1
            continue
        right, left = (up - value) / STEP, (value - down) / STEP
        unit = 1.0 + np.abs(right).max()
        if status != up_status or status != down_status or np.abs(right - left).max() > SMOOTH * unit:
            kinks += 1
            continue
        off = np.abs(slope - (right + left) / 2).max()
        apart = abs(dot - covector @ slope) / (1.0 + np.abs(covector) @ np.abs(slope))
        wrong += bool(off > WRONG * unit or apart > 1e-9 or not np.all(np.isfinite(slope)))
    return failed, kinks, wrong


SPATIAL = (("num_directions", 4), ("selection", "lemke"))
CASES = {
    "half_cheetah": (end_of_orders, (("selection", "all"),), 4, 1000),
    "half_cheetah-outcomes": (all_solutions, 4, 1, 1000),
    "quadruped": (end_of_orders, SPATIAL, 3, 1000),
    "quadruped-outcomes": (all_solutions, 4, 1, 100),
    "humanoid": (end_of_orders, SPATIAL, 2, 1000),
    "humanoid-eight-sides": (end_of_orders, (("num_directions", 8), ("selection", "lemke")), 2, 300),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["half_cheetah", "half_cheetah-outcomes"])
def test_derivatives_of_a_few_landings(name):
    function, settings, max_steps, _ = CASES[name]
    failed, kinks, wrong = count_wrong(function, name.partition("-")[0], settings, 30, max_steps)
    assert wrong == 0 and failed == 0 and kinks <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_many_landings(name):
    function, settings, max_steps, number = CASES[name]
    failed, kinks, wrong = count_wrong(function, name.partition("-")[0], settings, number, max_steps, seed=1)
    assert wrong == 0 and failed <= 0.01 * number and kinks <= 0.05 * number


@pytest.mark.long
def test_a_humanoid_whose_friction_pulls_along_one_corner_of_its_cone():
    """Landing 46: a corner of the foot sticks with friction along one tangent, and goes on to."""
    function, settings, max_steps, _ = CASES["humanoid"]
    rng = np.random.default_rng(1)
    for _ in range(46):
        skipped = landing("humanoid", rng, max_steps)
        jax.tree.map(lambda x: rng.normal(size=np.shape(x)), skipped)
        rng.normal(size=16)
    point = landing("humanoid", rng, max_steps)
    direction = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), point)
    along = checks(function, "humanoid", settings)
    _, slope, _, _, ((up, _), (down, _)) = along(point, direction, rng.normal(size=16))
    np.testing.assert_allclose(slope, (up - down) / (2 * STEP), atol=1e-6)


@pytest.mark.long
def test_a_redundant_contact_at_its_cap_stays_there():
    """Two contacts at one place with different friction: one gives its cap, the other the rest of the load.

    Sliding v_t+ = v_t - (mu_0 lam_0 + mu_1 lam_1) / m with lam_0 + lam_1 = m v_n changes with that cap.
    """
    terms = jc.ContactTerms(
        M=2.0 * jnp.eye(2), J_n=jnp.array([[0.0, 1.0]] * 2), J_t=jnp.array([[[1.0, 0.0]]] * 2),
        phi=jnp.zeros(2), mu=jnp.array([0.1, 0.4]), active=jnp.ones(2, bool),
    )  # fmt: skip
    v, caps = jnp.array([3.0, -1.0]), jnp.array([1.3, 1.1])

    def slide(caps):
        return jc.impact.routh_step(terms, v, caps, selection="lemke")[0][0]

    lam = jc.impact.routh_step(terms, v, caps, selection="lemke")[1].impulse[:, 0]
    capped = np.isclose(lam, caps)
    assert np.sum(capped) == 1
    expected = np.where(capped, -(np.asarray(terms.mu) - np.asarray(terms.mu)[::-1]) / 2.0, 0.0)
    np.testing.assert_allclose(jax.grad(slide)(caps), expected, atol=1e-12)

"""Mechanisms on springs: the hopper's closed form, the plate against forces written by hand, naming of laws."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc
from jaxcontact.ess import DormandPrince, flow, from_system, integrate, pack, unpack
from jaxcontact.models.plate_on_springs import plate_on_springs

FINE = DormandPrince(rtol=1e-10, atol=1e-12)
G = 9.81


@pytest.mark.slow
def test_the_hopper_model_hops_as_in_closed_form():
    model = jc.models.hopper_1d()
    events = from_system(model)
    trajectory = integrate(
        events,
        events.initial_state(),
        0.0,
        2.0,
        settings=jc.ess.Settings(eps=1e-5, ode=FINE, max_steps=2048),
    )
    assert int(trajectory.status) == 0
    rows = int(trajectory.num_rows)
    t, x = np.asarray(trajectory.t[:rows]), np.asarray(trajectory.x[:rows])
    k, m, fall = 1000.0, 1.0, np.sqrt(2.0 / G)
    w, v = np.sqrt(k / m), G * fall
    amplitude, phase = np.hypot(m * G / k, v / w), np.arctan2(v / w, m * G / k)
    stance = 2 * (np.pi - phase) / w
    s = t % (2 * fall + stance)
    u = s - fall
    z = np.where(
        s < fall, 2.0 - 0.5 * G * s**2,
        np.where(
            u < stance, 1.0 - m * G / k + amplitude * np.cos(w * u + phase),
            2.0 - 0.5 * G * (s - 2 * fall - stance) ** 2,
        ),
    )  # fmt: skip
    assert np.abs(x[:, 0] - z).max() < 1e-6
    assert np.array_equal(trajectory.order[: int(trajectory.num_events)], [0, 1, 0, 1])


def plate_by_hand(t, x, places, closed, k, b):
    """The plate's equations as in the paper: force of spring i on (x, z, theta) along the gradient of its gap."""
    q, v = x[:3], x[3:]
    arm, slope = places - q[0], np.tan(q[2])
    gap = q[1] + slope * arm - 1.0
    gradient = np.stack([-slope * np.ones_like(arm), np.ones_like(arm), arm / np.cos(q[2]) ** 2], axis=1)
    force = np.where(closed, -k * gap - b * (gradient @ v), 0.0)
    push = gradient.T @ force
    inertia = 16.0 / 12.0
    return np.concatenate([v, [push[0], push[1] - G, push[2] / inertia]]), gap + b / k * (gradient @ v)


def plate_reference(model, t1):
    """Through touch-downs and lift-offs by SciPy, located by its own root finding."""
    places = np.asarray(model.params.constants["places"])
    k, b = float(model.params.material.stiffness), float(model.params.material.damping)
    n = len(places)
    x, t = np.asarray(pack(model.initial_state())), 0.0
    closed, order = np.zeros(n, bool), []
    while t < t1:
        events = []
        for i in range(n):

            def event(s, y, i=i):
                return plate_by_hand(s, y, places, closed, k, b)[1][i]

            event.terminal, event.direction = True, 1 if closed[i] else -1
            events.append(event)
        found = solve_ivp(
            lambda s, y: plate_by_hand(s, y, places, closed, k, b)[0], (t, t1), x,
            method="DOP853", rtol=1e-12, atol=1e-13, events=events,
        )  # fmt: skip
        x, t = found.y[:, -1], found.t[-1]
        for i, hits in enumerate(found.t_events):
            if len(hits):
                order.append(i + n * int(closed[i]))
                closed[i] ^= True
    return x, order


@pytest.fixture(scope="module")
def plate():
    model = jc.models.plate_on_springs(4)
    return model, from_system(model)


@pytest.mark.slow
def test_the_plate_falls_and_rebounds_as_by_hand(plate):
    model, events = plate
    exact, order = plate_reference(model, 1.0)
    error = []
    for eps in (1e-2, 1e-3):
        x1, info = flow(
            events,
            events.initial_state(),
            0.0,
            1.0,
            settings=jc.ess.Settings(eps=eps, ode=FINE),
        )
        assert int(info.status) == 0
        assert np.array_equal(info.order[: int(info.num_events)], order) and len(order) >= 8
        error.append(np.abs(np.asarray(x1) - exact).max())
    assert error[1] < 5e-6 and error[1] < 2e-3 * error[0]


@pytest.mark.slow
def test_field_and_guards_of_the_plate(plate, rng):
    model, events = plate
    places = np.asarray(model.params.constants["places"])
    for _ in range(5):
        x = np.concatenate([rng.normal(size=2) * [0.1, 0.1] + [0, 1], rng.normal(size=4) * 0.2])
        closed = rng.random(4) < 0.5
        want, reach = plate_by_hand(0.0, x, places, closed, 250.0, 0.5)
        crossed = jnp.asarray(np.concatenate([closed, ~closed]))
        got = events.system.xdot(jnp.array(0.0), jnp.asarray(x), crossed, None, model.params)
        assert np.abs(np.asarray(got) - want).max() < 1e-11
        assert (
            np.abs(
                np.asarray(events.system.guards(jnp.asarray(x), model.params))
                - np.concatenate([-reach, reach])
            ).max()
            < 1e-13
        )


def test_laws_and_states():
    model = jc.models.plate_on_springs(3)
    once, again = from_system(model).system, from_system(plate_on_springs(3)).system
    assert once == again and hash(once) == hash(again)
    x = pack(model.initial_state())
    with pytest.raises(ValueError, match="params.material"):
        from_system(model.replace(params=model.params.replace(material=None)))
    with pytest.raises(TypeError, match="model: expected"):
        from_system(model.system)
    with pytest.raises(TypeError, match=r"model\.system: expected"):
        from_system(from_system(model))
    back = unpack(model, x, 0.5)
    assert np.array_equal(back.q, model.initial_state().q) and float(back.t) == 0.5
    with pytest.raises(ValueError, match="n: expected"):
        plate_on_springs(0)


@pytest.mark.slow
def test_the_plate_through_ess_and_through_compliant_steps_agree(plate):
    model, events = plate
    end, _ = flow(
        events,
        events.initial_state(),
        0.0,
        0.6,
        settings=jc.ess.Settings(eps=1e-6, ode=FINE),
    )
    ends = []
    rest = jnp.zeros((4000, 3))
    for steps in (2000, 4000):  # the coarse one runs on, so that both are one program
        states, info = jc.compliant.rollout(model, model.initial_state(), rest, dt=0.6 / steps)
        assert not np.any(np.asarray(info.status))
        ends.append(np.asarray(pack(states))[steps - 1])
    error = [np.abs(x - np.asarray(end)).max() for x in ends]
    # The compliant step is of first order: half the step, half the difference, and none is left.
    assert 0.48 < error[1] / error[0] < 0.52
    assert error[1] < 0.04
    assert np.abs(2.0 * ends[1] - ends[0] - np.asarray(end)).max() < 1e-3


@pytest.mark.slow
def test_drag_pulls_against_sliding():
    model = jc.models.rocking_block()
    state = model.initial_state().replace(
        q=model.initial_state().q.at[1].add(-0.01), v=jnp.array([0.7, -0.2, 0.1])
    )
    law = jc.compliant.Material(stiffness=1e3, damping=5.0, friction_damping=3.0)
    model = model.replace(params=model.params.replace(material=law))
    terms = jc.contact_terms(model, state)
    closed = jnp.array([True, False])
    crossed = jnp.concatenate([closed, ~closed])
    rates = []
    for drag in (True, False):
        es = from_system(model, drag=drag).system
        rates.append(np.asarray(es.xdot(jnp.array(0.0), pack(state), crossed, None, model.params)))
    J_n, J_t, v = np.asarray(terms.J_n)[0], np.asarray(terms.J_t)[0, 0], np.asarray(state.v)
    gravity = np.array([0.0, -G, 0.0])
    push = J_n * (-1e3 * float(terms.phi[0]) - 5.0 * J_n @ v)
    for rate, pull in zip(rates, (-3.0 * J_t * (J_t @ v), 0.0)):
        want = gravity + np.linalg.solve(np.asarray(terms.M), push + pull)
        assert np.abs(rate - np.concatenate([v, want])).max() < 1e-11
    control = jnp.array([1.0, 0.0, 0.0])
    es = from_system(model).system
    forced = es.xdot(jnp.array(0.0), pack(state), crossed, control, model.params)
    assert abs(float(forced[3]) - rates[1][3] - 1.0) < 1e-12

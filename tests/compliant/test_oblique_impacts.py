"""Impacts of a sphere and of a rod at an angle: those of the rigid law as stiffness grows, and settled in two steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytest.importorskip("mujoco")

FILE = """<mujoco><option gravity="0 0 0"/><default><geom friction="{mu}"/></default><worldbody>
<geom type="plane" size="9 9 1"/><body><freejoint/>
<inertial pos="0 0 0" mass="1" diaginertia="{inertia} {inertia} {axial}"/>{geoms}</body></worldbody></mujoco>"""
RADIUS, HALF, TIP = 0.1, 0.5, 0.01  # m: of the sphere; half the rod's length, and the radius of its ends
ROD = 1.0 / 12.0  # kg m^2
SPHERE = f"<geom type='sphere' size='{RADIUS}'/>"
ENDS = "".join(f"<geom type='sphere' size='{TIP}' pos='0 0 {z}'/>" for z in (-HALF, HALF))


def impacts(text, q, v, stiffnesses, dt, steps=2):
    """Step every impact with springs alone; return the velocities (stiffness, impact, steps, 6)."""
    model = jc.load_mjcf(text)
    start, none = model.initial_state(), np.zeros(6)
    found = np.empty((len(stiffnesses), len(q), steps, 6))
    for place in np.ndindex(found.shape[:2]):
        law = jc.compliant.Material(stiffness=jnp.asarray(stiffnesses[place[0]]), damping=jnp.asarray(0.0))
        struck = model.replace(params=model.params.replace(material=law))
        state = start.replace(q=jnp.asarray(q[place[1]]), v=jnp.asarray(v[place[1]]))
        for k in range(steps):
            state, info = jc.compliant.step(struck, state, none, dt=dt)
            assert int(info.status) == 0
            found[(*place, k)] = state.v
    return found


def rod_impact(angle, v, mu):
    """Compute (v_x, v_z, w) after the rigid inelastic impact of the lower end; None if it changes its mode.

    `angle` is from upright, v = (v_x, v_z, w) before.
    """
    x, z = -HALF * np.sin(angle), -HALF * np.cos(angle) - TIP  # of the contact, from the middle
    rows = np.array([[1.0, 0.0, z], [0.0, 1.0, -x]])
    inverse = np.diag([1.0, 1.0, 1.0 / ROD])
    A, u = rows @ inverse @ rows.T, rows @ v
    sticks = -np.linalg.solve(A, u)
    after = v + inverse @ rows.T @ sticks
    if u[1] > -0.1:
        return None
    if abs(sticks[0]) <= mu * sticks[1]:
        return after
    rub = -mu * np.sign(u[0])
    normal = -u[1] / (A[1, 1] + rub * A[1, 0])
    after = v + inverse @ rows.T @ (normal * np.array([rub, 1.0]))
    return after if normal > 0 and (rows @ after)[0] * u[0] > 0 else None


def rods(count, mu):
    """Draw impacts of the rod: q (n, 7), v (n, 6) and (v_x, v_z, w) after them (n, 3)."""
    draws, found = np.random.default_rng(0), []
    for angle, *v in draws.uniform([-1.2, -2.0, -2.0, -2.0], [1.2, 2.0, -0.2, 2.0], (count, 4)):
        after = rod_impact(angle, np.array(v), mu)
        if after is not None:
            q = [0, 0, HALF * np.cos(angle) + TIP, np.cos(angle / 2), 0, np.sin(angle / 2), 0]
            found.append((q, [v[0], 0, v[1], 0, v[2], 0], after))
    return tuple(np.array(part, float) for part in zip(*found, strict=True))


@pytest.mark.slow_cases("0.3")
@pytest.mark.long
@pytest.mark.parametrize("mu", [0.1, 0.3, 0.6])
def test_a_sphere_is_struck_as_by_the_rigid_law(mu):
    """It slides on by mu times the normal impulse, or rolls off with 5/7 of its speed along the floor."""
    angles = np.radians([10.0, 30.0, 50.0, 70.0])
    q = np.tile([0, 0, RADIUS, 1.0, 0, 0, 0], (4, 1))
    v = 2.0 * np.stack([np.sin(angles), 0 * angles, -np.cos(angles), *np.zeros((3, 4))], 1)
    rub = np.minimum(2.0 / 7.0 * v[:, 0], -mu * v[:, 2])
    right = np.zeros((4, 6))
    right[:, 0], right[:, 4] = v[:, 0] - rub, rub * RADIUS / (0.4 * RADIUS**2)
    text = FILE.format(mu=mu, inertia=0.4 * RADIUS**2, axial=0.4 * RADIUS**2, geoms=SPHERE)
    after = impacts(text, q, v, (1e6, 1e8, 1e10), 1e-3, steps=4)[:, :, -1]
    errors = np.max(np.abs(after - right) * [1, 1, 1, *[RADIUS] * 3], axis=(1, 2)) / 2.0
    assert np.all(np.diff(errors) < 0) and errors[1] < 0.01 and errors[2] < 1e-4, errors


@pytest.mark.long
@pytest.mark.parametrize("mu", [0.1, 0.3, 0.5])
def test_a_rod_is_struck_as_by_the_rigid_law(mu):
    q, v, right = rods(30, mu)
    assert len(q) > 10
    text = FILE.format(mu=mu, inertia=ROD, axial=1e-3, geoms=ENDS)
    after = impacts(text, q, v, (1e10, 1e12, 1e14), 1e-5)[:, :, -1][:, :, [0, 2, 4]]
    errors = np.max(np.linalg.norm(after - right, axis=2) / np.linalg.norm(v, axis=1), axis=1)
    assert np.all(np.diff(errors) < 0) and errors[2] < 1e-3, errors


@pytest.mark.long
def test_the_normal_velocity_is_gone_after_two_long_steps():
    """Stiffness 1e12 N/m and steps of 10 ms, a thousand of the contact's periods."""
    q = np.tile([0, 0, RADIUS, 1.0, 0, 0, 0], (2, 1))
    v = np.array([[0, 0, -2.0, 0, 0, 0], [1.5, 0.4, -1.0, 3, -2, 1]])
    text = FILE.format(mu=0.5, inertia=0.004, axial=0.004, geoms=SPHERE)
    after = impacts(text, q, v, (1e12,), 0.01)[0]
    assert np.all(np.abs(after[:, 1, 2]) < 1e-6 * np.abs(v[:, 2]))

"""Impacts of a mechanism with a closed loop, beside the same mechanism in minimal coordinates.

A floating trunk carries an unequal four-bar with two feet on its coupler. Minimal coordinates are the velocities
s with v = N s, where the columns of N span G v = 0, so mass and contact rows are N^T M N and J N.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxcontact as jc
from jaxcontact.terms import BILATERAL

pytest.importorskip("mujoco")

CONNECT = '<connect body1="rocker" body2="coupler" anchor="-.03 0 -.35"/>'
LEGS = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" friction="{mu}"/>
<body name="trunk" pos="0 0 0.72">{root}<geom type="box" size=".25 .1 .05" mass="4" contype="0" conaffinity="0"/>
  <body name="crank" pos=".2 0 0"><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 .05 0 -.3" size=".02" mass=".8" contype="0" conaffinity="0"/>
    <body name="coupler" pos=".05 0 -.3"><joint axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 -.4 0 -.08" size=".02" mass=".6" contype="0" conaffinity="0"/>
      <geom name="fore" type="sphere" size=".04" pos=".1 0 -.38" mass=".3" friction="{mu}"/>
      <geom name="hind" type="sphere" size=".04" pos="-.5 0 -.38" mass=".5" friction="{mu}"/></body></body>
  <body name="rocker" pos="-.18 0 0"><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 -.03 0 -.35" size=".02" mass=".7" contype="0" conaffinity="0"/></body>
</body></worldbody><equality>{loops}</equality></mujoco>"""
PLANE = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'
LAWS = {
    "AnitescuPotra": jc.impact.AnitescuPotra(num_directions=8),
    "Routh": jc.impact.Routh(impulse_step=0.5, max_steps=60, num_directions=4),
    "Routh with restitution": jc.impact.Routh(
        impulse_step=0.5, max_steps=90, restitution=0.5, num_directions=4
    ),
    "Sequential": jc.impact.Sequential(order=(1, 0)),
    "Newton": jc.impact.Newton(restitution=0.5),
    "Poisson": jc.impact.Poisson(restitution=0.5),
    "Energetic": jc.impact.Energetic(restitution=0.5),
    "Chain": jc.impact.Chain(stiffness=1.0, restitution=0.5, max_steps=1024),
    "Propagative": jc.impact.Propagative(order=(1, 0), restitution=0.5),
    "Plastic": jc.impact.Plastic(),
}
FRICTIONLESS = {"Chain", "Propagative", "Plastic"}


@functools.cache
def landing(planar, mu):
    """The terms of both feet, the velocity before, the rows of the loop, and a basis of velocities that keep it.

    The rows are redundant: in the plane the loop is there twice, in space one of its three rows holds anyway.
    """
    root, loops = (PLANE, 2 * CONNECT) if planar else ("<freejoint/>", CONNECT)
    model = jc.load_mjcf(LEGS.format(mu=mu, root=root, loops=loops), planar=planar)
    state, _ = jc.place_on_ground(model, model.initial_state(), contacts=["fore", "hind"])
    rows = jc.constraint_terms(model, state)
    G = np.asarray(rows.G)[np.asarray(rows.kind) == BILATERAL]
    basis = scipy.linalg.null_space(G, rcond=1e-10)
    rng = np.random.default_rng(3)
    s = rng.normal(size=basis.shape[1])
    v = basis @ s
    v[1 if planar else 2] -= 2.0
    v = basis @ (basis.T @ v)
    terms = jc.contact_terms(model, state)
    assert np.all(terms.active) and terms.phi.shape == (2,)
    return terms, jnp.asarray(v), G, basis


def minimal(terms, v, basis):
    """The same landing in minimal coordinates, with the rows of the feet, which loops do not hold."""
    N = jnp.asarray(basis)
    return terms.replace(M=N.T @ terms.M @ N, J_n=terms.J_n @ N, J_t=terms.J_t @ N), N.T @ v


@pytest.mark.slow
@pytest.mark.parametrize("planar", [True, False], ids=["plane", "space"])
@pytest.mark.parametrize("name", LAWS)
def test_a_law_keeps_a_loop_closed_and_agrees_with_minimal_coordinates(name, planar):
    if name in ("Sequential", "Energetic") and not planar:
        pytest.skip("a law of the plane")
    terms, v, G, basis = landing(planar, 0.0 if name in FRICTIONLESS else 0.6)
    law = jax.jit(lambda terms, v: LAWS[name](terms, v, jax.random.key(1)))
    after, info = law(terms, v)
    reduced, _ = law(*minimal(terms, v, basis))
    assert info.status & ~int(jc.Status.UNTERMINATED) == 0
    np.testing.assert_allclose(G @ after, 0.0, atol=1e-12)
    np.testing.assert_allclose(after, basis @ reduced, atol=1e-12)
    assert np.min(terms.J_n @ after) > -1e-7
    assert np.max(np.abs(after - v)) > 0.1

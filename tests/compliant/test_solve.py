"""The forces of one step against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import LIMIT, NORMAL, TANGENT

GRAVITY = 9.81


def problem(G, phi, M, v, f, kind, law, dt, mu=()):
    """A step by hand, in floats."""
    G = jnp.asarray(G, float)
    terms = jc.ConstraintTerms(
        G=G,
        phi=jnp.asarray(phi, float),
        gdot_v=jnp.zeros(len(G)),
        mu=jnp.asarray(mu, float),
        kind=tuple(kind),
    )
    M, v, f = (jnp.asarray(a, float) for a in (M, v, f))
    return jc.compliant.Problem(M=M, v=v, f=f, terms=terms, material=law, dt=jnp.asarray(dt))


def two_springs(stiffness=1e6):
    """1 kg under 10 N on two parallel springs, one of them far away."""
    law = jc.compliant.Material(stiffness=stiffness)
    return problem(
        [[1.0], [1.0]], [-10.0 / stiffness, 1e3], [[1.0]], [0.0], [-10.0], [LIMIT, LIMIT], law, 0.01
    )


def sliding_mass(gap=0.0, mu=0.25, speed=(1.0, 0.3), stiffness=1e9, dt=0.01):
    """1 kg that slides on the ground."""
    law = jc.compliant.Material(stiffness=stiffness, damping=1.0)
    G = np.eye(3)[[2, 0, 1]]
    push = [0.0, 0.0, -GRAVITY]
    return problem(
        G, [gap, 0.0, 0.0], np.eye(3), [*speed, 0.0], push, [NORMAL, TANGENT, TANGENT], law, dt, [mu]
    )


def test_a_spring_out_of_reach_carries_nothing():
    lam, info = jc.compliant.solve(two_springs())
    np.testing.assert_allclose(lam, [10.0, 0.0], rtol=1e-12)
    assert info.status == 0 and info.num_iters <= 5


@pytest.mark.long
@pytest.mark.parametrize(("cone", "lift"), [("coulomb", 0.0), ("associated", 0.01 * 0.25)])
def test_steady_sliding_has_coulomb_friction_and_the_known_gap(cone, lift):
    """`lift` is h mu: the associated cone rides on a gap of h mu |v_t|, Coulomb's law on none."""
    gap = lift * 1.0
    for _ in range(3):  # the gap adapts to the speed
        settings = jc.compliant.Settings(cone=cone)
        lam, info = jc.compliant.solve(sliding_mass(gap, speed=(1.0, 0.0)), settings=settings)
        gap = float(info.gap[0])
    np.testing.assert_allclose(lam[1:], [-0.25 * lam[0], 0.0], atol=1e-12 * GRAVITY)
    np.testing.assert_allclose(gap, lift * info.slip[0, 0] - lam[0] / 1e9, rtol=1e-6)
    assert info.status == 0


@pytest.mark.slow
@pytest.mark.slow_cases("0.0")
@pytest.mark.parametrize("mu", [0.0, 0.125, 0.25])
def test_a_box_slides_down_an_incline_as_the_closed_form_says(mu):
    model = jc.models.box_on_incline(mu)
    params = model.params.replace(material=jc.compliant.Material(stiffness=1e10, damping=1.0))
    states, infos = jc.compliant.rollout(
        model.replace(params=params), model.initial_state(), jnp.zeros((100, 6)), dt=0.01
    )
    assert not np.any(infos.status)
    travelled = np.linalg.norm(states.q[-1, :3] - model.initial_state().q[:3])
    slope = np.radians(15.0)
    np.testing.assert_allclose(travelled, 0.5 * GRAVITY * (np.sin(slope) - mu * np.cos(slope)), rtol=0.02)

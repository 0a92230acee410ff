"""The derivative of the removal of a drift, beside that of its two passes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.simulate.events.drift import remove_drift, repeat_removal
from jaxcontact.simulate.variational.contact_state import terms_at
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, STICK

BOX = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.6"/>
<body pos="0.1 0.2 0.1" quat="1 0 0 0.3"><freejoint/><geom type="box" size="0.2 0.15 0.1" mass="1"/></body>
</worldbody></mujoco>"""
HELD = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 0.5"><joint name="turn" type="hinge" axis="0 1 0" range="-1 1" limited="true" frictionloss="0.1"/>
<geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.02" mass="1"/>
<body pos="0.4 0 0"><joint name="fold" type="hinge" axis="0 1 0"/><geom type="sphere" size="0.1" mass="0.5"/></body></body>
</worldbody><equality><joint joint1="turn" joint2="fold" polycoef="0.1 -0.5 0 0 0"/></equality></mujoco>"""


def random_tangents(rng, tree):
    def draw(x):
        real = jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)
        return rng.normal(size=jnp.shape(x)) if real else np.zeros(jnp.shape(x), jax.dtypes.float0)

    return jax.tree.map(draw, tree)


@pytest.mark.long
@pytest.mark.parametrize(("text", "kinds"), [(BOX, (STICK, SLIDE, SEPARATE)), (HELD, (SLIDE, STICK))])
def test_a_removal_is_differentiated_where_nothing_drifts(rng, text, kinds):
    """All kinds of rest; loops and joints that rub; the derivative is that of both passes, forward and reverse."""
    model = jc.load_mjcf(text)
    state = model.initial_state().replace(t=jnp.zeros(()))
    state = state.replace(v=jnp.asarray(0.1 * rng.normal(size=state.v.shape)))
    terms = terms_at(model, state.q, state.t)
    kind = jnp.where(terms.phi < 1e-9, np.resize(kinds, terms.phi.shape), SEPARATE).astype(jnp.int32)
    for _ in range(2):
        state, _ = jax.jit(remove_drift)(model, state, kind)

    def both(function, params, state):
        out, moves = jax.jvp(lambda p, s: function(model.replace(params=p), s, kind), (params, state), change)
        return out, moves

    change = random_tangents(rng, (model.params, state))
    found, expected = (
        jax.tree.leaves(jax.jit(lambda p, s, f=f: both(f, p, s))(model.params, state))
        for f in (repeat_removal, remove_drift)
    )
    for x, y in zip(found, expected, strict=True):
        if jnp.issubdtype(y.dtype, jnp.inexact):
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-8)

    def total(function, params, state):
        after, terms = function(model.replace(params=params), state, kind)
        return sum(jnp.sum(jnp.sin(x)) for x in (after.q, after.v, terms.M, terms.J_n, terms.J_t, terms.phi))

    slopes = [
        jax.jit(jax.grad(lambda s, f=f: total(f, model.params, s)))(state)
        for f in (repeat_removal, remove_drift)
    ]
    for x, y in zip(*(jax.tree.leaves(s) for s in slopes), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-8)

"""Rows of a tree's contacts as wrenches, against the dense rows that they stand for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.algebra import tree_rows
from jaxcontact.solvers import cone_program
from jaxcontact.solvers.cone_program import ConeProgram, Response
from jaxcontact.terms import nearest_terms


def leg(name, side):
    return f"""<body name="{name}" pos="0 {0.1 * side} -.1"><joint type="hinge" axis="1 0 0"/><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".05"/><body pos="0 0 -.35"><joint axis="0 1 0"/>
    <geom type="sphere" size=".06" pos="0 0 0"/><geom type="sphere" size=".06" pos=".1 0 0"/></body></body>"""


def file_of(condim):
    """A walker whose legs may touch each other, a ball beside it, and a floor."""
    return f"""<mujoco><default><geom condim="{condim}" friction=".8 .02 .01"/></default><worldbody>
    <geom type="plane" size="5 5 1"/><body pos="0 0 .5"><freejoint/><geom type="sphere" size=".1"/>
    {leg("left", 1)}{leg("right", -1)}</body>
    <body pos=".3 0 .1"><freejoint/><geom type="sphere" size=".1"/></body></worldbody></mujoco>"""


def posed(model, seed):
    rng = np.random.default_rng(seed)
    state = model.initial_state()
    q = np.array(state.q)
    q[2] = rng.uniform(0.3, 0.5)
    q[7:13] += rng.uniform(-0.5, 0.5, 6)
    return state.replace(q=jnp.asarray(q), v=jnp.asarray(rng.normal(size=state.v.size)))


@pytest.mark.slow_cases("3")
@pytest.mark.long
@pytest.mark.float32
@pytest.mark.parametrize("condim", [3, 4, 6])
def test_the_hessian_is_that_of_the_dense_rows(condim):
    model = jc.load_mjcf(file_of(condim))
    axes = condim
    seen = {"alone": 0, "pairs": 0}
    for seed in range(6):
        terms, nearest = nearest_terms(model, posed(model, seed), 9)
        rows = nearest.tree_rows
        G = np.asarray(terms.G)[-9 * axes :].reshape(9, axes, -1)
        rng = np.random.default_rng(seed)
        S = rng.normal(size=(9, axes, axes)) * (rng.random(9) < 0.7)[:, None, None]
        alone = ~np.asarray(rows.pair)
        seen["alone"] += alone.sum()
        seen["pairs"] += (~alone).sum()
        expected = np.einsum("kai,kab,kbj->ij", G[alone], S[alone], G[alone])
        block = [[jnp.asarray(S[:, a, b], G.dtype) for b in range(axes)] for a in range(axes)]
        nv = G.shape[2]
        found = jax.jit(tree_rows.add_contacts)(jnp.eye(nv, dtype=G.dtype), rows, block)
        digits = 1e-12 if G.dtype == np.float64 else 2e-5
        np.testing.assert_allclose(found, np.eye(nv) + expected, atol=digits * np.abs(expected).max())
    assert seen["pairs"] > 3 and seen["alone"] > 20


@pytest.mark.long
def test_a_contact_without_a_push_costs_no_group():
    """Groups that do not push are left out: numbers of their wrenches do not count, not even NaN."""
    model = jc.load_mjcf(file_of(3))
    _, nearest = nearest_terms(model, posed(model, 0), 9)
    rows = nearest.tree_rows.replace(wrench=nearest.tree_rows.wrench.at[4:8].set(jnp.nan))
    pushes = jnp.asarray(np.isin(np.arange(9), [0, 2, 8]), float)
    block = [[pushes if a == b else jnp.zeros(9) for b in range(3)] for a in range(3)]
    assert jnp.all(jnp.isfinite(tree_rows.add_contacts(jnp.zeros((18, 18)), rows, block)))


@pytest.mark.slow
@pytest.mark.parametrize("condim", [3, 6])
def test_a_step_is_the_same_in_lanes(condim):
    """A walker that falls on its feet, legs crossed or not, and a ball: by machine code and by XLA."""
    model = jc.load_mjcf(file_of(condim))
    settings = jc.compliant.Settings(max_contacts=9)

    def step(q, v):
        state = model.initial_state().replace(q=q, v=v)
        controls = jnp.zeros(model.num_controls)
        after, info = jc.compliant.step(model, state, controls, dt=0.005, settings=settings)
        return after.v, info.status, jnp.sum(info.lam != 0)

    states = [posed(model, seed) for seed in range(24)]
    q, v = (np.stack([np.asarray(getattr(state, name)) for state in states]) for name in ("q", "v"))
    found, status, touching = jc.simd(step, nan=False)(q, v)
    expected, of_batch, _ = jax.jit(jax.vmap(step))(q, v)
    np.testing.assert_array_equal(status, of_batch)
    assert np.sum(status == 0) > 20 and np.max(touching) >= 8
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.long
def test_factors_solve_the_system_of_the_dense_rows():
    """Contacts of the tree, of its two legs and of the ball, with a matrix S that is not symmetric."""
    model = jc.load_mjcf(file_of(3))
    pushes = np.random.default_rng(0).random((40, 9)) < 0.7

    def solve(q, pushes, rhs, by_tree):
        terms, nearest = nearest_terms(model, model.initial_state().replace(q=q), 9)
        nv = terms.G.shape[1]
        S = 5.0 * jnp.eye(3) + jnp.arange(9.0).reshape(3, 3) / 9
        block = [[S[a, b] * pushes for b in range(3)] for a in range(3)]
        columns = terms.G[-27:].reshape(9, 3, nv).transpose(2, 1, 0).reshape(nv, 27)
        zeros = jnp.zeros(27)
        fields = {field.name: None for field in dataclasses.fields(ConeProgram)}
        fields |= {"M": 2.0 * jnp.eye(nv), "columns": columns, "num_equalities": 0, "num_limits": 0}
        fields |= {"limits_apart": False, "pyramid": False, "coulomb": True, "v": rhs, "push": rhs}
        fields |= {"offset": zeros, "slope": zeros, "keep": zeros, "mu": zeros[:9]}
        program = ConeProgram(**{**fields, "tree_rows": nearest.tree_rows if by_tree else None})
        factor = cone_program.factor(program, Response(zeros, zeros, zeros[:0], block, zeros))
        return cone_program.branch_factor.solve_factored(factor, rhs)

    states = [posed(model, seed) for seed in range(40)]
    q = np.stack([np.asarray(state.q) for state in states])
    rhs = np.random.default_rng(1).normal(size=(40, 18))
    batch = q, pushes.astype(float), rhs
    found = jc.simd(lambda *world: solve(*world, True), nan=False)(*batch)
    expected = jax.jit(jax.vmap(lambda *world: solve(*world, False)))(*batch)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())

"""Loops of static length (`early_exit=False`) do what the loops that end early do, and have the same derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers import mode_choice
from jaxcontact.solvers.cone_newton import solve_cone_program
from jaxcontact.solvers.cone_program import ConeProgram
from tests.oracles import problems


def same(found, want):
    """Values and status to 1e-12 of their size."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
        elif b.size:
            finite = np.isfinite(b)
            np.testing.assert_array_equal(np.isfinite(a), finite)
            size = np.max(np.abs(b[finite]), initial=1.0)
            assert np.max(np.abs(a[finite] - b[finite]), initial=0.0) <= 1e-12 * size


@pytest.mark.parametrize("early_exit", [True, False])
def test_a_bounded_loop_ends_at_its_condition_or_its_limit(early_exit):
    loop = functools.partial(
        bounded_loop, lambda x: x[0] < 7, lambda x: (x[0] + 1, x[1] * 2.0), early_exit=early_exit
    )
    start = (jnp.int32(0), jnp.float64(1.0))
    assert (
        loop(start, max_iters=9)[1] == 2.0**7
        and loop((jnp.int32(9), jnp.float64(3.0)), max_iters=9)[1] == 3.0
    )
    assert bounded_loop(lambda x: True, lambda x: x + 1, jnp.int32(0), max_iters=4, early_exit=False) == 4


def test_a_bounded_loop_of_static_length_has_a_reverse_mode():
    def power(x):
        return bounded_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x), max_iters=5, early_exit=False
        )[1]

    assert jax.grad(power)(2.0) == 4 * 2.0**3


@pytest.mark.slow_cases("0", "1")
@pytest.mark.parametrize("retries", [0, 1])
def test_lemke(retries):
    rng = np.random.default_rng(7)
    contacts = problems.stack([problems.random_contacts(rng, 2) for _ in range(40)])
    W, w = problems.impact_step_lcp(contacts, 10.0 ** rng.uniform(-2, 2, (40, 1)) * np.ones((1, 2)))
    W, w = np.asarray(W), np.asarray(w)
    W[3, 0, 0] = np.nan
    W[5], w[5] = -np.eye(len(w[5])), -1.0  # a ray

    @functools.partial(jax.jit, static_argnums=0)
    def solve(early_exit, W, w):
        solver = jc.Lemke(early_exit=early_exit, retries=retries, max_pivots=40)
        return jax.vmap(functools.partial(jc.solve_lcp, solver=solver))(W, w)

    want = solve(True, W, w)
    same(solve(False, W, w), want)
    assert np.ptp(np.asarray(want[1].num_iters)) > 4 and want[1].status[5] == int(jc.Status.RAY)
    kept = jnp.delete(jnp.arange(40), jnp.array([3, 5]))
    slopes = [
        jax.jit(jax.grad(lambda w, e=e: jnp.sum(solve(e, W[kept], w)[0] ** 2)))(jnp.asarray(w)[kept])
        for e in (False, True)
    ]
    same(*slopes)


@pytest.mark.slow_cases("False", "True")
@pytest.mark.parametrize("batched", [False, True])
def test_the_cone_program(batched):
    """Two contacts with friction on a body, slopes from soft to stiff; some do not converge in time."""
    rng = np.random.default_rng(3)
    columns, mass = rng.normal(size=(3, 6)), problems.random_spd(rng, 3)
    slope = jnp.asarray(10.0 ** rng.uniform(-1, 5, (9, 6)))
    v = jnp.asarray(rng.normal(size=(9, 3)))

    def solve(v, slope, early_exit):
        program = ConeProgram(
            M=jnp.asarray(mass),
            v=v,
            push=jnp.zeros(3),
            columns=jnp.asarray(columns),
            offset=0.1 * slope,
            slope=slope,
            keep=jnp.full(6, 0.9),
            mu=jnp.array([0.3, 0.8]),
        )
        return solve_cone_program(program, jnp.zeros(6), 25, early_exit)

    given = (v, slope) if batched else (v[0], slope[0])
    found, want = (
        jax.jit((jax.vmap if batched else lambda f: f)(functools.partial(solve, early_exit=e)))(*given)
        for e in (False, True)
    )
    same(found, want)
    assert not batched or (np.ptp(np.asarray(want.iterations)) >= 2 and np.any(want.converged))


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["associated", "coulomb"])
def test_steps(cone):
    """Steps of a box on an incline, with their gradient."""
    model = jc.models.box_on_incline(0.25)
    rng = np.random.default_rng(2)
    v = jnp.asarray(rng.normal(size=(5, 6)) * rng.choice([0.0, 0.1, 3.0], (5, 1)))

    def step(v, early_exit):
        solver = jc.compliant.Newton(max_iters=25, early_exit=early_exit)
        start = model.initial_state().replace(v=v)
        state, info = jc.compliant.step(
            model, start, jnp.zeros(6), dt=0.01, settings=jc.compliant.Settings(cone=cone, solver=solver)
        )
        return jnp.sum(state.v**2), (state.v, info.lam, info.status, info.num_iters)

    found, want = (
        jax.jit(jax.vmap(jax.value_and_grad(functools.partial(step, early_exit=e), has_aux=True)))(v)
        for e in (False, True)
    )
    same(found, want)
    assert not np.any(want[0][1][2])


@pytest.mark.slow_cases("compass_gait-all", "compass_gait-lemke")
@pytest.mark.parametrize(("name", "selection"), [("compass_gait", "all"), ("compass_gait", "lemke")])
def test_resolve(name, selection):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    rng = np.random.default_rng(4)
    caps, picks = jnp.asarray(0.25 * rng.uniform(size=(6, 4, 2))), jnp.asarray(rng.uniform(size=(6, 4)))

    @functools.partial(jax.jit, static_argnums=0)
    def resolve(early_exit, v):
        law = functools.partial(jc.impact.resolve, terms, v, selection=selection, early_exit=early_exit)
        return jax.vmap(law)(caps, picks)

    same(resolve(False, model.initial_state().v), resolve(True, model.initial_state().v))
    slopes = [
        jax.jit(jax.grad(lambda v, e=e: jnp.sum(resolve(e, v)[0] ** 2)))(model.initial_state().v)
        for e in (False, True)
    ]
    same(*slopes)


@pytest.mark.long
def test_the_choice_among_many_outcomes(rng):
    """Sorting finds the outcomes that sweeps find, with ties, chains of near ties, and none at all."""
    number, lanes = 30, 64
    score = rng.integers(0, 12, (number, lanes)) + rng.choice([0.0, 3e-9, 8e-9, 2e-8], (number, lanes))
    valid = rng.random((number, lanes)) < rng.choice([0.0, 0.1, 0.5, 1.0], lanes)[None]
    given = (jnp.asarray(valid), jnp.asarray(score), jnp.asarray(rng.random(lanes)), jnp.ones(lanes))
    mode, count = mode_choice.choose(*given)
    same(mode_choice.choose(*given, early_exit=False), (mode, count))
    assert count.max() > 9 and count.min() == 0 and np.all((mode == number) == (count == 0))

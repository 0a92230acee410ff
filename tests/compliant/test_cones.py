"""Where the cones and formulations part, and what is not accepted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compliant.test_solve import GRAVITY, problem, sliding_mass, two_springs

import jaxcontact as jc
from jaxcontact.terms import NORMAL, TANGENT


@pytest.mark.long
def test_the_printed_program_shares_the_load_with_a_spring_out_of_reach():
    lam, _ = jc.compliant.solve(two_springs(1e12), settings=jc.compliant.Settings(formulation="min_norm"))
    np.testing.assert_allclose(lam, [5.0, 5.0], rtol=1e-3)


@pytest.mark.slow
def test_a_sliding_mass_weighs_many_times_its_weight_in_the_printed_cone_program():
    found = sliding_mass(speed=(1.0, 0.0))
    exact, info = jc.compliant.solve(found, settings=jc.compliant.Settings(cone="coulomb"))
    np.testing.assert_allclose(exact, [GRAVITY, -0.25 * GRAVITY, 0.0], rtol=2e-5, atol=1e-12)
    assert info.status == 0 and abs(info.gap[0]) < 1e-7  # no gap of h mu |v_t|
    for speed, weights in (((1.0, 0.0), 40.8), ((1.0, 0.3), 42.6)):
        printed, _ = jc.compliant.solve(
            sliding_mass(speed=speed), settings=jc.compliant.Settings(cone="coupled", formulation="min_norm")
        )
        np.testing.assert_allclose(printed[0], weights * GRAVITY, rtol=2e-3)


@pytest.mark.slow
def test_pyramid_equals_cone_along_an_axis_and_lets_more_through_between():
    along = sliding_mass(0.0025, speed=(1.0, 0.0))
    for cone in ("associated", "pyramid"):
        lam, _ = jc.compliant.solve(along, settings=jc.compliant.Settings(cone=cone))
        np.testing.assert_allclose(-lam[1] / lam[0], 0.25, rtol=1e-10)
    across = sliding_mass(0.0025, speed=(1.0, 1.0))
    lam, _ = jc.compliant.solve(across, settings=jc.compliant.Settings(cone="pyramid"))
    np.testing.assert_allclose(-lam[1:] / lam[0], [0.25, 0.25], rtol=1e-10)


@pytest.mark.parametrize(
    ("cone", "formulation"),
    [
        ("coupled", "complementary"), ("associated", "min_norm"), ("coulomb", "min_norm"),
        ("pyramid", "min_norm"), ("round", "complementary"), ("associated", "maximal"),
    ],
)  # fmt: skip
def test_combinations_without_sense_are_named(cone, formulation):
    with pytest.raises(ValueError, match="cone|formulation"):
        jc.compliant.solve(sliding_mass(), settings=jc.compliant.Settings(cone=cone, formulation=formulation))


@pytest.mark.long
def test_bad_shapes_rows_and_numbers_are_named():
    good = sliding_mass()
    with pytest.raises(ValueError, match="warm_start"):
        jc.compliant.solve(good, jnp.zeros(2))
    with pytest.raises(ValueError, match="kind"):
        jc.compliant.solve(good.replace(terms=good.terms.replace(kind=(TANGENT, NORMAL, TANGENT))))
    with pytest.raises(ValueError, match=r"material\.stiffness"):
        jc.compliant.solve(good.replace(material=good.material.replace(stiffness=jnp.ones(3))))
    with pytest.raises(ValueError, match="stiffness: expected a finite number >= 0, got -1.0"):
        good.material.replace(stiffness=-1.0)
    traced = jax.jit(
        lambda k: jc.compliant.solve(good.replace(material=good.material.replace(stiffness=k)))[1]
    )
    info = traced(-1.0)
    assert info.status & jc.Status.INVALID
    _, info = jc.compliant.solve(good.replace(v=good.v * jnp.nan))
    assert info.status & jc.Status.NONFINITE


@pytest.mark.slow
def test_forces_are_recovered_from_motion():
    model = jc.models.box_on_incline(0.25)
    tau = jnp.zeros((20, 6))
    states, infos = jc.compliant.rollout(model, model.initial_state(), tau, dt=0.01)
    states = (
        jnp.concatenate([model.initial_state().q[None], states.q]),
        jnp.concatenate([model.initial_state().v[None], states.v]),
    )
    states = model.initial_state().replace(q=states[0], v=states[1], t=jnp.arange(21) * 0.01)
    lam, left = jc.compliant.estimate_forces(model, states, tau, dt=0.01)
    assert np.max(np.abs(left)) < 1e-5 * GRAVITY
    np.testing.assert_allclose(lam.sum(axis=1), infos.lam.sum(axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match=r"tau: expected shape \(20, 6\)"):
        jc.compliant.estimate_forces(model, states, tau[1:], dt=0.01)


@pytest.mark.slow
def test_coulomb_is_solved_where_fixed_points_do_not_attract():
    """Two contacts with friction 2 in three directions: sweeps of bounds and convex problems cycle on the last."""
    rng = np.random.default_rng(5)
    law = jc.compliant.Material(stiffness=1e8, damping=1.0)
    for _ in range(8):
        G = rng.normal(size=(6, 3))
        found = problem(
            G, [1e-3, 0.0, 0.0, -1e-3, 0.0, 0.0], np.eye(3), rng.normal(size=3), rng.normal(size=3),
            [NORMAL, TANGENT, TANGENT] * 2, law, 0.01, [2.0, 2.0],
        )  # fmt: skip
        lam, info = jc.compliant.solve(found, settings=jc.compliant.Settings(cone="coulomb"))
        scale = np.max(np.abs(lam))
        assert info.status == 0
        assert max(info.signorini, info.dissipation, info.cone) <= 1e-7 * scale


@pytest.mark.slow
def test_the_first_printed_cone_program_of_a_box_is_solved_at_any_friction_damping():
    """A box on four feet, redundant: its normal matrix weighs 1e13 where friction is stiff."""
    model = jc.models.box_on_incline(0.25)

    @jax.jit
    @jax.vmap
    def landed(friction_damping):
        law = jc.compliant.Material(stiffness=1e6, damping=1e2, friction_damping=friction_damping)
        params, state = model.params.replace(material=law), model.initial_state()
        _, info = jc.compliant.step(
            model.replace(params=params),
            state,
            jnp.zeros(6),
            dt=0.01,
            settings=jc.compliant.Settings(cone="coupled", formulation="min_norm"),
        )
        return info.status, jnp.sum(info.lam[0::3])

    status, normal = landed(jnp.array([1e2, 1e4, 1e5, 1e6, 1e8, 1e12, 5e13, 1e14]))
    np.testing.assert_array_equal(status, [0] * 6 + [jc.Status.MAX_ITERS] * 2)  # round-off decides these
    assert np.all(np.diff(normal[:5]) > 0)  # a larger normal force makes the violation of stiction cheaper
    np.testing.assert_allclose(normal[5], normal[4], rtol=1e-5)

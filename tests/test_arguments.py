"""Arguments of the wrong kind: an error that names the argument, what was expected and what came."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw

import jaxcontact as jc
from jaxcontact import compliant, impact, models, optimize, stability

DRAWING = {"impulse_step": 0.25, "max_steps": 5, "num_samples": 8}


@pytest.fixture(scope="module")
def given():
    """A model, its terms and velocity, and a sample of its outcomes."""
    model = models.compass_gait()
    terms = jc.contact_terms(model, model.initial_state())
    v = model.initial_state().v
    samples = impact.ImpactSamples(
        v_minus=v, v_plus=v[None], impulse=jnp.zeros((1, 2, 2)), status=jnp.zeros(1, jnp.uint32),
        num_iters=jnp.ones(1, jnp.int32), energy_ratio=jnp.ones(1), residual=jnp.zeros(1), independent=True,
    )  # fmt: skip
    return model, terms, v, samples


TERMS = "terms: expected ContactTerms, got Model; make them with contact_terms(model, state)"
SAMPLES = "samples: expected ImpactSamples, got ContactTerms; draw them with sample"
HUGE = {4: 1e20, 8: 1e160}  # m/s, of single and double precision
CUBE = models.tossed_cube()
BIPED = stability.PlanarBiped(alpha=0.2, h=1.0, L1=-0.5, L2=0.5, mu1=0.6, mu2=0.6)


START = stability.Motion(
    v=jnp.ones(3), gaps=jnp.ones(2), closed=jnp.zeros(2, bool), sticks=jnp.zeros(2, bool),
    log_size=jnp.zeros(()), events=jnp.int32(0), outcome=jnp.int32(0),
)  # fmt: skip


def rows(state, count):
    return jax.tree.map(lambda x: jnp.stack([x] * count), state)


def boxed(corners):
    box = jc.Box(name="box", body="a", size="size", corners=corners)
    return jc.Structure(dim=2, bodies=("a",), num_positions=3, shapes=(box,))


SEQUENCE = "order: expected a sequence of integers, got "
ORDER = "expected (model, state)"
MISTAKES = {
    "a model for terms": (lambda m, t, v, s: draw(m, v, **DRAWING), TypeError, TERMS),
    "no device": (
        lambda m, t, v, s: draw(t, v, devices=[], **DRAWING), ValueError,
        "devices: expected JAX devices, at least one, got []"),
    "a number to reduce with": (
        lambda m, t, v, s: draw(t, v, reduce=3, **DRAWING), TypeError,
        "reduce: expected a function or Reduction, got 3"),
    "terms for a problem": (
        lambda m, t, v, s: compliant.solve(t), TypeError, "problem: expected Problem, got ContactTerms"),
    "a law of a model": (lambda m, t, v, s: impact.anitescu_potra(m, v), TypeError, TERMS),
    "an order of a model": (lambda m, t, v, s: impact.unique_order(m), TypeError, TERMS),
    "terms for samples": (lambda m, t, v, s: impact.contains(t, v), TypeError, SAMPLES),
    "coverage of terms": (lambda m, t, v, s: impact.coverage(t), TypeError, SAMPLES),
    "images of terms": (lambda m, t, v, s: impact.mirrored(t, t, m.symmetry), TypeError, SAMPLES),
    "no symmetry": (lambda m, t, v, s: impact.mirrored(s, t, None), TypeError, "symmetry: expected Symmetry, got None"),
    "a metric of a model": (lambda m, t, v, s: impact.contains(s, v, terms=m), TypeError, TERMS),
    "a word for a velocity": (
        lambda m, t, v, s: impact.contains(s, "v"), TypeError, "v_measured: expected a number, got 'v'"),
    "a word for a distance": (
        lambda m, t, v, s: impact.contains(s, v, tolerance="1"), TypeError, "tolerance: expected a number, got '1'"),
    "a negative distance": (
        lambda m, t, v, s: impact.contains(s, v, tolerance=-1.0), ValueError,
        "tolerance: expected a finite number >= 0, got -1.0"),
    "a list for a direction": (
        lambda m, t, v, s: impact.extreme(t, v, impact.Routh(impulse_step=1.0, max_steps=2), [1.0, 0, 0, 0]),
        TypeError,
        "direction: expected an array, got list"),
    "a contact for an order": (
        lambda m, t, v, s: impact.sequential(t, v, order=0, max_impacts=2), TypeError, SEQUENCE + "0"),
    "a word for an order": (
        lambda m, t, v, s: impact.sequential(t, v, order="01", max_impacts=2), TypeError, SEQUENCE + "'01'"),
    "no orders": (
        lambda m, t, v, s: impact.indeterminacy(t, v, orders=0), TypeError, "orders: expected a sequence of sequences of integers, got 0"),
    "one order for several": (
        lambda m, t, v, s: impact.indeterminacy(t, v, orders=(0, 1)), TypeError,
        "orders: expected a sequence of sequences of integers, got (0, 1)"),
    "state first": (
        lambda m, t, v, s: jc.contact_terms(m.initial_state(), m), TypeError, "model: expected Model, got State"),
    "params for a state": (
        lambda m, t, v, s: jc.contact_terms(m, m.params), TypeError, f"state: expected State, got Params; {ORDER}"),
    "state for params": (
        lambda m, t, v, s: jc.contact_terms(m.replace(params=m.initial_state()), m.initial_state()), TypeError,
        "model.params: expected Params, got State"),
    "rows of a system": (
        lambda m, t, v, s: jc.constraint_terms(m.system, m.initial_state()), TypeError,
        "model: expected Model, got System; make one of a System by Model(system=..., params=...)"),
    "forces of params": (
        lambda m, t, v, s: jc.bias(m.params, m.initial_state()), TypeError, "model: expected Model, got Params"),
    "masses in another order": (
        lambda m, t, v, s: jc.mass_matrix(v, m), TypeError, "model: expected Model, got "),
    "a step of an event-selected model": (
        lambda m, t, v, s: compliant.step(models.affine_3d(), m.initial_state(), v, dt=0.1), TypeError,
        "model.system: expected System, got EventSystem"),
    "a step without forces": (
        lambda m, t, v, s: compliant.step(m, m.initial_state(), None, dt=0.1), TypeError,
        "controls: expected an array, got NoneType"),
    "forces of another size": (
        lambda m, t, v, s: compliant.step(m, m.initial_state(), v[:3], dt=0.1), ValueError,
        "controls: expected shape (4,), got (3,)"),
    "a word for a time": (
        lambda m, t, v, s: compliant.step(m, m.initial_state(), v, dt="1"), TypeError,
        "dt: expected a number, got '1'"),
    "a word for a solver": (
        lambda m, t, v, s: compliant.rollout(m, m.initial_state(), v[None], dt=0.1, settings=compliant.Settings(solver="Newton")), TypeError,
        "solver: expected Newton, got 'Newton'"),
    "controls of one step": (
        lambda m, t, v, s: compliant.rollout(m, m.initial_state(), v, dt=0.1), ValueError,
        "controls: expected shape (T, 4), got (4,)"),
    "a potential without a spring": (
        lambda m, t, v, s: compliant.step(
            (box := models.box_on_incline()), box.initial_state(), jnp.zeros(6), dt=0.1, settings=compliant.Settings(cone="coupled", formulation="min_norm")), ValueError, "formulation: 'min_norm' has springs and dampers only"),
    "a word for a stiffness": (
        lambda m, t, v, s: impact.kelvin_voigt(m, m.initial_state(), "1", 5.0), TypeError,
        "stiffness: expected a number or an array, got '1'"),
    "a word for friction": (
        lambda m, t, v, s: models.box_on_incline("0.2"), TypeError, "mu: expected a number, got '0.2'"),
    "friction that is none": (
        lambda m, t, v, s: models.box_on_incline(float("nan")), ValueError, "mu: expected finite numbers, got NaN or inf"),
    "negative friction": (
        lambda m, t, v, s: models.box_on_incline(-1.0), ValueError, "mu: expected a finite number >= 0, got -1.0"),
    "a word for a count": (
        lambda m, t, v, s: models.box_on_foundation("100"), ValueError, "num_elements: expected an integer >= 1, got '100'"),
    "half a sphere": (
        lambda m, t, v, s: models.sphere_stack(2.5), ValueError, "n: expected an integer >= 1, got 2.5"),
    "a word for a mass": (
        lambda m, t, v, s: models.disk_stack(mass="1"), TypeError, "mass: expected a number, got '1'"),
    "no mass": (
        lambda m, t, v, s: models.disk_stack(mass=0.0), ValueError, "mass: expected a finite number > 0, got 0.0"),
    "a ball of any mass": (
        lambda m, t, v, s: models.swinging_cradle((1.0, float("inf"))), ValueError, "masses: expected finite numbers"),
    "no swing": (
        lambda m, t, v, s: models.swinging_cradle(frequency=float("nan")), ValueError,
        "frequency: expected finite numbers"),
    "a drop from below": (
        lambda m, t, v, s: models.trex_drop((x := models.trex()).params, x.initial_state().q, height=-0.1), ValueError,
        "height: expected a finite number >= 0, got -0.1"),
    "no time": (
        lambda m, t, v, s: compliant.step(m, m.initial_state(), v, dt=0.0), ValueError,
        "dt: expected a finite number > 0, got 0.0"),
    "time backwards": (
        lambda m, t, v, s: compliant.rollout(m, m.initial_state(), v[None], dt=-0.1), ValueError,
        "dt: expected a finite number > 0, got -0.1"),
    "no search": (
        lambda m, t, v, s: compliant.Newton(max_iters=0), ValueError, "max_iters: expected an integer >= 1, got 0"),
    "half a step of a search": (
        lambda m, t, v, s: compliant.Newton(max_iters=2.5), ValueError, "max_iters: expected an integer >= 1, got 2.5"),
    "forces in no time": (
        lambda m, t, v, s: compliant.estimate_forces(m, rows(m.initial_state(), 2), v[None], dt=0.0), ValueError,
        "dt: expected a finite number > 0, got 0.0"),
    "forces within any reach": (
        lambda m, t, v, s: compliant.estimate_forces(
            m, rows(m.initial_state(), 2), v[None], dt=0.1, reach=float("nan")), ValueError,
        "reach: expected finite numbers, got NaN or inf"),
    "an energy that overflows": (
        lambda m, t, v, s: impact.anitescu_potra(t, v * HUGE[v.dtype.itemsize]), ValueError,
        "v: its kinetic energy leaves the range of float"),
    "an energy that overflows, sampled": (
        lambda m, t, v, s: draw(t, v * HUGE[v.dtype.itemsize], **DRAWING), ValueError,
        "v: its kinetic energy leaves the range of float"),
    "no normal": (
        lambda m, t, v, s: impact.reset_map(t.M, jnp.zeros_like(v)), ValueError,
        "u: expected finite numbers, not all zero, got [0. 0. 0. 0.]"),
    "a normal that is none": (
        lambda m, t, v, s: impact.reset_map(t.M, v * jnp.nan), ValueError, "u: expected finite numbers, not all zero"),
    "a reflection without mass": (
        lambda m, t, v, s: impact.reset_map(jnp.zeros_like(t.M), v), ValueError,
        "M: the mass matrix must be positive definite"),
    "a list for a normal": (
        lambda m, t, v, s: impact.reset_map(t.M, [1.0, 0, 0, 0]), TypeError, "u: expected an array, got list"),
    "no pose": (
        lambda m, t, v, s: jc.retract(CUBE, jnp.zeros(7), jnp.zeros(6)), ValueError,
        "q: expected a quaternion at index 3, got four zeros"),
    "part of a pose": (
        lambda m, t, v, s: jc.retract(m, v[:1], v), ValueError, "q: expected shape (4,), got (1,)"),
    "a tangent of another size": (
        lambda m, t, v, s: jc.retract(m, v, v[:1]), ValueError, "delta: expected shape (4,), got (1,)"),
    "whole numbers for a pose": (
        lambda m, t, v, s: jc.retract(m, jnp.arange(4), v), TypeError, "q: expected a floating dtype, got int"),
    "a contact from behind": (
        lambda m, t, v, s: stability.impact(BIPED, v[:3], -1), ValueError,
        "contact: expected an integer >= 0 and <= 1, got -1"),
    "no such contact": (
        lambda m, t, v, s: stability.impact(BIPED, v[:3], 2), ValueError,
        "contact: expected an integer >= 0 and <= 1, got 2"),
    "a velocity of another body": (
        lambda m, t, v, s: stability.impact(BIPED, v, 0), ValueError, "v: expected shape (3,), got (4,)"),
    "no clearance": (
        lambda m, t, v, s: optimize.impact_design(m, m.initial_state(), optimize.DesignTask(clearance=float("nan"))), ValueError,
        "clearance: expected finite numbers"),
    "a coordinate that is none": (
        lambda m, t, v, s: optimize.impact_design(m, m.initial_state(), optimize.DesignTask(hold=(4,))), ValueError,
        "hold: expected indices in 0..3, got (4,)"),
    "bounds that cross": (
        lambda m, t, v, s: optimize.impact_design(
            m.replace(params=m.params.replace(constants={"l": jnp.ones(())})), m.initial_state(), optimize.DesignTask(design=("l",), bounds={"l": (2.0, 1.0)})),
        ValueError, "bounds: expected lower <= upper for 'l', got (2.0, 1.0)"),
    "a path without events": (
        lambda m, t, v, s: stability.motion_path(BIPED, START, num_events=0), ValueError,
        "num_events: expected an integer >= 1, got 0"),
    "no corners": (lambda m, t, v, s: boxed(()), ValueError, "corners of 'box' must be in 0..3, each once, got ()"),
    "one corner twice": (
        lambda m, t, v, s: boxed((1, 1)), ValueError, "corners of 'box' must be in 0..3, each once, got (1, 1)"),
    "no points": (
        lambda m, t, v, s: jc.Structure(
            dim=2, bodies=("a",), num_positions=3, shapes=(jc.Points(name="feet", body="a", at="at", count=0),)),
        ValueError, "count: expected an integer >= 1, got 0"),
    "no positions": (
        lambda m, t, v, s: jc.Structure(dim=2, bodies=("a",), num_positions=0), ValueError,
        "num_positions: expected an integer >= 1, got 0"),
}  # fmt: skip


@pytest.mark.float32
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(given, mistake):
    call, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=re.escape(message)):
        call(*given)


@pytest.mark.slow
@pytest.mark.float32
def test_a_step_that_leaves_the_range_of_floats_says_so():
    """Its velocity may be finite while its pose or time is not: a bit on that lane alone."""
    model = models.tossed_cube()
    largest = float(jnp.finfo(model.initial_state().q.dtype).max)
    taus, dts = jnp.zeros((6, 6)), jnp.full(6, 1e-3)
    taus = taus.at[1, 4].set(largest**0.65)
    dts = dts.at[2].set(largest**0.27).at[3].set(-1e-3).at[4].set(jnp.nan)
    times = jnp.zeros(6).at[5].set(jnp.inf)
    states, info = jax.jit(
        jax.vmap(lambda tau, dt, t: compliant.step(model, model.initial_state().replace(t=t), tau, dt=dt))
    )(taus, dts, times)
    finite = np.isfinite(np.concatenate([states.q, states.v, np.asarray(states.t)[:, None]], axis=1)).all(
        axis=1
    )
    status = np.asarray(info.status)
    np.testing.assert_array_equal((status & jc.Status.NONFINITE) == 0, finite)
    assert status[0] == 0 and not np.any(status[1:] == 0)
    assert status[3] & jc.Status.INVALID and status[4] & jc.Status.INVALID
    state, info = compliant.step(model, model.initial_state(), taus[0], dt=float(dts[2]))
    assert not np.isfinite(state.q).all()  # whether v overflows, too, is up to the compiler
    assert int(info.status) == jc.Status.NONFINITE


@pytest.mark.slow
@pytest.mark.float32
def test_a_pose_without_a_turn_is_nan_when_traced():
    """A zero quaternion, and one whose squares vanish or overflow; the step of such a pose fails."""
    model = models.tossed_cube()
    q, small = model.initial_state().q, {4: 1e-25, 8: 1e-170}[model.initial_state().q.dtype.itemsize]
    poses = jnp.stack([q, *(q.at[3:].multiply(factor) for factor in (0.0, small, 1 / small))])
    moved = np.asarray(jax.jit(jax.vmap(lambda q: jc.retract(CUBE, q, jnp.zeros(6))))(poses))
    np.testing.assert_array_equal(moved[0], q)
    assert np.all(np.isnan(moved[1:, 3:])) and np.all(np.isfinite(moved[:, :3]))
    step = jax.vmap(
        lambda q: compliant.step(
            model,
            model.initial_state().replace(q=q),
            jnp.zeros(6),
            dt=1e-3,
        )[1]
    )
    failed = np.asarray(jax.jit(step)(poses).status) & jc.Status.NONFINITE != 0
    assert failed.tolist() == [False, True, True, True]


@pytest.mark.slow
@pytest.mark.float32
def test_a_traced_energy_that_overflows_sets_a_bit(given):
    _, terms, v, _ = given
    factors = jnp.array([1.0, HUGE[v.dtype.itemsize], 1.0])
    v_plus, info = jax.jit(jax.vmap(lambda s: impact.anitescu_potra(terms, s * v)))(factors)
    assert np.asarray(info.status).tolist() == [0, jc.Status.NONFINITE, 0]
    np.testing.assert_array_equal(v_plus[1], factors[1] * v)
    np.testing.assert_array_equal(v_plus[0], v_plus[2])


@pytest.mark.slow
@pytest.mark.float32
def test_a_traced_reflection_of_nothing_is_nan(tolerance):
    """And the length of the normal does not matter, however large or small it is."""
    M = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    u = jnp.array([1.0, -2.0, 0.5])
    large = HUGE[u.dtype.itemsize]
    factors = jnp.array([1.0, 0.0, large, 1.0 / large, jnp.nan])
    maps = np.asarray(jax.jit(jax.vmap(lambda s: impact.reset_map(M, s * u)))(factors))
    assert np.all(np.isnan(maps[[1, 4]]))
    exact = np.eye(3) - 2 * np.outer(u / np.diag(M), u) / (u @ (u / np.diag(M)))
    for map_ in maps[[0, 2, 3]]:
        np.testing.assert_allclose(map_, exact, atol=tolerance(1e-14, 1e-6))
    slope = jax.jacobian(lambda u: impact.reset_map(M, u))(u)
    np.testing.assert_allclose(slope @ u, 0.0, atol=tolerance(1e-14, 1e-6))
    step = tolerance(1e-6, 1e-2)
    ahead, behind = (impact.reset_map(M, u.at[0].add(sign * step)) for sign in (1, -1))
    np.testing.assert_allclose(slope[..., 0], (ahead - behind) / (2 * step), atol=tolerance(1e-9, 1e-3))


def test_traced_numbers_pass():
    friction = jax.jit(lambda mu: models.box_on_incline(mu).params.mu)(0.3)
    assert friction.shape == (4,) and friction[0] == jnp.asarray(0.3, friction.dtype)

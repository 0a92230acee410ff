"""Public functions are traced once: other numbers of the same shapes compile nothing, with jit or without."""

import functools
import inspect

import chex
import jax
import jax.numpy as jnp
import pytest
from absl.testing import parameterized
from helpers import ess_systems
from helpers.signatures import public_names, rooms

import jaxcontact as jc
from jaxcontact import (
    compliant,
    ess,
    geometry,
    impact,
    joints,
    mechanics,
    optimize,
    rotations,
    stability,
    terms,
)
from jaxcontact.compliant.step import assemble

BLOCK, CHEETAH = jc.models.rocking_block(), jc.models.half_cheetah()
DOG = jc.models.quadruped()
GAIT, GAIT_PARAMS, GAIT_FREE = jc.gaits.hopper()
SPHERES = jc.models.sphere_stack(3)
EVENTS, FALLS = ess_systems.HOPPER, jnp.array([False, True])
COMPLIANT = jc.simulate.Compliant()
ASSEMBLE = jax.jit(assemble)


@functools.cache
def numbers():
    """All that the calls below take, by name."""
    params = BLOCK.params.replace(
        material=compliant.Material(stiffness=jnp.array(1e4), damping=jnp.array(30.0))
    )
    return {
        "params": params,
        "state": BLOCK.initial_state(),
        "terms": jc.contact_terms(BLOCK, BLOCK.initial_state()),
        "caps": jnp.full((4, 2), 0.3),
        "controls": jnp.ones((2, 3)),
        "states": jax.tree.map(
            lambda leaf: jnp.stack([leaf, 1.01 * leaf, 1.02 * leaf]), BLOCK.initial_state()
        ),
        "robot": (CHEETAH.params, CHEETAH.initial_state()),
        "scalar": 0.3,
        "vector": jnp.array([0.1, 0.2, 0.3]),
        "side": jnp.array([0.3, -0.2, 0.5]),
        "quaternion": jnp.array([1.0, 0.1, 0.2, 0.3]),
        "pose": (jnp.array([0.1, 0.2, 0.3]), jnp.eye(3)),
        "matrix": jnp.eye(3) + 0.1,
        "biped": stability.PlanarBiped(alpha=0.2, h=1.0, L1=-0.5, L2=0.5, mu1=0.6, mu2=0.6),
        "gait": (GAIT_PARAMS, GAIT_FREE),
        "events": (ess_systems.HOPPER_PARAMS, jnp.array([1.0, -1.0])),
        "spheres": SPHERES.initial_state(),
        "crossed": jnp.array([False, True]),
    }


def changed(leaf):
    """Another number of the same type; counts and truths stay."""
    return 1.01 * leaf if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf


def law(function, *names, **options):
    """A call with the terms and velocity of the block, then the numbers of these names."""
    return lambda n: function(n["terms"], n["state"].v, *(n[name] for name in names), **options)


def block(function, *names, **options):
    return lambda n: function(
        BLOCK.replace(params=n["params"]), n["state"], *(n[name] for name in names), **options
    )


def plain(function, *names, **options):
    return lambda n: function(*(n[name] for name in names), **options)


def robot(function, *more):
    return lambda n: function(CHEETAH.replace(params=n["robot"][0]), n["robot"][1], *more)


def placed(function, *more):
    """A call with the positions of the robot."""
    return lambda n: function(CHEETAH.replace(params=n["robot"][0]), n["robot"][1].q, *more)


def events(function, *more, **options):
    return lambda n: function(
        jc.Model(system=EVENTS, params=n["events"][0]), *n["events"][1:], *more, **options
    )


def motion(n):
    """A trajectory of states alone."""
    return jc.simulate.Trajectory(states=n["states"], contacts=None, impulse=None, impacts=None, status=None)


CALLS = {
    jc.actuator_forces: robot(jc.actuator_forces, jnp.ones(6)),
    jc.bias: robot(jc.bias),
    jc.constraint_terms: block(jc.constraint_terms),
    jc.contact_terms: robot(jc.contact_terms),
    jc.contacts: robot(jc.contacts),
    jc.place_on_ground: robot(jc.place_on_ground),
    terms.moving_terms: robot(terms.moving_terms),
    terms.touch_tolerance: plain(terms.touch_tolerance, "vector"),
    jc.forward_dynamics: robot(jc.forward_dynamics, jnp.ones(9)),
    jc.forward_kinematics: placed(jc.forward_kinematics),
    jc.free_poses: lambda n: jc.free_poses(BLOCK.structure, n["state"].q, n["params"]),
    jc.inverse_dynamics: robot(jc.inverse_dynamics, jnp.ones(9)),
    jc.kinetic_energy: robot(jc.kinetic_energy),
    jc.mass_matrix: placed(jc.mass_matrix),
    jc.point_jacobian: placed(jc.point_jacobian, 1, jnp.ones(2)),
    jc.potential_energy: robot(jc.potential_energy),
    jc.project: block(jc.project),
    jc.retract: lambda n: jc.retract(CHEETAH, n["robot"][1].q, n["robot"][1].v),
    jc.solve_friction: lambda n: jc.solve_friction(n["matrix"], n["vector"], n["scalar"]),
    jc.solve_lcp: plain(jc.solve_lcp, "matrix", "vector"),
    jc.velocity_map: lambda n: jc.velocity_map(CHEETAH, n["robot"][1].q),
    compliant.estimate_forces: lambda n: compliant.estimate_forces(
        BLOCK.replace(params=n["params"]), n["states"], n["controls"], dt=n["scalar"]
    ),
    compliant.foundation_stiffness: plain(compliant.foundation_stiffness, "scalar", "scalar", "scalar"),
    compliant.solve: lambda n: compliant.solve(
        ASSEMBLE(BLOCK.replace(params=n["params"]), n["state"], n["vector"], 0.01)
    ),
    compliant.rollout: block(compliant.rollout, "controls", dt=0.01),
    compliant.smoothed: lambda n: compliant.smoothed(BLOCK.replace(params=n["params"]), n["scalar"]),
    compliant.step: lambda n: compliant.step(
        BLOCK.replace(params=n["params"]), n["state"], n["vector"], dt=0.01 * n["scalar"]
    ),
    compliant.stiff_material: plain(compliant.stiff_material, "scalar"),
    ess.b_derivative: events(ess.b_derivative, jnp.ones(2), 0.0, 0.5, settings=ess.Settings(eps=0.1), crossed0=FALLS),
    ess.flow: events(ess.flow, 0.0, 0.5, settings=ess.Settings(eps=0.1), crossed0=FALLS),
    ess.integrate: events(ess.integrate, 0.0, 0.5, settings=ess.Settings(eps=0.1), crossed0=FALLS),
    ess.ordering_map: events(ess.ordering_map, jnp.array([0, 1])),
    ess.pack: plain(ess.pack, "state"),
    ess.saltation_matrix: lambda n: events(ess.saltation_matrix, 0, n["crossed"])(n),
    ess.unpack: lambda n: ess.unpack(
        BLOCK, jnp.concatenate([n["state"].q, n["state"].v]), n["scalar"]
    ),
    geometry.candidates: lambda n: geometry.candidates(
        2, BLOCK.structure.bodies, BLOCK.structure.shape_table, BLOCK.structure.pairs,
        *jc.forward_kinematics(BLOCK.replace(params=n["params"]), n["state"].q), n["params"].constants
    ),
    geometry.products: lambda n: geometry.products(n["matrix"][None], n["vector"][None]),
    geometry.rows: lambda n: geometry.rows(n["matrix"], (0, 2)),
    geometry.tangent_frame: plain(geometry.tangent_frame, "vector"),
    impact.anitescu_potra: law(impact.anitescu_potra),
    impact.chain: lambda n: impact.chain(
        n["terms"], n["state"].v, stiffness=n["scalar"], restitution=0.5, max_steps=8
    ),
    impact.coupling: plain(impact.coupling, "terms"),
    impact.newton: lambda n: impact.newton(n["terms"], n["state"].v, restitution=n["scalar"]),
    impact.poisson: lambda n: impact.poisson(n["terms"], n["state"].v, restitution=n["scalar"]),
    impact.indeterminacy: law(impact.indeterminacy, max_reflections=8),
    impact.normals_gram: plain(impact.normals_gram, "terms"),
    impact.paradox: lambda n: impact.paradox(n["terms"], n["state"].v, n["vector"]),
    impact.plastic: law(impact.plastic),
    impact.propagate: law(impact.propagate, restitution=0.5),
    impact.propagate_all: law(impact.propagate_all, max_outcomes=4, max_reflections=8),
    impact.reset_map: plain(impact.reset_map, "matrix", "vector"),
    impact.resolve: lambda n: impact.resolve(
        n["terms"], n["state"].v, n["caps"], n["caps"][:, 0], restitution=n["scalar"]
    ),
    impact.routh_path: lambda n: impact.routh_path(n["terms"], n["state"].v, n["caps"][0]),
    impact.routh_step: lambda n: impact.routh_step(
        n["terms"], n["state"].v, n["caps"][0], pick=n["scalar"]
    ),
    impact.outcomes: lambda n: impact.outcomes(
        n["terms"], n["state"].v, impact.RouthStep(impulse_max=n["caps"][0])
    ),
    impact.sample_in_jit: lambda n: impact.sample_in_jit(
        n["terms"],
        n["state"].v,
        impact.Routh(impulse_step=n["scalar"], max_steps=2),
        jax.random.key(0),
        num_samples=4,
    ),
    impact.sequential: law(impact.sequential, order=(0, 1), max_impacts=4),
    joints.ball: plain(joints.ball, "pose", "vector", "pose", "vector"),
    joints.distance: plain(joints.distance, "pose", "vector", "pose", "side", "scalar"),
    joints.hinge: plain(joints.hinge, "pose", "vector", "vector", "pose", "vector", "vector"),
    joints.point: plain(joints.point, "pose", "vector"),
    joints.weld: plain(joints.weld, "pose", "vector", "pose", "vector"),
    optimize.inertia_numbers: plain(optimize.inertia_numbers, "scalar", "vector", "matrix"),
    optimize.inertia_of: lambda n: optimize.inertia_of(jnp.resize(n["vector"], 10)),
    optimize.inertias_of_bodies: lambda n: optimize.inertias_of_bodies(
        DOG.replace(params=DOG.params.replace(mass=DOG.params.mass * n["scalar"])), ["trunk"]
    ),
    optimize.with_inertias: lambda n: optimize.with_inertias(
        DOG, {"trunk": jnp.resize(n["vector"], 10)}
    ).params,
    optimize.pose_residuals: lambda n: optimize.pose_residuals(
        jnp.resize(n["vector"], 7), jnp.ones(7), position_noise=1.0, angle_noise=1.0),
    optimize.pose_score: lambda n: optimize.pose_score(
        jnp.resize(n["vector"], 7), jnp.ones(7), position_noise=1.0, angle_noise=1.0),
    optimize.over_outcomes: lambda n: optimize.over_outcomes(
        lambda x, key: jnp.sum(x), jax.random.key(0), outcomes=4)(n["vector"]),
    optimize.risk_of: plain(optimize.risk_of, "vector", risk="cvar"),
    optimize.track: lambda n: optimize.track(
        BLOCK.replace(params=n["params"]), motion(n).replace(inputs=n["controls"]), stepper=COMPLIANT,
        state_cost=jnp.ones(6), control_cost=jnp.ones(3)),
    optimize.gait_outcome: lambda n: optimize.gait_outcome(GAIT, *n["gait"], n["scalar"]),
    optimize.gait_outcome_rate: lambda n: optimize.gait_outcome_rate(
        GAIT, *n["gait"], n["gait"][1], n["scalar"]
    ),
    rotations.exp_jacobian: plain(rotations.exp_jacobian, "vector"),
    rotations.exp_jacobian_inverse: plain(rotations.exp_jacobian_inverse, "vector"),
    rotations.planar_matrix: plain(rotations.planar_matrix, "scalar"),
    rotations.quaternion_conjugate: plain(rotations.quaternion_conjugate, "quaternion"),
    rotations.quaternion_exp: plain(rotations.quaternion_exp, "vector"),
    rotations.quaternion_log: plain(rotations.quaternion_log, "quaternion"),
    rotations.quaternion_matrix: plain(rotations.quaternion_matrix, "quaternion"),
    rotations.quaternion_product: plain(rotations.quaternion_product, "quaternion", "quaternion"),
    rotations.quaternion_rate_map: plain(rotations.quaternion_rate_map, "quaternion"),
    rotations.vee: plain(rotations.vee, "matrix"),
    jc.simulate.momentum_difference: lambda n: jc.simulate.momentum_difference(
        BLOCK.replace(params=n["params"]), motion(n), motion(n)
    ),
    jc.move_surfaces: lambda n: jc.move_surfaces(
        BLOCK.replace(params=n["params"]), {BLOCK.structure.shapes[0].name: n["vector"]}),
    jc.linearize: block(functools.partial(jc.linearize, stepper=COMPLIANT), "vector", dt=0.01),
    jc.simulate.rollout: block(jc.simulate.rollout, "controls", stepper=COMPLIANT, dt=0.01),
    jc.simulate.augmented_motion: block(jc.simulate.augmented_motion, length=0.5, max_pieces=4),
    jc.simulate.time_augmented: block(jc.simulate.time_augmented, length=1.0, max_pieces=4),
    jc.simulate.variational: block(
        jc.simulate.variational, stepper=jc.simulate.Variational(max_impacts=4), dt=0.01, duration=0.02),
    stability.contact_modes: plain(stability.contact_modes, "biped"),
    stability.impact: lambda n: stability.impact(n["biped"], n["vector"], 0),
    stability.is_ambiguous: plain(stability.is_ambiguous, "biped"),
    stability.is_equilibrium: plain(stability.is_equilibrium, "biped"),
    terms.unilateral_terms: block(terms.unilateral_terms),
    terms.contact_gaps: placed(terms.contact_gaps),
    terms.contact_velocities: placed(terms.contact_velocities, jnp.ones(9)),
    terms.nearest_terms: robot(terms.nearest_terms, 2),
    terms.rows_by_body: lambda n: terms.rows_by_body(SPHERES, n["spheres"]),
}  # fmt: skip
NAMES = {f"{function.__module__}.{function.__name__}": function for function in CALLS}
# Functions of the host: they draw, read or write files, loop until a tolerance is met, or take no numbers.
ROOMS_OF_THE_HOST = ("models", "peers", "viz")
HOST = {
    jc.io.load_friction_problem, jc.io.save_friction_problem,
    jc.from_mujoco, jc.hull_faces, jc.load_mjcf, jc.on_all_cores, jc.fixed_iterations, jc.progress_line, jc.raise_if_failed, jc.simd, jc.to_mujoco,
    ess.choose_bands, ess.from_system, ess.one_sided_jacobian, ess.rescale_guards, jc.gaits.hexapod, jc.gaits.hopper, mechanics.tree_system,
    geometry.check_constants, geometry.check_pair, geometry.check_shape, geometry.contact_bodies,
    geometry.num_contacts,
    impact.approximate_set, impact.bounds, impact.contains, impact.coverage, impact.dense_sampling,
    impact.dissipation_bound, impact.extreme, impact.impulse_bound, impact.invariant_subspace,
    impact.kelvin_voigt, impact.load_samples, impact.mirrored, impact.net_bound, impact.pointed_cone,
    impact.refine, impact.reflection_bound, impact.sample, impact.step_bound, impact.time_bound, impact.unique_order, impact.unique_steps,
    optimize.gait, optimize.identify, optimize.identify_motions, optimize.impact_design, optimize.one_sided_descent, optimize.robot_gait, optimize.search_from_starts, optimize.trajectory,
    jc.simulate.ensemble, jc.simulate.run, stability.certified_end, stability.certify, stability.chart,
    stability.chatter_rate, stability.check, stability.excursion_bounds,
    stability.falsify, stability.local_terms, stability.margin, stability.margin_gradient,
    stability.motion_path, terms.kept_by_body,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_other_numbers_are_not_traced_again(name):
    chex.clear_trace_counter()
    traced = jax.jit(chex.assert_max_traces(CALLS[NAMES[name]], n=1))
    for given in (numbers(), jax.tree.map(changed, numbers())):
        traced.trace(given)


def test_every_public_function_is_traced_above_or_belongs_to_the_host():
    public = {
        value
        for room, module in rooms().items()
        if not room.endswith(ROOMS_OF_THE_HOST)
        for value in public_names(module).values()
        if inspect.isfunction(value) or type(value).__name__ == "PjitFunction"
    }
    assert public - HOST - set(CALLS) == set()
    assert not HOST & set(CALLS)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_calls_without_jit_compile_nothing_again(name):
    call, compiled = CALLS[NAMES[name]], []

    def listen(event, *_, **__):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    jax.block_until_ready(call(numbers()))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.block_until_ready(call(numbers()))
    finally:
        jax._src.monitoring.unregister_event_duration_listener(listen)
    assert not compiled


REPRESENTATIVE = (
    rotations.quaternion_exp, jc.contact_terms, jc.solve_lcp, impact.plastic, impact.resolve, compliant.step
)  # fmt: skip


@functools.cache
def found_without_jit(function):
    return CALLS[function](numbers())


class WithAndWithoutJit(chex.TestCase):
    """Called op by op a function gives what its program gives, and has compiled what other numbers need."""

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.named_parameters((function.__name__, function) for function in REPRESENTATIVE)
    def test_the_same_records_and_nothing_compiled_again(self, function):
        call = self.variant(CALLS[function])
        chex.assert_trees_all_close(call(numbers()), found_without_jit(function), rtol=1e-9, atol=1e-11)
        other = jax.tree.map(changed, numbers())
        with jax.log_compiles(), self.assertNoLogs("jax", "WARNING"):
            call(other)


pytest.mark.slow(WithAndWithoutJit.test_the_same_records_and_nothing_compiled_again_resolve__with_jit)


READ_IN_A_TRACE = (
    "reflections.reset_map",
    "time_augmented.time_augmented",
    "paradox.paradox",
    "placement.place_on_ground",
)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name.endswith(READ_IN_A_TRACE) else pytest.mark.slow) for name in NAMES])  # fmt: skip
def test_known_numbers_are_read_inside_a_trace(name):
    """A function of a user's `jit` may close over its state: what is known is checked, not traced."""
    known = numbers()
    jax.eval_shape(lambda: CALLS[NAMES[name]](known))


STEPPERS = (
    jc.simulate.EventDriven(),
    jc.simulate.TimeStepping(),
    jc.simulate.Variational(),
    jc.simulate.Compliant(),
)


@pytest.mark.long
@pytest.mark.parametrize("stepper", STEPPERS, ids=lambda stepper: type(stepper).__name__)
def test_steppers_read_known_numbers_inside_a_trace(stepper):
    state = BLOCK.initial_state()
    deep = state.replace(q=state.q.at[1].add(-0.1))

    model = BLOCK.replace(params=numbers()["params"])

    def motion(start):
        return lambda controls: jc.simulate.rollout(model, start, controls, stepper=stepper, dt=0.01)

    controls = jnp.zeros((2, state.v.shape[0]))
    jax.eval_shape(motion(state), controls)
    if isinstance(stepper, jc.simulate.EventDriven | jc.simulate.TimeStepping):
        with pytest.raises(ValueError, match="state: expected no penetration"):
            jax.eval_shape(motion(deep), controls)

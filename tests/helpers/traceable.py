"""Every traceable public function with arguments for it, for tests of what must hold of all of them."""

import functools

import jax
import jax.numpy as jnp

import jaxcontact as jc

PLANAR = jc.models.compass_gait()
BOX = jc.models.box_drop_3d()
STATIC = jc.compliant.Newton(early_exit=False)
SLIDING = jc.models.box_on_incline(0.25)
AFFINE = jc.models.affine_3d()
QUADRUPED = jc.models.quadruped()


def terms_of(model):
    return jc.contact_terms(model, model.initial_state())


def sample(num_samples=12, **settings):
    law = LAW.replace(**settings)
    return lambda terms, v, key: jc.impact.sample_in_jit(terms, v, law, key, num_samples=num_samples)


def mechanism(function, model, *more, **settings):
    return functools.partial(function, **settings), (model, model.initial_state(), *more)


PLANE, SPACE = terms_of(PLANAR), terms_of(BOX)
DRAWS = (jnp.full((5, 2), 0.2), jnp.zeros(5))
SPATIAL_DRAWS = (jnp.full((3, SPACE.phi.size), 0.2), jnp.zeros(3))
KEY = jnp.array([0, 7], jnp.uint32)
LAW = jc.impact.Routh(impulse_step=0.25, max_steps=3)
MATRIX, VECTOR = 2.0 * jnp.eye(4), -jnp.ones(4)
CASES = {
    "contact_terms": mechanism(jc.contact_terms, PLANAR),
    "contact_terms in space": mechanism(jc.contact_terms, BOX),
    "constraint_terms": mechanism(jc.constraint_terms, SLIDING),
    "bias": mechanism(jc.bias, PLANAR),
    **{
        f"{function.__name__} of a robot": (
            function,
            (QUADRUPED, at, *more),
        )
        for function, at, *more in (
            (jc.mass_matrix, QUADRUPED.initial_state().q),
            (jc.forward_kinematics, QUADRUPED.initial_state().q),
            (jc.bias, QUADRUPED.initial_state()),
            (jc.kinetic_energy, QUADRUPED.initial_state()),
            (jc.potential_energy, QUADRUPED.initial_state()),
            (jc.inverse_dynamics, QUADRUPED.initial_state(), QUADRUPED.initial_state().v),
            (jc.forward_dynamics, QUADRUPED.initial_state(), QUADRUPED.initial_state().v),
            (jc.actuator_forces, QUADRUPED.initial_state(), jnp.zeros(12)),
        )
    },
    "point_jacobian of a robot": (
        lambda params, q: jc.point_jacobian(QUADRUPED.replace(params=params), q, 1, jnp.ones(3)),
        (QUADRUPED.params, QUADRUPED.initial_state().q),
    ),
    "rotations.exp_jacobian": (jc.rotations.exp_jacobian, (jnp.ones(3),)),
    "rotations.exp_jacobian_inverse": (jc.rotations.exp_jacobian_inverse, (jnp.ones(3),)),
    "project": mechanism(jc.project, BOX),
    "solve_lcp": (jc.solve_lcp, (MATRIX, VECTOR)),
    "solve_lcp of static length": (
        functools.partial(jc.solve_lcp, solver=jc.Lemke(early_exit=False)),
        (MATRIX, VECTOR),
    ),
    "anitescu_potra": (jc.impact.anitescu_potra, (PLANE, PLANAR.initial_state().v)),
    "anitescu_potra in space": (jc.impact.anitescu_potra, (SPACE, BOX.initial_state().v)),
    "outcomes": (
        lambda terms, v: jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra()),
        (PLANE, PLANAR.initial_state().v),
    ),
    "sequential": (
        functools.partial(jc.impact.sequential, order=(0, 1), max_impacts=4),
        (PLANE, PLANAR.initial_state().v),
    ),
    "resolve": (jc.impact.resolve, (PLANE, PLANAR.initial_state().v, *DRAWS)),
    "resolve with restitution": (
        functools.partial(jc.impact.resolve, restitution=0.5),
        (PLANE, PLANAR.initial_state().v, *DRAWS),
    ),
    "resolve in space": (
        functools.partial(jc.impact.resolve, selection="lemke"),
        (SPACE, BOX.initial_state().v, *SPATIAL_DRAWS),
    ),
    "resolve of static length": (
        functools.partial(jc.impact.resolve, early_exit=False),
        (PLANE, PLANAR.initial_state().v, *DRAWS),
    ),
    "resolve in space of static length": (
        functools.partial(jc.impact.resolve, selection="lemke", early_exit=False),
        (SPACE, BOX.initial_state().v, *SPATIAL_DRAWS),
    ),
    "sample_in_jit": (sample(), (PLANE, PLANAR.initial_state().v, KEY)),
    "sample_in_jit with restitution": (
        sample(restitution=0.5),
        (PLANE, PLANAR.initial_state().v, KEY),
    ),
    "sample_in_jit in space": (
        sample(3, selection="lemke"),
        (SPACE, BOX.initial_state().v, KEY),
    ),
    "sample_in_jit, its derivative": (
        jax.grad(lambda v, terms, key: jnp.mean(sample()(terms, v, key)[0][:, 1])),
        (PLANAR.initial_state().v, PLANE, KEY),
    ),
    "routh_step": (jc.impact.routh_step, (PLANE, PLANAR.initial_state().v, DRAWS[0][0])),
    "outcomes of a step": (
        lambda terms, v, caps: jc.impact.outcomes(terms, v, jc.impact.RouthStep(impulse_max=caps)),
        (PLANE, PLANAR.initial_state().v, DRAWS[0][0]),
    ),
    "propagate": (jc.impact.propagate, (PLANE, PLANAR.initial_state().v)),
    "propagate_all": (jc.impact.propagate_all, (PLANE, PLANAR.initial_state().v)),
    "plastic": (jc.impact.plastic, (PLANE, PLANAR.initial_state().v)),
    "newton": (jc.impact.Newton(restitution=0.5), (PLANE, PLANAR.initial_state().v)),
    "poisson": (jc.impact.Poisson(restitution=0.5), (PLANE, PLANAR.initial_state().v)),
    "energetic": (jc.impact.Energetic(restitution=0.5, max_events=8), (PLANE, PLANAR.initial_state().v)),
    "chain": (jc.impact.Chain(stiffness=1.0, max_steps=8), (PLANE, PLANAR.initial_state().v)),
    "routh without a step": (jc.impact.Routh(), (PLANE, PLANAR.initial_state().v, KEY)),
    "compliant.step": mechanism(jc.compliant.step, SLIDING, jnp.zeros(6), dt=0.01),
    "compliant.step of the nearest contacts": mechanism(
        jc.compliant.step, SLIDING, jnp.zeros(6), dt=0.01, settings=jc.compliant.Settings(max_contacts=2)
    ),
    "compliant.step of static length": mechanism(
        jc.compliant.step, SLIDING, jnp.zeros(6), dt=0.01, settings=jc.compliant.Settings(solver=STATIC)
    ),
    "compliant.step with the associated cone, of static length": mechanism(
        jc.compliant.step,
        SLIDING,
        jnp.zeros(6),
        dt=0.01,
        settings=jc.compliant.Settings(cone="associated", solver=STATIC),
    ),
    "compliant.rollout": mechanism(jc.compliant.rollout, SLIDING, jnp.zeros((3, 6)), dt=0.01),
    "compliant.rollout of a robot": mechanism(jc.compliant.rollout, QUADRUPED, jnp.zeros((3, 12)), dt=0.002),
    "simulate.rollout": mechanism(
        jc.simulate.rollout, SLIDING, jnp.zeros((3, 6)), stepper=jc.simulate.Compliant(), dt=0.01
    ),
    "linearize": mechanism(
        functools.partial(jc.linearize, stepper=jc.simulate.Compliant()), SLIDING, jnp.zeros(6), dt=0.01
    ),
    "simulate.rollout of time steps": mechanism(
        jc.simulate.rollout,
        jc.models.rocking_block(),
        jnp.zeros((3, 3)),
        stepper=jc.simulate.TimeStepping(),
        dt=0.01,
    ),
    "simulate.rollout from event to event": mechanism(
        jc.simulate.rollout,
        jc.models.rocking_block(),
        jnp.zeros((3, 3)),
        stepper=jc.simulate.EventDriven(),
        dt=0.01,
    ),
    "simulate.variational": mechanism(
        jc.simulate.variational, jc.models.rocking_block(), dt=0.01, duration=0.03
    ),
    "paradox": (
        jc.impact.paradox,
        (PLANE, PLANAR.initial_state().v, jnp.ones(PLANAR.initial_state().v.shape)),
    ),
    "simulate.time_augmented": mechanism(
        jc.simulate.time_augmented, jc.models.rocking_block(), length=1.0, max_pieces=4
    ),
    "ess.flow": (
        functools.partial(jc.ess.flow, AFFINE, t0=0.0, t1=0.1, settings=jc.ess.Settings(eps=1e-3)),
        (AFFINE.initial_state(),),
    ),
}

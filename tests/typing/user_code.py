"""What a user of the package writes, for a type checker in strict mode; nothing here is run."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import jaxcontact as jc


def load(path: str) -> jc.Model:
    model: jc.Model = jc.load_mjcf(path, keyframe="stand")
    softer = model.params.material.replace(stiffness=jnp.asarray(1e4))
    damped = model.params.tree.replace(damping=2.0 * model.params.tree.damping)
    return model.replace(params=model.params.replace(material=softer, tree=damped))


def outcomes(model: jc.Model) -> jax.Array:
    terms: jc.ContactTerms = jc.contact_terms(model, model.initial_state())
    samples: jc.impact.ImpactSamples = jc.impact.sample(
        terms, model.initial_state().v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=64
    )
    (every, valid), info = jc.impact.outcomes(terms, model.initial_state().v, jc.impact.AnitescuPotra())
    residual: jax.Array = info.residual
    return jnp.concatenate([samples.v_plus, every[valid]]) + residual


def longest(total: float | None, chunk: jc.impact.ImpactSamples) -> float:
    return max(total or 0.0, float(jnp.max(jnp.abs(chunk.v_plus))))


def reduced(terms: jc.ContactTerms, v: jax.Array) -> float:
    found: float = jc.impact.sample(
        terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=64, reduce=longest
    )
    return found


def law(restitution: float) -> Callable[[jc.ContactTerms, jax.Array], jax.Array]:
    record = jc.impact.Routh(impulse_step=0.3, max_steps=20, restitution=restitution)

    def after(terms: jc.ContactTerms, v: jax.Array) -> jax.Array:
        v_plus, info = record(terms, v)
        jc.raise_if_failed(info)
        return v_plus

    return after


def move(model: jc.Model, controls: jax.Array) -> jc.simulate.Trajectory:
    trajectory: jc.simulate.Trajectory = jc.simulate.rollout(
        model, model.initial_state(), controls, stepper=jc.simulate.Compliant(), dt=0.01
    )
    heights: jax.Array = trajectory.states.q[:, 2]
    jc.viz.animate(trajectory, model, "motion.html", fps=20)
    return trajectory.replace(impulse=trajectory.impulse * heights.max())

"""Makes the moving picture of README: `python -m benchmarks.figures.landing`."""

import jax
import jax.numpy as jnp

import jaxcontact as jc

WORLDS, TILT, DT, STEPS = 12, 0.12, 0.004, 300  # rad, s


def landing(model: jc.Model, tilt: jax.Array) -> jc.simulate.Trajectory:
    """The dog falls 12 cm, turned by (roll, pitch); its servos hold the stance."""
    q, v = model.initial_state().q, model.initial_state().v
    turn = jnp.concatenate([jnp.ones(1), 0.5 * tilt, jnp.zeros(1)])
    q = q.at[2].add(0.12).at[3:7].set(turn / jnp.linalg.norm(turn))
    state = model.initial_state().replace(q=q, v=v.at[0].set(0.5))
    controls = jnp.tile(model.initial_state().q[7:], (STEPS, 1))
    return jc.simulate.rollout(model, state, controls, stepper=jc.simulate.Compliant(), dt=DT)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    model = jc.models.quadruped()
    tilts = TILT * jax.random.normal(jax.random.key(1), (WORLDS, 2)).at[0].set(0.0)
    ensemble = jax.jit(jax.vmap(lambda tilt: landing(model, tilt)))(tilts)
    assert not bool(jc.Status.failed(ensemble.status).any())
    jc.viz.animate(ensemble, model, "docs/_static/landing.gif", fps=20, slower=2.0)

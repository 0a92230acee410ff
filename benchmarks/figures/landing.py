"""Makes the moving picture of README: `python -m benchmarks.figures.landing`."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.figures.ensembles import BOUNCE, FALL, G, falling_pillar

WORLDS, DT, STEPS, SHOWN = 24, 0.01, 320, 0.5  # s; metres of the fall that the picture shows


def landing(model: jc.Model, key: jax.Array) -> jc.simulate.Trajectory:
    """The pillar falls flat on its four corners and bounces; the key draws the order of their impulses."""
    state = model.initial_state()
    speed = np.sqrt(2.0 * G * (FALL - SHOWN))
    above = state.replace(q=state.q.at[2].add(SHOWN), v=state.v.at[2].set(-speed))
    law = jc.impact.Routh(impulse_step=0.5, max_steps=60, restitution=BOUNCE, num_directions=4)
    stepper = jc.simulate.TimeStepping(impact=law)
    return jc.simulate.rollout(model, above, jnp.zeros((STEPS, 6)), stepper=stepper, dt=DT, key=key)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    model = falling_pillar()
    keys = jax.random.split(jax.random.key(0), WORLDS)
    worlds = jc.on_all_cores(jax.vmap(lambda key: landing(model, key)))(keys)
    assert not bool(jc.Status.failed(worlds.status).any())
    quaternion = worlds.states.q[:, -1, 3:]
    up = 1.0 - 2.0 * jnp.sum(quaternion[:, 1:3] ** 2, axis=1)  # of the pillar's axis, 1 upright
    groups = {"stands": up > 0.9, "falls over": up <= 0.9}
    named = {name: jax.tree.map(lambda leaf, of=of: leaf[of], worlds) for name, of in groups.items()}
    title = "A pillar falls flat 24 times alike; the order in which its corners push decides if it stands"
    first = jax.tree.map(lambda leaf: leaf[0], worlds)
    jc.viz.animate(first, model, "docs/_static/landing.gif", ghosts=named, fps=20, title=title)

"""Makes the picture of a dog that lands on four feet: `python -m benchmarks.figures.dog`, in some minutes."""

import jax
import jax.numpy as jnp

import jaxcontact as jc
from benchmarks.figures.in_space import dog
from jaxcontact.peers.mujoco import outcome_of_file

NAMES = ("front right", "front left", "rear right", "rear left")
SAMPLES = 2**13


def main():
    """Samples the landing at 1 m/s, straight down, and draws the kinds of outcomes."""
    jax.config.update("jax_enable_x64", True)
    source, model = dog()
    state = model.initial_state().replace(v=jnp.zeros(18).at[2].set(-1.0))
    model = model.replace(initial=state)
    terms = jc.contact_terms(model, state)
    law = jc.impact.Routh(impulse_step=2.0, max_steps=64, num_directions=4, selection="visited")
    samples = jc.impact.sample(terms, state.v, law, num_samples=SAMPLES)
    title = "A dog lands on four feet: most often a diagonal\npair lifts; in MuJoCo all four move alike"
    figure = jc.viz.plot_outcomes(
        model, state, samples, terms, names=NAMES, mujoco=outcome_of_file(source, model), title=title
    )
    figure.savefig("docs/_static/quadruped_outcomes.png", dpi=110)


if __name__ == "__main__":
    main()

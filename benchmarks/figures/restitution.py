"""Makes the picture of outcomes by restitution: `python -m benchmarks.figures.restitution`."""

import jax

import jaxcontact as jc

COEFFICIENTS = (0.0, 0.5, 1.0)


def main():
    """Samples a block that lands flat, and draws the velocities of its corners after the impact."""
    jax.config.update("jax_enable_x64", True)
    model = jc.models.rocking_block()
    v, terms = model.initial_state().v, jc.contact_terms(model, model.initial_state())
    sets = {}
    for e in COEFFICIENTS:
        law = jc.impact.Routh(impulse_step=model.impulse_step, max_steps=60, restitution=e)
        sets[e] = jc.impact.sample(terms, v, law, num_samples=4096)
    title = "The more restitution e, the faster\nboth corners of a block leave the floor"
    figure = jc.viz.plot_restitution_sets(sets, terms, title=title)
    figure.savefig("docs/_static/rocking_block_restitution.png", dpi=110)


if __name__ == "__main__":
    main()

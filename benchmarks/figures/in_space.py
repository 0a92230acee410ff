"""Makes the pictures of impacts in space: `python -m benchmarks.figures.in_space [NAME ...]`.

Boxes and a dog land on two and on four contacts; four take a minute each. Friction cones have four sides.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from jaxcontact.models import robots
from jaxcontact.peers.mujoco import outcome_of_file

SAMPLES = 2**13
BOX = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction="{mu}"/>
<body pos="0 0 {height}"><freejoint/><geom type="box" size="{half}" mass="{mass}" friction="{mu}"/></body>
</worldbody></mujoco>"""


def box(tilt, size, mass, mu, v):
    """A box turned about the y axis until its lowest corners touch the floor: its file, and itself."""
    half = np.array(size) / 2.0
    height = half[0] * np.sin(tilt) + half[2] * np.cos(tilt)
    numbers = " ".join(f"{each:.17g}" for each in half)
    text = BOX.format(mu=mu, height=height, half=numbers, mass=mass)
    model = jc.load_mjcf(text)
    turn = [np.cos(tilt / 2.0), 0.0, np.sin(tilt / 2.0), 0.0]
    q = jnp.asarray(np.concatenate([[0.0, 0.0, height], turn]))
    return text, model.replace(initial=model.initial_state().replace(q=q, v=jnp.asarray(v)))


def dog():
    """A dog runs and comes down on all four feet."""
    model = jc.models.quadruped()
    v = model.initial_state().v.at[:6].set(jnp.array([1.5, 0.6, -1.0, 0.2, 0.1, 0.3]))
    return robots.file_of("quadruped"), model.replace(initial=model.initial_state().replace(v=v))


# Name, what lands, largest impulse of a step in N s, names of the contacts, heading.
LANDINGS = {
    "box_flat": (
        lambda: box(0.0, (1.0, 0.8, 2.0), 1.0, 0.6, (0.5, 0.3, -0.44, 0.2, 0.1, 1.0)),
        0.2,
        "A box lands flat, sliding and turning",
    ),
    "box_on_edge": (
        lambda: box(0.5, (1.0, 0.8, 2.0), 1.0, 0.3, (0.9, 0.5, -1.0, 0.5, 0.2, 1.0)),
        0.2,
        "A box lands on an edge, sliding and turning",
    ),
    "cube_on_edge": (
        lambda: box(np.pi / 5, (0.1, 0.1, 0.1), 0.37, 0.25, (0.4, 0.3, -1.0, 4.0, 3.0, 8.0)),
        0.06,
        "A cube of 10 cm, as thrown by hand, lands on an edge",
    ),
    "dog": (dog, 2.0, "A dog lands on four feet"),
}


def picture(name):
    """Samples a landing and draws it."""
    make, step, heading = LANDINGS[name]
    source, model = make()
    terms = jc.contact_terms(model, model.initial_state())
    feet = int(np.count_nonzero(terms.active))
    selection = "all" if feet < 4 else "visited"
    begin = time.process_time()
    samples = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=step, max_steps=16 * feet, num_directions=4, selection=selection),
        num_samples=SAMPLES,
    )
    print(
        f"{name}: {feet} contacts, {selection}, complete {samples.complete}, failed "
        f"{np.count_nonzero(np.asarray(samples.status))}, {time.process_time() - begin:.0f} s of one core"
    )
    labels = np.full(len(terms.phi), "", object)
    labels[np.asarray(terms.active)] = [chr(ord("A") + i) for i in range(feet)]
    figure = jc.viz.plot_spatial_impact(
        samples, terms, mujoco=outcome_of_file(source, model), names=list(labels),
        title=f"{heading}: {SAMPLES:,} impulse orders",
    )  # fmt: skip
    figure.savefig(f"docs/_static/space_{name}.png", dpi=110)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for name in sys.argv[1:] or LANDINGS:
        picture(name)

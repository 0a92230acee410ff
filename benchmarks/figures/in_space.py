"""Makes the picture of impacts in space: `python -m benchmarks.figures.in_space`.

Boxes and a dog land on two and on four contacts; four take a minute each. Friction cones have four sides.
"""

import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxcontact as jc
from jaxcontact.models import robots
from jaxcontact.peers.mujoco import outcome_of_file

SAMPLES = 2**13
LIFTS = 0.01  # m/s; a contact that rises faster lifts
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


# Name, what lands, largest impulse of a step in N s, what the picture calls it.
LANDINGS = {
    "box_flat": (
        lambda: box(0.0, (1.0, 0.8, 2.0), 1.0, 0.6, (0.5, 0.3, -0.44, 0.2, 0.1, 1.0)),
        0.2,
        "box, flat",
    ),
    "box_on_edge": (
        lambda: box(0.5, (1.0, 0.8, 2.0), 1.0, 0.3, (0.9, 0.5, -1.0, 0.5, 0.2, 1.0)),
        0.2,
        "box, on an edge",
    ),
    "cube_on_edge": (
        lambda: box(np.pi / 5, (0.1, 0.1, 0.1), 0.37, 0.25, (0.4, 0.3, -1.0, 4.0, 3.0, 8.0)),
        0.06,
        "thrown cube, on an edge",
    ),
    "dog": (dog, 2.0, "dog, on four feet"),
}


def lifting(terms, v_plus):
    """The number of contacts that lift after each outcome (n, nv)."""
    rates = np.asarray(v_plus) @ np.asarray(terms.J_n)[np.asarray(terms.active)].T
    return np.sum(rates > LIFTS, axis=1)


def landing(name):
    """Samples a landing; returns its heading, shares by number of contacts that lift, MuJoCo's number."""
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
    good = np.asarray(samples.status) == 0
    print(
        f"{name}: {feet} contacts, {selection}, complete {samples.complete}, "
        f"failed {np.count_nonzero(~good)}, {time.process_time() - begin:.0f} s of one core"
    )
    shares = np.bincount(lifting(terms, np.asarray(samples.v_plus)[good]), minlength=feet + 1) / good.sum()
    return heading, shares, int(lifting(terms, np.asarray(outcome_of_file(source, model))[None])[0])


NUMBERS = ("none lifts", "1 lifts", "2 lift", "3 lift", "4 lift")


def _ink(number):
    """Return the colour of letters on the bar of a number."""
    return "black" if number < 2 else "white"


def picture():
    """Draws a bar per landing, divided by how many contacts lift."""
    landings = [landing(name) for name in LANDINGS]
    colours = plt.get_cmap("viridis")(np.linspace(0.95, 0.1, 5))
    middle = {"ha": "center", "va": "center", "fontsize": 9}
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for row, (_, shares, mujoco) in enumerate(landings):
        left = 0.0
        for number, share in enumerate(100 * shares):
            axes.barh(row, share, left=left, color=colours[number], height=0.7)
            if share > 4:
                words = f"{NUMBERS[number]}\n{share:.0f} %"
                letters = middle if share > 8 else middle | {"fontsize": 6.5}
                axes.text(left + share / 2, row, words, color=_ink(number), **letters)
            left += share
        axes.barh(row, 14, left=104, color=colours[mujoco], height=0.7, clip_on=False)
        axes.text(111, row, NUMBERS[mujoco], color=_ink(mujoco), **middle)
    axes.text(111, -0.6, "MuJoCo", ha="center")
    axes.set_yticks(range(len(landings)), [heading for heading, _, _ in landings])
    axes.set(xlabel=f"share of {SAMPLES} impulse orders (%)", xlim=(0, 100), ylim=(len(landings) - 0.5, -0.5))
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("How many contacts lift depends on the order of impulses; MuJoCo gives one number")
    figure.savefig("docs/_static/space_landings.png", dpi=110)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    picture()

"""Makes the chart of Painleve's sliding rod: `python -m benchmarks.figures.sliding_rod`, in a minute.

Its lower left end slides to the left. Lines are the closed forms of `docs/start/examples.md`.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc

GRAVITY, HALF, SPIN = 9.81, 0.7, 4.2  # m/s^2, m, rad/s
ANGLES, FRICTIONS = np.radians(np.arange(1.0, 90.0, 0.5)), np.linspace(0.0, 4.0, 161)
TARGET = Path(__file__).parents[2] / "docs" / "_static" / "sliding_rod_paradox.png"


@jax.jit
@jax.vmap
def kind_of(angle, friction):
    """Classify the forces at the lower end of a rod of 1 kg that slides to the left at 1 m/s."""
    x, y = HALF * jnp.cos(angle), HALF * jnp.sin(angle)  # of the centre from the end
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, HALF**2 / 3.0])),
        J_n=jnp.array([[0.0, 1.0, -x]]),
        J_t=jnp.array([[[1.0, 0.0, y]]]),
        phi=jnp.zeros(1),
        mu=friction * jnp.ones(1),
        active=jnp.ones(1, bool),
    )
    v = jnp.array([-1.0 - y * SPIN, x * SPIN, SPIN])
    weight = jnp.array([0.0, -GRAVITY, 0.0])
    return jc.impact.paradox(terms, v, weight, drift=SPIN**2 * jnp.array([[y, x]]))[0]


def main():
    """Classify a grid of angles and frictions, and draw the chart with the closed forms."""
    jax.config.update("jax_enable_x64", True)
    grid = np.meshgrid(ANGLES, FRICTIONS)
    kinds = np.asarray(kind_of(*(jnp.asarray(numbers.ravel()) for numbers in grid)))
    sine, cosine = np.sin(ANGLES), np.cos(ANGLES)
    leaves = np.degrees(np.arcsin(GRAVITY / (HALF * SPIN**2)))
    boundaries = {
        "1 + 3 cos² θ = 3 µ sin θ cos θ": (
            np.degrees(ANGLES),
            (1.0 + 3.0 * cosine**2) / (3.0 * sine * cosine),
        ),
        "l ω² sin θ = g": ([leaves, leaves], [0.0, FRICTIONS[-1]]),
    }
    figure = jc.viz.plot_paradox(
        np.degrees(ANGLES), FRICTIONS, kinds.reshape(grid[0].shape),
        names=("angle θ of the rod (degrees)", "friction µ"), boundaries=boundaries,
        title="With much friction, the force on a rod that slides\nhas several solutions, or none",
    )  # fmt: skip
    figure.savefig(TARGET, dpi=80)


if __name__ == "__main__":
    main()

"""Ten strides of the nominal and the robust compass gait, by impulse order: docs/methods/planning.md.

    python -m benchmarks.figures.robust_gait [--worlds N]

Every world draws its own impulse order in every landing. Numbers go to the terminal, the picture to docs/.
"""

import argparse

import jax
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import robust_gait

STRIDES = 10
PATH = "docs/_static/robust_gait_spread.png"
COLOURS = {"nominal": "tab:orange", "robust": "tab:blue"}


def spreads(free, worlds):
    """Standard deviations (strides,) of the time of a landing and of the swing leg's rate after it."""
    keys = jax.random.split(jax.random.key(3), worlds)
    walk = jax.jit(jax.vmap(lambda key: robust_gait.walk(free, key, STRIDES)))
    durations, lengths, rates, moves = map(np.asarray, walk(keys))
    # The foot that landed stands, and the other one lifts.
    assert np.all(np.isfinite(durations)) and moves.max() < 1e-6
    times = 1e3 * np.cumsum(durations, axis=1).std(axis=0)
    print("  time of a landing, std in ms:", np.round(times, 3))
    print("  length of a step, std in mm:", np.round(1e3 * lengths.std(axis=0), 3))
    print("  rate of the swing leg, std in rad/s:", np.round(rates.std(axis=0), 5))
    return times, rates.std(axis=0)


def draw(found, worlds, path):
    """Draw both spreads over the number of the landing, for both gaits."""
    number = np.arange(1, STRIDES + 1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, (times, rates) in found.items():
        left.plot(number, times, "o-", color=COLOURS[name])
        left.text(STRIDES + 0.3, times[-1], f"{name}\n{times[-1]:.2g} ms", color=COLOURS[name], va="center")
        right.semilogy(number, rates, "o-", color=COLOURS[name])
        right.text(STRIDES + 0.3, rates[-1], name, color=COLOURS[name], va="center")
    left.set(ylabel="standard deviation of the time (ms)", ylim=(0.0, None))
    ratio = found["nominal"][0][-1] / found["robust"][0][-1]
    left.set_title(f"After ten strides the robust gait has spread\n{ratio:.0f} times less in time")
    right.set(ylabel="standard deviation of the rate (rad/s)", ylim=(1e-4, 0.1))
    right.set_title("The swing leg's rate after a landing\ndiffers by the impulse order")
    for axes in (left, right):
        axes.set(xlabel="number of the landing", xlim=(0.5, STRIDES + 2.7), xticks=range(1, STRIDES + 1))
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{worlds} walks that differ by impulse orders alone", fontsize=10, color="0.3")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=1000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    gaits = dict(zip(("nominal", "robust"), robust_gait.nominal_and_robust(), strict=True))
    found = {}
    for name, free in gaits.items():
        print(name, {key: round(float(value), 4) for key, value in free.items()})
        found[name] = spreads(free, options.worlds)
    draw(found, options.worlds, PATH)

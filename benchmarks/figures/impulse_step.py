"""Makes the picture of shares and ranges over the impulse step: `python -m benchmarks.figures.impulse_step`.

A half cheetah with heavy motors lands on both feet; the ends are those of contacts that push one at a time.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxcontact as jc

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # the backend comes first

SAMPLES = 2**12
FACTORS = tuple(2.0**k for k in range(3, -5, -1))
PITCH = 2
TARGET = Path(__file__).parents[2] / "docs" / "_static" / "impulse_step.png"


def landing():
    """A half cheetah whose motors have an inertia of 10 kg m^2, on both feet: terms and velocity."""
    model = jc.models.half_cheetah()
    tree = model.params.tree
    params = model.params.replace(
        mu=jnp.full_like(model.params.mu, 0.8), tree=tree.replace(armature=tree.armature.at[3:].set(10.0))
    )
    model = model.replace(params=params)
    state, _ = jc.place_on_ground(model, model.initial_state(), contacts=["hind_foot", "fore_foot"])
    terms = jc.contact_terms(model, state)
    return terms.take(np.asarray(terms.active)), jnp.zeros(9).at[:2].set(jnp.array([1.0, -1.0]))


def main():
    """Samples all sizes, draws shares and range, and prints the table of the page."""
    jax.config.update("jax_enable_x64", True)
    terms, v = landing()
    law = jc.impact.Routh()
    result = jc.impact.refine(terms, v, law, num_samples=SAMPLES, factors=FACTORS)
    ends = [jc.impact.sequential(terms, v, order, max_impacts=40)[0][PITCH] for order in ((0, 1), (1, 0))]
    limit = jc.impact.routh_path(terms, v, jnp.ones(2))[0][PITCH]
    scale = float(result.impulse_step[FACTORS.index(1.0), 0])
    print(f"scale {scale:.3g} N s, ends {[round(float(e), 3) for e in ends]}, equal rates {float(limit):.3f}")
    for k, factor in enumerate(FACTORS):
        shares = " | ".join(f"{float(share):.3f}" for share in result.shares[k])
        low, high = float(result.low[k, PITCH]), float(result.high[k, PITCH])
        print(f"| {factor:g} | {shares} | {low:.2f} to {high:.2f} | {float(result.num_steps[k]):.1f} |")
    print("kinds", result.kinds, "settled", result.shares_settled, result.range_settled)

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    left.stackplot(FACTORS, 100 * np.asarray(result.shares).T, alpha=0.8)
    left.set(ylim=(0, 100), ylabel="share of the impulse orders (%)")
    left.set_title("Small impulse increments leave\none kind of outcome")
    left.text(0.3, 50, "hind foot lifts,\nfore foot sticks", ha="center", color="white")
    left.text(4.4, 72, "hind foot slides,\nfore foot sticks", ha="center", fontsize=8)
    left.text(2.6, 98.2, "both slide", ha="center", va="center", fontsize=7)
    right.fill_between(FACTORS, result.low[:, PITCH], result.high[:, PITCH], alpha=0.5)
    right.text(1.0, 0.38, "all sampled orders", ha="center", color="tab:blue")
    for end, foot in zip(ends, ("hind", "fore"), strict=True):
        right.axhline(float(end), color="black", linestyle="--", linewidth=1)
        right.text(0.07, float(end) + 0.01, f"the {foot} foot first, then the other", fontsize=8)
    right.axhline(float(limit), color="tab:red", linewidth=1)
    right.text(1.0, float(limit) - 0.035, "both feet at equal rates", color="tab:red", ha="center")
    dotted = "dotted: the default,\nwith which a foot stops"
    left.text(0.93, 8.0, dotted, ha="right", va="center", fontsize=8, color="white")
    right.text(1.08, 0.06, dotted, va="center", fontsize=8)
    right.set(ylabel="pitch rate after the landing (rad/s)", ylim=(-0.1, 0.6))
    right.set_title("and a narrower range\nof pitch rates")
    for axes in (left, right):
        axes.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
        axes.set(xlim=(FACTORS[-1], FACTORS[0]), xscale="log")
        axes.set_xlabel("largest impulse increment, over the default")
        axes.set_xticks([0.1, 1.0, 8.0], ["0.1", "1", "8"])
        axes.minorticks_off()
    figure.savefig(TARGET, dpi=110)


if __name__ == "__main__":
    main()

"""Picture of the dependence of the set of outcomes on the coefficient of restitution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import ImpactSamples
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.figure import Figure

COLORS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")  # Okabe & Ito
MARKERS = ("o", "s", "^", "D", "v", "P")


@checked(width=POSITIVE)
def plot_restitution_sets(
    sets: Mapping[float, ImpactSamples],
    terms: ContactTerms,
    *,
    pair: tuple[int, int] = (0, 1),
    title: str | None = None,
    width: float = 4.6,
) -> Figure:
    """Plot sampled outcomes for several restitutions: normal velocity of one contact against another's.

    Args:
        sets: samples by e, as from `impact.sample(..., restitution=e)`; those that failed are left out.
        terms: the contact terms that were sampled.
        pair: the contacts on the axes.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: for a contact out of range, or more than six sets.
        ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    nc = np.shape(terms.phi)[0]
    if not all(0 <= i < nc for i in pair):
        raise ValueError(f"pair: expected two contacts in 0..{nc - 1}, got {pair}")
    if not 1 <= len(sets) <= len(COLORS):
        raise ValueError(f"sets: expected 1 to {len(COLORS)} of them, got {len(sets)}")
    figure = Figure(figsize=(width, width), layout="constrained")
    axes = figure.subplots()
    for line in (axes.axvline, axes.axhline):
        line(0.0, color="#cccccc", linewidth=0.6, zorder=0.5)
    rows = np.asarray(terms.J_n)[list(pair)]
    for (e, samples), color, marker in zip(sets.items(), COLORS, MARKERS, strict=False):
        good = np.asarray(samples.status) == 0
        x, y = (np.asarray(samples.v_plus)[good] @ rows.T).T
        axes.plot(x, y, marker, color=color, markersize=2.2, markeredgewidth=0.0, label=f"e = {e:g}")
        if len(x):
            outermost = int(np.argmax(x + y))
            place = (float(x[outermost]), float(y[outermost]))
            axes.annotate(f"e = {e:g}", place, (6, 6), textcoords="offset points", color=color, fontsize=9)
    axes.set_aspect("equal", adjustable="datalim")
    names = [chr(ord("A") + i) for i in pair]
    before = rows @ np.asarray(next(iter(sets.values())).v_minus)
    speeds = " and ".join(dict.fromkeys(f"{rate:.3g}" for rate in before))
    words = (
        f"Each dot is one impulse order. Before the impact {names[0]} and {names[1]} move at {speeds} m/s."
    )
    figure.supxlabel(words, fontsize=8)
    axes.set_xlabel(f"normal velocity of {names[0]} after (m/s)", fontsize=9)
    axes.set_ylabel(f"normal velocity of {names[1]} after (m/s)", fontsize=9)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if title is not None:
        axes.set_title(title, fontsize=10)
    return figure

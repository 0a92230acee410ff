"""What a sample costs against the number of contacts and against the number of samples, with slopes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case


def comb(feet: int) -> tuple[jc.ContactTerms, jax.Array]:
    """A block of 1 kg and 1 m x 0.2 m lands flat on `feet` points, one edge a little faster."""
    x = np.linspace(-0.5, 0.5, feet)
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, (1.0 + 0.04) / 12.0])),
        J_n=jnp.array([[0.0, 1.0, arm] for arm in x]),
        J_t=jnp.array([[[1.0, 0.0, 0.1]]] * feet),
        phi=jnp.zeros(feet),
        mu=jnp.full(feet, 0.5),
        active=jnp.ones(feet, bool),
    )
    return terms, jnp.array([0.3, -1.0, 0.1])


def _comb(feet: int, samples: int, selection: str) -> Callable[[], dict[str, Any]]:
    terms, v = comb(feet)
    return lambda: _figures(terms, v, 1.0 / feet, 10 * feet, samples, selection)


def _gait(samples: int) -> Callable[[], dict[str, Any]]:
    model = jc.models.compass_gait()
    terms = jc.contact_terms(model, model.initial_state())
    return lambda: _figures(
        terms, model.initial_state().v, model.impulse_step, model.max_steps, samples, "all"
    )


def _figures(
    terms: jc.ContactTerms, v: jax.Array, step: Any, max_steps: Any, samples: int, selection: str
) -> dict[str, Any]:
    drawn = jc.impact.sample(
        terms,
        v,
        jc.impact.Routh(impulse_step=step, max_steps=max_steps, selection=selection),
        num_samples=samples,
    )
    ended = np.asarray(drawn.status) == 0
    return {
        "status 0 %": 100 * float(np.mean(ended)),
        "worst residual": float(drawn.residual.max()),
        "LCPs per sample": float(drawn.num_iters.mean()),
    }


def _contacts(feet: int, samples: int, selection: str) -> Case:
    setup = functools.partial(_comb, feet, samples, selection)
    return Case(name=f"scaling contacts={feet} {selection}", items=samples, setup=setup, repeats=3)


CASES = [
    *(_contacts(feet, 2**12 if feet < 5 else 2**10, "all") for feet in range(2, 6)),
    *(_contacts(feet, 2**14, "visited") for feet in range(2, 6)),
    *(_contacts(feet, 2**12, "lemke") for feet in range(2, 9)),
    *(
        Case(name=f"scaling batch={2**power} all", items=2**power, setup=functools.partial(_gait, 2**power))
        for power in range(8, 21, 2)
    ),
]


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Cost per LCP step against contacts, and time of a call against samples, both with fitted slopes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for axis, what in zip(axes, ("contacts", "batch"), strict=True):
        series: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            found = re.fullmatch(rf"scaling {what}=(\d+) (\w+)", row["name"])
            if found and "us_per_item" in row:
                size = int(found[1])
                value = row["us_per_item"] / row["LCPs per sample"]
                point = (size, value if what == "contacts" else row["us_per_item"] * size / 1e3)
                series.setdefault(found[2], []).append(point)
        for label, points in series.items():
            size, value = np.array(sorted(points)).T
            if what == "contacts":
                slope = np.exp(np.polyfit(size, np.log(value), 1)[0])
                axis.semilogy(size, value, "o-", label=f"{label}: x {slope:.2g} per contact")
            else:
                half = size.size // 2
                slope = np.polyfit(np.log(size[half:]), np.log(value[half:]), 1)[0]
                axis.loglog(size, value, "o-", label=f"compass gait, {label}: slope {slope:.2f}")
                axis.loglog(size, value[-1] / size[-1] * size, ":", color="gray", label="in proportion")
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    axes[0].set(xlabel="contacts (feet of a comb)", ylabel="us per step of one sample")
    axes[1].set(xlabel="samples in a call", ylabel="ms per call")
    figure.savefig(path, dpi=110)
    plt.close(figure)

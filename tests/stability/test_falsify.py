"""The falsifier against an independent, event-free time stepping, and charts of certificates and motions."""

import functools
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.stability_bodies import fig2, fig3, random_biped, three_feet
from jax import lax

import jaxcontact as jc
from jaxcontact import viz
from jaxcontact.cli.main import main
from jaxcontact.io.sealed_arrays import read_arrays, write_arrays
from jaxcontact.stability import (
    Region,
    certify,
    chart,
    check,
    falsify,
    is_ambiguous,
    is_equilibrium,
    motion_path,
)
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.chart import FIGURES, figure_2, figure_3
from jaxcontact.stability.falsify import run_many


@functools.partial(jax.jit, static_argnums=3)
def time_stepping(terms, v, gaps, steps):
    """Logarithm of the size after implicit steps 0.01 of the size, contact by Gauss-Seidel.

    A foot that would go below the ground stops on it (Stewart, Trinkle); one that is there and approaches
    rebounds with Newton's coefficient (Moreau).
    """
    g_nn = jnp.sum(terms.J_n**2, axis=1)  # unit mass matrix
    g_tt = jnp.sum(terms.J_t**2, axis=1)

    def step(carry, _):
        v, gaps, log_size = carry
        size = jnp.sqrt(jnp.maximum(v @ v, jnp.max(gaps)))
        v, gaps, log_size = v / size, gaps / size**2, log_size + jnp.log(size)
        dt = 0.01
        least = jnp.where(gaps > 0, -gaps / dt, -terms.e * jnp.minimum(terms.J_n @ v, 0.0))
        least = jnp.where((gaps > 0) & (terms.e > 0), -jnp.inf, least)  # it lands first, and is then on it

        def sweep(_, state):
            v, normal, tangent = state
            for i in range(2):
                push = jnp.maximum(0.0, normal[i] - (terms.J_n[i] @ v - least[i]) / g_nn[i])
                v = v + terms.J_n[i] * (push - normal[i])
                limit = terms.mu[i] * push
                drag = jnp.clip(tangent[i] - terms.J_t[i] @ v / g_tt[i], -limit, limit)
                v = v + terms.J_t[i] * (drag - tangent[i])
                normal, tangent = normal.at[i].set(push), tangent.at[i].set(drag)
            return v, normal, tangent

        v, *_ = lax.fori_loop(0, 40, sweep, (v + dt * terms.force, jnp.zeros(2), jnp.zeros(2)))
        return (v, jnp.maximum(gaps + dt * terms.J_n @ v, 0.0), log_size), None

    (_, _, log_size), _ = lax.scan(step, (v, gaps, 0.0), None, length=steps)
    return log_size


@pytest.mark.slow
def test_time_stepping_confirms_the_verdicts():
    rng = np.random.default_rng(5)
    v, gaps = rng.normal(size=(16, 3)), rng.exponential(size=(16, 2))
    for body, grows in (
        (fig2(0.3, 0.2), True),
        (fig2(0.6, 0.1), True),
        (fig2(0.45, 0.2), True),
        (fig2(0.5, 0.8), False),
        (fig2(0.9, 0.6), False),
        (fig2(0.6, 0.1).replace(e1=0.1, e2=0.1), True),
        (fig2(0.3, 0.2).replace(e1=0.3, e2=0.1), True),
        (fig3(0.5, 0.8), False),
        (fig3(1.2, 0.6, e=0.3), False),
    ):
        found = falsify(body, num_samples=64)
        assert found.found is grows
        assert (certify(body).verdict == "stable") is not grows
        last = jax.vmap(lambda v, g, b=body: time_stepping(as_terms(b), v, g, 8000))(v, gaps)
        assert bool(np.max(last) > np.log(30.0)) is grows, np.max(last)


@pytest.mark.slow
def test_inverse_chatter_is_found():
    assert falsify(fig2(0.4, 0.3), num_samples=64).found


@pytest.mark.long
def test_a_constant_function_meets_the_conditions_as_they_are_printed():
    """Theorems 1 and 2 lack V(x0) = 0: V = 1 >= |x|/h within |x| <= h, and never rises; the body falls."""
    body = fig2(0.45, 0.2)
    assert not bool(is_ambiguous(body)) and bool(is_equilibrium(body))
    found = falsify(body, num_samples=64)
    assert found.found and found.growth > 0
    assert certify(body).verdict == "undecided"  # V_2 is zero at the equilibrium


@pytest.mark.slow
def test_a_diverging_motion_grows_at_every_size():
    body = fig2(0.6, 0.1)
    found = falsify(body, num_samples=64)
    path, note = motion_path(body, found.start, num_events=200)
    assert found.found and found.share[2] > 0.3
    size = np.asarray(path.log_size)
    steps = np.flatnonzero(np.asarray(path.outcome) == 0)
    assert size[steps[-1]] > size[steps[0]] + 1.0
    smaller = jax.tree.map(lambda x: x, found.start).replace(log_size=jnp.asarray(-10.0))
    again, _ = motion_path(body, smaller, num_events=200)
    assert np.allclose(again.log_size[:20], path.log_size[:20] - 10.0, atol=1e-9)
    assert set(np.unique(note["contact"])) >= {-1, 0, 1}


@pytest.fixture(scope="module")
def small_charts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    seen = []
    grid = {"d": np.linspace(0.05, 1.2, 8), "mu1": np.linspace(0.1, 1.2, 6)}
    file = folder / "fig2.npz"
    one = chart(
        figure_2, grid, num_samples=64, run=jc.Run(checkpoint=file, progress=lambda *x: seen.append(x))
    )
    two = chart(figure_3, {"d": [0.3, 1.2], "mu": [0.3, 0.5, 1.2]}, num_samples=64)
    return grid, file, seen, one, two


@pytest.mark.long
def test_charts_have_no_contradiction(small_charts):
    _, _, seen, one, two = small_charts
    assert seen[-1] == (48, 48)
    assert one.contradictions == two.contradictions == 0
    counts = [int(np.sum(one.region == region)) for region in Region]
    assert counts[Region.CERTIFIED] >= 30 and counts[Region.AMBIGUOUS] >= 3 and counts[Region.FALSIFIED] >= 2
    assert counts[Region.UNDECIDED] <= 7
    expected = (one.x[None] < np.tan(np.pi / 6)) & (one.y[:, None] < np.tan(np.pi / 6) - one.x[None])
    assert np.array_equal(one.region == Region.AMBIGUOUS, expected)
    assert np.all(one.diverging[expected] > 0)
    assert np.all(two.region[0] == Region.NO_EQUILIBRIUM)
    assert np.all(two.region[1:] == Region.CERTIFIED)
    assert np.all((one.margin > 0) == (one.region == Region.CERTIFIED))


@pytest.mark.long
def test_a_stopped_chart_goes_on(small_charts, tmp_path):
    grid, file, _, one, _ = small_charts
    stored = read_arrays(file)
    half = tmp_path / "half.npz"
    write_arrays(half, {"about": stored["about"], "rows": stored["rows"][:4]})
    seen = []
    again = chart(
        figure_2, grid, num_samples=64, run=jc.Run(checkpoint=half, progress=lambda *x: seen.append(x))
    )
    assert seen == [(40, 48), (48, 48)]
    for name in ("region", "margin", "diverging"):
        assert np.array_equal(getattr(again, name), getattr(one, name))
    for call, names in (
        (lambda: chart(figure_2, {"d": [0.5], "mu1": [0.5]}, run=jc.Run(checkpoint=half)), "grid, make_body"),
        (
            lambda: chart(figure_2, grid, num_samples=32, run=jc.Run(checkpoint=half)),
            r"num_samples \(64 there, 32 now\)",
        ),
        (
            lambda: chart(
                lambda d, mu1: figure_2(d, mu1).replace(mu2=1.9),
                grid,
                num_samples=64,
                run=jc.Run(checkpoint=half),
            ),
            "make_body",
        ),
    ):
        with pytest.raises(ValueError, match=f"of another run and was left as it is; these differ: {names}"):
            call()
    half.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="cannot be read"):
        chart(figure_2, grid, num_samples=64, run=jc.Run(checkpoint=half))
    with pytest.raises(ValueError, match="two parameters by name"):
        chart(figure_2, {"d": [0.5]})


SETTINGS = {
    "no starts": ({"num_samples": 0}, "num_samples: expected an integer >= 1, got 0"),
    "part of a start": ({"num_samples": 2.5}, "num_samples: expected an integer >= 1, got 2.5"),
    "no events": ({"max_events": 0}, "max_events: expected an integer >= 1, got 0"),
    "too many events": (
        {"max_events": 2**31 - 1},
        "max_events: expected an integer <= 10000000, got 2147483647",
    ),
    "part of a seed": ({"seed": 0.5}, "seed: expected an integer, got 0.5"),
}


@pytest.mark.parametrize("mistake", SETTINGS)
def test_settings_that_show_nothing_are_refused(mistake):
    change, message = SETTINGS[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        falsify(figure_2(0.5, 0.5), **change)
    with pytest.raises((TypeError, ValueError), match=message):
        chart(figure_2, {"d": [0.5], "mu1": [0.5]}, **change)


@pytest.mark.parametrize("values", [[], [0.5, float("nan")]])
def test_a_grid_without_numbers_is_refused(values):
    with pytest.raises(ValueError, match="grid: expected finite values of 'mu1', got"):
        chart(figure_2, {"d": [0.5], "mu1": values})


@pytest.mark.slow
def test_one_event_is_one_event():
    terms = jax.tree.map(lambda x: np.asarray(x)[None], as_terms(figure_2(0.8, 0.8)))
    for max_events in (1, 3):
        _, end = run_many(terms, 8, 0, max_events)
        assert int(np.max(end.events)) == max_events


@pytest.mark.slow
def test_a_killed_command_goes_on(tmp_path):
    """Killed after its first row, the command goes on behind it and draws the chart it would have drawn."""
    command = [sys.executable, "-m", "jaxcontact", "stability", "--chart", "fig3", "--points", "4"]
    running = subprocess.Popen([*command, "--out", str(tmp_path / "killed")], stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "killed" / "stability_fig3_4.npz"
    while not checkpoint.exists():
        assert running.poll() is None
        time.sleep(0.02)
    running.kill()
    running.wait()
    with np.load(checkpoint) as data:
        assert 1 <= len(data["rows"]) < 4
    for folder in ("killed", "whole"):
        subprocess.run([*command, "--out", str(tmp_path / folder)], check=True, capture_output=True)
    ends = []
    for folder in ("killed", "whole"):
        with np.load(tmp_path / folder / "stability_fig3_4.npz") as data:
            ends.append(data["rows"])
        assert (tmp_path / folder / "stability_fig3_4.png").exists()
    assert np.array_equal(*ends)


def test_the_picture_shows_every_region(small_charts, tmp_path):
    figure = viz.plot_stability_chart(small_charts[3], title="slope")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("proven" in label for label in labels) and any("by itself" in label for label in labels)
    shown, dots = figure.axes[0].collections
    assert np.array_equal(np.ravel(shown.get_array()), np.ravel(small_charts[3].region))
    assert len(dots.get_offsets()) == np.sum(small_charts[3].region == Region.CERTIFIED)
    figure.savefig(tmp_path / "chart.png", dpi=60)


def test_the_command(capsys, tmp_path, saved):
    assert main(["stability", "--alpha", "30", "--d", "0.8", "--mu1", "0.8", "--mu2", "2", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["verdict"] == "stable" and summary["checked"] and summary["diverging_motions"] == 0
    assert main(["stability", "--mu1", "-1"]) == 2
    assert "mu1: expected friction" in capsys.readouterr().err
    arguments = ["stability", "--chart", "fig2", "--points", "3", "--out", str(tmp_path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "contradictions   0" in out
    (axes,) = saved["stability_fig2_3.png"].axes
    assert axes.collections[0].get_array().size == 9 and (axes.get_xlabel(), axes.get_ylabel()) == tuple(
        FIGURES["fig2"][1]
    )
    assert (tmp_path / "stability_fig2_3.png").exists()
    assert main([*arguments, "--points", "1"]) == 2


@pytest.mark.slow
def test_motions_on_three_feet_in_a_line_are_decided():
    """Their gaps depend on each other: rounding in one must not keep a state that shrinks from its rest."""
    frictions = (0.66, 0.31, 0.09), (0.65, 0.93, 0.47), (0.4, 0.6, 0.4)
    for alpha, mu, e in zip((0.2, 0.4, 0.3), frictions, (0.0, 0.0, 0.3), strict=True):
        share = falsify(three_feet(alpha, mu, e), num_samples=128).share
        assert share[0] == share[3] == 0.0


@pytest.mark.slow
def test_no_contradiction_among_random_bodies():
    """Inclined grounds, any friction and restitution; most of those in equilibrium are certified."""
    rng, verdicts = np.random.default_rng(3), []
    for _ in range(150):
        body = random_biped(rng, [0, 0.1, 0.4])
        if is_equilibrium(body):
            certificate = certify(body)
            assert check(certificate) is (certificate.verdict != "undecided")
            assert not (certificate.verdict == "stable" and falsify(body, num_samples=64).found)
            verdicts.append(certificate.verdict)
    assert len(verdicts) > 100 and verdicts.count("stable") > 0.75 * len(verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig2", "fig3"])
def test_no_contradiction_on_the_whole_charts(name):
    make_body, ranges = FIGURES[name]
    found = chart(make_body, {key: np.linspace(*ends, 30) for key, ends in ranges.items()})
    assert found.contradictions == 0
    assert np.sum(found.region == Region.CERTIFIED) >= {"fig2": 750, "fig3": 840}[name]
    assert np.sum(found.region == Region.UNDECIDED) <= {"fig2": 1, "fig3": 0}[name]

"""The sensitivities and the highest energy of `jaxcontact impact`, beside samples of changed robots."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.cli.main import main
from jaxcontact.cli.report import as_text
from jaxcontact.impact.analysis.order_search import highest_energy
from jaxcontact.impact.sampling import lemke_on_host
from jaxcontact.impact.sampling.outcomes import outcome_labels

pytestmark = pytest.mark.skipif(not lemke_on_host.is_offered(np.zeros(1)), reason="needs machine code")


@pytest.mark.long
def test_a_quadruped_says_which_number_decides_who_sticks(capsys, tmp_path, saved):
    """The rows of two numbers are those of samples that the test draws with the number changed."""
    arguments = ["impact", "quadruped", "--fall", "1", "--samples", "64", "--out", str(tmp_path), "--json"]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert saved
    found = summary["sensitivity"]
    rows = {row["name"]: row for group in found["numbers"].values() for row in group}
    assert set(found["numbers"]) == {"velocity", "position", "mass", "friction"}
    assert summary["energy_ratio"][1] - 1e-9 <= summary["highest_energy_ratio"] <= 1.0
    with np.load(tmp_path / "quadruped_impact.npz") as data:
        terms = jc.ContactTerms(**{name: data[name] for name in ("M", "J_n", "J_t", "phi", "mu", "active")})
        v = data["v_minus"]
    law = jc.impact.Routh(
        impulse_step=summary["impulse_step"], max_steps=summary["max_steps"], selection="lemke"
    )
    body = next(iter(summary["contacts"].values()))
    of_body = np.array([name == body for name in summary["contacts"].values()])
    push = 0.1 * np.eye(v.size)[0]
    cases = {
        f"friction of {body}": [(np.where(of_body, mu, 1.0) * terms.mu, v) for mu in (0.9, 1.1)],
        "velocity along x": [(terms.mu, v - push), (terms.mu, v + push)],
    }
    for name, ends in cases.items():
        labels, energies = [], []
        for mu, before in ends:
            shifted = terms.replace(mu=jax.numpy.asarray(mu))
            samples = jc.impact.sample(shifted, before, law, num_samples=found["orders"])
            labels.append(outcome_labels(samples, shifted))
            energies.append(float(np.mean(samples.energy_ratio)))
        elsewhere = np.mean(np.any(labels[0] != labels[1], axis=1))
        assert rows[name]["end_elsewhere"] == pytest.approx(elsewhere, abs=1e-12)
        assert rows[name]["energy_ratio"] == pytest.approx(energies, rel=1e-9)
    masses = [row["name"] for row in found["numbers"]["mass"]]
    assert masses and set(masses) <= {f"mass of {name}" for name in jc.models.quadruped().structure.bodies}
    text = as_text(summary)
    assert "the highest found by search" in text and f"friction of {body}" in text
    assert max(map(len, text.splitlines())) < 130


@pytest.mark.long
def test_the_derivative_of_a_landing_is_that_of_differences(capsys, tmp_path):
    """Its energy at a mass and a velocity a little aside, by the same order."""
    file = Path(jc.__file__).parent / "models" / "mjcf" / "hopper.xml"
    arguments = ["impact", str(file), "--planar", "--keyframe", "landing", "--mu", "0.3", "--samples", "64"]
    assert main([*arguments, "--out", str(tmp_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    slopes = summary["derivative"]["slopes"]
    model = jc.load_mjcf(str(file), keyframe="landing", planar=True)
    law = jc.impact.Routh(impulse_step=summary["impulse_step"], max_steps=summary["max_steps"])

    touch = np.flatnonzero(jc.contact_terms(model, model.initial_state()).active)

    @jax.jit
    def kept(hip, shank):
        masses = jax.numpy.ones(4).at[2].set(1.0 + shank)
        params = model.params
        changed = params.replace(mass=params.mass * masses, inertia=params.inertia * masses)
        changed = changed.replace(mu=jax.numpy.full_like(params.mu, 0.3))
        state = model.initial_state()
        terms = jc.contact_terms(model.replace(params=changed), state)
        v = state.v.at[3].add(hip)
        v_plus, _ = law(terms.take(touch), v, jax.random.key(0))
        return (v_plus @ terms.M @ v_plus) / (v @ terms.M @ v)

    assert kept(0.0, 0.0) == pytest.approx(summary["derivative"]["energy_ratio"], rel=1e-9)
    size = 1e-5
    by_hip = (kept(size, 0.0) - kept(-size, 0.0)) / (2.0 * size)
    by_shank = (kept(0.0, size) - kept(0.0, -size)) / (2.0 * size)
    assert slopes["rate of hip"] == [pytest.approx(float(by_hip), rel=1e-6), "rad/s"]
    assert slopes["mass of shank"] == [pytest.approx(0.1 * float(by_shank), rel=1e-6), "10 %"]
    assert "% per rad/s" in as_text(summary)


FOOT = """<body pos="0 {y} -0.2"><joint axis="1 0 0"/><joint axis="0 1 0"/>
<geom type="box" size="0.1 0.04 0.02" mass="1" friction="0.7"/></body>"""
BIPED = f"""<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" friction="0.7"/>
<body pos="0 0 1"><freejoint/><geom type="box" size="0.1 0.2 0.1" mass="20" contype="0" conaffinity="0"/>
{FOOT.format(y=0.1)}{FOOT.format(y=-0.1)}</body></worldbody></mujoco>"""


@pytest.mark.long
def test_eight_corners_of_two_feet_are_searched(capsys, tmp_path, saved):
    """Each step is searched for several outcomes, and the highest energy is searched as well."""
    file = tmp_path / "biped.xml"
    file.write_text(BIPED)
    arguments = ["impact", str(file), "--fall", "1", "--samples", "64", "--out", str(tmp_path), "--json"]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert saved and len(summary["contacts"]) == 8
    assert summary["selection"] == "visited" and 0.0 < summary["miss_bound"] < 1.0
    assert summary["terminated"] == 1.0 and summary["lcps_per_sample"] < 8.0
    assert summary["energy_ratio"][1] - 1e-9 <= summary["highest_energy_ratio"] <= 1.0
    assert "searched: at most" in as_text(summary)


def test_contacts_that_do_the_same_share_a_line():
    velocities = {name: {"normal": [0.0, 0.0], "tangential": [0.0, 0.0]} for name in "ABCDE"}
    velocities["F"] = {"normal": [0.0, 0.5], "tangential": [0.0, 0.0]}
    summary = {
        "model": "feet", "samples": 8, "impulse_step": 1.0, "max_steps": 4, "complete": True,
        "outcomes": {", ".join(f"{name} sticks" for name in "ABCDEF"): 0.5,
                     ", ".join(f"{name} {'slides' if name == 'A' else 'sticks'}" for name in "ABCDEF"): 0.5},
        "contact_velocity": velocities, "energy_ratio": [0.1, 0.2], "terminated": 1.0,
        "lcps_per_sample": 1.0, "worst_residual": 0.0, "compile_seconds": None, "files": [],
        "seconds_spent": {"sample": 1.0}, "microseconds_per_sample": 1.0, "selection": "all",
    }  # fmt: skip
    text = as_text(summary)
    assert "all 6 stick\n" in text and "A slides, B C D E F stick\n" in text
    assert "A .. E (5)" in text and text.count("normal ") == 2


@pytest.mark.long
def test_the_highest_energy_is_reached_and_no_less_than_that_of_samples():
    """Two bodies on a floor: without friction each stops dead, and orders cannot change that."""
    terms = jc.ContactTerms(
        M=np.diag([1.0, 1.0, 2.0, 3.0, 3.0, 1.0]), J_n=np.eye(6)[[2, 5]], J_t=np.eye(6)[[[0, 1], [3, 4]]],
        phi=np.zeros(2), mu=np.zeros(2), active=np.ones(2, bool),
    )  # fmt: skip
    terms = jax.tree.map(jax.numpy.asarray, terms)
    v = jax.numpy.array([1.0, 0.0, -1.0, 0.0, 2.0, -1.0])
    law = jc.impact.Routh(selection="lemke", max_steps=16)
    left = 1.0 + 3.0 * 4.0
    assert highest_energy(terms, v, law, 4) == pytest.approx(left / (left + 2.0 + 1.0), rel=1e-9)

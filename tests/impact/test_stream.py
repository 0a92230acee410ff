"""How a run is cut up does not show in its samples: chunks, threads, devices, reduction, resuming."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact import stream
from jaxcontact.impact.draws import sobol

SETTINGS = {"step": 0.25, "max_steps": 5}


@pytest.fixture(scope="module")
def gait() -> tuple[jc.ContactTerms, jax.Array]:
    model = jc.models.compass_gait()
    return jc.contact_terms(model.system, model.params, model.state), model.state.v


def same_bits(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def test_chunk_size_does_not_show(
    gait: tuple[jc.ContactTerms, jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms, v = gait
    whole = jc.impact.sample(terms, v, num_samples=5000, **SETTINGS)
    monkeypatch.setattr(stream, "CHUNK", 512)
    assert same_bits(whole, jc.impact.sample(terms, v, num_samples=5000, **SETTINGS))
    fewer = jc.impact.sample(terms, v, num_samples=1300, **SETTINGS)
    assert np.array_equal(whole.v_plus[:1300], fewer.v_plus)


def test_reduce_sees_every_chunk_in_order(
    gait: tuple[jc.ContactTerms, jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms, v = gait
    monkeypatch.setattr(stream, "CHUNK", 512)
    whole = jc.impact.sample(terms, v, num_samples=2000, **SETTINGS)

    def collect(parts: list | None, samples: jc.impact.ImpactSamples) -> list:
        return [*(parts or []), np.asarray(samples.v_plus)]

    seen: list[tuple[int, int]] = []
    parts = jc.impact.sample(
        terms,
        v,
        num_samples=2000,
        reduce=collect,
        progress=lambda done, total: seen.append((done, total)),
        **SETTINGS,
    )
    assert np.array_equal(np.concatenate(parts), whole.v_plus)
    assert seen == [(512, 2000), (1024, 2000), (1536, 2000), (2000, 2000)]


@pytest.mark.parametrize("selection", ["all", "visited"])
def test_resuming_and_sharing_give_the_same_chunks(
    selection: str, gait: tuple[jc.ContactTerms, jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms, v = gait
    monkeypatch.setattr(stream, "CHUNK", 512)
    source = stream.Stream(terms, v, sobol(15, 0), jnp.full(2, 0.25), 5, selection=selection)
    chunks = list(source.chunks(5000))
    resumed = list(source.chunks(5000, begin=chunks[3].end, visited=chunks[3].visited))
    assert [(c.begin, c.end) for c in resumed] == [(c.begin, c.end) for c in chunks[4:]]
    assert all(same_bits(a.samples, b.samples) for a, b in zip(chunks[4:], resumed, strict=True))
    if selection == "all":
        halves = [list(source.chunks(5000, share=(i, 2))) for i in range(2)]
        merged = sorted([*halves[0], *halves[1]], key=lambda chunk: chunk.begin)
        assert all(same_bits(a.samples, b.samples) for a, b in zip(chunks, merged, strict=True))


SCRIPT = """
import hashlib, jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
from jaxcontact.impact import stream
stream.CHUNK = 512
model = jc.models.compass_gait()
terms = jc.contact_terms(model.system, model.params, model.state)
samples = jc.impact.sample(terms, model.state.v, step=0.25, max_steps=5, num_samples=4000)
print(len(jax.local_devices()), hashlib.sha256(np.asarray(samples.v_plus).tobytes()).hexdigest())
"""


def test_four_devices_give_the_bits_of_one() -> None:
    def run(devices: int) -> list[str]:
        flags = f"--xla_force_host_platform_device_count={devices}"
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"XLA_FLAGS": flags},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    one, four = run(1), run(4)
    assert (one[0], four[0]) == ("1", "4")
    assert one[1] == four[1]

"""How a run is cut up does not show in its samples: chunks, threads, devices, reduction, resuming."""

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw

import jaxcontact as jc
from jaxcontact.impact.laws.routh_law import FittedRouth
from jaxcontact.impact.sampling import stream
from jaxcontact.impact.sampling.draws import Iid, sobol

SETTINGS = {"impulse_step": 0.25, "max_steps": 5}


@pytest.fixture(scope="module")
def gait() -> tuple[jc.ContactTerms, jax.Array]:
    model = jc.models.compass_gait()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


def numbers(impulse_step: float, selection: str) -> FittedRouth:
    """The law of two contacts, as a stream takes it."""
    return FittedRouth(impulse_step=jnp.full(2, impulse_step), max_steps=5, selection=selection)


def same_bits(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


@pytest.mark.parametrize("selection", ["all", "visited"])
def test_chunk_size_does_not_show(selection: str, gait: tuple[jc.ContactTerms, jax.Array]) -> None:
    terms, v = gait
    whole = draw(terms, v, num_samples=5000, selection=selection, **SETTINGS)
    for chunk in (97, 512, 2**16):
        cut = draw(terms, v, num_samples=5000, selection=selection, chunk=chunk, **SETTINGS)
        assert same_bits(whole, cut)
    fewer = draw(terms, v, num_samples=1300, selection=selection, **SETTINGS)
    assert np.array_equal(whole.v_plus[:1300], fewer.v_plus)


def test_reduce_sees_every_chunk_in_order(gait: tuple[jc.ContactTerms, jax.Array]) -> None:
    terms, v = gait
    whole = draw(terms, v, num_samples=2000, **SETTINGS)

    def collect(parts: list | None, samples: jc.impact.ImpactSamples) -> list:
        return [*(parts or []), np.asarray(samples.v_plus)]

    seen: list[tuple[int, int]] = []
    parts = draw(
        terms,
        v,
        num_samples=2000,
        chunk=512,
        reduce=collect,
        progress=lambda done, total: seen.append((done, total)),
        **SETTINGS,
    )
    assert np.array_equal(np.concatenate(parts), whole.v_plus)
    assert seen == [(512, 2000), (1024, 2000), (1536, 2000), (2000, 2000)]


def test_a_chunk_may_be_larger_than_a_call_of_the_kernel(gait: tuple[jc.ContactTerms, jax.Array]) -> None:
    terms, v = gait
    total = 2**14 + 9
    sizes = draw(terms, v, num_samples=total, chunk=2**15, reduce=lambda _, s: s.v_plus.shape, **SETTINGS)
    assert sizes == (total, 4)


def few_modes(terms: jc.ContactTerms, v: jax.Array, pilot: int, monkeypatch: pytest.MonkeyPatch):
    """A source whose first blocks are so small that later ones meet new modes."""
    monkeypatch.setattr(stream, "PILOT", pilot)
    return stream.Stream(terms, v, sobol(15, 0), numbers(0.25, "visited"))


@pytest.mark.slow_cases("all")
@pytest.mark.parametrize("selection", ["all", pytest.param("visited", marks=pytest.mark.slow)])
def test_resuming_gives_the_same_chunks(
    selection: str, gait: tuple[jc.ContactTerms, jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any chunk on, also one in the middle of a block of "visited" that has met new modes."""
    source = few_modes(*gait, 8, monkeypatch)
    if selection == "all":
        source = stream.Stream(*gait, sobol(15, 0), numbers(0.25, "all"))
    chunks = list(source.chunks(600, 7))
    if selection == "visited":
        assert sum(bool(chunk.facts.size) for chunk in chunks) > 2
    for k in (1, 5, 40, len(chunks)):
        rest = list(source.chunks(600, 7, done=[(c.end, c.facts) for c in chunks[:k]]))
        assert [(c.begin, c.end) for c in rest] == [(c.begin, c.end) for c in chunks[k:]]
        assert all(same_bits(a.samples, b.samples) for a, b in zip(chunks[k:], rest, strict=True))


@pytest.mark.slow
def test_a_sample_that_meets_a_new_mode_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the table of all modes, and from before the step: all outcomes are those of "all"."""
    model = jc.models.disk_stack()
    terms = jc.contact_terms(model, model.initial_state())
    monkeypatch.setattr(stream, "PILOT", 8)
    monkeypatch.setattr(stream, "GROWTH", 100)
    every, visited = (
        jc.impact.sample(
            terms,
            model.initial_state().v,
            jc.impact.Routh(selection=selection, impulse_step=0.25, max_steps=40),
            num_samples=600,
        ).v_plus
        for selection in ("all", "visited")
    )
    np.testing.assert_allclose(visited, every, atol=1e-12)


@pytest.mark.slow
def test_more_room_is_compiled_only_for_long_blocks(
    gait: tuple[jc.ContactTerms, jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is no room for is left to the table of all modes; the same samples come out."""

    def sizes_and_outcomes(long: int) -> tuple[int, np.ndarray]:
        monkeypatch.setattr(stream, "LONG_BLOCK", long)
        source = few_modes(*gait, 2, monkeypatch)
        chunks = list(source.chunks(600))
        return len(source.compiled), np.concatenate([chunk.samples.v_plus for chunk in chunks])

    (few, frozen), (more, grown) = sizes_and_outcomes(10**9), sizes_and_outcomes(0)
    assert few == 2 < more
    assert np.mean(np.max(np.abs(frozen - grown), axis=1) > 1e-9) < 0.01  # what a set of few modes missed


@pytest.mark.parametrize("selection", ["all", pytest.param("lemke", marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [lambda: sobol(15, 0), lambda: Iid(key=jax.random.key(0))])
def test_no_sample_comes_again_after_two_to_the_32(
    make: Any, selection: str, gait: tuple[jc.ContactTerms, jax.Array]
) -> None:
    """A chunk over the edge: before it the numbers go on, behind it there are others than at the beginning."""
    source = stream.Stream(*gait, make(), numbers(0.02, selection))  # cut short: all differ
    device, edge = jax.devices()[0], 2**32
    across = source.compute(edge - 3, edge + 5, None, device)
    assert (across.begin, across.end, len(across.samples.v_plus)) == (edge - 3, edge + 5, 8)
    first = source.compute(0, 8, None, device).samples.v_plus
    assert len(np.unique(np.concatenate([first, across.samples.v_plus]).round(12), axis=0)) > 12
    for cut in (edge - 3, edge - 1, edge, edge + 2):  # the same bits however the run is cut
        part = source.compute(cut, edge + 5, None, device).samples
        assert np.array_equal(part.v_plus, across.samples.v_plus[cut - edge + 3 :])


@pytest.mark.parametrize("count", [2, 3])
def test_shares_cover_everything_once(count: int, gait: tuple[jc.ContactTerms, jax.Array]) -> None:
    terms, v = gait
    source = stream.Stream(terms, v, sobol(15, 0), numbers(0.25, "all"))
    chunks = list(source.chunks(5000, 512))
    parts = [list(source.chunks(5000, 512, share=(i, count))) for i in range(count)]
    assert all(parts)
    merged = [chunk for part in parts for chunk in part]
    assert [(c.begin, c.end) for c in merged] == [(c.begin, c.end) for c in chunks]
    assert all(same_bits(a.samples, b.samples) for a, b in zip(chunks, merged, strict=True))
    rows = source.shares(5000, 512, count)
    assert [(part[0].begin, part[-1].end) for part in parts] == rows[0]


SCRIPT = """
import hashlib, jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
model = jc.models.compass_gait()
terms = jc.contact_terms(model, model.initial_state())
law = jc.impact.Routh(impulse_step=0.25, max_steps=5)
samples = jc.impact.sample(terms, model.initial_state().v, law, num_samples=4000, run=jc.Run(chunk=512))
print(len(jax.local_devices()), hashlib.sha256(np.asarray(samples.v_plus).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_four_devices_give_the_bits_of_one() -> None:
    def run(devices: int) -> list[str]:
        flags = f"--xla_force_host_platform_device_count={devices}"
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    one, four = run(1), run(4)
    assert (one[0], four[0]) == ("1", "4")
    assert one[1] == four[1]


PROCESS = """
import hashlib, sys, jax, numpy as np
jax.config.update("jax_enable_x64", True)
jax.distributed.initialize(f"localhost:{sys.argv[1]}", 2, int(sys.argv[2]))
import jaxcontact as jc
from jaxcontact.impact.sampling import processes, stream
processes.SLAB = 1000
stream.PILOT, stream.GROWTH = 8, 100  # later blocks of "visited" meet new modes
model = jc.models.compass_gait()
terms = jc.contact_terms(model, model.initial_state())
v = model.initial_state().v
for selection in sys.argv[3:]:
    seen = []
    law = jc.impact.Routh(impulse_step=0.25, max_steps=5, selection=selection)
    run = jc.Run(chunk=300, progress=lambda done, total: seen.append((done, total)))
    samples = jc.impact.sample(terms, v, law, num_samples=4000, run=run)
    assert seen[-1][0] == seen[-1][1] < 4000, seen
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves(samples):
        hashed.update(np.asarray(leaf).tobytes())
    own = jc.impact.sample(terms, v, law, num_samples=4000, reduce=lambda n, s: (n or 0) + s.status.size,
                           run=jc.Run(chunk=300))
    print("bits", selection, hashed.hexdigest(), own)
tiny = jc.impact.sample(terms, v, law, num_samples=3)
assert np.array_equal(tiny.v_plus, samples.v_plus[:3])  # one process had nothing to do
try:
    jc.impact.sample(terms, v, law, num_samples=4000, run=jc.Run(checkpoint="nowhere"))
except ValueError as error:
    assert "one process" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.slow_cases("all")
@pytest.mark.parametrize(
    "selections", [["all"], pytest.param(["all", "visited"], marks=pytest.mark.slow)], ids=["all", "both"]
)
def test_two_processes_give_the_bits_of_one(
    gait: tuple[jc.ContactTerms, jax.Array], selections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", PROCESS, str(port)]
    runs = [
        subprocess.Popen(
            [*command, str(i), *selections], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for i in range(2)
    ]
    try:
        outputs = [run.communicate(timeout=400) for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0, 0], outputs
    lines = [[line.split() for line in out.splitlines() if line.startswith("bits")] for out, _ in outputs]

    monkeypatch.setattr(stream, "PILOT", 8)
    monkeypatch.setattr(stream, "GROWTH", 100)
    for k, selection in enumerate(selections):
        samples = draw(*gait, selection=selection, num_samples=4000, **SETTINGS)
        hashed = hashlib.sha256()
        for leaf in jax.tree.leaves(samples):
            hashed.update(np.asarray(leaf).tobytes())
        assert [process[k][:3] for process in lines] == [["bits", selection, hashed.hexdigest()]] * 2
        assert sum(int(process[k][3]) for process in lines) == 4000


MEMORY = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
model = jc.models.compass_gait()
terms = jc.contact_terms(model, model.initial_state())
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
def run(number, checkpoint=None, **options):
    law, kept = jc.impact.Routh(impulse_step=0.25, max_steps=5), jc.Run(checkpoint=checkpoint)
    return jc.impact.sample(terms, model.initial_state().v, law, num_samples=number, run=kept, **options)
run(2**18, reduce=lambda a, s: 0, checkpoint=sys.argv[1] + "/warm")
marks = [peak()]
run(2**21, reduce=lambda a, s: 0, checkpoint=sys.argv[1] + "/run")
marks.append(peak())
samples = run(2**21)
marks.append(peak())
print(*marks, sum(leaf.nbytes for leaf in jax.tree.leaves(samples)) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the peak of memory from /proc")
def test_memory(tmp_path: Path) -> None:
    """A streamed run is flat; a run in memory needs little beyond its output. In MiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True
    )
    warm, streamed, in_memory, output = map(float, done.stdout.split())
    assert output > 170
    assert streamed < warm + 20
    assert streamed < 2048
    assert in_memory < streamed + 1.2 * output

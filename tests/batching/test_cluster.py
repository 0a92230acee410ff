"""Drivers on a small cluster of Dask: the bits of one process, whatever the workers do."""

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drifting import Drift
from helpers.sliding_disc import PARAMS, STATE, SYSTEM

import jaxcontact as jc
from benchmarks import runner
from jaxcontact.batching.remote_blocks import ExecutorError, count_workers
from jaxcontact.cli import cluster as cluster_option
from jaxcontact.cli import main
from jaxcontact.io.run_store import num_finished
from jaxcontact.stability.chart import figure_2

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


def same_bits(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def local_cluster(**options):
    quiet = {"dashboard_address": ":0", "silence_logs": "CRITICAL"}
    return distributed.LocalCluster(**quiet, **options)


@pytest.fixture(scope="module")
def threads():
    """Two workers as threads: Dask with its messages, and nothing compiled twice."""
    with (
        local_cluster(n_workers=2, threads_per_worker=1, processes=False) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        yield executor


@pytest.fixture(scope="module")
def gait():
    model = jc.models.compass_gait()
    return jc.contact_terms(model, model.initial_state()), model.initial_state().v


LAW = jc.impact.Routh(impulse_step=0.25, max_steps=5)


def sum_of(samples):
    return np.asarray(samples.v_plus).sum(axis=0)


def add(a, b):
    return a + b


def test_samples_of_a_cluster_are_those_of_one_process(threads, gait, tmp_path):
    assert count_workers(threads) == 2
    reference = jc.impact.sample(*gait, LAW, num_samples=3000)
    seen = []
    run = jc.Run(executor=threads, chunk=400, progress=lambda done, total: seen.append((done, total)))
    assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=3000, run=run))
    assert seen[-1] == (3000, 3000) and len(seen) == 8
    stored = jc.Run(executor=threads, chunk=400, checkpoint=tmp_path / "run")
    assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=3000, run=stored))
    assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=3000, run=jc.Run(checkpoint=tmp_path / "run", chunk=400)))  # fmt: skip


def test_a_part_is_computed_by_the_worker_and_merged_in_order(threads, gait):
    reduce = jc.Reduction(sum_of, add)
    one = jc.impact.sample(*gait, LAW, num_samples=3000, reduce=reduce, run=jc.Run(chunk=400))
    many = jc.impact.sample(
        *gait, LAW, num_samples=3000, reduce=reduce, run=jc.Run(chunk=400, executor=threads)
    )
    by_hand = None
    for samples in jc.impact.sample(
        *gait, LAW, num_samples=3000, reduce=lambda a, s: [*(a or []), s], run=jc.Run(chunk=400)
    ):
        by_hand = sum_of(samples) if by_hand is None else by_hand + sum_of(samples)
    assert same_bits(one, many) and same_bits(one, by_hand)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"selection": "visited"}, {"selection": "lemke"}, {"restitution": 0.3}])
def test_other_laws_on_a_cluster(threads, gait, settings):
    law = LAW.replace(**settings)
    run = jc.Run(executor=threads, chunk=400)
    one, many = (jc.impact.sample(*gait, law, num_samples=9000, run=r) for r in (jc.Run(), run))
    assert same_bits(one, many)
    key = jax.random.key(3)
    one, many = (jc.impact.sample(*gait, law, num_samples=900, seed=key, run=r) for r in (jc.Run(), run))
    assert same_bits(one, many)


def worlds(run, reduce=None, num_worlds=300):
    model = jc.Model(system=SYSTEM, params=PARAMS)
    return jc.simulate.ensemble(
        model,
        STATE,
        jc.simulate.MotionSettings(stepper=Drift(size=0.1), duration=0.05, dt=0.01),
        num_worlds=num_worlds,
        reduce=reduce,
        run=run,
    )


def mean_of(part):
    return np.asarray(part.states.q).sum(axis=0)


def test_worlds_of_a_cluster_are_those_of_one_process(threads, tmp_path):
    reference = worlds(jc.Run())
    assert same_bits(reference, worlds(jc.Run(executor=threads, chunk=100)))
    assert same_bits(reference, worlds(jc.Run(executor=threads, checkpoint=tmp_path / "run")))
    reduce = jc.Reduction(mean_of, add)
    one = worlds(jc.Run(chunk=100), reduce)
    assert same_bits(one, worlds(jc.Run(chunk=100, executor=threads), reduce))


class End(NamedTuple):
    cost: float
    residual: float
    status: np.uint32


def test_a_start_that_fails_ends_alone(threads, tmp_path):
    """The basins of (x^2 - 1)^2: Newton's steps from each start; from 0 there is none."""

    def search(x):
        if float(x[0]) == 0.0:
            raise FloatingPointError("no slope at 0")
        for _ in range(40):
            x = x - 0.05 * (4.0 * x * (x**2 - 1.0) + 0.1)
        return x, End(cost=float(((x**2 - 1.0) ** 2 + 0.1 * x)[0]), residual=0.0, status=np.uint32(0))

    starts = jnp.array([[0.0], [0.5], [-0.5], [2.0]])
    best, info = jc.optimize.search_from_starts(search, starts)
    assert info.best == 2 and abs(float(best[0]) + 1.0) < 0.02
    assert info.failure == "no slope at 0" and np.isinf(info.costs[0])
    run = jc.Run(executor=threads, checkpoint=tmp_path / "run", about={"search": "basins"})
    assert same_bits((best, info), jc.optimize.search_from_starts(search, starts, run=run))
    again = jc.optimize.search_from_starts(search, starts, run=run)
    assert same_bits(best, again[0])
    with pytest.raises(ValueError, match="run.about: expected"):
        jc.optimize.search_from_starts(search, starts, run=jc.Run(checkpoint=tmp_path / "other"))
    with pytest.raises(FloatingPointError, match="from each of 1 failed; the first: no slope at 0"):
        jc.optimize.search_from_starts(search, starts[:1])


@pytest.mark.slow
def test_groups_of_starts_of_extreme(threads, gait, monkeypatch):
    """The first group is the search of a single group; more starts never give less."""
    monkeypatch.setattr(sys.modules[jc.impact.extreme.__module__], "GROUP", 8)
    options = {"num_iters": 8, "seed": 1}
    few = jc.impact.extreme(*gait, LAW, gait[0].J_n[0], num_starts=8, **options)
    one = jc.impact.extreme(*gait, LAW, gait[0].J_n[0], num_starts=24, **options)
    many = jc.impact.extreme(
        *gait, LAW, gait[0].J_n[0], num_starts=24, run=jc.Run(executor=threads), **options
    )
    assert same_bits(one, many)
    assert one.values.shape == (24,) and same_bits(one.values[:8], few.values)
    np.testing.assert_allclose(one.value, jnp.max(one.values), rtol=1e-12)
    assert jnp.max(one.values) >= jnp.max(few.values)


@pytest.mark.slow
def test_cases_of_benchmarks_on_a_cluster():
    cases = [(3.0, 4.0), (6.0, 8.0), (5.0, 12.0)]
    with local_cluster(n_workers=2, processes=False, protocol="tcp://") as cluster:
        addresses = (None, cluster.scheduler_address)
        found = [
            list(runner.results_of(math.hypot, cases, argparse.Namespace(cluster=address)))
            for address in addresses
        ]
    assert found == [[5.0, 10.0, 13.0]] * 2
    with pytest.raises(SystemExit, match="--cluster: expected tcp://HOST:PORT"):
        list(runner.results_of(math.hypot, cases, argparse.Namespace(cluster="here")))


@pytest.mark.long
def test_charts_and_sets_of_a_cluster(threads, gait):
    pytest.importorskip("clarabel")
    grid = {"d": np.array([0.3, 0.8]), "mu1": np.array([0.2, 0.6, 1.0])}
    one, many = (
        jc.stability.chart(figure_2, grid, num_samples=4, max_events=50, run=run)
        for run in (jc.Run(), jc.Run(executor=threads))
    )
    assert same_bits(one, many)
    one, many = (
        jc.impact.approximate_set(*gait, LAW.replace(max_steps=1), num_samples=700, tolerance=0.1, run=run)
        for run in (jc.Run(), jc.Run(executor=threads, chunk=300))
    )
    assert same_bits(one, many)


@pytest.mark.long
def test_a_worker_process_has_the_bits_of_this_one(gait):
    """A process of its own, started without double precision: the block carries the setting."""
    reference = jc.impact.sample(*gait, LAW, num_samples=3000)
    with (
        local_cluster(n_workers=1, threads_per_worker=1) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        run = jc.Run(executor=executor, chunk=400)
        assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=3000, run=run))


# ------------------------------------------------------------------------------------------------------ faults


class Site:
    """A scheduler and workers as processes, each of which a test may kill."""

    def __init__(self, folder, environments=({},)):
        self.file = folder / "scheduler.json"
        self.processes = [self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", {})]
        self.processes += [self._start("dask_worker", "--nthreads", "1", e) for e in environments]
        self.client = distributed.Client(scheduler_file=str(self.file), timeout=60)
        self.client.wait_for_workers(len(environments), timeout=60)

    def _start(self, program, *options):
        *options, environment = options
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(self.file)]
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])} | environment
        settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
        return subprocess.Popen(
            [*command, *options, "--no-dashboard"], cwd="/", env=os.environ | settings | paths,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close(timeout=1)
        for process in self.processes:
            process.kill()
            process.wait()


ROOT = Path(jc.__file__).parent.parent


def act_at(number, action):
    """Make a function for progress that acts once, when `number` samples are done."""
    acted = []

    def progress(done, total):
        if done >= number and not acted:
            acted.append(done)
            action()

    return progress


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_killed_or_stopped_in_the_middle(gait, tmp_path, sent):
    """The scheduler gives its blocks to the other one, at once or when the silence has lasted its limit."""
    reference = jc.impact.sample(*gait, LAW, num_samples=100_000)
    with Site(tmp_path, ({}, {})) as site:
        pid = next(iter(site.client.run(os.getpid).values()))
        run = jc.Run(
            executor=site.client.get_executor(), chunk=1000, progress=act_at(20_000, lambda: os.kill(pid, sent)),
            checkpoint=tmp_path / "run",
        )  # fmt: skip
        assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=100_000, run=run))
        if sent == signal.SIGSTOP:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_run_whose_scheduler_is_gone_resumes_with_another(gait, tmp_path):
    reference = jc.impact.sample(*gait, LAW, num_samples=50_000)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with Site(tmp_path / "one") as site:
        run = jc.Run(
            executor=site.client.get_executor(), chunk=1000, progress=act_at(20_000, site.processes[0].kill),
            checkpoint=tmp_path / "run",
        )  # fmt: skip
        with pytest.raises(ExecutorError, match="the same call resumes") as caught:
            jc.impact.sample(*gait, LAW, num_samples=50_000, run=run)
        assert "\n" not in str(caught.value)
    assert 20_000 <= num_finished(tmp_path / "run") < 50_000
    with Site(tmp_path / "two") as site:
        run = jc.Run(executor=site.client.get_executor(), chunk=1000, checkpoint=tmp_path / "run")
        assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=50_000, run=run))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}, r"would compute other bits; these differ: arithmetic \("),
        ({"PYTHONPATH": "{other}"}, r"these differ: version \(0.0.0 there"),
        (
            {"PYTHONPATH": "{none}"},
            "(No module named 'jaxcontact|module 'jaxcontact' has no).*is the same version of jaxcontact installed",
        ),
        ({"JAX_ENABLE_X64": "0"}, None),
    ],
    ids=["instructions", "version", "nothing", "precision"],
)
def test_a_worker_of_another_kind(gait, tmp_path, environment, message):
    shutil.copytree(ROOT / "jaxcontact", tmp_path / "other" / "jaxcontact")
    with open(tmp_path / "other" / "jaxcontact" / "__init__.py", "a") as file:
        file.write('__version__ = "0.0.0"\n')
    (tmp_path / "none" / "jaxcontact").mkdir(parents=True)
    (tmp_path / "none" / "jaxcontact" / "__init__.py").touch()
    places = {name: str(tmp_path / name) for name in ("other", "none")}
    with Site(tmp_path, [{k: v.format(**places) for k, v in environment.items()}]) as site:
        run = jc.Run(executor=site.client.get_executor(), chunk=500)
        if message is None:
            reference = jc.impact.sample(*gait, LAW, num_samples=3000)
            assert same_bits(reference, jc.impact.sample(*gait, LAW, num_samples=3000, run=run))
            return
        with pytest.raises(ExecutorError, match=message):
            jc.impact.sample(*gait, LAW, num_samples=3000, run=run)


# ------------------------------------------------------------------------------------------------ command line


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "impact compass_gait --cluster nowhere",
            "--cluster: expected tcp://HOST:PORT or tls://HOST:PORT, got 'now",
        ),
        (
            "impact compass_gait --cluster tcp://a:1 --law propagative",
            "--cluster: not with --law propagative",
        ),
        ("simulate rocking_block --cluster tcp://a:1", "--cluster: for --worlds of 2 and more"),
        ("stability --cluster tcp://a:1", "--cluster: only with --chart"),
        (
            "impact compass_gait --cluster tcp://127.0.0.1:9",
            "--cluster: no scheduler answers at tcp://127.0.0.1:9",
        ),
    ],
)
def test_an_address_of_no_use_is_refused(command, message, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_option, "CONNECT_SECONDS", 0.2)
    assert main([*command.split(), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") <= 2


@pytest.mark.slow
def test_commands_on_a_cluster_write_what_they_write_here(tmp_path, capsys):
    with local_cluster(n_workers=1, threads_per_worker=2) as cluster:
        address = cluster.scheduler_address
        for extra, folder in ([], "here"), (["--cluster", address], "there"):
            out = ["--out", str(tmp_path / folder), *extra]
            assert main(["impact", "compass_gait", "--samples", "40000", *out]) == 0
            worlds = ["--worlds", "200", "--duration", "0.05", "--law", "routh"]
            assert main(["simulate", "rocking_block", *worlds, *out]) == 0
    assert "2 workers" in capsys.readouterr().err
    for here in sorted((tmp_path / "here").glob("*.npz")):
        with np.load(here) as one, np.load(tmp_path / "there" / here.name) as two:
            assert all(one[name].tobytes() == two[name].tobytes() for name in one.files)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_scheduler_with_certificates_lets_nobody_in_without(tmp_path):
    """`--cluster tls://` takes the certificates of Dask's configuration, and fails without them."""
    pem = tmp_path / "all.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        [*command, "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    pem.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    names = ("CA_FILE", "SCHEDULER__CERT", "WORKER__CERT", "CLIENT__CERT")
    settings = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(pem) for name in names}
    environment = os.environ | settings | {"PYTHONPATH": str(ROOT)}
    programs = [
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--protocol", "tls", "--host", "127.0.0.1",
         "--port", "0", "--scheduler-file", str(tmp_path / "file.json"), "--no-dashboard"],
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(tmp_path / "file.json"),
         "--nthreads", "1", "--no-dashboard"],
    ]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    processes = [subprocess.Popen(program, **quiet) for program in programs]
    try:
        for _ in range(600):
            if (tmp_path / "file.json").exists() and (tmp_path / "file.json").read_text():
                break
            time.sleep(0.1)
        address = json.loads((tmp_path / "file.json").read_text())["address"]
        assert address.startswith("tls://")
        command = ["impact", "compass_gait", "--samples", "500", "--out", str(tmp_path), "--cluster", address]
        run = [sys.executable, "-m", "jaxcontact", *command]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        bare = {name: value for name, value in environment.items() if name not in settings}
        done = subprocess.run(run, env=bare, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "--cluster: no scheduler answers at tls://" in done.stderr
    finally:
        for process in processes:
            process.kill()
            process.wait()

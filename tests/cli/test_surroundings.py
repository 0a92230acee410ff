"""What surrounds a command: streams that are full or closed, names of any bytes, settings of JAX, signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxcontact.cli import surroundings

FULL = Path("/dev/full")
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
RUN = f"{HEED}import runpy; runpy.run_module('jaxcontact', run_name='__main__')"
HOPPER = Path(__file__).parents[2] / "jaxcontact" / "models" / "mjcf" / "hopper.xml"


def shell(line, **environment):
    """Exit status, output and errors of a line of a shell, in which $J is the command."""
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, timeout=300,
        env={**os.environ, "PYTHONUNBUFFERED": "", "J": f"{sys.executable} -m jaxcontact", **environment},
    )  # fmt: skip


def lines(run):
    return run.stderr.decode(errors="replace").splitlines()


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", pytest.param("models", marks=pytest.mark.slow)])
def test_a_full_disk_under_the_output_is_one_line(command, unbuffered):
    run = shell(f"$J {command} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert run.returncode == 2
    assert lines(run) == ["jaxcontact: cannot write the output: No space left on device"]


@pytest.mark.parametrize("closed", [">&-", pytest.param("<&- >&- 2>&-", marks=pytest.mark.slow)])
def test_closed_streams_are_as_dev_null(closed):
    run = shell(f"$J --help {closed}")
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


@pytest.mark.slow
def test_what_is_printed_goes_to_no_file_of_the_command(tmp_path):
    run = shell(f"cd {tmp_path} && $J view hopper >&-")
    assert run.returncode == 0 and not run.stderr
    assert (tmp_path / "hopper.html").read_text().lstrip().startswith("<")


@pytest.mark.parametrize("platform", ["no_such_platform", pytest.param("cuda", marks=pytest.mark.slow)])
def test_a_platform_that_is_not_here_is_one_line(platform):
    run = shell(f"$J inspect {HOPPER}", JAX_PLATFORMS=platform)
    assert run.returncode == 2
    (line,) = lines(run)
    assert line.startswith("jaxcontact: JAX_PLATFORMS: expected one of this machine") and platform in line


def test_a_setting_of_jax_without_sense_is_one_line():
    run = shell(f"$J inspect {HOPPER}", JAX_ENABLE_X64="banana")
    assert run.returncode == 2
    (line,) = lines(run)
    assert line.startswith("jaxcontact: the environment: ") and "JAX_ENABLE_X64" in line and "banana" in line


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder in which nothing can be made")
def test_a_folder_that_refuses_files_is_refused_before_the_work():
    """Its permissions allow root to write."""
    run = shell("$J impact rocking_block --out /proc/pictures")
    assert (run.returncode, run.stdout) == (2, b"")
    (line,) = lines(run)
    assert line.startswith("jaxcontact: --out: cannot write to /proc/pictures: no file can be made in /proc")


@pytest.mark.slow
def test_programs_that_are_not_compiled_are_refused():
    run = shell(f"$J inspect {HOPPER}", JAX_DISABLE_JIT="1")
    assert run.returncode == 2
    assert lines(run) == [
        "jaxcontact: JAX_DISABLE_JIT: expected unset or 0, for the commands need compiled programs; got 1"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [b"\xff\xfe.xml", "läufer.xml".encode(), b"a\nb.xml"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_of_any_bytes(tmp_path, name, locale):
    """Under the locale C and without the UTF-8 mode of Python names are no ASCII, or no text at all."""
    folder = os.fsencode(tmp_path)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(HOPPER.read_bytes())
    base = [sys.executable, "-m", "jaxcontact"]
    env = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in ([b"inspect", name], [b"inspect", b"no" + name], [b"view", name]):
        run = subprocess.run([*base, *command], capture_output=True, cwd=folder, env=env)
        if run.returncode == 0:
            assert command[1] == name
            continue
        (line,) = run.stderr.splitlines()
        unreadable = b"source: expected a name or text in Unicode" in line
        assert run.returncode == 2 and (unreadable or command[1] != name), line


@pytest.mark.slow
@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_a_command_within_two_seconds(number, word, tmp_path):
    """At several moments, of which most are within a long compilation."""
    command = ["simulate", "quadruped", "--out", str(tmp_path), "--duration", "0.1"]
    for delay in (2.5, 6.0, 9.0):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"},
        )  # fmt: skip
        time.sleep(delay)
        begin = time.perf_counter()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert time.perf_counter() - begin < 2.0
        assert process.returncode == 128 + number
        assert errors.decode().splitlines()[-1] == f"jaxcontact: {word}"


COSTS = {
    "simulate rocking_block --dt 1e-300": "--duration over --dt: expected at most 2147483647 steps, got 1e+300",
    "simulate rocking_block --duration 1e18": "--duration over --dt: expected at most 2147483647 steps",
    "simulate rocking_block --worlds 2^40": "num_worlds: expected at most",
    "simulate rocking_block --seed 12345678901234567890123": "expected an integer >= 0 and < 2^64",
    "impact rocking_block --samples 2^999999999": "expected at least 1 and less than 2^63",
    "impact rocking_block --samples 2^62": "num_samples: expected at most",
    "stability --chart fig2 --points 1000000000": "--points: expected an integer in 2..10000",
    "stability --samples 1000000000000": "--samples: expected an integer in 1..10000000",
    "gait hexapod --steps 1000000000000": "--steps: expected an integer in 0..1000000",
}
QUICK = ("simulate rocking_block --dt 1e-300", "impact rocking_block --samples 2^999999999")


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=[] if c in QUICK else [pytest.mark.slow]) for c in COSTS]
)
def test_a_cost_without_bounds_is_refused_before_the_work(command, tmp_path):
    begin = time.perf_counter()
    run = shell(f"cd {tmp_path} && $J {command}")
    assert run.returncode == 2, run.stdout
    assert COSTS[command] in lines(run)[-1]
    assert time.perf_counter() - begin < 60


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ("", " --xla_cpu_use_fusion_emitters=false"),
        ("--xla_cpu_max_isa=AVX2", "--xla_cpu_max_isa=AVX2 --xla_cpu_use_fusion_emitters=false"),
        ("--xla_cpu_use_fusion_emitters=true", "--xla_cpu_use_fusion_emitters=true"),
        ("flags.txt", "flags.txt"),
    ],
)
def test_a_command_compiles_quickly_unless_the_flags_say_how(given, then, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", given)
    surroundings.compile_quickly()
    assert os.environ["XLA_FLAGS"] == then


def test_a_jaxlib_that_may_not_have_the_flag_gets_none(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.11.2")
    surroundings.compile_quickly()
    assert os.environ["XLA_FLAGS"] == ""

"""Ctrl-C at random times: the command ends at once, with one line, and what a checkpoint holds is good."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.cli.main import main
from jaxcontact.cli.surroundings import end_on_signals

PRESSES = 5
# What runs in the background of a shell script has interrupts ignored, and so has all that it starts. The child
# itself heeds them again: `preexec_fn` would fork this process, of which JAX warns.
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
RUN_COMMAND = f"{HEED}import runpy; runpy.run_module('jaxcontact', run_name='__main__')"
COMMAND = [sys.executable, "-c", RUN_COMMAND, "impact", "rocking_block"]


def press(delay: float, *arguments: str) -> tuple[int, list[str]]:
    """Exit status and the lines on standard error, the progress aside, of a command interrupted after a delay."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    lines = [line for line in err.replace("\r", "\n").splitlines() if line.strip()]
    return process.returncode, [line for line in lines if " samples" not in line]


def duration(*arguments: str) -> float:
    begin = time.perf_counter()
    subprocess.run([*COMMAND, *arguments], capture_output=True, check=True)
    return time.perf_counter() - begin


@pytest.mark.slow
def test_an_interrupt_ends_the_command_at_any_time(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    whole = duration(*out)
    chance = random.Random(7)
    for _ in range(PRESSES):  # not at once: the interpreter itself takes a while to start
        delay = chance.uniform(0.1, 0.8) * whole
        assert press(delay, *out) == (130, ["jaxcontact: interrupted"]), delay


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    few = ("--samples", "2^19", "--out", str(tmp_path))
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())
    whole = duration("--checkpoint", str(tmp_path / "first"), *few)
    chance = random.Random(11)
    interrupted = 0
    for _ in range(PRESSES):
        delay = chance.uniform(0.2, 0.8) * whole
        code, lines = press(delay, "--checkpoint", str(tmp_path / "run"), *few)
        if code == 0:  # the presses before left less to compute than the delay
            break
        interrupted += 1
        assert code == 130 and lines == ["jaxcontact: interrupted; the same command continues"], (
            delay,
            lines,
        )
    assert interrupted > 0
    assert main(["impact", "rocking_block", "--checkpoint", str(tmp_path / "run"), *few]) == 0
    expected = jc.impact.sample(
        terms, model.initial_state().v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=2**19
    )
    np.testing.assert_array_equal(np.load(tmp_path / "run" / "v_plus.npy"), expected.v_plus)


def test_an_interrupt_while_a_thread_works_ends_the_process_with_one_line() -> None:
    code = f"""{HEED}
import os, signal, sys, threading, time
import jaxcontact.cli
cli = sys.modules["jaxcontact.cli.main"]
cli._make_parser = lambda: type("", (), dict(parse_args=staticmethod(lambda: None)))
def run(options):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
cli.run = run
cli.process()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr.split("\n")) == (130, ["", "jaxcontact: interrupted", ""])


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end_on_signals("")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

"""What surrounds a command: its streams, the signals that end it, and the settings of JAX in the environment.

Entry functions: `prepare_streams`, `end_on_signals`, `compile_quickly`, `check_jax`, `flush_output`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

TYPE_CHECKING = False  # imports delay the first signal handler
if TYPE_CHECKING:
    from typing import NoReturn

ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
INTERRUPTED = 128 + signal.SIGINT  # exit status, as in shells
LOOPS = "--xla_cpu_use_fusion_emitters"  # of XLA: whether fused operations are compiled by its newer way
LAST_JAXLIB = (0, 10)  # that surely knows LOOPS; XLA ends a process with a flag that it does not know
NOT_WRITTEN = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)


def prepare_streams() -> None:
    """Put /dev/null in the place of closed streams, and escape what the encoding of a stream lacks."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # a file opened later would take its number, and get what is printed
            try:
                os.fstat(descriptor)
            except OSError:
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
            if name == "stdout" and getattr(stream, "write_through", False) and stream == sys.__stdout__:
                # Without a buffer argparse loses the error of a full disk; lines still come at once.
                sys.stdout = open(1, "w", 1, stream.encoding, "backslashreplace", closefd=False)  # noqa: SIM115


def ending(number: int, hint: str) -> str:
    """Return the line that says which signal ended the command."""
    return f"\njaxcontact: {ENDINGS[signal.Signals(number)]}{hint}\n"


def end_on_signals(hint: str) -> None:
    """Let an interrupt or a termination end this process at once, with one line.

    A signal that is ignored, as in the background of a script, stays ignored.
    """

    def end(number: int, _: object) -> NoReturn:
        os.write(2, ending(number, hint).encode())
        os._exit(128 + number)

    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def ignore_signals() -> None:
    """Ignore what would end the command, which is done."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)


def compile_quickly() -> None:
    """Choose XLA's older way to compile fused operations, unless XLA_FLAGS names one; JAX must not run yet.

    A command compiles in 0.7 of the time. Samples have the same bits, motions other last bits. An XLA_FLAGS
    that names a file of flags stays as it is.
    """
    from importlib.metadata import version

    flags = os.environ.get("XLA_FLAGS", "")
    is_list = flags.lstrip().startswith("-") or not flags.strip()
    jaxlib = tuple(int(part) for part in version("jaxlib").split(".")[:2])
    if is_list and LOOPS not in flags and jaxlib <= LAST_JAXLIB:
        os.environ["XLA_FLAGS"] = f"{flags} {LOOPS}=false"


def check_jax() -> str | None:
    """Start JAX in double precision; return what in the environment keeps it from running, or None."""
    try:
        import jax
    except ValueError as error:  # of a variable, which it names
        return f"the environment: {error}"
    jax.config.update("jax_enable_x64", True)
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return "JAX_DISABLE_JIT: expected unset or 0, for the commands need compiled programs; got 1"
    try:
        jax.devices()
    except (RuntimeError, AssertionError, KeyError, ValueError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = f": {str(error).splitlines()[0]}" if str(error) else ""
        return f"JAX_PLATFORMS: expected one of this machine, such as cpu, got {platforms!r}{reason}"
    return None


def flush_output() -> str | None:
    """Write what was printed; return None, or why it cannot be written, and print no more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        _drop_output()
    except OSError as error:
        _drop_output()
        return f"cannot write the output: {error.strerror}"
    return None


def is_output_error(error: OSError) -> bool:
    """Tell whether an error is one of a stream, which has no file name."""
    return error.filename is None and error.errno in NOT_WRITTEN


def _drop_output() -> None:
    """Let Python flush to /dev/null at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

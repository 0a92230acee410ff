"""The option `--cluster`: workers of a Dask scheduler in place of the threads of this machine.

Its check needs no JAX; `executor_of` connects. docs/understand/cluster.md has the page.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from jaxcontact.cli.catalogue import UsageError

CONNECT_SECONDS = 10  # wait for a scheduler
CLOSE_SECONDS = 2  # wait for it at the end, when it may be gone


def add_cluster_option(run: argparse.ArgumentParser) -> None:
    """Add the option `--cluster`."""
    run.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="compute by the workers of the Dask scheduler at tcp://HOST:PORT, or tls:// with the "
        "certificates of Dask's configuration; whoever reaches it can run code",
    )


def check_cluster(options: argparse.Namespace, unused: str = "") -> None:
    """Raise UsageError for an address of another form, or one that has no effect because of `unused`."""
    if options.cluster is None:
        return
    if unused:
        raise UsageError(f"--cluster: {unused}")
    if not re.fullmatch(r"(tcp|tls)://[^\s/:]+:\d{1,5}", options.cluster):
        raise UsageError(f"--cluster: expected tcp://HOST:PORT or tls://HOST:PORT, got {options.cluster!r}")


@contextlib.contextmanager
def executor_of(options: argparse.Namespace) -> Iterator[Executor | None]:
    """Provide the executor of the option, None without it; an error of the executor is one of usage.

    Raises:
        UsageError: Dask is not installed, no scheduler answers, or its workers cannot do the work.
    """
    if options.cluster is None:
        yield None
        return
    from jaxcontact.batching.remote_blocks import ExecutorError

    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--cluster: needs Dask, pip install 'jaxcontact[cluster]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are told in one line
    try:
        client = Client(options.cluster, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise UsageError(f"--cluster: no scheduler answers at {options.cluster} ({text})") from None
    try:
        yield client.get_executor()
    except ExecutorError as error:
        raise UsageError(str(error)) from None
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=CLOSE_SECONDS)


def count_of(executor: Executor | None) -> Callable[[], str]:
    """Make a function that says how many workers an executor has, nothing for None."""
    from jaxcontact.batching.remote_blocks import WorkerCount

    if executor is None:
        return lambda: ""
    count = WorkerCount(executor)
    return lambda: f", {count()} workers"

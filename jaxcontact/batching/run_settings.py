"""Settings of a long computation on the host.

Owns `Run`, which every driver for the host takes as `run=`; no setting changes a bit of the results.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor

import jax

from jaxcontact.arguments import check_count, check_positive
from jaxcontact.front_door import anything, checked


def _check_executor(name: str, executor: object) -> None:
    """Raise TypeError for a value that is no executor, ValueError for a pool that forks this process."""
    if executor is None:
        return
    if not isinstance(executor, Executor):
        hint = "; a client of dask has .get_executor()" if hasattr(executor, "get_executor") else ""
        raise TypeError(
            f"{name}: expected a concurrent.futures.Executor, got {type(executor).__name__}{hint}"
        )
    context = getattr(executor, "_mp_context", None)
    if (
        isinstance(executor, ProcessPoolExecutor)
        and context is not None
        and context.get_start_method() == "fork"
    ):
        raise ValueError(
            f"{name}: a pool that forks this process can stop in JAX's threads; "
            'give it mp_context=multiprocessing.get_context("spawn")'
        )


@checked(chunk=check_count, checkpoint=anything, executor=_check_executor)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Settings of a long computation on the host; a driver refuses those that it cannot use.

    Attributes:
        chunk: samples or worlds per call of `reduce` and `progress`; None is the driver's default. Any number
            gives the same bits.
        devices: to compute on; None is all local ones.
        checkpoint: file of the results, written as they come. An interrupted run, called again with the
            same arguments, resumes and ends with the same bits.
        about: names to store in the checkpoint, {"model": ...}; a run about something else is refused.
        progress: called with (done, total), and with the driver's further values.
        executor: computes blocks in other processes, such as a `concurrent.futures.ProcessPoolExecutor` or
            `dask.distributed.Client(...).get_executor()`; None is threads of this process. Blocks and answers
            are pickled, so give addresses of your machines alone. docs/understand/cluster.md has the page.
        patience: s without the next answer of the executor, after which its block is submitted again; None
            is 600 s.
    """

    chunk: int | None = None
    devices: Sequence[jax.Device] | None = None
    checkpoint: str | os.PathLike[str] | None = None
    about: Mapping[str, str] | None = None
    progress: Callable[..., None] | None = None
    executor: Executor | None = None
    patience: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for settings that no driver can use."""
        if self.devices is not None and not (
            isinstance(self.devices, Sequence)
            and self.devices
            and all(isinstance(device, jax.Device) for device in self.devices)
        ):
            raise ValueError(f"devices: expected JAX devices, at least one, got {self.devices!r}")
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise TypeError(f"checkpoint: expected a path, got {type(self.checkpoint).__name__}")
        if self.about is not None and not (
            isinstance(self.about, Mapping)
            and all(isinstance(text, str) for item in self.about.items() for text in item)
        ):
            raise TypeError(f"about: expected texts by name, got {self.about!r}")
        if self.progress is not None and not callable(self.progress):
            raise TypeError(f"progress: expected a function, got {type(self.progress).__name__}")
        if self.executor is not None and self.devices is not None:
            raise ValueError("devices: expected None, because the workers of an executor have theirs")
        if self.patience is not None:
            check_positive("patience", self.patience)
            if self.executor is None:
                raise ValueError("patience: expected None, because threads of this process always answer")


DEFAULT_RUN = Run()


def check_run(run: Run, *, unused: Sequence[str] = ()) -> Run:
    """Check the settings and return them.

    Raises:
        TypeError: if `run` is no `Run`.
        ValueError: if it has a setting that the driver cannot use.
    """
    if not isinstance(run, Run):
        raise TypeError(f"run: expected jc.Run(checkpoint=, progress=, ...), got {type(run).__name__}")
    for name in unused:
        if getattr(run, name) is not None:
            raise ValueError(f"run.{name}: expected None; this driver has no use for it")
    return run

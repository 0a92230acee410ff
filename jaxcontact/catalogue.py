"""The ready mechanisms by name, as the command line knows them."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from jaxcontact import models
from jaxcontact.system import Model


class UsageError(Exception):
    """A mistake in the arguments, told in one line."""


def catalogue() -> dict[str, Any]:
    """Every function of `models` that makes a model without being told anything, by name."""
    found = {name: f for name, f in sorted(vars(models).items()) if inspect.isfunction(f)}
    return {name: f for name, f in found.items() if _needs_nothing(inspect.signature(f))}


def _needs_nothing(signature: inspect.Signature) -> bool:
    given = all(p.default is not p.empty for p in signature.parameters.values())
    return given and signature.return_annotation in (Model, "Model")


def with_impacts() -> str:
    """The models that are set up for an impact, told to someone who asked for another."""
    names = [name for name, factory in catalogue().items() if _has_impact(factory)]
    return f"models of impacts: {', '.join(names)}"


def _has_impact(factory: Any) -> bool:
    try:
        return factory().step is not None
    except ImportError:  # robots of the package need MuJoCo, which may not be installed
        return False


def find_model(name: str) -> Model:
    """The model of this name.

    Raises:
        UsageError: there is none; says which may have been meant. Or it needs a package that is missing.
    """
    every = catalogue()
    if name not in every:
        near = difflib.get_close_matches(name, every, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"models: {', '.join(every)}"
        raise UsageError(f"no model {name!r}; {hint}")
    try:
        model: Model = every[name]()
    except ImportError as error:
        raise UsageError(str(error)) from None
    return model

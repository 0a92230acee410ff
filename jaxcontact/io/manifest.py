"""What a checkpoint is of: a JSON file of settings and hashes, compared with those of the run that asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxcontact.io import fingerprint

MANIFEST = "manifest.json"


def damage(folder: Path, what: str) -> ValueError:
    """The error of a checkpoint that cannot be gone on with."""
    return ValueError(f"checkpoint: {folder} is damaged and was left as it is: {what}")


def check_manifest(folder: Path, current: Mapping[str, Any]) -> None:
    """Raise ValueError, naming what differs, unless the checkpoint in `folder` is of the current run."""
    try:
        stored = dict(json.loads((folder / MANIFEST).read_bytes()))
    except (ValueError, TypeError):
        raise damage(folder, f"{MANIFEST} is not JSON") from None
    differences = fingerprint.differences(stored, current)
    if differences:
        raise ValueError(
            f"checkpoint: {folder} is of another run and was left as it is; these differ: "
            + ", ".join(differences)
        )

"""Everyday scenes with exact values; `python -m benchmarks scenes` runs them under every stepper."""

from . import falling, impacts, pushing, rolling, sliding
from .scene import Scene

MAKERS = {
    make.__name__: make
    for theme in (sliding, rolling, falling, pushing, impacts)
    for make in theme.SCENES
}  # fmt: skip


def scene(name: str) -> Scene:
    """Make a scene, and its exact values with it."""
    return MAKERS[name]()

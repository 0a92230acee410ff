"""The film of a run: a body moves over a ground that stands still, or the camera follows a long run."""

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

import jaxcontact as jc

PARAMS = {"hips": jnp.zeros(1), "angle": jnp.zeros(1), "length": jnp.array(0.15)}


def run(distance):
    """A body without ground contact that moves to the right, one leg below it."""
    x = np.zeros((5, 8))
    x[:, 0], x[:, 1] = np.linspace(0.0, distance, 5), 0.2
    return jc.ess.EventTrajectory(
        t=jnp.linspace(0.0, 1.0, 5), x=jnp.asarray(x), crossed=jnp.zeros((5, 3), bool),
        order=jnp.full(2, -1), event_rows=jnp.full(2, -1), num_rows=jnp.int32(5), num_events=jnp.int32(0),
        grazed=jnp.zeros(3, bool), residual=jnp.zeros(()), status=jnp.uint32(0),
    )  # fmt: skip


@pytest.mark.parametrize(("distance", "is_still"), [(1.0, True), (5.0, False)])
def test_the_camera_stands_still_in_a_short_run(tmp_path, distance, is_still):
    path = jc.viz.animate_gait(run(distance), PARAMS, tmp_path / "run.gif", frames=3)
    places, width = [], 0
    with Image.open(path) as film:
        for frame in ImageSequence.Iterator(film):
            grey = np.asarray(frame.convert("L"))
            width = grey.shape[1]
            rows = slice(int(0.15 * grey.shape[0]), int(0.6 * grey.shape[0]))  # above the ground
            places.append(float(np.nonzero(grey[rows] < 80)[1].mean()))
    moved = (places[-1] - places[0]) / width
    assert moved == pytest.approx(1.0 / 1.4, abs=0.1) if is_still else abs(moved) < 0.1

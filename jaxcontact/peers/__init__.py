"""Other simulators on the same mechanisms, for comparison; each needs its own package installed."""

from jaxcontact.peers.mujoco import mujoco_outcome as mujoco_outcome

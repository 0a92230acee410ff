"""Other simulators on the same mechanisms, for comparison: entry `mujoco_outcome`; each needs its package."""

from jaxcontact.peers.mujoco import mujoco_outcome as mujoco_outcome

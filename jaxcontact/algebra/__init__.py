"""Linear algebra that every method shares: factorisations, block structure, cones, rotations, derivatives."""

from jaxcontact.algebra import rotations as rotations

"""What every method shares: factorisations, block structure, cones, rotations, one derivative rule."""

from jaxcontact.algebra import rotations as rotations

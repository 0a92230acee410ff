"""Motion in time: variational integration with impacts at their time."""

from jaxcontact.simulate.variational import Impacts as Impacts
from jaxcontact.simulate.variational import Trajectory as Trajectory
from jaxcontact.simulate.variational import variational as variational

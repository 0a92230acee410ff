"""Motion in time: variational integration with impacts at their time."""

from jaxcontact.simulate.compare import momentum_difference as momentum_difference
from jaxcontact.simulate.trajectory import Impacts as Impacts
from jaxcontact.simulate.trajectory import Trajectory as Trajectory
from jaxcontact.simulate.variational import variational as variational

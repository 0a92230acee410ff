"""Pictures of impacts and mechanisms; every function returns a matplotlib figure."""

from jaxcontact.viz.coverage import plot_coverage as plot_coverage
from jaxcontact.viz.ess import plot_corner as plot_corner
from jaxcontact.viz.ess import plot_order as plot_order
from jaxcontact.viz.ess import plot_trajectory as plot_trajectory
from jaxcontact.viz.impact_set import plot_impact_set as plot_impact_set
from jaxcontact.viz.mechanism import draw_mechanism as draw_mechanism
from jaxcontact.viz.mechanism import plot_mechanism as plot_mechanism

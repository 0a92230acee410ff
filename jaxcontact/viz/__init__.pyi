"""The public names of `jaxcontact.viz`, loaded when they are first used."""

from jaxcontact.viz.animation import animate as animate
from jaxcontact.viz.compliant import plot_curves as plot_curves
from jaxcontact.viz.compliant import plot_pressure as plot_pressure
from jaxcontact.viz.coverage import plot_coverage as plot_coverage
from jaxcontact.viz.ess import plot_corner as plot_corner
from jaxcontact.viz.ess import plot_order as plot_order
from jaxcontact.viz.ess import plot_trajectory as plot_trajectory
from jaxcontact.viz.gait import animate_gait as animate_gait
from jaxcontact.viz.gait import contact_intervals as contact_intervals
from jaxcontact.viz.gait import plot_gait as plot_gait
from jaxcontact.viz.impact_curves import OtherOutcomes as OtherOutcomes
from jaxcontact.viz.impact_set import plot_impact_set as plot_impact_set
from jaxcontact.viz.impact_space import plot_spatial_impact as plot_spatial_impact
from jaxcontact.viz.mechanism import draw_mechanism as draw_mechanism
from jaxcontact.viz.mechanism import plot_mechanism as plot_mechanism
from jaxcontact.viz.motion import plot_cradle_energy as plot_cradle_energy
from jaxcontact.viz.motion import plot_order_difference as plot_order_difference
from jaxcontact.viz.outcome_panels import plot_outcomes as plot_outcomes
from jaxcontact.viz.restitution import plot_restitution_sets as plot_restitution_sets
from jaxcontact.viz.spatial import draw_bodies as draw_bodies
from jaxcontact.viz.spatial import look as look
from jaxcontact.viz.stability import plot_stability_chart as plot_stability_chart
from jaxcontact.viz.time_augmented import plot_paradox as plot_paradox
from jaxcontact.viz.time_augmented import plot_path as plot_path
from jaxcontact.viz.time_augmented import plot_phase as plot_phase
from jaxcontact.viz.time_augmented import plot_snapshots as plot_snapshots

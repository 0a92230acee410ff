"""Stiff constraints as springs and dampers, integrated implicitly by one convex problem per step."""

from jaxcontact.compliant.estimate import estimate_forces as estimate_forces
from jaxcontact.compliant.problem import Problem as Problem
from jaxcontact.compliant.settings import Newton as Newton
from jaxcontact.compliant.settings import Settings as Settings
from jaxcontact.compliant.settings import StepMemory as StepMemory
from jaxcontact.compliant.solve import StepInfo as StepInfo
from jaxcontact.compliant.solve import solve as solve
from jaxcontact.compliant.step import rollout as rollout
from jaxcontact.compliant.step import smoothed as smoothed
from jaxcontact.compliant.step import step as step
from jaxcontact.mechanics.material import FrictionSpring as FrictionSpring
from jaxcontact.mechanics.material import Hertz as Hertz
from jaxcontact.mechanics.material import HuntCrossley as HuntCrossley
from jaxcontact.mechanics.material import Material as Material
from jaxcontact.mechanics.material import Smooth as Smooth
from jaxcontact.mechanics.material import foundation_stiffness as foundation_stiffness
from jaxcontact.mechanics.material import stiff_material as stiff_material
from jaxcontact.mechanics.scaled_springs import ScaledSprings as ScaledSprings

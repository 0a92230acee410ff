"""Stiff constraints as springs and dampers, integrated implicitly by one convex problem per step."""

from jaxcontact.law import Hertz as Hertz
from jaxcontact.law import Law as Law
from jaxcontact.law import foundation_stiffness as foundation_stiffness

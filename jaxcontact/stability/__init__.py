"""Certificates and falsifiers of equilibria on frictional contacts: entry functions `certify`, `falsify`.

Page: docs/methods/stability.md.
"""

from jaxcontact.stability.body import LocalTerms as LocalTerms
from jaxcontact.stability.body import PlanarBiped as PlanarBiped
from jaxcontact.stability.body import local_terms as local_terms
from jaxcontact.stability.certify import METHODS as METHODS
from jaxcontact.stability.certify import certify as certify
from jaxcontact.stability.chart import Chart as Chart
from jaxcontact.stability.chart import Region as Region
from jaxcontact.stability.chart import chart as chart
from jaxcontact.stability.check import Certificate as Certificate
from jaxcontact.stability.check import LyapunovFunction as LyapunovFunction
from jaxcontact.stability.check import check as check
from jaxcontact.stability.excursion import ExcursionBounds as ExcursionBounds
from jaxcontact.stability.excursion import excursion_bounds as excursion_bounds
from jaxcontact.stability.falsify import Falsification as Falsification
from jaxcontact.stability.falsify import falsify as falsify
from jaxcontact.stability.margin import certified_end as certified_end
from jaxcontact.stability.margin import margin as margin
from jaxcontact.stability.margin import margin_gradient as margin_gradient
from jaxcontact.stability.modes import ModeTable as ModeTable
from jaxcontact.stability.modes import contact_modes as contact_modes
from jaxcontact.stability.modes import impact as impact
from jaxcontact.stability.modes import is_ambiguous as is_ambiguous
from jaxcontact.stability.modes import is_equilibrium as is_equilibrium
from jaxcontact.stability.motion import Motion as Motion
from jaxcontact.stability.motion import motion_path as motion_path
from jaxcontact.stability.return_map import chatter_rate as chatter_rate

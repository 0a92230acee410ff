"""Is it stable? Certificates and falsifiers of equilibria on several frictional contacts."""

from jaxcontact.stability.body import LocalTerms as LocalTerms
from jaxcontact.stability.body import PlanarBiped as PlanarBiped
from jaxcontact.stability.body import local_terms as local_terms
from jaxcontact.stability.modes import ModeTable as ModeTable
from jaxcontact.stability.modes import contact_modes as contact_modes
from jaxcontact.stability.modes import impact as impact
from jaxcontact.stability.modes import is_ambiguous as is_ambiguous
from jaxcontact.stability.modes import is_equilibrium as is_equilibrium

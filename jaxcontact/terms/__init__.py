"""The only door from mechanics and geometry to algebra: (Model, State) -> ContactTerms or ConstraintTerms.

Impact laws and solvers see matrices only, so a record of terms built by hand serves them as well as the terms
of a mechanism. Entry functions: `contact_terms`, `constraint_terms`.
"""

from jaxcontact.terms.constraints import Nearest as Nearest
from jaxcontact.terms.constraints import constraint_terms as constraint_terms
from jaxcontact.terms.constraints import contact_terms as contact_terms
from jaxcontact.terms.constraints import nearest_terms as nearest_terms
from jaxcontact.terms.constraints import rows_by_body as rows_by_body
from jaxcontact.terms.contacts import contact_gaps as contact_gaps
from jaxcontact.terms.contacts import contact_velocities as contact_velocities
from jaxcontact.terms.free_bodies import kept_by_body as kept_by_body
from jaxcontact.terms.motion import MovingTerms as MovingTerms
from jaxcontact.terms.motion import moving_terms as moving_terms
from jaxcontact.terms.motion import unilateral_terms as unilateral_terms
from jaxcontact.terms.records import BILATERAL as BILATERAL
from jaxcontact.terms.records import CONTACT_TOLERANCE as CONTACT_TOLERANCE
from jaxcontact.terms.records import DRY as DRY
from jaxcontact.terms.records import LIMIT as LIMIT
from jaxcontact.terms.records import NORMAL as NORMAL
from jaxcontact.terms.records import TANGENT as TANGENT
from jaxcontact.terms.records import ConstraintTerms as ConstraintTerms
from jaxcontact.terms.records import ContactTerms as ContactTerms
from jaxcontact.terms.records import Kind as Kind
from jaxcontact.terms.records import touch_tolerance as touch_tolerance

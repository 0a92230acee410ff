"""Impact laws: from (ContactTerms, v) to post-impact velocities, one or all."""

from jaxcontact.impact.anitescu_potra import anitescu_potra as anitescu_potra
from jaxcontact.impact.anitescu_potra import anitescu_potra_all as anitescu_potra_all
from jaxcontact.impact.anitescu_potra import sequential as sequential
from jaxcontact.impact.checkpoint import load_samples as load_samples
from jaxcontact.impact.contact_space import ImpactInfo as ImpactInfo
from jaxcontact.impact.containment import Containment as Containment
from jaxcontact.impact.containment import contains as contains
from jaxcontact.impact.extreme import Extreme as Extreme
from jaxcontact.impact.extreme import extreme as extreme
from jaxcontact.impact.kelvin_voigt import CompliantInfo as CompliantInfo
from jaxcontact.impact.kelvin_voigt import kelvin_voigt as kelvin_voigt
from jaxcontact.impact.pointed import pointed_cone as pointed_cone
from jaxcontact.impact.post_impact_set import PostImpactSet as PostImpactSet
from jaxcontact.impact.post_impact_set import approximate_set as approximate_set
from jaxcontact.impact.routh import resolve as resolve
from jaxcontact.impact.routh import routh_step as routh_step
from jaxcontact.impact.routh import routh_step_all as routh_step_all
from jaxcontact.impact.routh_path import routh_path as routh_path
from jaxcontact.impact.sampling import sample as sample
from jaxcontact.impact.stream import ImpactSamples as ImpactSamples

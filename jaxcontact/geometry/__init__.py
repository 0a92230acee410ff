"""Contact geometry: shapes, candidate pairs, gaps and contact frames, all differentiable."""

from jaxcontact.geometry.frames import products as products
from jaxcontact.geometry.frames import rows as rows
from jaxcontact.geometry.frames import tangent_frame as tangent_frame
from jaxcontact.geometry.pair_kinds import check_pair as check_pair
from jaxcontact.geometry.pair_kinds import check_shape as check_shape
from jaxcontact.geometry.pair_kinds import contact_bodies as contact_bodies
from jaxcontact.geometry.pair_kinds import num_contacts as num_contacts
from jaxcontact.geometry.pairs import Candidates as Candidates
from jaxcontact.geometry.pairs import NearPairs as NearPairs
from jaxcontact.geometry.pairs import candidates as candidates
from jaxcontact.geometry.shapes import WORLD as WORLD
from jaxcontact.geometry.shapes import Box as Box
from jaxcontact.geometry.shapes import Capsule as Capsule
from jaxcontact.geometry.shapes import ConvexMesh as ConvexMesh
from jaxcontact.geometry.shapes import Cylinder as Cylinder
from jaxcontact.geometry.shapes import Disc as Disc
from jaxcontact.geometry.shapes import Ellipsoid as Ellipsoid
from jaxcontact.geometry.shapes import HalfSpace as HalfSpace
from jaxcontact.geometry.shapes import Point as Point
from jaxcontact.geometry.shapes import Points as Points
from jaxcontact.geometry.shapes import Polygon as Polygon
from jaxcontact.geometry.shapes import Shape as Shape
from jaxcontact.geometry.shapes import Sphere as Sphere
from jaxcontact.geometry.shapes import check_constants as check_constants
from jaxcontact.geometry.shapes import hull_faces as hull_faces

"""Bodies that the tests of stability share."""

import numpy as np

from jaxcontact.stability import PlanarBiped

ALPHA2, ALPHA3 = np.deg2rad(30.0), np.deg2rad(20.0)


def fig2(d, mu1, h=1.0):
    """Varkonyi, Fig. 2; foot 1 is uphill."""
    middle = h * np.tan(ALPHA2)
    return PlanarBiped(alpha=ALPHA2, h=h, L1=middle - d, L2=middle + d, mu1=mu1, mu2=2.0)


def fig3(d, mu, e=0.1, h=1.0):
    """Varkonyi, Fig. 3; foot 1 is uphill."""
    middle = h * np.tan(ALPHA3)
    return PlanarBiped(alpha=ALPHA3, h=h, L1=middle - d, L2=middle + d, mu1=mu, mu2=mu, e1=e, e2=e)

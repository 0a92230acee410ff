"""Rigid-body contact that tells which outcomes are possible, how sensitive each is, and its derivative.

The public names are listed once, in `__init__.pyi`.
"""

from jaxcontact._lazy import on_first_use

__getattr__, __dir__, __all__ = on_first_use(__name__, __file__)

__version__ = "0.1.0"

"""Pictures of impacts, motions and mechanisms; functions named plot return a matplotlib figure.

The public names are listed once, in `__init__.pyi`.
"""

from jaxcontact import _lazy

__getattr__, __dir__, __all__ = _lazy.on_first_use(__name__, __file__)

"""Plug-ins: training methods, verifiers, data sets and engines, which are found rather than registered.

A plug-in is a frozen dataclass that derives from the base class of its kind and has a class attribute ``name``. Its
fields made with :func:`setting` are its settings; the command line makes one flag per setting.

A plug-in comes from one of three places:

- a module of the package of its kind (``steadynet/objectives/<name>.py``),
- an entry point that another installed package declares (:func:`discover` finds both),
- a user's own file, given as ``file.py:Class`` (:func:`load_class`).
"""

from steadynet.plugins.discovery import choose, discover
from steadynet.plugins.settings import (
    Setting,
    describe_type,
    describe_value,
    fits,
    make,
    requirement,
    setting,
    settings_of,
)
from steadynet.plugins.user_files import load_class, split_reference

__all__ = [
    "Setting",
    "choose",
    "describe_type",
    "describe_value",
    "discover",
    "fits",
    "load_class",
    "make",
    "requirement",
    "setting",
    "settings_of",
    "split_reference",
]

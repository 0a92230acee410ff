"""Everything public of the package as lines of text: each parameter, default, field, method and result."""

import dataclasses
import enum
import functools
import importlib
import inspect
import pkgutil
import types

import numpy as np

import jaxcontact
from jaxcontact._pytree import Record

PRIVATE = {"cli", "__main__"}  # commands, whose options tests/cli holds


def rooms():
    """Dotted names of the package, of its rooms, and of modules that are public names themselves."""
    names = {name: importlib.import_module(f"jaxcontact.{name}") for name in folders()}
    for name in jaxcontact.__all__:
        value = getattr(jaxcontact, name)
        if isinstance(value, types.ModuleType):
            names[name] = value
    return {"jaxcontact": jaxcontact} | {f"jaxcontact.{name}": names[name] for name in sorted(names)}


def folders():
    return [
        each.name
        for each in pkgutil.iter_modules(jaxcontact.__path__)
        if each.ispkg and each.name not in PRIVATE
    ]


def public_names(module):
    """Names and values: `__all__`, all that a folder's `__init__` imports from it, or that a file defines itself."""
    if hasattr(module, "__all__"):
        return {name: getattr(module, name) for name in sorted(module.__all__)}
    found = {}
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        home = getattr(value, "__module__", None) or module.__name__
        if home == module.__name__ or (hasattr(module, "__path__") and home.startswith("jaxcontact.")):
            found[name] = value
    return found


def text_of(value):
    """A default or an annotation, the same in every process."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if inspect.isroutine(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = (f"{f.name}={text_of(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(shown)})"
    return repr(np.asarray(value).tolist()) if hasattr(value, "__array__") else repr(value)


def annotation_of(value):
    return value if isinstance(value, str) else inspect.formatannotation(value)


def parameter_lines(path, function):
    """One line per parameter, in order, then the result."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # of a class of the standard library
        return [f"{path}(...)"]
    lines = []
    for each in signature.parameters.values():
        line = f"{path}({each.name}) {each.kind.description}"
        if each.annotation is not each.empty:
            line += f": {annotation_of(each.annotation)}"
        lines.append(line if each.default is each.empty else f"{line} = {text_of(each.default)}")
    result = signature.return_annotation
    return [*lines, f"{path}() -> {'?' if result is signature.empty else annotation_of(result)}"]


def class_lines(path, record):
    """Its members if it is an enumeration, else its fields; then its methods and properties, without Record's."""
    lines = [f"{path} is a class"]
    if issubclass(record, enum.Enum):
        return lines + [f"{path}.{name} = {int(each)}" for name, each in record.__members__.items()]
    if dataclasses.is_dataclass(record):
        lines += [field_line(path, each) for each in dataclasses.fields(record)]
    elif "__init__" in vars(record) and not getattr(record, "_is_protocol", False):
        lines += parameter_lines(path, record)
    ours = [
        base for base in record.__mro__ if base.__module__.startswith("jaxcontact.") and base is not Record
    ]
    for name, value in {name: value for base in reversed(ours) for name, value in vars(base).items()}.items():
        if name.startswith("_") and name != "__call__":
            continue
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property | functools.cached_property):
            lines.append(f"{path}.{name} is a property")
        elif inspect.isfunction(value):
            lines += parameter_lines(f"{path}.{name}", value)
    return lines


def field_line(path, field):
    kind = "field, part of the structure" if field.metadata.get("static") else "field"
    line = f"{path}.{field.name} {kind}: {annotation_of(field.type)}"
    if field.default is not dataclasses.MISSING:
        return f"{line} = {text_of(field.default)}"
    return line if field.default_factory is dataclasses.MISSING else f"{line} = made anew"


def public_lines():
    """All lines; a value with two public names is told once, the other name points to it."""
    lines, known = [], {}
    for room, module in rooms().items():
        for name, value in public_names(module).items():
            path = f"{room}.{name}"
            hashable = isinstance(value, types.ModuleType | type) or callable(value)
            if isinstance(value, types.ModuleType):
                lines.append(f"{path} is the module {value.__name__}")
            elif hashable and id(value) in known:
                lines.append(f"{path} is {known[id(value)]}")
            elif isinstance(value, type):
                lines += class_lines(path, value)
            elif callable(value):
                lines += parameter_lines(path, value)
            else:
                lines.append(f"{path} = {text_of(value)}")
            if hashable:
                known.setdefault(id(value), path)
    return lines

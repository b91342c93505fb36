"""The names that the way of a start is annotated with, without `typing`, which a command would wait for.

`typing` loads `re` and itself takes as long as a tenth of `holdfast exec`. To a type checker these names are
those of `typing`. To the interpreter they say nothing, but for `NamedTuple`, which makes one. Pure module.
"""

from collections import namedtuple

TYPE_CHECKING = False  # to a type checker this name means True, whoever defines it

if TYPE_CHECKING:
    from typing import Any as Any
    from typing import ClassVar as ClassVar
    from typing import Final as Final
    from typing import Literal as Literal
    from typing import NamedTuple as NamedTuple
    from typing import NoReturn as NoReturn
    from typing import Protocol as Protocol
    from typing import Self as Self
    from typing import TypeAlias as TypeAlias
    from typing import TypeVar as TypeVar
    from typing import assert_never as assert_never
    from typing import dataclass_transform as dataclass_transform
else:

    class Any:
        """Anything in brackets behind these names is for the type checker too."""

        def __class_getitem__(cls, item):
            return cls

    ClassVar = Final = Literal = NoReturn = Self = TypeAlias = Any
    Protocol = object

    class TypeVar:
        def __init__(self, name):
            self.__name__ = name

    def assert_never(value):
        raise AssertionError(f"cannot happen: {value!r}")

    def dataclass_transform(**_):
        return lambda function: function

    class _Fields(type):
        """Makes a named tuple of the fields that a class body annotates, with what else is in it."""

        def __new__(mcs, name, bases, body):
            if not bases:
                return super().__new__(mcs, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, content in body.items():
                if key not in _GIVEN:
                    setattr(made, key, content)
            made.__annotations__ = fields
            return made

    _GIVEN = ("__module__", "__qualname__", "__annotations__", "__classcell__")

    class NamedTuple(metaclass=_Fields):
        """As `typing.NamedTuple`, as a base class."""

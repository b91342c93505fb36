"""The names that the way of a start is annotated with, without `typing` and `collections`, which take long.

`typing` loads `re` and itself takes as long as a tenth of `holdfast exec`. To a type checker these names are
those of `typing` and `collections.abc`. To the interpreter the first say nothing, but for `NamedTuple`, which
makes one; the others are what the interpreter has loaded for itself. Pure module.
"""

TYPE_CHECKING = False  # to a type checker this name means True, whoever defines it

if TYPE_CHECKING:
    from collections.abc import Callable as Callable
    from collections.abc import Collection as Collection
    from collections.abc import Iterable as Iterable
    from collections.abc import Iterator as Iterator
    from collections.abc import Mapping as Mapping
    from collections.abc import Sequence as Sequence
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
    from _collections import _tuplegetter
    from _collections_abc import Callable as Callable
    from _collections_abc import Collection as Collection
    from _collections_abc import Iterable as Iterable
    from _collections_abc import Iterator as Iterator
    from _collections_abc import Mapping as Mapping
    from _collections_abc import Sequence as Sequence

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
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body.pop(field) for field in fields if field in body}
            own = {"_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
            own |= {"__slots__": (), "_uses": 0}
            getters = {field: _tuplegetter(number, None) for number, field in enumerate(fields)}
            return type(name, (tuple,), _TUPLE | own | getters | body)

    def _new(cls, *args, **named):
        """Until a class is used often: compiling a constructor takes longer than a short run uses it."""
        cls._uses += 1
        if cls._uses > FEW:
            fields = "".join(f"{field}," for field in cls._fields)
            step = f"return _act(cls,({fields}))"
            made = compile_constructor("__new__(cls", cls._fields, cls._field_defaults, step, tuple.__new__)
            cls.__new__ = staticmethod(made)
            return cls(*args, **named)
        if named or len(args) != len(cls._fields):
            given = fill_fields(cls.__name__, cls._fields, cls._field_defaults, args, named)
            args = [given[name] for name in cls._fields]
        return tuple.__new__(cls, args)

    def _make(cls, contents):
        return cls(*contents)

    def _replace(self, **changes):
        return type(self)(**(dict(zip(self._fields, self, strict=True)) | changes))

    def _show(self):
        fields = (f"{name}={content!r}" for name, content in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(fields)})"

    _TUPLE = {
        "__new__": _new,
        "__repr__": _show,
        "__replace__": _replace,
        "__getnewargs__": tuple,
        "_make": classmethod(_make),
        "_replace": _replace,
    }

    class NamedTuple(metaclass=_Fields):
        """As `typing.NamedTuple`, as a base class."""


FEW: Final = 32  # instances, from which on a class is worth a constructor of its own


def compile_constructor(
    head: str, names: Sequence[str], defaults: Mapping[str, Any], step: str, act: Callable[..., Any]
) -> Any:
    """A function that begins so, takes these fields, and does one step, which may call `_act`."""
    scope: dict[str, Any] = {f"_{name}": default for name, default in defaults.items()}
    arguments = "".join(f",{name}=_{name}" if name in defaults else f",{name}" for name in names)
    exec(f"def {head}{arguments}): {step}", scope | {"_act": act}, scope)  # noqa: S102 - names of fields
    return scope[head.partition("(")[0]]


def fill_fields(
    kind: str,
    names: Sequence[str],
    defaults: Mapping[str, Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Every field with what is given for it; TypeError if that is not one value each."""
    fields = {**defaults, **dict(zip(names, args, strict=False)), **named}
    wrong = [name for name in names if name not in fields] + [name for name in named if name not in names]
    wrong += [name for name in names[: len(args)] if name in named]
    if wrong or len(args) > len(names):
        listed = ", ".join(wrong) or f"{len(args)} values for {len(names)}"
        raise TypeError(f"{kind}: a field is missing, unknown or given twice: {listed}")
    return fields

"""Frozen classes with named fields, as `dataclass(frozen=True, slots=True)` makes them. Pure module.

`dataclasses` loads `inspect`, and with it the parts of a compiler: a fifth of the time that `holdfast exec`
has until its command runs. What that path imports is made with this instead; type checkers treat both alike.
"""

from holdfast.annotations import (
    FEW,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    compile_constructor,
    dataclass_transform,
    fill_fields,
)

T = TypeVar("T")

_DERIVED = object()


def derived(*, init: Literal[False] = False) -> Any:
    """A field that `__post_init__` sets with `object.__setattr__`: no argument, not compared, not shown."""
    return _DERIVED


@dataclass_transform(frozen_default=True, field_specifiers=(derived,))
def value(cls: type[T]) -> type[T]:
    """The class with a constructor, equality, a hash and slots for the fields that it annotates."""
    body = {name: content for name, content in cls.__dict__.items() if name not in _MADE_ANEW}
    names = tuple(cls.__annotations__)
    defaults = {name: body.pop(name) for name in names if name in body}
    given = tuple(name for name in names if defaults.get(name) is not _DERIVED)
    own = {"__slots__": names, "__match_args__": given, "_defaults": defaults, "_uses": 0}
    made: type[T] = type(cls.__name__, cls.__bases__, _SHARED | own | body)
    return made


def replace(old: T, **changes: Any) -> T:
    """The same value with other fields; one that is derived is derived again."""
    kept = {name: getattr(old, name) for name in type(old).__match_args__}  # type: ignore[attr-defined]
    return type(old)(**(kept | changes))


def _construct(self: Any, *args: Any, **named: Any) -> None:
    """Until a class is used often: compiling a constructor takes longer than a short run uses it."""
    cls = type(self)
    cls._uses += 1
    if cls._uses > FEW:
        cls.__init__ = _compile(cls)
        cls.__init__(self, *args, **named)
        return
    names = cls.__match_args__
    fields = fill_fields(cls.__name__, names, cls._defaults, args, named)
    for name in names:
        object.__setattr__(self, name, fields[name])
    if hasattr(cls, "__post_init__"):
        self.__post_init__()


def _compile(cls: Any) -> Any:
    steps = [f"_act(self,{name!r},{name})" for name in cls.__match_args__]
    steps += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    step = ";".join(steps) or "pass"
    return compile_constructor("__init__(self", cls.__match_args__, cls._defaults, step, object.__setattr__)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _equal(self: Any, other: object) -> bool:
    return type(other) is type(self) and _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _shown(self: Any) -> str:
    fields = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


def _getstate(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__slots__)


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for name, content in zip(self.__slots__, state, strict=True):
        object.__setattr__(self, name, content)


_MADE_ANEW = ("__dict__", "__weakref__")
_SHARED: dict[str, Any] = {
    "__init__": _construct,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _shown,
    "__replace__": replace,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}

"""Light replacements for parts of the standard library, limited to what the start of a command needs.

To a type checker these names are those of the standard library. To the interpreter:
- Names for annotations do nothing, except `NamedTuple`, which creates one; those of `collections.abc` are
  what it has loaded itself. `typing` loads `re`, and loading it takes a tenth of `holdfast exec`.
- An enumeration is a class with fixed members, a signal a number. `enum` and what it loads, with a dozen
  small enumerations, takes a fifth of `holdfast exec`; `contextlib` and `signal` load the same.
- `value` creates frozen classes with named fields, as `dataclass(frozen=True, slots=True)` does.
  `dataclasses` loads `inspect`, and with it parts of a compiler: another fifth.
"""

TYPE_CHECKING = False  # to a type checker this name means True in any module

if TYPE_CHECKING:
    import signal as signal
    from collections.abc import Callable as Callable
    from collections.abc import Collection as Collection
    from collections.abc import Iterable as Iterable
    from collections.abc import Iterator as Iterator
    from collections.abc import Mapping as Mapping
    from collections.abc import Sequence as Sequence
    from contextlib import suppress as suppress
    from enum import Enum as Enum
    from enum import IntEnum as IntEnum
    from enum import StrEnum as StrEnum
    from functools import cache as cache
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
    import _signal
    from _collections import _tuplegetter
    from _collections_abc import Callable as Callable
    from _collections_abc import Collection as Collection
    from _collections_abc import Iterable as Iterable
    from _collections_abc import Iterator as Iterator
    from _collections_abc import Mapping as Mapping
    from _collections_abc import Sequence as Sequence

    signal = _signal

    class suppress:
        """Like `contextlib.suppress`."""

        def __init__(self, *kinds):
            self._kinds = kinds

        def __enter__(self):
            return None

        def __exit__(self, kind, error, traceback):
            return kind is not None and issubclass(kind, self._kinds)

    def cache(function):
        """Like `functools.cache`."""
        known = {}

        def remember(*args, **named):
            key = (args, tuple(named.items()))
            if key not in known:
                known[key] = function(*args, **named)
            return known[key]

        return remember

    class _Members(type):
        """Creates members from the plain values in a class body; they compare and hash like their type."""

        def __new__(mcs, name, bases, body):
            values = {key: content for key, content in body.items() if _is_value(key, content)}
            cls = super().__new__(mcs, name, bases, {k: v for k, v in body.items() if k not in values})
            cls._by_value = {}
            for key, content in values.items():
                plain = cls.__new__ is object.__new__
                member = cls.__new__(cls) if plain else cls.__new__(cls, content)
                member.name, member.value = key, content
                cls._by_value[content] = member
                setattr(cls, key, member)
            return cls

        def __call__(cls, value):
            if type(value) is cls:
                return value
            try:
                return cls._by_value[value]
            except (KeyError, TypeError):
                raise ValueError(f"{value!r} is not a valid {cls.__name__}") from None

        def __iter__(cls):
            return iter(cls._by_value.values())

        def __len__(cls):
            return len(cls._by_value)

        def __contains__(cls, member):
            return type(member) is cls

    def _is_value(key, content):
        return not (key.startswith("_") or callable(content) or hasattr(content, "__get__"))

    class Enum(metaclass=_Members):
        """Like `enum.Enum`, without aliases and other refinements."""

        def __repr__(self):
            return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

        def __reduce_ex__(self, _protocol):
            return type(self), (self.value,)

    class IntEnum(int, Enum):
        """Like `enum.IntEnum`."""

        __repr__ = Enum.__repr__
        __str__ = int.__repr__

    class StrEnum(str, Enum):
        """Like `enum.StrEnum`."""

        __repr__ = Enum.__repr__
        __str__ = str.__str__

    class Any:
        """Accepts any subscript: these names are for the type checker only."""

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
        """Creates a named tuple of the annotated fields of a class body, with its other members."""

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
        """Construct an instance.

        Only a class with many instances gets a compiled constructor: compiling takes longer than a short run
        saves by it.
        """
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
        """Like `typing.NamedTuple`, as a base class."""


FEW: Final = 32  # number of instances above which a class gets a compiled constructor


def compile_constructor(
    head: str, names: Sequence[str], defaults: Mapping[str, Any], step: str, act: Callable[..., Any]
) -> Any:
    """Compile a function with this head and these fields, whose body is one step that may call `_act`."""
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
    """Assign the given values to fields; TypeError unless there is one value each."""
    fields = {**defaults, **dict(zip(names, args, strict=False)), **named}
    wrong = [name for name in names if name not in fields] + [name for name in named if name not in names]
    wrong += [name for name in names[: len(args)] if name in named]
    if wrong or len(args) > len(names):
        listed = ", ".join(wrong) or f"{len(args)} values for {len(names)}"
        raise TypeError(f"{kind}: a field is missing, unknown or given twice: {listed}")
    return fields


T = TypeVar("T")

_DERIVED = object()


def derived(*, init: Literal[False] = False) -> Any:
    """A field that `__post_init__` sets with `object.__setattr__`: no argument, not compared, not shown."""
    return _DERIVED


@dataclass_transform(frozen_default=True, field_specifiers=(derived,))
def value(cls: type[T]) -> type[T]:
    """Add a constructor, equality, a hash and slots for the annotated fields."""
    body = {name: content for name, content in cls.__dict__.items() if name not in _MADE_ANEW}
    names = tuple(cls.__annotations__)
    defaults = {name: body.pop(name) for name in names if name in body}
    given = tuple(name for name in names if defaults.get(name) is not _DERIVED)
    own = {"__slots__": names, "__match_args__": given, "_defaults": defaults, "_uses": 0}
    made: type[T] = type(cls.__name__, cls.__bases__, _SHARED | own | body)
    return made


def replace(old: T, **changes: Any) -> T:
    """Return the same value with other fields; derived fields are computed again."""
    kept = {name: getattr(old, name) for name in type(old).__match_args__}  # type: ignore[attr-defined]
    return type(old)(**(kept | changes))


def _construct(self: Any, *args: Any, **named: Any) -> None:
    """Construct an instance.

    Only a class with many instances gets a compiled constructor: compiling takes longer than a short run
    saves by it.
    """
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

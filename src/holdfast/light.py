"""Parts of the standard library that a start would wait for, in the little that it needs of them.

`enum` and what it loads, with a dozen small enumerations, takes a fifth of `holdfast exec`; `contextlib` and
`signal` load the same. To a type checker these names are those of the standard library. To the interpreter an
enumeration is a class with fixed members, and a signal a number.
"""

from holdfast.annotations import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as signal
    from contextlib import suppress as suppress
    from enum import Enum as Enum
    from enum import IntEnum as IntEnum
    from enum import StrEnum as StrEnum
    from functools import cache as cache
else:
    import _signal

    signal = _signal

    class suppress:
        """As `contextlib.suppress`."""

        def __init__(self, *kinds):
            self._kinds = kinds

        def __enter__(self):
            return None

        def __exit__(self, kind, error, traceback):
            return kind is not None and issubclass(kind, self._kinds)

    def cache(function):
        """As `functools.cache`."""
        known = {}

        def remember(*args, **named):
            key = (args, tuple(named.items()))
            if key not in known:
                known[key] = function(*args, **named)
            return known[key]

        return remember

    class _Members(type):
        """Makes members of the plain values in a class body; they compare, and hash, as their type does."""

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
        """As `enum.Enum`, without aliases and other refinements."""

        def __repr__(self):
            return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

        def __reduce_ex__(self, _protocol):
            return type(self), (self.value,)

    class IntEnum(int, Enum):
        """As `enum.IntEnum`."""

        __repr__ = Enum.__repr__
        __str__ = int.__repr__

    class StrEnum(str, Enum):
        """As `enum.StrEnum`."""

        __repr__ = Enum.__repr__
        __str__ = str.__str__

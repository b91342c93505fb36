"""No path and no pattern, however hostile, changes the structure of a Seatbelt profile."""

import os
import re

from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.sandbox.backends.seatbelt import SeatbeltProfile, command, profile
from holdfast.sandbox.backends.seatbelt_regex import ancestors, denied
from holdfast.sandbox.plan.seen import Found, Seen, Sight
from holdfast.sandbox.policy.globs import bind_pattern
from holdfast.sandbox.policy.policy import Access, At, Glob, Network, Policy, Rule, Where, bind
from tests.support.sexpr import Shape, read

HOSTILE = "\"'()\\;#`|&$^.*+?[]{}!-,=~ \t\n\r\x01\x7fé🔑\udc80\udcffabZ0"
NAMES = st.text(st.sampled_from(HOSTILE), min_size=1, max_size=8)
# Without a hyphen: the odd ranges that it makes are a matter of the patterns' own tests.
PATTERNS = st.text(st.sampled_from(HOSTILE.replace("-", "") + "/**"), min_size=1, max_size=16)
PLAIN = st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, max_size=4)
WHERE = Where("/base", ("/base",))


def escaped(name: str) -> str:
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", name)


def made(rules: list[Rule]) -> SeatbeltProfile:
    bound = bind(Policy(tuple(rules), Network.OFF), WHERE)
    paths = {rule.path for rule in bound.rules} | {rule.protects for rule in bound.rules if rule.protects}
    paths |= {glob.pattern.root for glob in bound.globs}
    return profile(bound, Seen("/base", {path: Sight(path, Found.DIRECTORY) for path in paths}))


def layout(names: list[str]) -> list[Rule]:
    """The same rules for every five names; the numbers keep the order of the paths."""
    root, hidden, above, locked, matched = (f"{number}{name}" for number, name in enumerate(names))
    return [
        Rule(At("/"), Access.READ),
        Rule(At(f"/base/{root}"), Access.WRITE),
        Rule(At(f"/base/{root}/{hidden}"), Access.DENY),
        Rule(At(f"/base/{root}/{above}/{locked}"), Access.READ),
        Rule(Glob(f"/base/{escaped(root)}/**/{escaped(matched)}/x*"), Access.DENY),
    ]


def check(made: SeatbeltProfile) -> Shape:
    """The shape; the text must be such that every reader sees the same one."""
    assert re.fullmatch(r"[ -~\n]*", made.text)
    assert all(re.fullmatch(r"[A-Z0-9_]+", key) and value.startswith("/") for key, value in made.parameters)
    assert len(command(made, ["true"])) == len(made.parameters) + 5
    return read(made.text)


@given(st.lists(NAMES, min_size=5, max_size=5))
def test_a_path_changes_values_and_regular_expressions_only(names: list[str]) -> None:
    assert check(made(layout(names))) == check(made(layout(["a", "b", "c", "d", "e"])))


@given(PATTERNS)
def test_a_pattern_is_as_many_regular_expressions_as_it_has_alternatives(pattern: str) -> None:
    rules = layout(["a", "b", "c", "d", "e"])[:-1]
    try:
        wanted = made([*rules, Rule(Glob(f"/base/0a/{pattern}"), Access.DENY)])
    except (UsageError, SandboxUnavailable):
        assume(False)
        raise AssertionError("unreachable") from None
    plain = made([*rules, Rule(Glob("/base/0a/x*"), Access.DENY)])
    about_unlink = ("deny", "file-write-unlink")
    for with_pattern, without in zip(
        *(
            [each for each in check(one) if each[:2] not in (about_unlink, ("deny", "file-read*"))]
            for one in (wanted, plain)
        ),
        strict=True,
    ):
        assert with_pattern == without
    denials = [each for each in check(wanted) if each[0] == "deny" and each[1] != "default"]
    single = ("regex", '#""')
    for denial in denials:
        filters = denial[2:] if denial[:2] == about_unlink else denial[4:]
        for each in filters:
            assert each in (single, ("require-all", ("vnode-type", "DIRECTORY"), single)) or (
                each[0] == "literal" and each[1][0] == "param"
            )


def patterns_for(name: str) -> st.SearchStrategy[str]:
    """Ways to write a component that matches this name."""
    first = f"[!{'a' if name[0] != 'a' else 'b'}]"
    return st.sampled_from(
        [
            "*",
            "**",
            escaped(name),
            "?" * len(name),
            f"{escaped(name[:1])}*",
            f"*{escaped(name[1:])}",
            f"{first}*",
        ]
    )


MATCHING = st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4).flatmap(
    lambda names: st.tuples(st.just(names), st.tuples(*map(patterns_for, names)))
)


@given(MATCHING)
def test_what_a_pattern_matches_is_matched_and_held_by_its_ancestors(
    matching: tuple[list[str], tuple[str, ...]],
) -> None:
    names, components = matching
    parts = ["w", *names]
    path = "/" + "/".join(parts)
    patterns = bind_pattern("/w/" + "/".join(components), "/", ())
    assert any(each.matches(path) for each in patterns)
    for each in patterns:
        if not each.matches(path):
            continue
        assert re.search(denied(each).encode(), os.fsencode(path))
        first = next(end for end in range(1, len(parts) + 1) if each.matches("/" + "/".join(parts[:end])))
        for end in range(each.root.count("/") + 1, first):
            directory = os.fsencode("/" + "/".join(parts[:end]))
            assert any(re.search(regex.encode(), directory) for regex in ancestors(each))


@given(st.text("ab.*?[]/", min_size=1, max_size=10), PLAIN)
def test_of_plain_names_nothing_else_is_matched(pattern: str, parts: list[str]) -> None:
    try:
        patterns = bind_pattern(f"/w/{pattern}", "/", ())
    except UsageError:
        assume(False)
        raise AssertionError("unreachable") from None
    path = "/w/" + "/".join(parts)
    for each in patterns:
        if "[" not in each.tail:
            assert bool(re.search(denied(each), path)) == each.matches(path)

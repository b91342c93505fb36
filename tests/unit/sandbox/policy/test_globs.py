"""What a deny pattern matches; a pattern that is not one is refused, a slow one does not exist."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.globs import MAX_ALTERNATIVES, MAX_PATTERN_CHARS, Pattern, bind_pattern
from tests.support.rows import every_row


def only(pattern: str, cwd: str = "/w") -> Pattern:
    (bound,) = bind_pattern(pattern, cwd, ("/w",))
    return bound


def matches(pattern: str, path: str) -> bool:
    return any(bound.matches(path) for bound in bind_pattern(pattern, "/w", ("/w",)))


@every_row(
    ("pattern", "matching", "other"),
    [
        ("/w/*.env", ["/w/a.env", "/w/.env"], ["/w/d/a.env", "/w/a.envy", "/x/a.env", "/w"]),
        ("/w/**/*.env", ["/w/a.env", "/w/d/e/a.env"], ["/w/a.txt", "/wide/a.env"]),
        ("/w/**", ["/w/a", "/w/a/b"], ["/w"]),
        ("/w/a/**/b/**/c", ["/w/a/b/c", "/w/a/x/b/y/z/c", "/w/a/b/b/c"], ["/w/a/c", "/w/a/b", "/w/b/c"]),
        ("/w/?", ["/w/a"], ["/w/ab"]),
        ("/w/*", ["/w/a", "/w/.hidden"], ["/w"]),
        ("/w/a*b*c*d", ["/w/abcd", "/w/a1b2c3d", "/w/abbccdd"], ["/w/acbd", "/w/abc/d"]),
        ("/w/[ab]c", ["/w/ac", "/w/bc"], ["/w/cc"]),
        ("/w/[!ab]c", ["/w/cc"], ["/w/ac", "/w//c"]),
        ("/w/[^ab]c", ["/w/cc", "/w/^c"], ["/w/ac"]),
        ("/w/[]a]", ["/w/]", "/w/a"], ["/w/b"]),
        ("/w/x[+-9]y", ["/w/x1y"], ["/w/x/y"]),
        ("/w/[a&&b|~^]", ["/w/&", "/w/^", "/w/~"], ["/w/c"]),
        ("/w/[ab", ["/w/[ab"], ["/w/a"]),
        ("/w/[a/b]", ["/w/[a/b]"], ["/w/a"]),
        ("/w/*.{pem,key}", ["/w/a.pem", "/w/a.key"], ["/w/a.{pem,key}", "/w/a.crt"]),
        ("/w/{a,b/{c,d}}x", ["/w/ax", "/w/b/cx", "/w/b/dx"], ["/w/bx", "/w/b/c"]),
        ("/w/[{]*,}", ["/w/{a,}"], ["/w/a"]),
        ("/w/a**b", ["/w/ab", "/w/a1b", "/w/a1/2b", "/w/a/x/b"], ["/w/a", "/w/xa/b"]),
        (r"/w/\*\{*", ["/w/*{", "/w/*{a"], ["/w/a{"]),
        ("/w/a\nb*", ["/w/a\nbc"], ["/w/a"]),
    ],
)
def test_a_pattern_matches(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [path for path in matching + other if matches(pattern, path)] == matching


def test_what_lies_below_a_match_is_matched() -> None:
    assert matches("/w/*.d", "/w/secret.d/deep/file")


def test_a_pattern_without_wildcards_is_its_path() -> None:
    assert only("/w/secret") == Pattern("/w/secret", "", only("/w/x").regex)
    assert matches("/w/secret", "/w/secret/deep")
    assert not matches("/w/secret", "/w/secrets")


def test_literal_components_become_the_root() -> None:
    bound = only("/w/./a//b/*.env")
    assert (bound.root, bound.tail) == ("/w/a/b", "*.env")


def test_a_relative_pattern_lies_below_the_working_directory() -> None:
    assert (only("a/*").root, only("*").root) == ("/w/a", "/w")


@pytest.mark.parametrize("pattern", ["codex-project-roots://a/*", "codex-project-roots:///a/*"])
def test_a_pattern_of_the_workspace_is_bound_to_each_root(pattern: str) -> None:
    bound = bind_pattern(pattern, "/w", ("/w", "/v"))
    assert [(one.root, one.tail) for one in bound] == [("/w/a", "*"), ("/v/a", "*")]


def test_a_pattern_of_the_bare_workspace_means_all_in_it() -> None:
    assert matches("codex-project-roots://", "/w/a")


def test_a_root_with_special_characters_is_literal() -> None:
    bound = only("*", cwd="/w[1]{a}")
    assert bound.matches("/w[1]{a}/x")
    assert not bound.matches("/w1/x")
    assert only(str(bound)) == bound


@pytest.mark.parametrize(
    ("pattern", "depth"), [("/w/*", 1), ("/w/*/a/?", 3), ("/w/*/**", None), ("/w/**/a", None)]
)
def test_the_depth_of_a_match_is_known_without_crossing_stars(pattern: str, depth: int | None) -> None:
    assert only(pattern).max_depth == depth


@every_row(
    "pattern",
    [
        "",
        "/w/\0",
        "/w/" + "a" * MAX_PATTERN_CHARS,
        "/w/[z-a]",
        "/w/a*\\",
        "/w/{a",
        "/w/../*",
        "/w/" + "{a,b}" * 9,
        "/w/{" + "a," * MAX_ALTERNATIVES + "a}",
        "/w/" + "a**" * 12,
    ],
)
def test_what_is_not_a_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        bind_pattern(pattern, "/w", ("/w",))


@pytest.mark.parametrize("pattern", ["/w/" + "*a" * 60 + "*b", "/w/" + "**/a/" * 60 + "b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    assert not matches(pattern, "/w/" + "a" * 250)
    assert not matches(pattern, "/w" + "/a" * 500)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("/w/[--9]", "-.059", "+,a"),
        ("/w/[+--]", "+,-", "*.a"),
        ("/w/[!--9]", "+a", "-5"),
        ("/w/[a-]", "a-", "b"),
    ],
)
def test_a_class_may_begin_or_end_with_a_hyphen(pattern: str, inside: str, outside: str) -> None:
    assert [char for char in inside + outside if matches(pattern, f"/w/{char}")] == list(inside)

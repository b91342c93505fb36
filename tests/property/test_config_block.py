"""The invariants of the managed block, over configuration files as odd as TOML allows."""

import tomllib
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agentconfig.block import Applied, apply
from holdfast.agentconfig.document import Unparsable, scan
from holdfast.agentconfig.removal import ConflictKind, strip
from holdfast.agentconfig.settings import Key, Setting, Settings, Value, settings
from tests.support.tomlwriter import MARKS, ROOTS, compose

BASE = "/home/u/.codex"
TEXTS = st.text(st.sampled_from("ab/.~ \"'\\#[]={}\t\n\r\x00\x1b\x7fé☃🔑\u2028\ufeff"), max_size=8)
LISTS = st.lists(TEXTS.map(lambda text: f"/{text}"), max_size=3).map(tuple)
KEYS: dict[Key, st.SearchStrategy[Value]] = {
    ("sandbox_mode",): st.sampled_from(["read-only", "workspace-write", "danger-full-access"]),
    ("approval_policy",): st.sampled_from(["never", "on-request"]),
    ("sandbox_workspace_write", "network_access"): st.booleans(),
    ("sandbox_workspace_write", "writable_roots"): LISTS,
    ("features", "memories"): st.booleans(),
    ("features", "network_proxy"): st.booleans(),
    ("check_for_update_on_startup",): st.booleans(),
    ("shell_environment_policy", "inherit"): TEXTS,
    ("shell_environment_policy", "set", "A"): TEXTS,
    **{
        ("projects", root, "trust_level"): st.just("untrusted")
        for root in (*ROOTS, "c:/WORK/repo", "/\n\x00")
    },
}
WISHES = st.lists(
    st.sampled_from(sorted(KEYS)).flatmap(lambda key: st.tuples(st.just(key), KEYS[key])),
    min_size=1,
    max_size=len(KEYS),
    unique_by=lambda item: item[0],
).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)  # a document takes hundreds of choices: too many to make one by one
NEWEST = SEEDS.map(lambda seed: compose(Random(seed)))  # noqa: S311
OLDER = SEEDS.map(lambda seed: compose(Random(seed), newest=False))  # noqa: S311
SOUP = st.lists(
    st.sampled_from(
        [
            *MARKS,
            "# <<< holdfast trust v1 <<<",
            "# holdfast v1 took out 2 lines: why",
            "#: a = [",
            "#: ]",
            "#: [features]",
            'sandbox_mode = "workspace-write"',
            "[sandbox_workspace_write]",
            "network_access = true",
            "",
            "[features]",
            "memories = true",
            "[tui]",
            'profile = "x"',
            'projects."/repo".trust_level = "trusted"',
            "a = '''",
            "'''",
        ]
    ),
    max_size=14,
).map(lambda lines: "".join(f"{line}\n" for line in lines))


def wish(items: tuple[tuple[Key, Value], ...]) -> Settings:
    keys = {key[1].casefold().replace("\\", "/"): key for key, _ in items if key[0] == "projects"}
    chosen = {key for key, _ in items if key[0] != "projects"} | set(keys.values())  # one spelling of each
    return settings(Setting(key, value) for key, value in items if key in chosen)


def done(text: str, items: tuple[tuple[Key, Value], ...]) -> Applied:
    return apply(text, wish(items), config_dir=BASE)


def decoded(text: str) -> Any:
    return tomllib.loads(text.removeprefix("\ufeff"))


def leaves(tree: Any, above: Key = ()) -> dict[Key, Any]:
    if isinstance(tree, dict):
        return {
            key: leaf for name, value in tree.items() for key, leaf in leaves(value, (*above, name)).items()
        }
    return {above: tree}


@given(NEWEST, WISHES)
def test_applying_twice_is_applying_once(text: str, items: tuple[tuple[Key, Value], ...]) -> None:
    once = done(text, items)
    twice = done(once.text, items)
    assert twice.text == once.text
    assert not twice.changed
    assert twice.settings == once.settings
    assert twice.intents == once.intents


@given(NEWEST, WISHES)
def test_removal_is_exact(text: str, items: tuple[tuple[Key, Value], ...]) -> None:
    assert strip(done(text, items).text).text == text


@given(NEWEST, WISHES, WISHES)
def test_a_change_of_mind_leaves_no_trace(
    text: str, first: tuple[tuple[Key, Value], ...], second: tuple[tuple[Key, Value], ...]
) -> None:
    assert done(done(text, first).text, second).text == done(text, second).text


@given(OLDER, WISHES)
def test_ours_are_set_and_all_others_keep_their_values(
    text: str, items: tuple[tuple[Key, Value], ...]
) -> None:
    before, applied = leaves(decoded(text)), done(text, items)
    after = leaves(decoded(applied.text))
    for item in applied.settings.items:
        assert after.pop(item.key) == (list(item.value) if isinstance(item.value, tuple) else item.value)
    gone = {intent.key for intent in applied.intents} | {item.key for item in applied.settings.items}
    kept = {
        key: leaf for key, leaf in before.items() if not any(key[:n] in gone for n in range(1, len(key) + 1))
    }
    assert after == kept


@given(NEWEST, WISHES)
def test_lines_that_do_not_concern_us_keep_their_bytes_and_their_order(
    text: str, items: tuple[tuple[Key, Value], ...]
) -> None:
    applied = done(text, items)
    out = {conflict.line for conflict in applied.conflicts}
    document = scan(text)
    kept = [document.source(item) for item in document.items if document.line(item) not in out]
    rest = iter(scan(applied.text).items)
    for line in kept:
        assert any(applied.text[item.start : item.end].rstrip("\r\n") == line.rstrip("\r\n") for item in rest)
    assert applied.text.startswith("\ufeff") == text.startswith("\ufeff")


@given(NEWEST, WISHES, st.randoms(use_true_random=False))
def test_after_any_damage_to_our_lines_one_more_pass_settles_it(
    text: str, items: tuple[tuple[Key, Value], ...], random: Random
) -> None:
    lines = done(text, items).text.split("\n")
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(lines))
        if "holdfast" in lines[at] or lines[at].startswith("#: "):
            lines[at : at + 1] = random.choice([[], [lines[at]] * 2, ["x = 1"]])
    damaged = "\n".join(lines)
    try:
        scan(damaged)
    except Unparsable:
        return
    settled = done(damaged, items)
    assert done(settled.text, items).text == settled.text


@given(SOUP, WISHES)
def test_a_soup_of_marks_settles_in_one_pass(text: str, items: tuple[tuple[Key, Value], ...]) -> None:
    try:
        once = done(text, items)
    except Unparsable:
        return
    assert done(once.text, items).text == once.text
    assert scan(strip(once.text).text)


@given(st.text(alphabet="a=\"'[]{}#.,\\\n\r\t 1-\ufeff", max_size=40))
def test_any_text_is_either_scanned_without_a_gap_or_refused_with_its_place(text: str) -> None:
    try:
        document = scan(text)
    except Unparsable as exc:
        assert 1 <= exc.line <= text.count("\n") + 1
        assert exc.column >= 1
        return
    assert "".join(map(document.source, document.items)) == text[document.top :]


@given(OLDER)
def test_the_scanner_reads_what_the_standard_library_reads(text: str) -> None:
    text = text.replace("\r\n", "\n")  # the standard library does so, also inside strings
    document = scan(text)
    tree = leaves(decoded(text))
    for item in document.items:
        if item.value and (plain := document.plain(item.value)) is not None:
            assert tree[item.path] == (list(plain) if isinstance(plain, tuple) else plain)


@given(NEWEST)
def test_a_document_without_conflicts_is_only_added_to(text: str) -> None:
    applied = apply(
        text, settings([Setting(("projects", "/never", "trust_level"), "untrusted")]), config_dir=BASE
    )
    if applied.conflicts == ():
        assert text.removeprefix("\ufeff") in applied.text or "[" in text
    assert {conflict.kind for conflict in applied.conflicts} <= {ConflictKind.REWRITTEN}

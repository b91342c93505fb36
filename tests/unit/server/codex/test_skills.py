"""YAML as people write it, and as attackers do."""

from holdfast.server.codex.skills import MAX_YAML_CHARS, Front, SkillMetadata, front_matter, metadata
from holdfast.wire.discovery import SkillDependencies, SkillPolicy, ToolDependency
from tests.support.rows import every_row


def front(head: str) -> Front | None:
    return front_matter(f"---\n{head}\n---\nbody\n", fallback_name="folder")


def tool(kind: str, value: str, **rest: str | int | None) -> ToolDependency:
    fields = dict.fromkeys(("description", "transport", "command", "url"), None) | rest
    port = fields.pop("oauth_callback_port", None)
    texts = {key: None if text is None else str(text) for key, text in fields.items()}
    return ToolDependency(kind, value, **texts, oauth_callback_port=None if port is None else int(port))


def test_all_fields_are_read_and_their_white_space_is_folded() -> None:
    head = 'name: "  a   b "\ndescription: |\n  one\n  two\nmetadata:\n  short-description: " s  t "'
    assert front(head) == Front("a b", "one two", "s t")


@every_row(
    ("head", "name"),
    [
        ("description: d", "folder"),
        ("name:\ndescription: d", "folder"),
        ('name: "  "\ndescription: d', "folder"),
        ("name: ~\ndescription: d", "folder"),
        ("<<: {name: merged}\ndescription: d", "folder"),
        ("name: 'null'\ndescription: d", "null"),
        ("name: 010\ndescription: d", "010"),
        ("name: Yes\ndescription: d", "Yes"),
        ("name: 2024-01-01\ndescription: d", "2024-01-01"),
        ("name: !!binary aGk=\ndescription: d", "aGk="),
        ("name: &x y\ndescription: *x", "y"),
        ("name: " + "é" * 64 + "\ndescription: d", "é" * 64),
        ("name: n\ndescription: d\nmetadata:", "n"),
        ("name: n\ndescription: d\nmetadata: {short-description: ~}", "n"),
    ],
)
def test_a_name_keeps_its_spelling_or_is_that_of_the_folder(head: str, name: str) -> None:
    found = front(head)
    assert found
    assert (found.name, found.short_description) == (name, None)


@every_row(
    ("value", "description"),
    [
        ("Use when: asked", "Use when: asked"),
        ("it's: so # not this", "it's: so"),
        ("[x] boxes", "[x] boxes"),
        ("{x} braces", "{x} braces"),
        ("@someone", "@someone"),
        ("`code` first", "`code` first"),
        ("a\ttab", "a tab"),
    ],
)
def test_a_value_that_only_people_would_read_is_quoted_for_them(value: str, description: str) -> None:
    assert front(f"name: n\ndescription: {value}") == Front("n", description, None)


@every_row(
    "head",
    [
        "",
        "text",
        "- list",
        "name: n",
        "name: n\ndescription: ''",
        "name: n\ndescription: [a]",
        "name: [n]\ndescription: d",
        "name: n\nname: n\ndescription: d",
        "name: n\ndescription: d\n...\nname: n",
        "name: n\ndescription: d\nmetadata: text",
        "name: n\ndescription: d\nmetadata: ~",
        "? [a]\n: b\nname: n\ndescription: d",
        "name: n\ndescription: *bold* claim",
        'name: n\ndescription: "open',
        "name: " + "n" * 65 + "\ndescription: d",
        "name: n\ndescription: d\nx: " + "[" * 500 + "]" * 500,
        'name: n\ndescription: "\\uD800"',
        'name: n\ndescription: "\\UFFFFFFFF"',
        "name: n\ndescription: " + "d" * MAX_YAML_CHARS,
        "name: !!python/object/apply:os.system [true]\ndescription: d",
    ],
)
def test_unusable_front_matter_is_none(head: str) -> None:
    assert front(head) is None


@every_row(
    ("text", "usable"),
    [
        ("---\r\nname: n\r\ndescription: d\r\n---\r\n", True),
        (" ---\t\nname: n\ndescription: d\n  ---", True),
        ("\n---\nname: n\ndescription: d\n---\n", False),
        ("---\nname: n\ndescription: d\n", False),
        ("----\nname: n\ndescription: d\n----\n", False),
        ("name: n\ndescription: d\n", False),
        ("", False),
    ],
)
def test_front_matter_lies_between_two_fences_at_the_top(text: str, usable: bool) -> None:
    assert (front_matter(text, fallback_name="folder") is not None) is usable


def test_a_tool_dependency_is_read_with_its_bounds() -> None:
    text = f"""
dependencies:
  tools:
    - {{type: mcp, value: v, description: " a  b ", transport: stdio, command: c, url: u}}
    - {{type: mcp, value: v, transport: {"t" * 65}, url: {"u" * 1025}, oauth: {{callback_port: 80}}}}
    - {{type: 1, value: false, oauth: {{callbackPort: 81}}}}
    - {{type: mcp}}
    - {{value: v}}
    - {{type: {"t" * 65}, value: v}}
    - {{type: mcp, value: {"v" * 1025}}}
"""
    full = tool("mcp", "v", description="a b", transport="stdio", command="c", url="u")
    tools = [full, tool("mcp", "v", oauth_callback_port=80), tool("1", "false", oauth_callback_port=81)]
    assert metadata(text) == SkillMetadata(SkillDependencies(tools), None)


@every_row(
    ("text", "policy"),
    [
        ("policy: {}", SkillPolicy(None, [])),
        ("policy: {allow_implicit_invocation: ~, other: [1]}", SkillPolicy(None, [])),
        ("policy: {allow_implicit_invocation: False}", SkillPolicy(False, [])),
        ("policy:\n  products:\n", SkillPolicy(None, [])),
        ("policy: {products: [codex, CHATGPT, atlas]}", SkillPolicy(None, ["codex", "chatgpt", "atlas"])),
        ("a: &a {allow_implicit_invocation: true}\npolicy: *a", SkillPolicy(True, [])),
        ("interface: {display_name: 5, zzz: [1]}\npolicy: !x {}", SkillPolicy(None, [])),
        ("dependencies: {tools: }\npolicy: {}", SkillPolicy(None, [])),
        ("policy:", None),
        ("", None),
    ],
)
def test_a_policy_is_read(text: str, policy: SkillPolicy | None) -> None:
    assert metadata(text) == SkillMetadata(None, policy)


@every_row(
    "mistake",
    [
        "policy: [",
        "- policy",
        "policy: text",
        "policy: {products: ~}",
        "policy: {products: [Codex]}",
        "policy: {allow_implicit_invocation: 'true'}",
        "policy: {allow_implicit_invocation: yes}",
        "policy: {}\npolicy: {}",
        "policy: {}\ninterface: text",
        "policy: {}\ninterface: {icon_small: [1]}",
        "policy: {}\ndependencies: {tools: [text]}",
        "policy: {}\ndependencies: {tools: [~]}",
        "policy: {}\ndependencies: {tools: [{type: a, value: [b]}]}",
        "policy: {}\ndependencies: {tools: [{type: a, value: b, oauth: 9}]}",
        "policy: {}\ndependencies: {tools: [{type: a, value: b, oauth: {callback_port: 65536}}]}",
        "policy: {}\ndependencies: {tools: [{type: a, value: b, oauth: {callback_port: '80'}}]}",
        "dependencies: {tools: [{type: a, value: b, oauth: {callback_port: 1, callbackPort: 2}}]}",
    ],
)
def test_one_mistake_and_all_metadata_is_ignored(mistake: str) -> None:
    assert metadata(mistake) == SkillMetadata(None, None)


def test_aliases_that_multiply_cost_nothing() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
    text = f"l0: &l0 [x]\n{levels}\npolicy: {{allow_implicit_invocation: false}}"
    assert metadata(text).policy == SkillPolicy(False, [])


def test_an_alias_of_itself_is_harmless() -> None:
    assert metadata("a: &a [*a]\npolicy: {}").policy == SkillPolicy(None, [])

"""Settings of clients in the shapes that people write them."""

import pytest

from holdfast.egress.clients.formats import (
    expand,
    read_deb822,
    read_npmrc,
    read_sections,
    read_settings,
    read_sources_list,
    read_tree,
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "[global]\nindex-url = https://a.test/simple\n",
            [("global", "", "index-url", "https://a.test/simple")],
        ),
        ("[global]\nindex-url: https://a.test\n", [("global", "", "index-url", "https://a.test")]),
        ("[Global]\nIndex-URL=https://a.test", [("global", "", "index-url", "https://a.test")]),
        (
            "[global]\nextra-index-url =\n    https://a.test/1\n    https://b.test:8443/2\n# no\n",
            [
                ("global", "", "extra-index-url", ""),
                ("global", "", "extra-index-url", "https://a.test/1"),
                ("global", "", "extra-index-url", "https://b.test:8443/2"),
            ],
        ),
        (
            '[url "https://git.test/"]\n\tinsteadOf = gh:\n\tpushInsteadOf = x\n',
            [
                ("url", "https://git.test/", "insteadof", "gh:"),
                ("url", "https://git.test/", "pushinsteadof", "x"),
            ],
        ),
        ('[a "q\\"uote"] k = v', [("a", 'q"uote', "k", "v")]),
        ("; c\n# c\n\nno sign\n", []),
    ],
)
def test_sections(text: str, rows: list[tuple[str, str, str, str]]) -> None:
    assert list(read_sections(text)) == rows


def test_an_npmrc_has_variables_scopes_comments_and_quotes() -> None:
    text = '; no\n#no\n[x]\nregistry=${HOST}/npm/\n@s:registry = "https://s.test"\nx\nregistry=https://last.test\n'
    assert read_npmrc(text, {}) == {"registry": "https://last.test", "@s:registry": "https://s.test"}
    assert read_npmrc("registry=${HOST}/npm/", {"HOST": "https://a.test"}) == {
        "registry": "https://a.test/npm/"
    }
    assert expand("${NONE}/${ONE?}", {"ONE": "1"}) == "${NONE}/1"


def test_lines_of_names_and_values() -> None:
    assert read_settings("# c=d\nA=b=c\n B = c \nnone\n") == {"A": "b=c", "B": "c"}


def test_a_tree_is_toml_or_json_or_nothing() -> None:
    assert read_tree('[a]\nb = "c"') == {"a": {"b": "c"}}
    assert read_tree('// comment\n{"a": 1}') == {"a": 1}
    assert read_tree("[1, 2]") == read_tree("{") == read_tree("[" * 100_000) == {}


def test_sources_of_apt_in_both_shapes() -> None:
    text = (
        "# deb http://no.test x\ndeb http://a.test/debian s main\n"
        "deb-src [arch=amd64 signed-by=/k] https://b.test s c\n"
    )
    assert read_sources_list(text) == ["http://a.test/debian", "https://b.test"]
    stanzas = (
        "Types: deb\n# URIs: http://no.test\nURIs: http://a.test/x\n  http://b.test\nSuites: s\n\n"
        "Enabled: no\nURIs: http://off.test\n \nURIs: https://c.test\n"
    )
    assert read_deb822(stanzas) == ["http://a.test/x", "http://b.test", "https://c.test"]

"""Where a provider is, as rules: by its name and port, on loopback, or not at all."""

from dataclasses import replace

from holdfast.agents.catalog.agent import Reach
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.catalog.known import read_shipped
from holdfast.agents.catalog.providerhosts import ProviderHosts, find_provider
from holdfast.egress.hosts import parse_rules
from tests.support.rows import every_row

ONE = replace(CODEX, reach=Reach(("api.test",)))


@every_row(
    ("base", "wanted"),
    [
        ("https://llm.test/v1", ProviderHosts(("llm.test:443",), ("llm.test",))),
        ("http://LLM.test.", ProviderHosts(("llm.test:80",), ("llm.test",))),
        ("http://127.0.0.1:8080/x", ProviderHosts(("127.0.0.1:8080",))),
        ("http://[::1]:8080", ProviderHosts(("[::1]:8080",))),
        ("http://localhost:8080", ProviderHosts(("localhost:8080",))),
        ("http://user:pass@llm.test:99", ProviderHosts(("llm.test:99",), ("llm.test",))),
        ("http://10.1.2.3:80", ProviderHosts(literal="10.1.2.3")),
        ("http://127.0.0.2:80", ProviderHosts(literal="127.0.0.2")),
        ("http://[::ffff:10.1.2.3]:80", ProviderHosts(literal="10.1.2.3")),
        ("http://0x7f.1:80", ProviderHosts(literal="http://0x7f.1:80")),
        ("http://a b:80", ProviderHosts(literal="http://a b:80")),
        ("http://x.test:99999", ProviderHosts(literal="http://x.test:99999")),
        ("ftp://x.test", ProviderHosts(literal="ftp://x.test")),
        ("", ProviderHosts(literal="")),
    ],
)
def test_one_that_it_is_sent_to_is_all_that_it_reaches(base: str, wanted: ProviderHosts) -> None:
    found = find_provider(ONE, base, ["https://other.test"])
    assert found == wanted
    parse_rules(found.rules, own=found.own)


def test_what_its_user_says_comes_to_what_its_record_says_and_nonsense_is_left_out() -> None:
    said = ["https://llm.test:8443/v1", "nonsense", "http://localhost:1", "http://\x00.test"]
    assert find_provider(ONE, None, said) == ProviderHosts(
        ("api.test", "llm.test:8443", "localhost:1"), ("llm.test",)
    )
    assert find_provider(ONE, None, ["http://192.0.2.1"]).literal == "192.0.2.1"
    assert find_provider(replace(CODEX, reach=None), None) == ProviderHosts()


def test_the_hosts_of_every_record_are_rules() -> None:
    known = [*CATALOG.values(), *read_shipped().values()]
    named = [agent for agent in known if agent.reach is not None]
    assert {"codex", "claude", "gemini", "qwen", "opencode"} <= {agent.name for agent in named}
    for agent in named:
        assert agent.reach is not None
        assert not any("*" in rule or ":" in rule for rule in agent.reach.hosts)
        parse_rules(agent.reach.hosts)

"""The variables that name a proxy."""

from holdfast.egress.variables import LOCAL, name_proxy


def test_every_program_finds_the_proxy() -> None:
    found = name_proxy("127.0.0.1:1", "127.0.0.1:2", local_binding=False)
    assert len(found) == 34
    assert {found[name] for name in ("HTTP_PROXY", "https_proxy", "PIP_PROXY", "npm_config_proxy")} == {
        "http://127.0.0.1:1"
    }
    assert {found[name] for name in ("ALL_PROXY", "ftp_proxy")} == {"socks5h://127.0.0.1:2"}
    assert {found[name] for name in ("NO_PROXY", "no_proxy", "BUNDLE_NO_PROXY")} == {""}
    assert (found["CODEX_NETWORK_PROXY_ACTIVE"], found["CODEX_NETWORK_ALLOW_LOCAL_BINDING"]) == ("1", "0")


def test_without_socks_everything_goes_by_http_and_local_addresses_may_go_by_neither() -> None:
    found = name_proxy("127.0.0.1:1", None, local_binding=True)
    assert found["ALL_PROXY"] == "http://127.0.0.1:1"
    assert found["NO_PROXY"] == LOCAL
    assert found["CODEX_NETWORK_ALLOW_LOCAL_BINDING"] == "1"

"""Which hosts clients of packages are set up for: files of every shape, and the order in which they count."""

import pytest

from holdfast.egress.clients.packages import find_apt, find_cargo, find_go, find_npm, find_pip
from tests.unit.egress.clients.scene import machine

PIP = 'PyPI = PackageIndex("https://index.test/", file_storage_domain="files.test")\n'
MANY = (
    "[global]\nindex-url=https://a.test\nextra-index-url =\n  https://b.test\n  https://c.test\n"
    "find-links=/opt https://d.test"
)
USER_PIP = "/home/u/.config/pip/pip.conf"
NPM = {"npm": "/opt/node/lib/node_modules/npm/bin/npm-cli.js"}
NPM_TOP = "/opt/node/lib/node_modules/npm"
DEFINITIONS = f"{NPM_TOP}/node_modules/@npmcli/config/lib/definitions/definitions.js"
NPM_TEXT = (
    "  'package-lock': new Definition('package-lock', {\n default: true,\n }),\n"
    "  registry: new Definition('registry', {\n    default: 'https://own.test/',\n"
)
OLD_NPM_TEXT = "define('registry', {\n  default: 'https://own.test/',\n"
CARGO, CACHED = "/home/u/.cargo/config.toml", "/home/u/.cargo/registry/index"
REGISTRIES = (
    '[registries.a]\nindex = "sparse+https://a.test/i/"\n[source.m]\nregistry = "https://m.test"\n'
    '[source.x]\ndirectory = "v"'
)
GO = {"go": "/opt/go/bin/go"}


@pytest.mark.parametrize(
    ("files", "environ", "urls"),
    [
        ({}, {}, ["https://index.test/", "https://files.test/"]),
        ({USER_PIP: "[global]\nindex-url=https://a.test/simple"}, {}, ["https://a.test/simple"]),
        (
            {
                "/etc/pip.conf": "[global]\nindex-url=https://e.test",
                USER_PIP: "[global]\nindex_url=https://a.test",
            },
            {},
            ["https://a.test"],
        ),
        (
            {USER_PIP: "[global]\nindex-url=https://a.test"},
            {"PIP_INDEX_URL": "https://v.test"},
            ["https://v.test"],
        ),
        (
            {USER_PIP: "[install]\nindex-url=https://a.test"},
            {},
            ["https://a.test", "https://index.test/", "https://files.test/"],
        ),
        (
            {USER_PIP: "[list]\nindex-url=https://a.test\n[freeze]\nfind-links=https://b.test"},
            {"PIP_INDEX_URL": "https://v.test"},
            ["https://v.test"],
        ),
        (
            {USER_PIP: MANY},
            {},
            ["https://a.test", "https://b.test", "https://c.test", "/opt", "https://d.test"],
        ),
        ({"/home/u/.pip/pip.conf": "[global]\nindex-url=https://a.test"}, {}, ["https://a.test"]),
        (
            {"/x/pip/pip.conf": "[global]\nindex-url=https://a.test"},
            {"XDG_CONFIG_HOME": "/x"},
            ["https://a.test"],
        ),
        ({"/v/pip.conf": "[global]\nindex-url=https://a.test"}, {"VIRTUAL_ENV": "/v"}, ["https://a.test"]),
        (
            {"/n": "[global]\nindex-url=https://a.test", USER_PIP: "[global]\nindex-url=https://u.test"},
            {"PIP_CONFIG_FILE": "/n"},
            ["https://a.test"],
        ),
        ({USER_PIP: "\0\0[[[\nindex-url"}, {}, ["https://index.test/", "https://files.test/"]),
    ],
)
def test_pip(files: dict[str, str], environ: dict[str, str], urls: list[str]) -> None:
    assert [url for url, _ in find_pip(machine(files, environ, pip=PIP))] == urls


def test_a_pip_that_says_nothing_of_its_index_has_none() -> None:
    assert find_pip(machine(pip=None)) == find_pip(machine(pip="PyPI = somewhere()")) == []


@pytest.mark.parametrize(
    ("files", "environ", "urls"),
    [
        ({DEFINITIONS: NPM_TEXT}, {}, ["https://own.test/"]),
        ({DEFINITIONS: OLD_NPM_TEXT}, {}, ["https://own.test/"]),
        (
            {"/usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js": OLD_NPM_TEXT},
            {},
            ["https://own.test/"],
        ),
        (
            {
                DEFINITIONS: NPM_TEXT,
                "/home/u/.npmrc": "registry=https://u.test/\n@s:registry=https://s.test/",
            },
            {},
            ["https://u.test/", "https://s.test/"],
        ),
        (
            {"/opt/node/etc/npmrc": "registry=https://g.test", f"{NPM_TOP}/npmrc": "registry=https://b.test"},
            {},
            ["https://g.test"],
        ),
        (
            {"/home/u/.npmrc": "registry=https://u.test/"},
            {"npm_config_registry": "https://v.test"},
            ["https://v.test"],
        ),
        (
            {"/home/u/.npmrc": "registry=https://u.test/"},
            {"NPM_CONFIG_REGISTRY": "https://v.test"},
            ["https://v.test"],
        ),
        ({"/else": "registry=https://e.test/"}, {"NPM_CONFIG_USERCONFIG": "/else"}, ["https://e.test/"]),
        ({"/home/u/.npmrc": "//u.test/:_authToken=secret\nalways-auth=true"}, {}, []),
    ],
)
def test_npm(files: dict[str, str], environ: dict[str, str], urls: list[str]) -> None:
    assert [url for url, _ in find_npm(machine(files, environ, NPM))] == urls


@pytest.mark.parametrize(
    ("files", "environ", "urls"),
    [
        ({}, {}, []),
        (
            {f"{CACHED}/index.own.test-1949cf/config.json": '{"dl": "https://dl.test/x", "api": null}'},
            {},
            ["https://index.own.test/", "https://dl.test/x"],
        ),
        ({"/home/u/.cargo/registry/index/x-1/config.json": "not json"}, {}, []),
        ({CARGO: REGISTRIES}, {}, ["sparse+https://a.test/i/", "https://m.test"]),
        ({"/c/config": '[source.m]\ngit = "https://g.test/x"'}, {"CARGO_HOME": "/c"}, ["https://g.test/x"]),
        ({}, {"CARGO_REGISTRIES_MINE_INDEX": "https://e.test/i"}, ["https://e.test/i"]),
        ({"/home/u/.cargo/config.toml": 'registries = 3\nsource = ["x"]'}, {}, []),
    ],
)
def test_cargo(files: dict[str, str], environ: dict[str, str], urls: list[str]) -> None:
    assert [url for url, _ in find_cargo(machine(files, environ))] == urls


@pytest.mark.parametrize(
    ("files", "environ", "urls"),
    [
        (
            {"/opt/go/go.env": "GOPROXY=https://p.test,direct\nGOSUMDB=s.test\n"},
            {},
            ["https://p.test", "https://s.test/"],
        ),
        (
            {
                "/opt/go/go.env": "GOPROXY=https://p.test,direct",
                "/home/u/.config/go/env": "GOPROXY=https://u.test|https://w.test,off",
            },
            {},
            ["https://u.test", "https://w.test"],
        ),
        ({"/opt/go/go.env": "GOPROXY=https://p.test"}, {"GOPROXY": "direct"}, []),
        ({"/home/u/.config/go/env": "GOPROXY=https://u.test"}, {"GOENV": "off"}, []),
        ({"/e": "GOPROXY=https://u.test"}, {"GOENV": "/e", "GOSUMDB": "off"}, ["https://u.test"]),
        ({}, {"GOSUMDB": "s.test+ab12+key https://mirror.test/s"}, ["https://mirror.test/s"]),
        ({}, {"GOSUMDB": "s.test+ab12+key"}, ["https://s.test/"]),
    ],
)
def test_go(files: dict[str, str], environ: dict[str, str], urls: list[str]) -> None:
    assert [url for url, _ in find_go(machine(files, environ, GO))] == urls


def test_apt() -> None:
    files = {
        "/etc/apt/sources.list": "deb http://a.test/debian s main",
        "/etc/apt/sources.list.d/x.list": "deb https://b.test s main",
        "/etc/apt/sources.list.d/y.sources": "URIs: http://c.test\n",
        "/etc/apt/sources.list.d/z.list.disabled": "deb https://no.test s main",
    }
    found = find_apt(machine(files))
    assert [url for url, _ in found] == ["http://a.test/debian", "https://b.test", "http://c.test"]
    assert found[1].where == "/etc/apt/sources.list.d/x.list"

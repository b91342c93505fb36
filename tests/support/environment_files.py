"""Files with environments: those the reference takes, and those it refuses."""

from typing import Final

ADDRESS: Final = "ws://127.0.0.1:1"


def at(more: str = "", *, url: str = ADDRESS, id_: str = "a") -> str:
    return f"[[environments]]\nid = '{id_}'\nurl = '{url}'\n{more}\n"


def child(more: str = "", *, program: str = "true", id_: str = "a") -> str:
    return f"[[environments]]\nid = '{id_}'\nprogram = '{program}'\n{more}\n"


TOKEN: Final = 'auth_bearer_token = "hidden"'

TAKEN: Final = {
    "nothing": "",
    "no default": "default = ' NONE '",
    "local by name": "default = 'local'",
    "default with spaces": "default = ' a '\n" + at(),
    "longest id": at(id_="a" * 64),
    "local in capitals": at(id_="LOCAL"),
    "id remote": at(id_="remote"),
    "ids that differ in case": at() + at(id_="A"),
    "address with spaces": at(url=f"  {ADDRESS} "),
    "address with path and query": at(url=f"{ADDRESS}/x?y=[1]"),
    "address of IPv6": at(url="ws://[::1]:1"),
    "program with spaces": child(program=" true "),
    "relative directory": child("cwd = 'x'"),
    "absolute directory": child("cwd = '/x'"),
    "words and variables": child("args = ['a', '']\nenv = {A = 'b'}"),
    "child's timeout": child("initialize_timeout_sec = 1"),
    "no time at all": at("connect_timeout_sec = 0\ninitialize_timeout_sec = 0.5"),
    "token to loopback": at(TOKEN),
    "token to localhost": at(TOKEN, url="ws://LOCALHOST:1"),
    "token to IPv6 loopback": at(TOKEN, url="ws://[::1]:1"),
    "token over TLS": at(TOKEN, url="wss://192.0.2.1:1"),
    "skills": at("skills = {required = ['x']}"),
    "child's skills": child("skills = {}"),
}

REFUSED: Final = {
    "no TOML": "x =",
    "unknown key": "x = 1",
    "default that is no text": "default = 1",
    "flag that is no flag": "include_local = 'x'",
    "empty default": "default = ' '",
    "unknown default": "default = 'b'\n" + at(),
    "default in capitals": "default = 'A'\n" + at(),
    "local that is left out": "include_local = false\ndefault = 'local'",
    "no list": "environments = 1",
    "one table": "[environments]\nid = 'a'",
    "no table": "environments = [1]",
    "no id": f"[[environments]]\nurl = '{ADDRESS}'",
    "empty id": at(id_=""),
    "id with space": at(id_=" a"),
    "id with dot": at(id_="a.b"),
    "id too long": at(id_="a" * 65),
    "id not ASCII": at(id_="é"),
    "id local": at(id_="local"),
    "id none": at(id_="None"),
    "id twice": at() + child(),
    "both": at("program = 'x'"),
    "neither": "[[environments]]\nid = 'a'",
    "address with words": at("args = []"),
    "address with variables": at("env = {}"),
    "address with directory": at("cwd = '/'"),
    "child with connect timeout": child("connect_timeout_sec = 1"),
    "child with token": child(TOKEN),
    "empty address": at(url=" "),
    "address of a file": at(url="unix:///x"),
    "address in capitals": at(url="WS://127.0.0.1:1"),
    "address without host": at(url="ws://"),
    "host with space": at(url="ws://a b"),
    "path with space": at(url="ws://h/a b"),
    "host not ASCII": at(url="ws://é:1"),
    "half of IPv6": at(url="ws://[::1"),
    "two ports": at(url="ws://h:1:2"),
    "empty program": child(program=" "),
    "words that are no texts": child("args = [1]"),
    "words that are no list": child("args = 'x'"),
    "variable that is no text": child("env = {A = 1}"),
    "negative time": at("connect_timeout_sec = -1"),
    "infinite time": at("connect_timeout_sec = inf"),
    "no time": at("initialize_timeout_sec = nan"),
    "time that is text": at("initialize_timeout_sec = '1'"),
    "time that is a flag": at("connect_timeout_sec = true"),
    "token in the open": at(TOKEN, url="ws://192.0.2.1:1"),
    "token below localhost": at(TOKEN, url="ws://a.localhost:1"),
    "token after localhost": at(TOKEN, url="ws://localhost@192.0.2.1:1"),
    "token that is no header": at('auth_bearer_token = "hidden\\n"'),
    "token that is no text": at("auth_bearer_token = 1"),
    "unknown key of an environment": at("x = 1"),
    "skills that are none": at("skills = 3"),
    "unknown key of skills": at("skills = {x = 1}"),
    "skills that are no texts": at("skills = {required = [1]}"),
}

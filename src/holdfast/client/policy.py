"""What a command or a file call may access on the other machine, as a value. Pure module.

    Policy.workspace_write("/srv/project").allow_write("/var/cache/x").deny("**/.env")

A policy is immutable: every method returns another one. Two with the same rules are equal. Paths are
absolute, native to the other machine and not checked for existence.
"""

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias, assert_never

import msgspec

from holdfast import light
from holdfast.egress.bounds.allowance import parse_limit
from holdfast.egress.clients.recipes import check_name
from holdfast.egress.hosts import forget_keys, narrow_keys, parse_rule
from holdfast.errors import UsageError
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy import policy, profile
from holdfast.sandbox.policy.globs import bind_pattern
from holdfast.sandbox.policy.hostwish import ASK_S, HostWish
from holdfast.sandbox.policy.paths import is_pattern
from holdfast.sandbox.policy.policy import Access, At, Glob, Network, Place, PolicyKind, Rule, Special, Target
from holdfast.sandbox.policy.policy import Policy as Wish
from holdfast.sandbox.policy.secretwish import SecretWish, parse_secret
from holdfast.wire.paths import Convention, RemotePath, to_uri
from holdfast.wire.permissions import (
    AllowedHosts,
    Disabled,
    Entry,
    External,
    GlobPath,
    LiteralPath,
    Managed,
    MinimalPath,
    PermissionProfile,
    ProjectRoots,
    Restricted,
    RootPath,
    SandboxContext,
    SlashTmp,
    SpecialPath,
    SpecialValue,
    TmpDir,
    UnknownPath,
    Unrestricted,
)
from holdfast.wire.processes import SecretKey


class ReadableText(Protocol):
    """The part of `pathlib.Path` that is used."""

    def read_text(self, encoding: str) -> str: ...


TomlSource: TypeAlias = str | ReadableText

_ACCESS: Final[dict[Access, Literal["read", "write", "deny"]]] = {
    Access.READ: "read",
    Access.WRITE: "write",
    Access.DENY: "deny",
}
_PLAIN_PLACES: Final[dict[Place, type[RootPath | MinimalPath | TmpDir | SlashTmp]]] = {
    Place.ROOT: RootPath,
    Place.MINIMAL: MinimalPath,
    Place.TMPDIR: TmpDir,
    Place.SLASH_TMP: SlashTmp,
}
_PLACE_KEYS: Final = {place: key for key, place in profile.PLACES.items()}


@dataclass(frozen=True, slots=True, repr=False)
class Policy:
    """Create one with a class method; `wish` and `root` are for code that inspects a policy.

    `root` is what "the workspace" and relative patterns mean; None: the directory in which a command runs.
    `limits` bound what a command uses; only a profile sets them. `keys` stay outside of commands; they are
    sent with a start and with nothing else.
    """

    wish: Wish
    root: str | None = None
    limits: Limits | None = None
    keys: tuple[SecretKey, ...] = ()

    @classmethod
    def read_only(cls) -> "Policy":
        """Allow reading everything and writing nothing; no network."""
        return cls(policy.read_only())

    @classmethod
    def workspace_write(cls, root: RemotePath, *, network: bool = False) -> "Policy":
        """Allow reading everything and writing `root` and temporary directories, but not `.git` and such.

        Raises:
            UsageError: `root` is not an absolute path.
        """
        return cls(policy.workspace_write(network=_network(on=network)), _tidy(root))

    @classmethod
    def unrestricted(cls, *, network: bool = False) -> "Policy":
        """Allow every file, in a sandbox that only guards the network."""
        return cls(Wish(None, _network(on=network)))

    @classmethod
    def full_access(cls) -> "Policy":
        """Use no sandbox at all."""
        return cls(policy.full_access())

    @classmethod
    def from_toml(
        cls, source: TomlSource, *, root: RemotePath | None = None, home: RemotePath | None = None
    ) -> "Policy":
        """Read the policy from a profile: TOML text, or a `pathlib.Path` of this machine.

        `home` is the other machine's home directory, to which `~/` is expanded.

        Raises:
            UsageError: the profile is invalid; the text names the key.
            OSError: the file cannot be read.
        """
        name, text = (
            ("policy", source) if isinstance(source, str) else (str(source), source.read_text("utf-8"))
        )
        try:
            tree = tomllib.loads(text)
        except tomllib.TOMLDecodeError as exc:
            remedy = None if "\n" in text else "text is taken as TOML; give a file as a pathlib.Path"
            raise UsageError(f"{name}: {exc}", remedy=remedy) from None
        if home is None and (below := _below_home(tree)) is not None:
            raise UsageError(
                f"{name}: {below}: the home directory is not known",
                remedy="pass home=, the home directory on the other machine",
            )
        wish = profile.policy_of(tree, source=name, home="" if home is None else _tidy(home))
        return cls(wish, None if root is None else _tidy(root), profile.limits_of(tree, source=name))

    def allow_read(self, path: RemotePath) -> "Policy":
        """Also allow to read this path and all below it.

        Raises:
            UsageError: it is not an absolute path.
        """
        return self._replace_wish(self.wish.allow_read(_tidy(path)))

    def allow_write(self, path: RemotePath) -> "Policy":
        """Also allow to write this path and all below it.

        Raises:
            UsageError: it is not an absolute path.
        """
        return self._replace_wish(self.wish.allow_write(_tidy(path)))

    def allow_socket(self, path: RemotePath) -> "Policy":
        """Also allow to connect to this unix socket of the host. Permitting the network does not include any.

        Raises:
            UsageError: it is not an absolute path.
        """
        return replace(self, wish=self.wish.allow_socket(_tidy(path)))

    def allow_host(self, rule: str) -> "Policy":
        """Also allow this host by name: `api.example.com`, `*.example.org:443`; other network is off.

        A URL, with or without methods before it, allows those requests only: `GET https://a.test/v1/`.

        Raises:
            UsageError: it is not a rule about hosts, or there is no sandbox.
        """
        parse_rule(rule)
        if self.wish.kind is PolicyKind.DISABLED:
            raise UsageError("a policy without a sandbox reaches every host")
        return replace(self, wish=self.wish.allow_host(rule))

    def allow_net(self, preset: str) -> "Policy":
        """Also allow the hosts that a client's settings on this machine name: `pip`, `npm`, `cargo`, `go`,
        `apt`, `git` or `model`. The settings are read when a command is started, and never from the
        workspace.

        Raises:
            UsageError: there is no such client, or no sandbox.
        """
        if self.wish.kind is PolicyKind.DISABLED:
            raise UsageError("a policy without a sandbox reaches every host")
        check_name(preset)
        return replace(self, wish=self.wish.allow_net(preset))

    def limit_net(self, limit: str) -> "Policy":
        """Limit the traffic to allowed hosts: `500M`, `10M/s`, `20conn/s`, for some hosts as `HOST=500M`.

        Raises:
            UsageError: it is not a limit.
        """
        parse_limit(limit)
        return replace(self, wish=self.wish.limit_net(limit))

    def deny_host(self, rule: str) -> "Policy":
        """Deny this host, although a pattern allows it.

        Raises:
            UsageError: it is not a rule about hosts.
        """
        parse_rule(rule, denies=True)
        return replace(self, wish=self.wish.deny_host(rule))

    def allow_private(self) -> "Policy":
        """Allow allowed hosts also at addresses that are not public."""
        hosts = light.replace(self.wish.hosts, private=True)
        return replace(self, wish=light.replace(self.wish, hosts=hosts))

    def ask_network(self, within_s: float = ASK_S) -> "Policy":
        """Call `decide` of a start about hosts that no rule covers; the network is off otherwise.

        A connection waits for the answer; no answer within this time is a refusal.

        Raises:
            UsageError: the time is not above 0, or no sandbox.
        """
        if within_s <= 0:
            raise UsageError("the time to decide must be more than 0 s")
        if self.wish.kind is PolicyKind.DISABLED:
            raise UsageError("a policy without a sandbox reaches every host")
        return replace(self, wish=self.wish.ask_network(within_s))

    def keep_secret(self, text: str, value: str | None = None) -> "Policy":
        """Keep a key outside of commands: `OPENAI_API_KEY@api.openai.com`, and the key itself.

        A command finds a placeholder in that variable. In requests to that host, which this call also allows,
        the placeholder is replaced by the key. Without a `value` the key is read when a command is started:
        from this process's variable of that name, or from the place in the text (`NAME=file:PATH@HOST`).

        Raises:
            UsageError: it names no variable and host, or there is no sandbox.
        """
        wish = parse_secret(text)
        allowed = self.allow_host(wish.rule)
        if value is None:
            return replace(allowed, wish=self.wish.keep_secret(text))
        known = next((key for key in self.keys if key.name == wish.name), None)
        if known is not None and known.value != value:
            raise UsageError(f"two keys for the variable {wish.name}")
        hosts = [*(known.hosts if known else ()), wish.target]
        others = tuple(key for key in self.keys if key is not known)
        return replace(allowed, keys=(*others, SecretKey(wish.name, value, list(dict.fromkeys(hosts)))))

    def keep_keys(self, keys: Iterable[SecretKey]) -> "Policy":
        """Keep these keys outside, each for its hosts. Raises UsageError."""
        policy = self
        for key in keys:
            for host in key.hosts:
                policy = policy.keep_secret(f"{key.name}@{host}", key.value)
        return policy

    def with_keys(self, read: Callable[[SecretWish], str]) -> "Policy":
        """The same policy with every key read that is read when a command is started. Raises UsageError."""
        made = replace(self.without_keys(), keys=self.keys)
        for text in self.wish.hosts.secrets:
            made = made.keep_secret(text, read(parse_secret(text)))
        return made

    def without_keys(self) -> "Policy":
        """The same policy for a command that needs no keys; their hosts stay allowed, as rules say."""
        given = [parse_secret(f"{key.name}@{host}").rule for key in self.keys for host in key.hosts]
        hosts = forget_keys(self.wish.hosts)
        hosts = light.replace(hosts, allow=narrow_keys(hosts.allow, given)) if given else hosts
        return replace(self, wish=light.replace(self.wish, hosts=hosts), keys=())

    def deny(self, path: RemotePath) -> "Policy":
        """Deny reading and writing this path, or all that matches if it has `*`, `?`, `[` or `{` in it.

        A relative pattern is resolved against the workspace.

        Raises:
            UsageError: it is neither an absolute path nor a pattern.
        """
        text = path if isinstance(path, str) else path.__fspath__()
        if not is_pattern(text):
            return self._replace_wish(self.wish.deny(_tidy(text)))
        bind_pattern(text, "/", ())  # refuse an invalid pattern here, and not only on the other machine
        return self._replace_wish(self.wish.deny_glob(text))

    def with_network(self, on: bool) -> "Policy":
        """The same policy with the network on or off.

        Off needs a sandbox, so full access becomes unrestricted.
        """
        if self.wish.kind is PolicyKind.DISABLED:
            return self if on else replace(Policy.unrestricted(), limits=self.limits)
        return replace(self, wish=self.wish.with_network(_network(on=on)))

    @property
    def confines(self) -> bool:
        """Whether there is anything to enforce; if not, no sandbox should be requested."""
        return self.wish.kind is not PolicyKind.DISABLED

    def context(self, cwd: RemotePath | None) -> SandboxContext:
        """The policy as it is sent, for a command in `cwd`.

        None if `cwd` is unknown; then no rule may depend on it.

        Raises:
            UsageError: `cwd` is not an absolute path.
        """
        place = cwd if self.root is None else self.root
        base = None if place is None else to_uri(place)
        windows = base is not None and base.convention is Convention.WINDOWS
        return SandboxContext(
            permissions=_permissions(self.wish),
            # On Windows `disabled` would switch off what the policy demands; elsewhere it has no effect.
            windows_sandbox_level="restricted-token" if windows and self.confines else "disabled",
            cwd=base,
            workspace_roots=[] if base is None else [base],
            unix_sockets=list(self.wish.sockets) or msgspec.UNSET,
            hosts=_hosts(self.wish.hosts),
        )

    def __repr__(self) -> str:
        network = "on" if self.wish.network is Network.ON else "off"
        if self.wish.rules is None:
            files = "no sandbox" if self.wish.kind is PolicyKind.DISABLED else "files unrestricted"
        else:
            files = ", ".join(f"{rule.access.name.lower()} {_spell(rule.target)}" for rule in self.wish.rules)
        root = "" if self.root is None else f"; workspace {self.root}"
        granted = "".join(f"; socket {path}" for path in self.wish.sockets)
        granted += "".join(f"; host {rule}" for rule in self.wish.hosts.allow)
        granted += "; ask about hosts" if self.wish.hosts.ask_s else ""
        granted += "".join(f"; key of {key.name} outside" for key in self.keys)
        return f"<Policy {files}; network {network}{granted}{root}>"

    def _replace_wish(self, wish: Wish) -> "Policy":
        repeated = wish.rules is not None and wish.rules[-1] in wish.rules[:-1]
        return self if repeated else replace(self, wish=wish)


def _hosts(wish: HostWish) -> AllowedHosts | msgspec.UnsetType:
    if not wish.reaches_any:
        return msgspec.UNSET
    asked = max(1, round(wish.ask_s * 1000)) if wish.ask_s else msgspec.UNSET
    rules = (list(wish.allow), list(wish.deny), wish.private, dict(wish.addresses), list(wish.own))
    return AllowedHosts(*rules, limits=list(wish.limits), ask_timeout_ms=asked)


def _network(*, on: bool) -> Network:
    return Network.ON if on else Network.OFF


def _tidy(path: RemotePath) -> str:
    """Use one spelling per POSIX path, so that policies with the same rules are equal."""
    uri = to_uri(path)
    if uri.convention is Convention.POSIX:
        return uri.native()
    return path if isinstance(path, str) else path.__fspath__()


def _below_home(tree: dict[str, object]) -> str | None:
    table = tree.get("filesystem")
    granted = tree.get("sockets")
    keys = [*(table if isinstance(table, dict) else ()), *(granted if isinstance(granted, list) else ())]
    return next((key for key in keys if isinstance(key, str) and f"{key}/".startswith("~/")), None)


def _spell(target: Target) -> str:
    match target:
        case At(path=path):
            return path
        case Glob(pattern=pattern):
            return pattern
        case Special(place=place, subpath=subpath):
            key = _PLACE_KEYS.get(place, f":{place}")
            return f"{key}/{subpath}" if subpath else key
        case _:
            assert_never(target)


def _permissions(wish: Wish) -> PermissionProfile:
    match wish.kind:
        case PolicyKind.DISABLED:
            return Disabled()
        case PolicyKind.EXTERNAL:
            return External(wish.network.value)
        case PolicyKind.MANAGED if wish.rules is None:
            return Managed(Unrestricted(), wish.network.value)
        case PolicyKind.MANAGED:
            entries = [_entry(rule) for rule in wish.rules or ()]
            return Managed(Restricted(entries, wish.glob_depth), wish.network.value)
        case _:
            assert_never(wish.kind)


def _entry(rule: Rule) -> Entry:
    path: LiteralPath | GlobPath | SpecialPath
    match rule.target:
        case At(path=native):
            path = LiteralPath(to_uri(native))
        case Glob(pattern=pattern):
            path = GlobPath(pattern)
        case Special(place=place, subpath=subpath):
            path = SpecialPath(_special(place, subpath))
        case _:
            assert_never(rule.target)
    return Entry(path, _ACCESS[rule.access], "skip" if rule.skip_missing else None)


def _special(place: Place, subpath: str | None) -> SpecialValue:
    match place:
        case Place.PROJECT_ROOTS:
            return ProjectRoots(subpath)
        case Place.UNKNOWN:
            return UnknownPath("", subpath)
        case _:
            return _PLAIN_PLACES[place]()

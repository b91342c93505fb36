from collections.abc import Iterator

import pytest

from holdfast.sandbox.backends.bubblewrap import (
    BASH,
    OPTIONS,
    BwrapSettings,
    arguments,
    candidates,
    command_line,
    find_place,
    list_mounts,
)
from holdfast.sandbox.plan.plan import Base, Plan, PlanLink, Step, StepKind
from tests.support.rows import every_row

AROUND = BwrapSettings(11, 12)
PIN, WRITABLE, READABLE, READ_ONLY, MASK_DIRECTORY, MASK_FILE = (
    StepKind.PIN,
    StepKind.WRITABLE,
    StepKind.READABLE,
    StepKind.READ_ONLY,
    StepKind.MASK_DIRECTORY,
    StepKind.MASK_FILE,
)
TAKES = {"--ro-bind-data": 2, "--bind": 2, "--ro-bind": 2, "--dev-bind": 2, "--symlink": 2, "--setenv": 2}
TAKES |= dict.fromkeys(("--perms", "--tmpfs", "--remount-ro", "--dev", "--proc", "--dir", "--chdir"), 1)
TAKES |= dict.fromkeys(("--seccomp", "--json-status-fd", "--cap-drop"), 1)


def plan(*steps: tuple[StepKind, str], base: Base = Base.HOST, cwd: str = "/ws", **more: object) -> Plan:
    told = tuple(Step(kind, path) for kind, path in steps)
    return Plan(base, told, network_off=True, cwd=cwd, **more)  # type: ignore[arg-type]  # fields of Plan


def said(made: Plan, env: dict[str, str] | None = None, around: BwrapSettings = AROUND) -> list[str]:
    """One line per operation; the permissions of an operation are in its line."""
    return list(_lines(iter(arguments(made, env or {}, around))))


def _lines(words: Iterator[str]) -> Iterator[str]:
    before = ""
    for word in words:
        line = " ".join((before + word, *(next(words) for _ in range(TAKES.get(word, 0)))))
        before = f"{line} " if word == "--perms" else ""
        if not before:
            yield line


def test_every_base_begins_with_what_is_visible() -> None:
    assert said(plan())[0] == "--ro-bind / /"
    assert said(plan(base=Base.EMPTY))[0] == "--tmpfs /"
    assert said(plan(base=Base.UNTOUCHED))[0] == "--dev-bind / /"
    assert said(plan((WRITABLE, "/")))[0] == "--bind / /"


def test_file_systems_of_the_views_own_are_sealed_after_the_steps() -> None:
    lines = said(plan((READABLE, "/usr"), base=Base.EMPTY))
    assert (
        lines.index("--ro-bind /usr /usr") < lines.index("--remount-ro /dev") < lines.index("--remount-ro /")
    )
    assert "--remount-ro /" not in said(plan())
    assert not [line for line in said(plan(base=Base.UNTOUCHED)) if line.startswith("--remount-ro")]


def test_what_protects_is_mounted_after_what_it_protects() -> None:
    lines = said(plan((WRITABLE, "/ws"), (READ_ONLY, "/ws/.git"), (MASK_FILE, "/ws/key")))
    steps = ["--bind /ws /ws", "--ro-bind /ws/.git /ws/.git", "--ro-bind /dev/null /ws/key"]
    assert [line for line in lines if line in steps] == steps


@pytest.mark.parametrize("base", [Base.HOST, Base.EMPTY])
def test_pins_are_buried_where_nobody_can_look(base: Base) -> None:
    lines = said(
        plan((PIN, "/ws/a"), (PIN, "/ws/a/b"), (WRITABLE, "/ws"), (MASK_FILE, "/ws/a/b/key"), base=base)
    )
    first = lines.index("--ro-bind /ws /dev/.pins")
    assert lines[first + 1 : first + 5] == [
        "--ro-bind /ws/a /dev/.pins/a",
        "--ro-bind /ws/a/b /dev/.pins/a/b",
        "--perms 0000 --tmpfs /dev/.pins",
        "--remount-ro /dev/.pins",
    ]


def test_pins_of_a_writable_root_and_of_several_roots_are_buried_too() -> None:
    lines = said(plan((PIN, "/a"), (WRITABLE, "/"), (MASK_FILE, "/a/key")))
    assert "--ro-bind / /dev/.pins" in lines
    assert "--ro-bind /a /dev/.pins/a" in lines
    lines = said(plan((PIN, "/r/a"), (PIN, "/s/b"), (WRITABLE, "/r"), (WRITABLE, "/s")))
    assert lines.index("--ro-bind /r/a /dev/.pins/a") < lines.index("--ro-bind /s /dev/.pins")


def test_a_denied_directory_is_empty_and_closed() -> None:
    lines = said(plan((MASK_DIRECTORY, "/secret")))
    at = lines.index("--perms 0000 --tmpfs /secret")
    assert lines[at + 1] == "--remount-ro /secret"


def test_a_denied_directory_with_a_grant_below_can_be_passed_and_is_sealed_last() -> None:
    lines = said(plan((MASK_DIRECTORY, "/m"), (WRITABLE, "/m/a/b/open")))
    assert [line for line in lines if " /m" in line] == [
        "--perms 0111 --tmpfs /m",
        "--perms 0111 --dir /m/a",
        "--perms 0111 --dir /m/a/b",
        "--bind /m/a/b/open /m/a/b/open",
        "--remount-ro /m",
    ]


def test_a_denied_directory_to_start_in_can_be_entered() -> None:
    lines = said(plan((MASK_DIRECTORY, "/ws"), cwd="/ws"))
    assert lines.index("--perms 0111 --tmpfs /ws") < lines.index("--remount-ro /ws")


def test_a_mask_is_left_out_where_nothing_is_shown_or_nobody_gets_to() -> None:
    closed = plan((MASK_FILE, "/root/key"))
    unreachable = frozenset({"/root/key"})
    assert list_mounts(closed, unreachable) == []
    assert [step.path for step in list_mounts(closed)] == ["/root/key"]
    hidden = plan((MASK_FILE, "/root/key"), base=Base.EMPTY)
    assert list_mounts(hidden) == []
    shown = plan((READABLE, "/root"), (MASK_FILE, "/root/key"), base=Base.EMPTY)
    assert [step.path for step in list_mounts(shown)] == ["/root", "/root/key"]


def test_the_view_has_its_own_devices_and_processes_whatever_is_granted() -> None:
    granted = plan((WRITABLE, "/dev"), (WRITABLE, "/proc"), (WRITABLE, "/proc/sys"), (READABLE, "/processes"))
    assert [step.path for step in list_mounts(granted)] == ["/processes"]
    assert "--dev /dev" in said(plan())
    assert "--dev /dev" not in said(plan(base=Base.UNTOUCHED))


def test_a_device_that_is_granted_can_be_used() -> None:
    assert "--dev-bind /dev/kvm /dev/kvm" in said(plan((WRITABLE, "/dev/kvm")))
    lines = said(plan((READABLE, "/dev/dri")))
    assert lines[lines.index("--dev-bind /dev/dri /dev/dri") + 1] == "--remount-ro /dev/dri"


def test_kernel_switches_are_covered_after_proc_is_mounted() -> None:
    around = BwrapSettings(11, 12, switches=("/proc/sys", "/proc/fs"))
    for base in Base:
        lines = said(plan(base=base), around=around)
        assert lines.index("--proc /proc") < lines.index("--ro-bind /proc/sys /proc/sys")
        assert "--ro-bind /proc/fs /proc/fs" in lines


def test_without_a_fresh_proc_the_hosts_is_read_only() -> None:
    around = BwrapSettings(11, 12, switches=("/proc/sys",), fresh_proc=False)
    for base in (Base.HOST, Base.EMPTY):
        assert "--ro-bind /proc /proc" in said(plan(base=base), around=around)
    untouched = said(plan(base=Base.UNTOUCHED), around=around)
    assert "--proc /proc" not in untouched
    assert "--ro-bind /proc/sys /proc/sys" in untouched


def test_files_of_ours_are_over_what_the_steps_show_and_before_anything_is_sealed() -> None:
    told = said(plan((WRITABLE, "/etc")), around=BwrapSettings(11, 12, files=((13, "/etc/hosts"),)))
    own = told.index("--perms 0444 --ro-bind-data 13 /etc/hosts")
    assert told.index("--bind /etc /etc") < own < told.index("--remount-ro /dev")


@every_row(
    ("base", "steps", "real", "exists", "place"),
    [
        (Base.HOST, (), "/etc/hosts", True, "/etc/hosts"),
        (Base.HOST, (), "/run/hosts", True, "/run/hosts"),
        (Base.HOST, (), "/etc/hosts", False, None),
        (Base.UNTOUCHED, (), "/etc/hosts", True, "/etc/hosts"),
        (Base.HOST, ((MASK_DIRECTORY, "/etc"),), "/etc/hosts", True, None),
        (Base.HOST, ((MASK_DIRECTORY, "/run"),), "/run/hosts", True, None),
        (Base.HOST, ((MASK_FILE, "/etc/hosts"),), "/etc/hosts", True, None),
        (Base.HOST, ((MASK_DIRECTORY, "/etc"), (READABLE, "/etc/hosts")), "/etc/hosts", True, "/etc/hosts"),
        (Base.EMPTY, (), "/run/hosts", False, "/etc/hosts"),
        (Base.EMPTY, ((READABLE, "/etc"),), "/run/hosts", True, "/run/hosts"),
        (Base.EMPTY, ((READABLE, "/etc"),), "/run/hosts", False, "/run/hosts"),
        (Base.EMPTY, ((READABLE, "/etc"),), "/etc/hosts", False, None),
        (Base.EMPTY, ((READABLE, "/etc"), (MASK_FILE, "/etc/hosts")), "/etc/hosts", True, None),
    ],
)
def test_a_file_of_ours_is_where_a_program_looks_for_it(
    base: Base, steps: tuple[tuple[StepKind, str], ...], real: str, exists: bool, place: str | None
) -> None:
    """Nowhere if that is hidden, or if it would have to be made in a tree of the host."""
    assert find_place(plan(*steps, base=base), "/etc/hosts", real, exists=exists) == place


def test_links_are_made_before_the_steps_and_only_on_an_empty_base() -> None:
    links = (PlanLink("/bin", "usr/bin"),)
    lines = said(plan((READABLE, "/usr"), base=Base.EMPTY, links=links))
    assert lines.index("--symlink usr/bin /bin") < lines.index("--ro-bind /usr /usr")
    assert "--symlink usr/bin /bin" not in said(plan(links=links))


def test_privileges_sessions_and_namespaces_do_not_depend_on_the_plan() -> None:
    for base in Base:
        lines = said(plan(base=base))
        assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net"} < set(lines)
        assert {"--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop ALL"} < set(lines)
        assert {"--seccomp 11", "--json-status-fd 12", "--chdir /ws"} < set(lines)
    online = Plan(Base.HOST, (), network_off=False, cwd="/ws")
    assert "--unshare-net" not in said(online)


def test_the_terminal_is_the_views_console() -> None:
    around = BwrapSettings(11, 12, terminal=("/dev/pts/3", "/dev/console"))
    lines = said(plan(), around=around)
    assert lines.index("--dev /dev") < lines.index("--dev-bind /dev/pts/3 /dev/console")
    assert "--dev-bind /dev/pts/3 /dev/console" not in said(plan(base=Base.UNTOUCHED), around=around)


def test_variables_are_set_as_they_are() -> None:
    assert arguments(plan(), {"A": "", "B": "--bind x"}, AROUND)[-6:] == [
        *("--setenv", "A", ""),
        *("--setenv", "B", "--bind x"),
    ]


def test_no_option_is_used_that_the_search_for_a_usable_program_does_not_ask_for() -> None:
    steps = (
        *((PIN, "/ws/a"), (WRITABLE, "/ws"), (READABLE, "/usr"), (READ_ONLY, "/ws/.git")),
        *((MASK_FILE, "/ws/a/key"), (MASK_DIRECTORY, "/ws/m"), (WRITABLE, "/ws/m/x/y"), (READABLE, "/dev/x")),
    )
    used = {"--args"}  # by the caller
    for base in Base:
        made = plan(*steps, base=base, links=(PlanLink("/bin", "usr/bin"),))
        around = BwrapSettings(
            *(11, 12), terminal=("/dev/pts/1", "/dev/console"), switches=("/proc/sys",), files=((13, "/a"),)
        )
        used |= {word for word in arguments(made, {"A": "b"}, around) if word.startswith("--")}
    assert used == set(OPTIONS)


def after_script(*argv: str, program: str | None = None, variables: tuple[str, ...] = ()) -> list[str]:
    line = command_line(
        argv[0] if program is None else program, argv, path="/a:/b", variables=variables, terminal=None
    )
    return line[line.index("holdfast") + 1 :]


def test_a_program_without_a_slash_is_looked_for_as_a_shell_does() -> None:
    assert candidates("ls", "/usr/bin::rel") == ["/usr/bin/ls", "./ls", "rel/ls"]
    assert candidates("/bin/ls", "/usr/bin") == ["/bin/ls"]
    assert candidates("", "/usr/bin") == []


def test_the_command_follows_an_empty_word_and_keeps_its_own_name() -> None:
    assert after_script("ls", "-l", "") == [
        *("PWD OLDPWD SHLVL", "", "", ""),
        *("/a/ls", "/b/ls", ""),
        *("ls", "-l", ""),
    ]


def test_variables_that_a_shell_adds_are_taken_away_unless_they_were_asked_for() -> None:
    assert after_script("ls", variables=("SHLVL", "PWD"))[0] == "OLDPWD"


def test_another_name_is_given_by_bash() -> None:
    words = after_script("other", "-x", program="ls")
    assert words[:7] == ["PWD OLDPWD SHLVL", "", BASH, "", "/a/ls", "/b/ls", ""]
    assert words[7] == BASH
    assert words[-3:] == ["other", "ls", "-x"]


def test_the_terminal_is_an_argument() -> None:
    line = command_line("ls", ["ls"], path="/a", variables=(), terminal="/dev/console")
    assert line[line.index("holdfast") + 2] == "/dev/console"


def test_a_job_is_one_by_an_argument() -> None:
    line = command_line("ls", ["ls"], path="/a", variables=(), terminal="/dev/console", job=True)
    assert line[line.index("holdfast") + 4] == "job"

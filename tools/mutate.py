"""Break the code on purpose and see that the tests of the broken promise fail.

python -m tools.mutate [REQUIREMENT …]     all of them write docs/records/mutations.md

Each row of MUTATIONS names a promise of tests/requirements.toml and a change that breaks it. The last commit
is copied aside with an environment of its own. There the tests that the promise names must pass as they are,
and at least one must fail once the change is made. Whatever does not is said, and the exit status is 1.
"""

import datetime
import io
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.markdown import table

ROOT: Final = Path(__file__).resolve().parent.parent
RECORD: Final = ROOT / "docs" / "records" / "mutations.md"
LIMIT_S: Final = 900.0  # of one run of tests: broken code may wait for what never comes
PLACE: Final = "/var/tmp"  # noqa: S108 - sandboxes often leave /tmp writable or hide it
_FAILURE: Final = re.compile(r"^FAILED ([^\s\[]+)", re.MULTILINE)  # without its parameters


class Mutation(NamedTuple):
    """A promise, and one change to one file that breaks it."""

    requirement: str
    breaks: str
    file: str
    text: str
    broken: str


MUTATIONS: Final = (
    Mutation(
        "start-to-close",
        "event numbers have holes",
        "src/holdfast/server/processes/eventlog.py",
        "seq, self._next_seq = self._next_seq, self._next_seq + 1",
        "seq, self._next_seq = self._next_seq, self._next_seq + 2",
    ),
    Mutation(
        "late-output",
        "the close comes right after the exit, whatever still writes",
        "src/holdfast/server/processes/process.py",
        "if self._streams or not self.log.exited or self.log.closed:",
        "if not self.log.exited or self.log.closed:",
    ),
    Mutation(
        "writes-happen-once",
        "a repeated write is written again",
        "src/holdfast/server/processes/process.py",
        "return write_id in self._accepted",
        "return False",
    ),
    Mutation(
        "replay-bounded-by-bytes",
        "output is kept without a bound on its bytes",
        "src/holdfast/server/processes/eventlog.py",
        "while self._bytes > self._max_bytes or len(self._chunks) > self._max_chunks:",
        "while len(self._chunks) > self._max_chunks:",
    ),
    Mutation(
        "hard-links-inside",
        "a denied path may be read",
        "src/holdfast/confine/permissions.py",
        '"deny": Access.DENY,',
        '"deny": Access.READ,',
    ),
    Mutation(
        "hard-links-inside",
        "what may be read may be written",
        "src/holdfast/confine/permissions.py",
        '{"read": Access.READ,',
        '{"read": Access.WRITE,',
    ),
    Mutation(
        "no-privilege-is-gained",
        "the filter of system calls lets everything pass",
        "src/holdfast/sandbox/kernel/namespaces.py",
        "        kernel.install_filter(seccomp.program(_MACHINE, seccomp.Sockets.BROKERED))",
        "        pass",
    ),
    Mutation(
        "tokens",
        "any token is accepted",
        "src/holdfast/server/edges/auth.py",
        'if not hmac.compare_digest(hashlib.sha256(token.encode("ascii")).digest(), self._digest):',
        "if not token:",
    ),
    Mutation(
        "no-browsers",
        "a page of any origin gets in",
        "src/holdfast/server/edges/httphead.py",
        'if head.get("origin") is not None:',
        'if head.get("origin") == "":',
    ),
    Mutation(
        "board-fencing",
        "a run that was replaced still holds its task",
        "src/holdfast/board/verbs/runs.py",
        "return task.run_id == run.id and task.generation == ref.generation and run.outcome is None",
        "return True",
    ),
    Mutation(
        "board-exactly-once",
        "a repeated answer is a new one",
        "src/holdfast/board/verbs/runs.py",
        'return tx.one("answer_get", scope=_scope(run), name=envelope) is not None',
        "return False",
    ),
    Mutation(
        "handoff-capability",
        "a forged envelope counts",
        "src/holdfast/handoff/envelope.py",
        "return hmac.compare_digest(_signature(envelope, token).encode(), envelope.mac.encode())",
        "return bool(token)",
    ),
    Mutation(
        "config-block",
        "applying again says that something changed",
        "src/holdfast/agentconfig/block.py",
        "changed=written != text,",
        "changed=True,",
    ),
    Mutation(
        "doctor-explain-bounded",
        "secrets in a log are repeated",
        "src/holdfast/doctor/explain/redaction.py",
        r'text = secret.sub(rf"\1{HIDDEN}", text)',
        "text = text or secret.pattern",
    ),
    Mutation(
        "client-gap-on-a-living-link",
        "nobody reads what a living link did not bring",
        "src/holdfast/client/process.py",
        "if self._ordering.missing is not None and self.recoverable and not self._filling:",
        "if self._closed and not self._filling:",
    ),
    Mutation(
        "client-names-are-not-confused",
        "a start does not wait for the end of its namesake",
        "src/holdfast/client/session.py",
        "while process_id in self._orphans:",
        "while process_id in self._ending:",
    ),
    Mutation(
        "client-environments",
        "an environment that somebody holds is closed",
        "src/holdfast/client/environments.py",
        "if old.held:",
        "if old.held and old is None:",
    ),
    Mutation(
        "codex-sandboxed",
        "a denial is not told",
        "src/holdfast/confine/verdict.py",
        "looks_denied(exit_code, output, sandboxed=True, network_off=policy.network is Network.OFF),",
        "False,",
    ),
    Mutation(
        "no-policy-shows-a-home",
        "policies say nothing of Holdfast's own directories",
        "src/holdfast/confine/guard.py",
        "return deny_homes(bound, hidden, {path: os.path.realpath(path) for path in granted})",
        "return bound",
    ),
    Mutation(
        "authority-is-a-capability",
        "a home keeps its token for ever",
        "src/holdfast/local/homekey.py",
        "replace_file(home / ACCESS, secrets.token_bytes(SIZE))",
        "load(home, ACCESS)",
    ),
    Mutation(
        "strangers-keep-nobody-out",
        "nobody makes room for whoever comes later",
        "src/holdfast/local/peers.py",
        "if len(self._waiting) >= self._most:",
        "if self._most < 0:",
    ),
    Mutation(
        "a-relayed-port-is-no-daemon",
        "a daemon's port is taken for a service's",
        "src/holdfast/local/listeners.py",
        "return any(_is_ours(found) for found in _find_listeners(port))",
        "return False",
    ),
    Mutation(
        "limits-on-use",
        "limits are not passed on to whoever holds them",
        "src/holdfast/confine/starts.py",
        'limits=b"" if limits is None else _limits().encode(limits, run),',
        'limits=b"",',
    ),
    Mutation(
        "config-environment",
        "an environment of ours is added again each time",
        "src/holdfast/agentconfig/environments.py",
        "rest = strip(text)",
        "rest = text",
    ),
)


class Outcome(NamedTuple):
    """What the tests of a broken promise did: those that failed first, or what is wrong with them."""

    mutation: Mutation
    tests: int
    failed: tuple[str, ...]
    problem: str = ""


def named_tests(requirements: str) -> dict[str, list[str]]:
    """The tests of every promise, by its id."""
    return {row["id"]: row.get("tests", []) for row in tomllib.loads(requirements)["requirement"]}


def changed(source: str, mutation: Mutation) -> str:
    """The source with the promise broken.

    Raises:
        ValueError: what is to be changed is not there exactly once.
    """
    count = source.count(mutation.text)
    if count != 1:
        raise ValueError(f"{mutation.requirement}: {count} times in {mutation.file}: {mutation.text}")
    return source.replace(mutation.text, mutation.broken)


def failures(said: str) -> tuple[str, ...]:
    """The tests that pytest says have failed, each once."""
    return tuple(sorted(set(_FAILURE.findall(said))))


def page(outcomes: Iterable[Outcome], *, date: str, head: str) -> str:
    """The record: every promise, how it was broken, and which test noticed."""
    rows = [
        (
            f"`{outcome.mutation.requirement}`",
            outcome.mutation.breaks,
            f"`{outcome.mutation.file}`",
            f"`{outcome.mutation.text}` → `{outcome.mutation.broken}`",
            outcome.problem or "<br>".join(f"`{test}`" for test in outcome.failed),
        )
        for outcome in outcomes
    ]
    return (
        "# Promises broken on purpose\n\n"
        f"Made by `make mutations` on {date} from `{head}`. Every row is one change to the code;\n"
        "the tests that `tests/requirements.toml` names for the promise pass without it, and with it those\n"
        "in the last column fail (the run ends at the first).\n\n"
        + table(
            ("promise", "broken so that", "in", "change", "failed"), [tuple(map(_flat, row)) for row in rows]
        )
        + "\n"
    )


def _flat(cell: str) -> str:
    return " ".join(cell.split())


class Copy:
    """The last commit in a directory of its own, with an environment that has it instead of this tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._python = folder / ".venv" / "bin" / "python"
        folder.chmod(0o755)  # some tests run as another user
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        venv.create(folder / ".venv", symlinks=True)
        [packages] = (folder / ".venv" / "lib").glob("python*/site-packages")
        ours = sysconfig.get_path("purelib")  # as a path only: the link to this tree in it is not followed
        (packages / "copy.pth").write_text(f"{folder / 'src'}\n{ours}\n", "utf-8")
        for name in (".agents-cli", ".codex"):
            if (ROOT / name).exists():
                (folder / name).symlink_to(ROOT / name)

    def run(self, tests: Sequence[str], *, to_first: bool = True) -> tuple[int, tuple[str, ...], str]:
        """pytest's exit status, the tests that failed, and the end of what it said."""
        options = ["-q", "-rf", "-n", "2", "-p", "no:cacheprovider", *(["-x"] if to_first else [])]
        done = subprocess.run(
            [str(self._python), "-m", "pytest", *options, *tests],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, failures(done.stdout), done.stdout[-3000:]

    def uses_itself(self) -> bool:
        """Whether the package that its tests import is the copy."""
        ask = [str(self._python), "-c", "import holdfast; print(holdfast.__file__)"]
        said = subprocess.run(ask, cwd="/", check=True, stdout=subprocess.PIPE, text=True).stdout
        return Path(said.strip()).is_relative_to(self.folder)

    def broken_by(self, mutation: Mutation, tests: Sequence[str]) -> Outcome:
        """Make the change, run the tests, take the change back."""
        path = self.folder / mutation.file
        source = path.read_text("utf-8")
        path.write_text(changed(source, mutation), "utf-8")
        try:
            status, failed, said = self.run(tests)
        except subprocess.TimeoutExpired:
            return Outcome(mutation, len(tests), (), "the tests did not end")
        finally:
            path.write_text(source, "utf-8")
        if failed:
            return Outcome(mutation, len(tests), failed)
        if status == 0:
            return Outcome(mutation, len(tests), (), "**no test noticed**")
        return Outcome(mutation, len(tests), (), f"**pytest could not run them ({status})**: {said[-300:]}")


def main(wanted: Sequence[str]) -> int:
    chosen = [mutation for mutation in MUTATIONS if not wanted or mutation.requirement in wanted]
    if subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", "src", "tests"], cwd=ROOT, check=False
    ).returncode:
        sys.stderr.write(
            "src or tests differ from the last commit, which is what would be tried: commit first\n"
        )
        return 2
    head = _said("git", "rev-parse", "--short", "HEAD")
    promised = named_tests((ROOT / "tests" / "requirements.toml").read_text("utf-8"))
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="holdfast-mutate-", dir=PLACE) as folder:
        copy = Copy(Path(folder).resolve())
        if not copy.uses_itself():
            sys.stderr.write("the copy would not test itself\n")
            return 2
        tests = sorted({test for mutation in chosen for test in promised[mutation.requirement]})
        status, failed, said = copy.run(tests, to_first=False)
        if status:
            sys.stderr.write(f"without any change these fail: {failed}\n{said}\n")
            return 1
        for mutation in chosen:
            outcomes.append(copy.broken_by(mutation, promised[mutation.requirement]))
            last = outcomes[-1]
            sys.stdout.write(f"{mutation.requirement}: {last.problem or ', '.join(last.failed)}\n")
            sys.stdout.flush()
    if not wanted:
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(page(outcomes, date=date, head=head), "utf-8")
    return int(any(outcome.problem for outcome in outcomes))


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

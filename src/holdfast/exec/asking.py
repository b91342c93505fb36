"""Questions about hosts, put to the user at our terminal, one at a time.

While a question is shown, the command's output waits and typed input does not go to the command: the terminal
has its original settings, so keys mean what they mean at a prompt. Control-C and Control-Z still reach the
command. Input typed before the question was shown is discarded, and only a whole word is a yes: a user who
types to the command does not answer us by accident. In the background the question waits to be shown.

The command chose the names, and its output comes before ours. A question shows nothing but printable ASCII.
It first resets a terminal that was left in the middle of an escape sequence.
"""

import os

from holdfast.light import Any, Callable, Final, Mapping, suppress
from holdfast.local.loop import AnyLoop, Cancellable

TERMINAL: Final = "/dev/tty"
_LOOK_AGAIN_S: Final = 0.2  # another job has the foreground
_MAX_LINE: Final = 4096
_MAX_TEXT: Final = 253  # of a name in the DNS
# Ends any sequence that the command began; resets to plain letters of the usual alphabet.
_PLAIN: Final = "\x18\x1b\\\x1b[0m\x1b(B\x0f"
_WORDS: Final = {"yes": "host", "all": "pattern", "no": "no"}

Question = Mapping[str, Any]
Reply = Callable[[str], None]


def in_foreground(fd: int) -> bool:
    """Whether the next line of this terminal is for us."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


class TerminalAnswerer:
    """Asks at our terminal. `hold` and `release` keep the command away from it meanwhile."""

    def __init__(
        self,
        loop: AnyLoop,
        hold: Callable[[], None],
        release: Callable[[], None],
        *,
        terminal: str = TERMINAL,
        is_ours: Callable[[int], bool] = in_foreground,
        dumb: bool = False,
    ) -> None:
        import termios

        self._loop, self._hold, self._release = loop, hold, release
        self._flush: Callable[[int], None] = lambda fd: termios.tcflush(fd, termios.TCIFLUSH)
        self._begin = "" if dumb else _PLAIN
        self._is_ours = is_ours
        self._waiting: list[tuple[Question, Reply]] = []
        self._shown = False  # whether the first of them is shown
        self._typed = b""
        self._timer: Cancellable | None = None
        try:
            self._fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1  # there is no terminal

    def ask(self, question: Question, answer: Reply) -> None:
        if self._fd < 0:
            answer("nobody")
            return
        self._waiting.append((question, answer))
        if len(self._waiting) == 1:
            self._show()

    def withdraw(self, id_: int) -> None:
        """Drop a question whose answer is no longer awaited."""
        at = next((at for at, (question, _) in enumerate(self._waiting) if question["id"] == id_), None)
        if at == 0 and self._shown:
            self._say("\r\nholdfast: refused: no answer in time\r\n")
            self._next()
        elif at is not None:
            del self._waiting[at]

    def close(self) -> None:
        """Stop asking: the command has ended."""
        self._waiting.clear()
        self._stop()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- one question

    def _show(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if not self._is_ours(self._fd):
            self._timer = self._loop.call_later(_LOOK_AGAIN_S, self._show)
            return
        if not self._shown:
            self._shown = True
            self._hold()
        self._typed = b""
        self._flush(self._fd)
        self._say(f"{self._begin}\r\n{describe(self._waiting[0][0], len(self._waiting) - 1)}")
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        if not self._is_ours(self._fd):
            self._loop.remove_reader(self._fd)  # reading now would stop us
            self._timer = self._loop.call_later(_LOOK_AGAIN_S, self._show)
            return
        try:
            data = os.read(self._fd, _MAX_LINE)
        except OSError:
            data = b""
        if not data:  # the terminal is gone, or the user typed end of file
            self._answer("no")
            return
        self._typed += data
        line, ended, _ = self._typed.replace(b"\r", b"\n").partition(b"\n")
        if not ended and len(self._typed) < _MAX_LINE:
            return
        self._typed = b""
        answer = read_answer(line, self._waiting[0][0])
        if answer is None:
            self._say(prompt(self._waiting[0][0]))
        else:
            self._answer(answer)

    def _answer(self, answer: str) -> None:
        _, reply = self._waiting[0]
        self._next()
        reply(answer)

    def _next(self) -> None:
        del self._waiting[0]
        if self._waiting:
            self._loop.remove_reader(self._fd)
            self._show()
        else:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shown:
            self._shown = False
            self._loop.remove_reader(self._fd)
            self._release()

    def _say(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone
            os.write(self._fd, text.encode())


# --- words


def describe(question: Question, more: int) -> str:
    """The text of a question, for a person."""
    who = f"{show(question['program'])!r}" if question["program"] else "the command"
    wider = f"; all: {question['pattern']} too" if question["pattern"] else ""
    return (
        f"holdfast: {who} wants to reach {show(question['host'])}, port {question['port']}.\r\n"
        f"  yes: for this run{wider}; no. After {question['limit_s']:g} s it is no."
        f"{f' {more} more to ask.' if more else ''}\r\n{prompt(question)}"
    )


def prompt(question: Question) -> str:
    return f"holdfast: allow {show(question['host'])}? [yes/{'all/' if question['pattern'] else ''}no] "


def show(text: str) -> str:
    """Make text from the command safe for a terminal, and no longer than a name is."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:_MAX_TEXT])


def read_answer(line: bytes, question: Question) -> str | None:
    """The answer that the user typed; None if it is not a valid answer."""
    answer = _WORDS.get(line.decode("ascii", "replace").strip().lower())
    return None if answer == "pattern" and not question["pattern"] else answer

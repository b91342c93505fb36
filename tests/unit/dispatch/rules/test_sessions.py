"""A run goes on with the session of the run before it, as long as that can work."""

import msgspec

from holdfast.board.rules.rows import Run
from holdfast.dispatch.rules.sessions import RESUMES, AgentSession, before
from tests.support.dispatch import a_run
from tests.support.rows import every_row


def run(generation: int, session: str = "", **more: object) -> Run:
    return msgspec.structs.replace(a_run(generation=generation), session=session, **more)


@every_row(
    ("earlier", "session"),
    [
        ([], None),
        ([run(1)], None),
        ([run(1, "s")], AgentSession("s", "r_1")),
        ([run(1, "s"), run(2)], AgentSession("s", "r_1")),  # one that never got as far does not count
        ([run(1, "s"), run(2, "u")], AgentSession("u", "r_2")),
        ([run(1, "s", profile="other")], None),
        ([run(1, "s", host="elsewhere")], None),
        # Gone on with, the session may have another name; its state is where it was.
        ([run(1, "s"), run(2, "u", metadata={RESUMES: "r_1"})], AgentSession("u", "r_1")),
        # Tried, and it did not even name itself: given up.
        ([run(1, "s"), run(2, metadata={RESUMES: "r_1"})], None),
        ([run(1, "s"), run(2, metadata={RESUMES: "r_1"}), run(3, "new")], AgentSession("new", "r_3")),
        # What a worker wrote there is believed about its own task alone.
        ([run(1, "s", metadata={RESUMES: "../../etc"})], AgentSession("s", "r_1")),
        ([run(1, "s", metadata={RESUMES: ["r_1"]})], AgentSession("s", "r_1")),
        ([run(8, "later")], None),
    ],
)
def test_the_newest_session_that_can_be_gone_on_with(
    earlier: list[Run], session: AgentSession | None
) -> None:
    assert before(earlier, run(5)) == session

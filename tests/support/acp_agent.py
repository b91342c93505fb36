"""An agent that speaks ACP on its pipes: asks for one permission, does as it is told, ends with its input.

What it heard is in the file `heard`, a line for each message; what it was told to do in `done`.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

OPTIONS: Final = [
    {"optionId": "always", "kind": "allow_always", "name": "Allow always"},
    {"optionId": "once", "kind": "allow_once", "name": "Allow once"},
    {"optionId": "no", "kind": "reject_once", "name": "Reject"},
]
CALL: Final = {"toolCallId": "c1", "title": "touch done", "kind": "execute", "status": "pending"}
SESSION: Final = "s1"


def say(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def update(**members: Any) -> None:
    say(method="session/update", params={"sessionId": SESSION, "update": members})


def main() -> None:
    prompt: object = None
    for line in sys.stdin:
        with open("heard", "a", encoding="utf-8") as heard:
            heard.write(line)
        match json.loads(line):
            case {"method": "initialize", "id": number}:
                say(id=number, result={"protocolVersion": 1})
            case {"method": "session/new", "id": number}:
                say(id=number, result={"sessionId": SESSION})
            case {"method": "session/prompt", "id": prompt}:
                update(sessionUpdate="tool_call", **CALL)
                ask: dict[str, Any] = {"sessionId": SESSION, "toolCall": CALL, "options": OPTIONS}
                say(id=7, method="session/request_permission", params=ask)
                say(id="mine", method="fs/read_text_file", params={"path": "/etc/hostname"})
            case {"id": 7, "result": {"outcome": {"optionId": chosen}}}:
                allowed = chosen != "no"
                if allowed:
                    Path("done").write_text(chosen, "utf-8")
                update(
                    sessionUpdate="tool_call_update",
                    toolCallId="c1",
                    status="completed" if allowed else "failed",
                )
                update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "That was it."})
                say(id=prompt, result={"stopReason": "end_turn"})


if __name__ == "__main__":
    main()

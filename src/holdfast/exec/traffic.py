"""What went out by name, as `exec` reports it: as lines for people and as a tree for machines. Pure module.

The account comes from the process that made the connections (`egress/traffic.py`), as plain values.
"""

from holdfast.light import Any, Final, Mapping, Sequence

MAX_TOLD: Final = 5  # refused hosts that are listed for a person; --json names all
_KIB: Final = 1024


def describe_sent(traffic: "Mapping[str, Any] | None") -> list[str]:
    """One line per host and port."""
    if traffic is None:
        return ["holdfast: nothing went out by name: no host was allowed"]
    rows = traffic["sent"]
    if not rows:
        return ["holdfast: nothing went out"]
    return [
        f"holdfast: {row['host']}:{row['port']}: {_count(row['connections'], 'connection')}"
        f"{_failed(row['failed'])}, {_size(row['sent'])} sent, {_size(row['received'])} received, "
        f"{(row['last_ms'] - row['first_ms']) / 1000:.1f} s{_slowed(row['slowed_ms'])}"
        for row in rows
    ]


def describe_refused(rows: "Sequence[Mapping[str, Any]]") -> list[str]:
    """What was refused, why, and what would allow it."""
    lines = []
    for row in rows[:MAX_TOLD]:
        lines.append(f"holdfast: the sandbox refused {_target(row)}")
        lines.append(f"  rule: {row['rule']}")
        if row["grant"]:
            lines.append(f"  to allow it: {row['grant']}")
    if len(rows) > MAX_TOLD:
        lines.append(f"holdfast: and {len(rows) - MAX_TOLD} more hosts; --json names all")
    return lines


def report(traffic: "Mapping[str, Any]") -> dict[str, object]:
    """The account with the names of our JSON."""
    return {
        "sent": [
            {
                "host": row["host"],
                "port": row["port"],
                "connections": row["connections"],
                "failed": row["failed"],
                "bytesSent": row["sent"],
                "bytesReceived": row["received"],
                "firstMs": row["first_ms"],
                "lastMs": row["last_ms"],
                "slowedMs": row["slowed_ms"],
            }
            for row in traffic["sent"]
        ],
        "refused": [
            {
                "host": row["host"],
                "port": row["port"],
                "rule": row["rule"],
                "grant": row["grant"],
                "count": row["count"],
                "firstMs": row["first_ms"],
                "program": row["program"],
            }
            for row in traffic["refused"]
        ],
        "dropped": traffic["dropped"],
    }


def _target(row: "Mapping[str, Any]") -> str:
    port = "" if row["port"] is None else f":{row['port']}"
    who = f" to {row['program']}" if row["program"] else ""
    return f"the host {row['host']}{port}{who}"


def _failed(count: int) -> str:
    return f" ({count} of them failed)" if count else ""


def _slowed(spent_ms: int) -> str:
    return f", limit reached: slowed by {spent_ms / 1000:.1f} s" if spent_ms else ""


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < _KIB or unit == "GiB":
            break
        count /= _KIB
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"

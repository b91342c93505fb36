"""What four model providers say on the wire: OpenAI's two protocols, Anthropic's, Gemini's.

Each `Wire` reads a request into an `Asked`, and writes an answer, a text or one call of a tool, as the pieces
that a stream is made of and as one whole. As much of each protocol as the agent CLIs need.
"""

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Json = dict[str, Any]


@dataclass
class Asked:
    """A request, whatever its protocol."""

    stream: bool = False
    rounds: int = 0  # tool results since the last prompt
    tools: dict[str, Json] = field(default_factory=dict)  # name → schema of its arguments
    spaces: dict[str, str] = field(default_factory=dict)  # name → the namespace it has to be called in
    schema: Json | None = None  # of the JSON that the answer has to be


class Call(NamedTuple):
    tool: str
    arguments: Json
    namespace: str = ""  # where the protocol has such a thing


class Said(NamedTuple):
    """An answer: the events of its stream in order, and the same as one object."""

    pieces: list[bytes]
    whole: Json


class Wire(NamedTuple):
    read: Callable[[Json], Asked]
    say: Callable[[str | Call], Said]
    error: Callable[[int, str], Json]


def event(data: Json | str, name: str = "") -> bytes:
    body = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {body}\n\n".encode()


def halves(text: str) -> Iterable[str]:
    middle = len(text) // 2
    return (text[:middle], text[middle:])


# --- Responses


def _read_responses(body: Json) -> Asked:
    items = body["input"]
    offered = [tool for tool in body.get("tools", []) if "name" in tool]
    spaces = {tool["name"]: space["name"] for space in offered for tool in space.get("tools", [])}
    offered += [tool for space in offered for tool in space.get("tools", [])]  # those of an MCP server
    tools = {tool["name"]: tool.get("parameters", {}) for tool in offered}
    rounds = sum(str(item.get("type", "")).endswith("_call_output") for item in items)
    return Asked(bool(body.get("stream")), rounds, tools, spaces)


def _say_responses(answer: str | Call) -> Said:
    item: Json
    if isinstance(answer, str):
        part = {"type": "output_text", "text": answer, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
        deltas: list[Json] = [
            {"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": half}
            for half in halves(answer)
        ]
    else:
        arguments = json.dumps(answer.arguments)
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": answer.tool}
        item["arguments"] = arguments
        item |= {"namespace": answer.namespace} if answer.namespace else {}
        deltas = [{"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": arguments}]
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    whole: Json = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [item],
        "usage": usage,
    }
    empty: Json = {"content": []} if isinstance(answer, str) else {"arguments": ""}
    events: list[Json] = [
        {"type": "response.created", "response": whole | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | empty},
        *({"output_index": 0, **delta} for delta in deltas),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return Said([event(one, str(one["type"])) for one in events], whole)


# --- chat completions


def _read_chat(body: Json) -> Asked:
    tools = {
        tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in body.get("tools", [])
    }
    roles = [message["role"] for message in body["messages"]]
    since = len(roles) - roles[::-1].index("user") if "user" in roles else 0
    wanted = body.get("response_format") or {}
    schema = (wanted.get("json_schema") or {}).get("schema", {}) if "json" in wanted.get("type", "") else None
    return Asked(bool(body.get("stream")), roles[since:].count("tool"), tools, schema=schema)


def _say_chat(answer: str | Call) -> Said:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    message: Json = {"role": "assistant", "content": answer if isinstance(answer, str) else None}
    deltas: list[Json]
    if isinstance(answer, str):
        finish = "stop"
        deltas = [{"content": half} for half in halves(answer)]
    else:
        finish = "tool_calls"
        function = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        message["tool_calls"] = [call]
        deltas = [{"tool_calls": [call]}]
    frame = {"id": "chat_1", "created": 1, "model": "scripted"}
    choices: list[Json] = [
        {"index": 0, "delta": delta, "finish_reason": None}
        for delta in [{"role": "assistant", "content": ""}, *deltas]
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks: list[Json] = [{**frame, "object": "chat.completion.chunk", "choices": [one]} for one in choices]
    chunks.append({**frame, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    whole = {
        **frame,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }
    return Said([*(event(chunk) for chunk in chunks), event("[DONE]")], whole)


def _openai_error(status: int, message: str) -> Json:
    codes = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded", 500: "server_error"}
    code = codes.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": code, "code": code, "param": None}}


# --- Anthropic


def _read_anthropic(body: Json) -> Asked:
    tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools", [])}
    rounds = 0
    for message in body["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        results = sum(part.get("type") == "tool_result" for part in content)
        if message["role"] == "user":
            rounds = rounds + results if results else 0
    wanted = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    schema = wanted.get("schema", {}) if wanted.get("type") == "json_schema" else None
    return Asked(bool(body.get("stream")), rounds, tools, schema=schema)


_NUMBERS: Final = itertools.count(1)  # claude tells answers apart by their names


def _say_anthropic(answer: str | Call) -> Said:
    usage = {"input_tokens": 9, "output_tokens": 3}
    number = next(_NUMBERS)
    whole: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted"}
    whole |= {"stop_sequence": None, "usage": usage}
    empty: Json = {"type": "text", "text": ""}
    block: Json = {"type": "text", "text": answer}
    if isinstance(answer, str):
        reason = "end_turn"
        deltas = [{"type": "text_delta", "text": half} for half in halves(answer)]
    else:
        reason = "tool_use"
        empty = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.tool, "input": {}}
        block = {**empty, "input": answer.arguments}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}]
    events: list[Json] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    pieces = [event(one, str(one["type"])) for one in events]
    return Said(pieces, {**whole, "content": [block], "stop_reason": reason})


def _anthropic_error(status: int, message: str) -> Json:
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 500: "api_error"}
    return {
        "type": "error",
        "error": {"type": kinds.get(status, "invalid_request_error"), "message": message},
    }


# --- Gemini


def _read_gemini(body: Json) -> Asked:
    declared = [tool for group in body.get("tools", []) for tool in group.get("functionDeclarations", [])]
    tools = {
        tool["name"]: tool.get("parametersJsonSchema") or tool.get("parameters") or {} for tool in declared
    }
    rounds = 0
    for content in body["contents"]:
        results = sum("functionResponse" in part for part in content["parts"])
        if content["role"] == "user":
            rounds = rounds + results if results else 0
    config = body.get("generationConfig") or {}
    is_json = config.get("responseMimeType") == "application/json"
    schema = config.get("responseJsonSchema") or config.get("responseSchema") or {} if is_json else None
    return Asked(False, rounds, tools, schema=schema)


def _say_gemini(answer: str | Call) -> Said:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    parts: list[Json]
    if isinstance(answer, str):
        parts, groups = [{"text": answer}], [[{"text": half}] for half in halves(answer)]
    else:
        parts = [{"functionCall": {"name": answer.tool, "args": answer.arguments}}]
        groups = [parts]

    def frame(content: list[Json], *, last: bool) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": content}}
        candidate |= {"finishReason": "STOP"} if last else {}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}

    pieces = [event(frame(group, last=False)) for group in groups]
    return Said([*pieces, event(frame([], last=True))], frame(parts, last=True))


def _gemini_error(status: int, message: str) -> Json:
    kinds = {401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
    return {"error": {"code": status, "message": message, "status": kinds.get(status, "INVALID_ARGUMENT")}}


WIRES: Final = {
    "responses": Wire(_read_responses, _say_responses, _openai_error),
    "chat": Wire(_read_chat, _say_chat, _openai_error),
    "anthropic": Wire(_read_anthropic, _say_anthropic, _anthropic_error),
    "gemini": Wire(_read_gemini, _say_gemini, _gemini_error),
}


def example(schema: Json) -> Any:
    """Something that a JSON schema allows; only what it requires."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if schema.get("enum"):
        return schema["enum"][0]
    match str(kind).lower():
        case "object":
            properties = schema.get("properties", {})
            return {name: example(properties.get(name, {})) for name in schema.get("required", [])}
        case "array":
            return []
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case _:
            return "scripted"

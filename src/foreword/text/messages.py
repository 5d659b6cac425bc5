"""Values from users on their way into a chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foreword.errors import InvalidRequestError

MAX_DEPTH = 32  # of nested lists and objects, in tool descriptions for example

Protect = Callable[[str], str]

# Words that templates compare or put into control tokens of their own ('<|' + role + '|>').
_WORDS = {
    "role": frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"}),
    "type": frozenset(
        {"text", "function", "object", "array", "string", "integer", "number", "boolean", "null"}
    ),
}


def clean_text(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates as U+FFFD: what UTF-8 can write."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_messages(messages: Sequence[Mapping[str, Any]], protect: Protect) -> list[dict[str, Any]]:
    """Messages as a template takes them: text parts joined, every string protected.

    Raises:
        InvalidRequestError: a message is not an object with a role, or a part is not text.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not messages:
        raise InvalidRequestError("messages must be a non-empty list", param="messages")
    return [
        _clean_message(message, f"messages[{i}]", protect) for i, message in enumerate(messages)
    ]


def _clean_message(message: Mapping[str, Any], where: str, protect: Protect) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidRequestError(f"{where} must be an object with a role", param="messages")
    message = dict(message)
    if isinstance(message.get("content"), (list, tuple)):
        message["content"] = _join_parts(message["content"], where)
    return clean_value(message, where, protect)  # type: ignore[no-any-return]


def _join_parts(parts: Sequence[Any], where: str) -> str:
    for i, part in enumerate(parts):
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise InvalidRequestError(
                f"{where}.content[{i}] must be text; {kind!r} is not supported", param="messages"
            )
    return "".join(part["text"] for part in parts)


def clean_value(value: Any, where: str, protect: Protect, depth: int = 0) -> Any:
    """A copy of plain data with every string protected.

    The keys of objects are names in templates: only those that no name could be are changed.

    Raises:
        InvalidRequestError: the value holds something else than plain data, or is too deep.
    """
    if depth > MAX_DEPTH:
        raise InvalidRequestError(f"{where} is nested too deeply", param=where.split("[")[0])
    if isinstance(value, str):
        return protect(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {
            _clean_key(key, protect): item
            if isinstance(item, str) and item in _WORDS.get(key, ())
            else clean_value(item, where, protect, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [clean_value(item, where, protect, depth + 1) for item in value]
    raise InvalidRequestError(
        f"{where} holds a {type(value).__name__}, which is no JSON value", param=where.split("[")[0]
    )


def _clean_key(key: Any, protect: Protect) -> str:
    text = str(key)
    return text if text.isidentifier() else protect(text)

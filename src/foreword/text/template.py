"""Chat templates: the Jinja program in a model file that turns a conversation into a prompt."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foreword.errors import InvalidRequestError, TemplateError

if TYPE_CHECKING:
    from foreword.text.sandbox import CompiledTemplate

MAX_SOURCE_CHARS = 1 << 16  # takes up to a second to compile; real ones have a few thousand
_RESERVED = frozenset({"chat_template", "messages", "tools", "bos_token", "eos_token"})


class ChatTemplate:
    """A template and the names of the model's own tokens that it may write.

    The template is somebody else's program: it runs in a sandbox that bounds its time and memory
    (see `foreword.text.sandbox`). It is compiled on first use, since that needs Jinja.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._compiled: CompiledTemplate | None = None
        self._lock = threading.Lock()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt as text, control tokens written out.

        Args:
            messages: what the template iterates over.
            tools: functions that the model may call.
            add_generation_prompt: end with the start of the assistant's answer.
            variables: more names for the template.

        Raises:
            TemplateError: the template does not compile, fails, refuses the conversation, or
                exceeds its budget.
            InvalidRequestError: a variable has a name that is not the caller's to set.
        """
        for name in variables:
            if name in _RESERVED:
                raise InvalidRequestError(f"{name} cannot be set by a request", param=name)
        return self.prepare().render(
            {
                **variables,
                **self._tokens,
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
            }
        )

    def prepare(self) -> CompiledTemplate:
        """Compile now rather than on first use; takes some 30 ms, most of it to import Jinja.

        Raises:
            TemplateError: the template does not compile.
        """
        with self._lock:
            if self._compiled is None:
                if len(self.source) > MAX_SOURCE_CHARS:
                    raise TemplateError(
                        f"the chat template has {len(self.source)} characters; "
                        f"at most {MAX_SOURCE_CHARS} are accepted"
                    )
                from foreword.text.sandbox import CompiledTemplate

                self._compiled = CompiledTemplate(self.source)
            return self._compiled

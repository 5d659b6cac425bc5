"""Text to token ids and back, exactly as the vocabulary in the model's GGUF file defines it.

The algorithms are in C++ (``csrc/text``) and read the vocabulary straight from the mapped file:
262,144 tokens are ready in some 20 ms, so there is nothing to cache between starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foreword.errors import TemplateError
from foreword.text.detokenizer import Detokenizer
from foreword.text.messages import clean_messages, clean_text, clean_value
from foreword.text.piece_memo import PieceMemo
from foreword.text.template import ChatTemplate
from foreword.text.vocabulary import Vocabulary, read_vocabulary
from foreword.weights.gguf import GGUFFile


class Tokenizer:
    """A model's tokenizer and chat template. Threads may share it: all that changes is a memo.

    Attributes:
        vocab_size: how many ids there are: ``0 … vocab_size-1``.
        bos_token_id: the token that begins a sequence; None where the vocabulary names none.
        eos_token_ids: tokens that end a sequence or a turn.
        special_ids: all tokens that are no text (control tokens).
        add_bos: whether a prompt begins with the BOS token.
        chat_template: how a conversation becomes a prompt; None where the file has none.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._core = vocabulary.core
        self._memo = PieceMemo(vocabulary.core)
        self._add_space_prefix = vocabulary.add_space_prefix
        self.vocab_size = self._core.vocab_size
        self.bos_token_id = vocabulary.bos_token_id
        self.eos_token_ids = vocabulary.end_token_ids
        self.special_ids = vocabulary.special_ids
        self.add_bos = vocabulary.add_bos and self.bos_token_id is not None
        self.chat_template: ChatTemplate | None = None
        if vocabulary.chat_template is not None:
            bos, eos = vocabulary.bos_token_id, vocabulary.eos_token_id
            self.chat_template = ChatTemplate(
                clean_text(vocabulary.chat_template),
                bos_token="" if bos is None else self.token_text(bos),
                eos_token="" if eos is None else self.token_text(eos),
            )

    @classmethod
    def load(cls, file: GGUFFile) -> Tokenizer:
        """Build the tokenizer that a model file describes.

        Raises:
            UnsupportedModelError: a kind of tokenizer that foreword does not know.
            ModelFileError: a part is missing or contradicts another.
        """
        return cls(read_vocabulary(file))

    def encode(
        self,
        text: str,
        *,
        add_bos: bool | None = None,
        parse_special: bool = False,
        cache_salt: str = "",
    ) -> list[int]:
        """Token ids of a text. Releases the GIL; lone surrogates count as U+FFFD.

        Args:
            text: any text.
            add_bos: whether to put the BOS token first (None: as the model wants it).
            parse_special: whether ``<|im_end|>`` and the like in the text are control tokens or
                just characters. Only for text that no user has written.
            cache_salt: texts with other salts do not make this one faster; see `PieceMemo`.
        """
        ids = self._memo.encode(clean_text(text).encode(), parse_special, cache_salt)
        if (self.add_bos if add_bos is None else add_bos) and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        return ids

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Token ids of a conversation, by the model's chat template.

        Control tokens come from the template only, never from what messages, tools or variables
        hold. The BOS token comes first exactly once, if the model wants it at all. Arguments and
        errors are those of `render_chat`.
        """
        return self.encode_rendered(self.render_chat(messages, **options))

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The first half of `encode_chat`: the text for `encode_rendered`, and for nothing else.

        Args:
            messages: each has a ``role`` and mostly a ``content``: a string, or parts of type text.
            tools: functions that the model may call, as in OpenAI's API.
            add_generation_prompt: end with the start of the assistant's answer.
            variables: more names for the template (``enable_thinking=False``).

        Raises:
            TemplateError: no template, or it fails, or it exceeds its time or size budget.
            InvalidRequestError: the messages are not of the described form.
        """
        if self.chat_template is None:
            raise TemplateError(
                "the model has no chat template: it is not made for chat. Use completions "
                "(/v1/completions, LLM.generate, `foreword run --raw`)"
            )
        return self.chat_template.render(
            clean_messages(messages, self._protect),
            tools=None if tools is None else clean_value(list(tools), "tools", self._protect),
            add_generation_prompt=add_generation_prompt,
            **{name: clean_value(value, name, self._protect) for name, value in variables.items()},
        )

    def encode_rendered(self, text: str, *, cache_salt: str = "") -> list[int]:
        """The second half of `encode_chat`: token ids of what `render_chat` made."""
        ids = self._memo.encode(text.encode("utf-8", "surrogatepass"), True, cache_salt)
        if self.add_bos and ids[:1] != [self.bos_token_id]:
            assert self.bos_token_id is not None
            ids.insert(0, self.bos_token_id)
        return ids

    def _protect(self, text: str) -> str:
        """Mark a text so that nothing in it can take part in a control token.

        The marks are lone surrogates, which no clean text holds; encoding drops them.
        """
        return self._core.protect(clean_text(text).encode()).decode("utf-8", "surrogatepass")

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD.

        Args:
            ids: each in ``0 … vocab_size-1``, else IndexError.
            skip_special: leave control tokens out.
        """
        detokenizer = self.detokenizer(skip_special=skip_special)
        return "".join(map(detokenizer.push, ids)) + detokenizer.flush()

    def detokenizer(
        self, *, skip_special: bool = True, continues_text: bool = False
    ) -> Detokenizer:
        """A new incremental `decode`.

        Args:
            skip_special: leave control tokens out.
            continues_text: the ids follow other text (a prompt), so a space at their start is one
                that the model wrote; otherwise it is dropped where the tokenizer puts one there.
        """
        visible = self._visible_bytes if skip_special else self._core.token_bytes
        return Detokenizer(visible, strip_space=self._add_space_prefix and not continues_text)

    def _visible_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self.special_ids else self._core.token_bytes(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; perhaps a part of a character."""
        return self._core.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """`token_bytes` as text; bytes that are no UTF-8 become U+FFFD."""
        return self._core.token_bytes(token_id).decode("utf-8", "replace")

"""Every exception that foreword raises on purpose."""

from __future__ import annotations

from pathlib import Path


class ForewordError(Exception):
    """Base of all errors that foreword raises on purpose."""


class ConfigError(ForewordError):
    """An option has a value that cannot work.

    Attributes:
        option: the option's name, as in the configuration classes (``max_num_seqs``).
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option}: {message}")
        self.option = option


class ModelFileError(ForewordError):
    """A model file is damaged, truncated or not what it claims to be.

    Attributes:
        path: the file.
        field: what was being read (``"tensor_count"``, ``"tensor 'blk.0.attn_q.weight'"``).
        offset: the byte offset in the file, where one is known.
    """

    def __init__(
        self, path: str | Path, field: str, message: str, *, offset: int | None = None
    ) -> None:
        where = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{path}: {field}{where}: {message}")
        self.path = Path(path)
        self.field = field
        self.offset = offset


class UnsupportedModelError(ForewordError):
    """The model file is sound, but foreword cannot run it (architecture, tokenizer, data type)."""


class ModelNotFoundError(ForewordError):
    """No such model: the message says what was looked for and what can be had."""


class DownloadError(ForewordError):
    """A model could not be fetched (offline, interrupted, wrong digest)."""


class TemplateError(ForewordError):
    """A chat template is missing, fails, or exceeds its time or size budget."""


class InvalidRequestError(ForewordError):
    """A request that can never be served as written; the caller's mistake.

    Attributes:
        param: the parameter at fault, as its caller spells it, or None.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthError(InvalidRequestError):
    """Prompt and requested output do not fit the model's context or the KV cache.

    Attributes:
        prompt_tokens: tokens in the prompt.
        limit_tokens: the most that would have fitted.
    """

    def __init__(
        self, message: str, *, prompt_tokens: int, limit_tokens: int, param: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens


class OverloadedError(ForewordError):
    """A request was refused, since it would wait for too long; later it may be served.

    Attributes:
        retry_after_s: when it would have been taken, in seconds from now; None: not before
            something about it changes.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueTimeoutError(ForewordError):
    """A request had waited too long for its first step, and was ended.

    Attributes:
        retry_after_s: when it would have had its first token, in seconds from now.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineStoppedError(ForewordError):
    """The engine is shutting down or has stopped, and takes no more requests."""


class ServerError(ForewordError):
    """Another server cannot be reached, or does not answer as it should."""


class BackendError(ForewordError):
    """A step failed inside the backend."""

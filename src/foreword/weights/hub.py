"""Models from the Hugging Face hub, in its client's own cache. The client is an optional extra."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from foreword.errors import DownloadError, ForewordError, ModelNotFoundError

_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>\S+\.gguf)")
_INSTALL = "needs the package huggingface-hub: pip install 'foreword[hub]'"


def cached(name: str) -> Path:
    """The file of ``hf:org/repo/file.gguf`` if it is on this machine.

    Raises:
        ModelNotFoundError: it is not, the name is malformed, or the client is not installed.
    """
    repo, file = _split(name)
    client = _client(name, ModelNotFoundError)
    path = client.try_to_load_from_cache(repo, file)
    if not isinstance(path, str):
        raise ModelNotFoundError(f"{name} is not on this machine yet: foreword pull {name}")
    return Path(path)


def pull(name: str) -> Path:
    """Fetch ``hf:org/repo/file.gguf`` unless it is on this machine.

    Raises:
        ModelNotFoundError: the name is malformed.
        DownloadError: the client is not installed, or could not fetch the file.
    """
    repo, file = _split(name)
    client = _client(name, DownloadError)
    path = client.try_to_load_from_cache(repo, file)
    if isinstance(path, str):
        return Path(path)
    try:
        return Path(client.hf_hub_download(repo, file))
    except Exception as error:  # the client's exceptions differ from version to version
        first_line = re.sub(r"\w+://\S+", "(address)", str(error).strip().partition("\n")[0])
        raise DownloadError(
            f"{name} could not be downloaded. The hub's client says: {first_line}\n"
            "Check the name and the network connection."
        ) from error


def _split(name: str) -> tuple[str, str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ModelNotFoundError(f"{name!r} is not of the form hf:org/repo/file.gguf")
    return match["repo"], match["file"]


def _client(name: str, error_type: type[ForewordError]) -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise error_type(f"{name} {_INSTALL}") from None
    client: ModuleType = huggingface_hub
    return client

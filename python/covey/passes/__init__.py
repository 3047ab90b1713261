"""Rewriting the graph, one pass a file. None changes what the network computes."""

from __future__ import annotations

from covey.errors import NodeError
from covey.ir import Graph
from covey.passes.affine_sinking import sink_affine
from covey.passes.average_before_point import average_before_point
from covey.passes.batch_norm_folding import fold_batch_norm
from covey.passes.compared_inputs import find_compared_inputs, fold_into_thresholds
from covey.passes.conv_expansion import expand_convolutions
from covey.passes.dead_channels import drop_dead_channels
from covey.passes.dead_nodes import remove_dead_nodes
from covey.passes.factor_raising import raise_factors
from covey.passes.hidden_features import hide_features
from covey.passes.identity_removal import remove_identities
from covey.passes.input_scaling import fold_input_scaling
from covey.passes.late_division import divide_late
from covey.passes.linear_merging import merge_linear_layers
from covey.passes.masked_exponentials import mask_exponentials
from covey.passes.masked_maxima import mask_maxima
from covey.passes.masked_softmax import find_masks
from covey.passes.missing_values import fill_in, take_missing
from covey.passes.moved_masks import put_masks_last
from covey.passes.normalizers import resolve_normalizers
from covey.passes.parallel_layers import join_parallel_layers
from covey.passes.pool_before_relu import pool_before_relu
from covey.passes.quotients import make_quotients
from covey.passes.relu_before_moves import relu_before_moves
from covey.passes.scalar_fusion import fuse_scalar_functions
from covey.passes.scale_sinking import sink_scales
from covey.passes.trailing_softmax import remove_trailing_softmax
from covey.passes.whole_numbers import encode_whole_numbers
from covey.passes.written_out_norms import find_norms
from covey.passes.written_out_softmax import find_softmax

__all__ = ["rewrite"]


def recognise(graph: Graph, complete: bool = True, missing: int | None = None) -> list[NodeError]:
    """Put what is written out in other operators back together; no parameter is merged with another. See `rewrite`."""
    fill_in(graph, missing)
    encode_whole_numbers(graph)
    remove_identities(graph)
    find_softmax(graph)
    if complete:
        remove_dead_nodes(graph)
    resolve_normalizers(graph)
    mask_exponentials(graph)
    mask_maxima(graph)
    put_masks_last(graph)
    errors = find_masks(graph)
    remove_trailing_softmax(graph)
    find_norms(graph)
    fuse_scalar_functions(graph)
    make_quotients(graph)
    return errors


def rewrite(
    graph: Graph,
    *,
    complete: bool = True,
    keep_bn: bool = False,
    drop_channels: bool = False,
    hidden: bool = False,
    missing: int | None = None,
) -> list[NodeError]:
    """Run all passes in place; returns the errors of nodes that no pass could make fit for a program.

    A graph that lacks the model's unsupported nodes is not `complete`: what they read would look dead. With `keep_bn`,
    batch normalisation is not folded into the layers before it; with `drop_channels`, dead channels are dropped;
    with `hidden`, the program does not say which features trees compare. `missing` stands for missing features.
    """
    errors = recognise(graph, complete, missing)
    raise_factors(graph)
    fold_batch_norm(graph, keep=keep_bn)
    divide_late(graph)
    sink_affine(graph)
    average_before_point(graph)
    merge_linear_layers(graph)
    join_parallel_layers(graph)
    fold_input_scaling(graph)
    fold_into_thresholds(graph)
    if missing is not None:
        errors += take_missing(graph, missing, hidden)
    if not keep_bn:
        sink_scales(graph)
    if drop_channels:
        drop_dead_channels(graph)
    if hidden:
        hide_features(graph)
    expand_convolutions(graph)
    pool_before_relu(graph)
    relu_before_moves(graph)
    if complete:
        remove_dead_nodes(graph)
    find_compared_inputs(graph)
    return errors

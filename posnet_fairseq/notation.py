"""Symbols that names, shapes and comments of this package use.

====  ==========================================================================
B     sentences in a batch
N     query positions (target side in cross-attention)
M     memory positions, the ones that are mixed (source side in cross-attention)
D     model width
H     heads
d     width of a head, D / H
K     clip distance: offsets beyond ±K share one weight
K̂, T  rows of a table of relative positions, 2K + 1
n, m  a query's and a memory token's position, counted from 0
γ     length ratio, source tokens per target token; queries of cross-attention stand at ⌊γn⌋
δ     offset n - m, in cross-attention ⌊γn⌋ - m: positive to the left of the query
L     longest sentence a model takes (``--max-source-positions``, ``--max-target-positions``)
====  ==========================================================================

Token vectors are batch-first, (B, N, D); split into heads they are (B, H, N, d). Only what fairseq
itself reads (``encoder_out``) is time-first, (M, B, D). A padding mask is (B, M), True at padding.

*Energy* is the value before the softmax, *weight* the one after it. In front of the first layer every
sentence is moved so that its real tokens come first (:mod:`posnet_fairseq.ops.layout`); from there on
the index of a real token in its tensor IS its position, counted from 0, on whichever side fairseq padded.
"""

"""The pre-norm Transformer around the mixers, as encoder and decoder of fairseq's."""

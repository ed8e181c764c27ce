# shellcheck shell=bash
# What models of each size are trained, averaged and searched with. Sourced by stages.sh; every recipe shares it.
# Any of them can be set from outside: LR=1e-3 UPDATES=50000 bash recipes/wmt14.en-de.sh
#
# Small (iwslt), Base and Big: Schmidt and Di Gangi (WMT 2023), Section 5.3, and the configurations published with it.
# Tiny: chosen here, for a CPU and the quickstart's 26,000 sentence pairs.
# What belongs to the model itself (layers, widths, heads, dropout, clip distance) is in posnet_fairseq/transformer/sizes.py.

case $SIZE in
    tiny)
        : "${TOKENS:=1200}"         # tokens of an update, over all batches and processes (padding and the longer side
                                    # counted, as fairseq counts --max-tokens; about 90% of them are target tokens)
        : "${MAX_TOKENS:=1200}"     # the most tokens of one batch: what fits into memory. It decides how many batches
                                    # make an update (--update-freq), not how many tokens
        : "${LR:=2e-3}"             # peak of the learning rate, inverse_sqrt: lr · min(t / warmup, sqrt(warmup / t))
        : "${WARMUP:=400}"          # updates until the peak
        : "${UPDATES:=2000}"        # how long to train
        : "${INTERVAL:=100}"        # updates between checkpoints, each of which is validated
        : "${AVERAGE:=5}"           # checkpoints averaged: the best one and those that follow it
        : "${MAX_POSITIONS:=256}"   # the most tokens of a sentence, on either side
        : "${BEAM:=5}"              # hypotheses kept in beam search
        : "${MAX_LEN_A:=2}" "${MAX_LEN_B:=20}"   # translations end at a·M + b tokens, M those of the source
        ;;
    iwslt)
        : "${TOKENS:=16384}"        # 2048 tokens × 8
        : "${MAX_TOKENS:=4096}"
        : "${LR:=1.4e-3}"           # s·D^-0.5·min(t^-0.5, t·4000^-1.5) with s = 2, D = 512
        : "${WARMUP:=4000}"
        : "${UPDATES:=30000}"
        : "${INTERVAL:=300}"
        : "${AVERAGE:=30}"
        ;;
    base)
        : "${TOKENS:=27200}"        # 1700 tokens × 16
        : "${MAX_TOKENS:=3400}"
        : "${LR:=7e-4}"             # s = 1, D = 512
        : "${WARMUP:=4000}"
        : "${UPDATES:=150000}"
        : "${INTERVAL:=1000}"
        : "${AVERAGE:=7}"
        ;;
    big)
        : "${TOKENS:=27200}"
        : "${MAX_TOKENS:=1700}"
        : "${LR:=4.94e-4}"          # s = 1, D = 1024
        : "${WARMUP:=4000}"
        : "${UPDATES:=300000}"
        : "${INTERVAL:=600}"
        : "${AVERAGE:=20}"
        ;;
esac

# The same for all sizes.
: "${LABEL_SMOOTHING:=0.1}"
: "${ADAM_BETAS:=(0.9,0.98)}" "${ADAM_EPS:=1e-9}"   # no weight decay, no clipping of gradients
: "${MAX_POSITIONS:=128}"
: "${BEAM:=12}"
: "${LENPEN:=1}"                    # hypotheses are compared by log probability / length^1
: "${MAX_LEN_A:=0}" "${MAX_LEN_B:=200}"
: "${METRICS:=bleu,chrf}"           # of posnet-score; the paper's tables have bleu,bleurt,comet

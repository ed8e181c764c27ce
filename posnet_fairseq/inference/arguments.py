"""Values that arguments of a translation may have, and their defaults. Importing this module imports no torch."""

DTYPES = ("float32", "bf16", "fp16", "int8")
AUTO = "auto"  # the fastest precision that is near to float32
# Source tokens in a batch.
MAX_TOKENS = 2000
MAX_TOKENS_LIMITS = (1, 1_000_000_000)
# What happens to a line of more tokens than the model takes.
ON_LONG = ("error", "truncate", "skip")

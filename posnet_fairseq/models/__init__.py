"""Models that fairseq registers: with ``--user-dir`` it imports this package and every file in it."""

from posnet_fairseq.fairseq_plugin import uncompiled

uncompiled.replace_compiled_code()

from posnet_fairseq.fairseq_plugin import repairs  # noqa: E402, F401
from posnet_fairseq.shared.failures import install_hook  # noqa: E402
from posnet_fairseq.shared.torch_process import limit_product_caches  # noqa: E402

install_hook()
limit_product_caches()

# Last, when fairseq is repaired: their imports register criterions, the optimizer, and the models and architectures of
# all mixers.
from posnet_fairseq.fairseq_plugin import chunked_loss, first_weights, fused_adam, plain_text, subword_dropout  # noqa: E402, F401
from posnet_fairseq.models import mixer_language_model, mixer_transformer  # noqa: E402, F401

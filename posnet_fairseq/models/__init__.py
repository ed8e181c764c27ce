"""Models that fairseq registers: with ``--user-dir`` it imports this package and every file in it."""

from posnet_fairseq.fairseq_plugin import repairs as compat
from posnet_fairseq.fairseq_plugin import uncompiled

uncompiled.replace_compiled_code()
compat.allow_checkpoint_types()
compat.restore_long_integers()
compat.train_in_bf16_on_gpus()
compat.exempt_from_weight_decay()
compat.save_at_ends_of_epochs()
compat.fork_workers()
compat.resume_with_the_same_batches()
compat.resume_with_the_same_patience()
compat.check_options_of_trainings()
compat.check_data_when_it_is_loaded()
compat.refuse_overrides_of_other_models()

from posnet_fairseq.shared.failures import install_hook  # noqa: E402

install_hook()

# Last, when fairseq is repaired: their imports register criterions, the optimizer, and the models and architectures of
# all mixers.
from posnet_fairseq.fairseq_plugin import chunked_loss, fused_adam  # noqa: E402, F401
from posnet_fairseq.models import mixer_language_model, mixer_transformer  # noqa: E402, F401

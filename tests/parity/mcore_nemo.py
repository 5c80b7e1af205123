"""Saves a model of the real megatron-core as the folder of a checkpoint of NeMo 2.

Written from what nemo.lightning does: MegatronParallel's names of tensors, MegatronStrategy's state
dict, and the settings as YAML, where objects and functions of Python are maps."""
import dataclasses
import inspect
import os

import torch.distributed as dist
import yaml
from megatron.core import dist_checkpointing

CLASSES = "nemo.collections.llm.gpt.model.base"


def plain(value):
    """A value as NeMo's serializer has it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    is_named = hasattr(value, "__qualname__") and inspect.getmodule(value) is not None
    of = value if is_named else type(value)
    target = f"{inspect.getmodule(of).__name__}.{of.__qualname__}"
    return {"_target_": target, "_call_": not is_named}


def model_settings(model):
    """What context/model.yaml holds. What was derived from other settings is null."""
    config = {
        field.name: plain(getattr(model.config, field.name))
        for field in dataclasses.fields(model.config)
    }
    if config["kv_channels"] == config["hidden_size"] // config["num_attention_heads"]:
        config["kv_channels"] = None
    if config["num_query_groups"] == config["num_attention_heads"]:
        config["num_query_groups"] = None
    config.update(
        {
            "_target_": f"{CLASSES}.GPTConfig",
            "share_embeddings_and_output_weights": model.share_embeddings_and_output_weights,
            "make_vocab_size_divisible_by": 128,
            "position_embedding_type": model.position_embedding_type,
            "rotary_base": model.rotary_base,
            "rotary_percent": model.rotary_percent,
            "seq_len_interpolation_factor": None,
            "seq_length": model.max_sequence_length,
            "forward_step_fn": plain(model_settings),
            "vocab_size": None,
        }
    )
    optimizer = {"_target_": "megatron.core.optimizer.OptimizerConfig", "optimizer": "adam"}
    return {
        "_target_": f"{CLASSES}.GPTModel",
        "config": config,
        "optim": {"config": optimizer, "no_weight_decay_cond": None},
        "tokenizer": {"_target_": "nemo.collections.common.tokenizers.AutoTokenizer"},
        "model_transform": None,
    }


def trainer_state(iteration, samples):
    """What Lightning saves besides tensors."""
    progress = {"total": {"ready": iteration, "completed": iteration}}
    return {
        "epoch": 0,
        "global_step": iteration,
        "pytorch-lightning_version": "2.5.1",
        "state_dict": {},
        "loops": {"fit_loop": {"epoch_loop.batch_progress": progress}},
        "callbacks": {},
        "optimizer_states": {},
        "lr_schedulers": [{"base_lrs": [0.1], "last_epoch": iteration}],
        "hparams_name": None,
        "PreTrainingDataModule": {"consumed_samples": samples},
    }


def save(folder, models, state, metadata, optimizer):
    """Saves the models of this rank, one or its chunks, with the trainer's state."""
    models = [getattr(model, "module", model) for model in models]
    parts = [model.sharded_state_dict(prefix="module.", metadata=metadata) for model in models]
    sharded = parts[0] if len(parts) == 1 else {f"model_{i}": p for i, p in enumerate(parts)}
    state["sharded_state_dict"] = sharded
    if optimizer is not None:
        state["optimizer"] = [optimizer.sharded_state_dict(sharded, metadata=metadata)]
    for name in ("weights", "context"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state, str(folder / "weights"))
    if int(os.environ["RANK"]) == 0:
        text = yaml.safe_dump(model_settings(models[0]))
        (folder / "context/model.yaml").write_text(text)
        (folder / "context/io.json").write_text("{}")

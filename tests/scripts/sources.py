"""Lists the published launch scripts whose flags are recorded here.

It says where each stands and what its user passes to it. A line of a table is
`name | revision | path | what the user gives`; a backslash joins it with the next line. The last
column holds positional arguments and VARIABLE=value pairs. A `{WORD}` stands for a path that only
the user knows; run.py puts one of its own there.
"""

from typing import NamedTuple


class Source(NamedTuple):
    folder: str
    repository: str
    name: str
    revision: str
    path: str
    given: str


MEGATRON = "NVIDIA/Megatron-LM"
PAI = "alibaba/Pai-Megatron-Patch"

# Launch scripts of Megatron-LM's examples/ today.
EXAMPLES = """
gpt3_175b | HEAD | examples/gpt3/train_gpt3_175b_distributed.sh | \
{SAVE} {TENSORBOARD} {VOCAB} {MERGES} {DATA}
llama3_8b_fp8 | HEAD | examples/llama/train_llama3_8b_h100_fp8.sh | {SAVE} {TENSORBOARD}
llama3_8b_fp8_data | HEAD | examples/llama/train_llama3_8b_h100_fp8.sh | \
{SAVE} {TENSORBOARD} {TOKENIZER} {DATA}
llama3_8b_fsdp_fp8 | HEAD | examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh | {SAVE}
deepseek_v3_fsdp | HEAD | examples/megatron_fsdp/sbatch_mfsdp_deepseek_v3.sh | \
MEGATRON_PATH=. OUTPUT_PATH={SAVE} DATA_PATH={DATA}
mixtral_8x7b | HEAD | examples/mixtral/train_mixtral_8x7b_distributed.sh | {SAVE} {TOKENIZER} {DATA}
gptoss_20b | HEAD | examples/gptoss/02_train.sh | \
--checkpoint-path {SAVE} --tensorboard-logs-path {TENSORBOARD}
gptoss_20b_data | HEAD | examples/gptoss/02_train.sh | \
--checkpoint-path {SAVE} --tensorboard-logs-path {TENSORBOARD} --tokenizer {TOKENIZER} --data {DATA}
mamba_hybrid_800m | HEAD | examples/mamba/train.sh | {DATA} {TOKENIZER}
bert_340m | HEAD | examples/bert/train_bert_340m_distributed.sh | \
{SAVE} {TENSORBOARD} {VOCAB} {DATA}
t5_220m | HEAD | examples/t5/train_t5_220m_distributed.sh | {SAVE} {TENSORBOARD} {VOCAB} {DATA}
multimodal_mistral_clip | HEAD | examples/multimodal/pretrain_mistral_clip.sh | \
WORKSPACE={SAVE} LOAD_NAME=combined
sc21_figure_11 | HEAD | examples/academic_paper_scripts/sc21/run_figure_11.sh |
sc21_figure_12_interleaved | HEAD | examples/academic_paper_scripts/sc21/run_figure_12.sh |
sc21_figure_13 | HEAD | examples/academic_paper_scripts/sc21/run_figure_13.sh |
sc21_figure_14 | HEAD | examples/academic_paper_scripts/sc21/run_figure_14.sh |
sc21_figure_15 | HEAD | examples/academic_paper_scripts/sc21/run_figure_15.sh |
sc21_figure_16 | HEAD | examples/academic_paper_scripts/sc21/run_figure_16.sh |
sc21_figure_17 | HEAD | examples/academic_paper_scripts/sc21/run_figure_17.sh |
sc21_figure_18 | HEAD | examples/academic_paper_scripts/sc21/run_figure_18.sh |
sc21_table_1_1.7b | HEAD | examples/academic_paper_scripts/sc21/run_table_1.sh |
detxoify_1.3b | HEAD | \
examples/academic_paper_scripts/detxoify_lm/finetune_gpt_distributed-1.3b.sh | \
{DATA} run 1.5e-5 512 78 {LOAD} DATA_BLEND={DATA}
"""

# The recipes of examples/post_training/modelopt: one train.sh, one file of model flags for each
# model.
MODELOPT_MODELS = {
    "qwen2.5_7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3_0.6b": "Qwen/Qwen3-0.6B",
    "qwen3_8b": "Qwen/Qwen3-8B",
    "qwen3_30b_a3b": "Qwen/Qwen3-30B-A3B",
    "llama3.1_8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama3.2_1b": "meta-llama/Llama-3.2-1B-Instruct",
    "llama4_scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "deepseek_r1": "deepseek-ai/DeepSeek-R1",
    "deepseek_v2_lite": "deepseek-ai/DeepSeek-V2-Lite",
    "kimi_k2": "moonshotai/Kimi-K2-Instruct",
    "nemotron_mini_4b": "nvidia/Nemotron-Mini-4B-Instruct",
    "nemotron_h_8b": "nvidia/Nemotron-H-8B-Base-8K",
    "gpt_oss_20b": "openai/gpt-oss-20b",
}
MODELOPT = "\n".join(
    f"modelopt_{name} | HEAD | examples/post_training/modelopt/train.sh | "
    f"{model} MLM_SKIP_INSTALL=1 MLM_MODEL_CKPT={{LOAD}} MLM_MODEL_SAVE={{SAVE}} "
    "BLEND_PATH={SPLITS} HF_TOKEN="
    for name, model in MODELOPT_MODELS.items()
)

# Launch scripts of releases from 2020 on, with the flags of their time.
OLD_RELEASES = """
v1.0_gpt2_345m | v1.0 | examples/pretrain_gpt2.sh |
v1.0_gpt2_345m_distributed | v1.0 | examples/pretrain_gpt2_distributed.sh |
v2.0_gpt_345m_mp | v2.0 | examples/pretrain_gpt_distributed_with_mp.sh |
v2.5_gpt_345m | v2.5 | examples/pretrain_gpt.sh |
v2.5_gpt3_175b | v2.5 | examples/pretrain_gpt3_175B.sh |
v2.6_t5_mp | v2.6 | examples/pretrain_t5_distributed_with_mp.sh |
v0.4_gpt_345m | core_v0.4.0 | examples/pretrain_gpt.sh |
v0.4_gpt_345m_distributed | core_v0.4.0 | examples/pretrain_gpt_distributed.sh |
v0.4_gpt_345m_mp | core_v0.4.0 | examples/pretrain_gpt_distributed_with_mp.sh |
v0.4_gpt3_175b | core_v0.4.0 | examples/gpt3/train_gpt3_175b_distributed.sh | \
{SAVE} {TENSORBOARD} {VOCAB} {MERGES} {DATA}
v0.4_bert_mp | core_v0.4.0 | examples/pretrain_bert_distributed_with_mp.sh |
v0.4_ict | core_v0.4.0 | examples/pretrain_ict.sh |
v0.4_vision_classify | core_v0.4.0 | examples/pretrain_vision_classify.sh |
v0.7_gpt3_175b | core_v0.7.0 | examples/gpt3/train_gpt3_175b_distributed.sh | \
{SAVE} {TENSORBOARD} {VOCAB} {MERGES} {DATA}
v0.7_retro_2b | core_v0.7.0 | examples/retro/train_retro_2b_distributed.sh | {SAVE} {TENSORBOARD}
v0.12_mixtral_8x7b | core_v0.12.0 | examples/mixtral/train_mixtral_8x7b_distributed.sh | \
{SAVE} {TOKENIZER} {DATA}
"""

# Recipes of Megatron-LM's own functional tests: a table of flags in model_config.yaml.
RECIPES = [
    "gpt/gpt3_15b_8t_release",
    "gpt/gpt3_7b_tp1_pp4_memory_speed",
    "gpt/gpt3_7b_tp4_pp1_memory_speed",
    "gpt/gpt3_mcore_reruns_enable",
    "gpt/gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset",
    "gpt/gpt3_mcore_te_tp1_pp1_dist_optimizer_no_mmap_bin_files",
    "gpt/gpt3_mcore_te_tp1_pp1_mup",
    "gpt/gpt3_mcore_te_tp1_pp1_uniform_full_recompute",
    "gpt/gpt3_mcore_te_tp1_pp2_cp4_a2a_p2p_nondeterministic",
    "gpt/gpt3_mcore_te_tp1_pp2_rope_embeddings",
    "gpt/gpt3_mcore_te_tp1_pp2_rope_embeddings_interleaved_no_fusion",
    "gpt/gpt3_mcore_te_tp1_pp4_disable_bias_linear",
    "gpt/gpt3_mcore_te_tp1_pp4_resume_torch_dist_persistent_disable_bias_linear",
    "gpt/gpt3_mcore_te_tp1_pp4_sequence_parallel",
    "gpt/gpt3_mcore_te_tp1_pp4_swiglu",
    "gpt/gpt3_mcore_te_tp1_pp4_untie_embeddings_and_outputs",
    "gpt/gpt3_mcore_te_tp1_pp4_vp1_calculate_per_token_loss",
    "gpt/gpt3_mcore_te_tp1_pp4_vp1_decoupled_lr",
    (
        "gpt/gpt3_mcore_te_tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce"
        "_param_gather_overlap_optimizer"
    ),
    "gpt/gpt3_mcore_te_tp1_pp4_vp1_tunable_overlap",
    "gpt/gpt3_mcore_te_tp1_pp4_vp1_uneven_pipeline",
    "gpt/gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split",
    "gpt/gpt3_mcore_te_tp2_pp1_cp2_nondeterministic",
    "gpt/gpt3_mcore_te_tp2_pp1_gdn",
    "gpt/gpt3_mcore_te_tp2_pp1_multi_dist_optimizer_instances",
    "gpt/gpt3_mcore_te_tp2_pp2_cp2_etp4_dp_last",
    "gpt/gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion",
    "gpt/gpt3_mcore_te_tp2_pp2_ddp_average_in_collective",
    "gpt/gpt3_mcore_te_tp2_pp2_defer_embedding_wgrad_compute",
    "gpt/gpt3_mcore_te_tp2_pp2_dsa",
    "gpt/gpt3_mcore_te_tp2_pp2_mla",
    "gpt/gpt3_mcore_te_tp2_pp2_no_create_attention_mask_in_dataloader",
    "gpt/gpt3_mcore_te_tp4_pp1_dist_optimizer_overlap_grad_reduce_param_gather",
    "gpt/gpt3_mcore_te_tp4_pp1_qk_layernorm_test_mode",
    "gpt/gpt3_mcore_tp1_pp2_fp16",
    "gpt/gpt3_mcore_tp2_pp2_uninstall_te",
    "gpt/gpt3_weekly_mcore_tp2_pp2_current_scaling_native_fp8_tp_pp_sp_tp_overlap",
    "moe/gpt3_mcore_te_tp2_pp1_te_8experts2parallel_dist_optimizer",
    "moe/gpt3_mcore_te_tp2_pp1_te_8experts2parallel_top2router",
    "moe/gpt3_mcore_te_tp2_pp1_te_a2a_ovlp_8experts_etp1_ep4",
    "moe/gpt3_mcore_tp2_pp2_ep2_te_4experts2parallel",
    "moe/gpt3_moe_mcore_te_ep8_resume_torch_dist_dist_muon",
    "mixtral/mixtral_8x7b_tp1pp4ep8vpp8_release",
    "mixtral/deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release",
    "hybrid/hybrid_mr_mcore_te_tp1_pp1_cp1_dgx_a100_1N8G",
    "nemotron/nemotron3_super_release_gb200",
    "bert/bert_mcore_tp1_pp2",
    "t5/t5_mcore_te_tp2_pp1_vp1_sequence_parallel",
    "mimo/mimo_vlm_pretrain_convergence_tp1_pp1_cp1_dp8",
]

# Pai-Megatron-Patch: the arguments are those of each README's example command.
PAI_SCRIPTS = """
qwen3_8b | HEAD | examples/qwen3/run_mcore_qwen3.sh | \
dsw 8B 1 8 1e-5 1e-6 128 128 bf16 4 2 1 1 1 true true true false sel false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
qwen3_30b_a3b | HEAD | examples/qwen3/run_mcore_qwen3.sh | \
dsw A3B 1 8 1e-5 1e-6 128 128 bf16 4 2 1 1 4 true true true false sel false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
qwen2.5_0.5b | HEAD | examples/qwen2_5/run_mcore_qwen.sh | \
dsw 0.5B 1 8 1e-5 1e-6 128 128 bf16 1 1 1 true true true false false false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
qwen2.5_0.5b_sft | HEAD | examples/qwen2_5/run_mcore_qwen.sh | \
dsw 0.5B 1 8 1e-5 1e-6 128 128 bf16 1 1 1 true true true true false false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
qwen2_0.5b | HEAD | examples/qwen2/run_mcore_qwen.sh | \
dsw 0.5B 1 8 1e-5 1e-6 128 128 bf16 1 1 1 1 true true true false false false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
qwq_32b | HEAD | examples/qwq/run_mcore_qwen.sh | \
dsw 32B 1 8 1e-5 1e-6 128 128 bf16 4 1 1 true true true false false false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
llama3.1_8b | HEAD | examples/llama3_1/run_mcore_llama3_1.sh | \
dsw 8B 1 8 1e-5 1e-6 128 128 bf16 4 2 1 true true true false false false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
llama3_8b | HEAD | examples/llama3/run_pretrain_megatron_llama.sh | \
dsw ../../ 8B 1 8 1e-5 1e-6 128 128 256 bf16 4 1 sel true false false false \
100000 {DATA} {LOAD} 100000000 10000 {SAVE} CURRENT_DIR=.
llama2_13b | HEAD | examples/llama2/run_pretrain_megatron_llama.sh | \
dsw ../../ 13B 1 8 1e-5 1e-6 128 128 0 bf16 8 1 sel true false false false \
100000 {DATA} {LOAD} 100000000 10000 {SAVE} CURRENT_DIR=.
mistral_7b | HEAD | examples/mistral/run_mcore_mistral.sh | \
dsw 7B 1 8 1e-5 1e-6 128 128 bf16 4 1 1 1 true true true false false false \
100000 {DATA} {DATA} {LOAD} 10000 100 {SAVE}
qwen1.5_0.5b | HEAD | examples/qwen1_5/run_pretrain_megatron_qwen.sh | \
dsw ../../ 0.5B 1 8 1e-5 1e-6 128 128 293 bf16 1 1 sel true false false false \
100000 {DATA} {LOAD} 100000000 10000 {SAVE} CURRENT_DIR=.
deepseek_v2_lite | HEAD | examples/deepseek_v2/run_mcore_deepseek.sh | \
dsw A2.4B 1 8 1e-5 1e-6 1024 1024 bf16 1 4 1 2 true true true false sel false \
100000 {DATA} {DATA} {LOAD} 1000000000 10000 {SAVE} MP_PP0_LAYERS=6
deepseek_v3 | HEAD | examples/deepseek_v3/run_mcore_deepseek.sh | \
dsw A37B 1 8 1e-5 1e-6 1024 1024 bf16 8 8 1 1 16 true true false false sel 1.0 \
100000 {DATA} {DATA} {LOAD} 1000000000 10000 {SAVE} MP_PP0_LAYERS=5
moonlight_a3b | HEAD | examples/moonlight/run_mcore_moonlight.sh | \
dsw A3B 1 8 1e-5 1e-6 1024 1024 bf16 1 1 1 1 8 true true false none false \
100000 {DATA} {DATA} {LOAD} 1000000000 10000 {SAVE}
qwen3_next_a3b | HEAD | examples/qwen3_next/run_mcore_qwen3.sh | \
dsw A3B 1 8 1e-5 1e-6 1024 1024 bf16 1 1 1 1 8 true true false false none false \
100000 {DATA} {DATA} {LOAD} 1000000000 10000 {SAVE}
"""


def table(folder: str, repository: str, text: str) -> list[Source]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return [Source(folder, repository, *row) for row in rows]


def recipe(name: str) -> Source:
    path = f"tests/functional_tests/test_cases/{name}/model_config.yaml"
    given = "TOKENIZER_TYPE=HuggingFaceTokenizer" if name.startswith("nemotron/") else ""
    return Source("megatron-recipes", MEGATRON, name.split("/")[1], "HEAD", path, given)


SOURCES = [
    *table("megatron-examples", MEGATRON, EXAMPLES),
    *table("megatron-examples", MEGATRON, MODELOPT),
    *table("megatron-old", MEGATRON, OLD_RELEASES),
    *map(recipe, RECIPES),
    *table("pai", PAI, PAI_SCRIPTS),
]

# for each of 3 replicas, on 2 x a100_80g_sxm with vLLM 0.32: sh vllm.sh
# option names: docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: 015a47e1), docs/cli/serve; read 2026-11
# checkpoint: Qwen/Qwen3-32B, computed in fp16
# draft: spd_qwen_0_6b, of which no id on Hugging Face is known here; put a folder in its place
# the draft was simulated on 1 of 2 devices; vLLM wants the target's degree for it
vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 \
    --max-num-seqs 32 --max-model-len 7168 --gpu-memory-utilization 0.9 --dtype float16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 7168 \
    --speculative-config '{"method": "draft_model", "model": "spd_qwen_0_6b", "draft_tensor_parallel_size": 2, "num_speculative_tokens": 5, "num_speculative_tokens_per_batch_size": [[1, 10, 5], [11, 12, 4], [13, 22, 5], [23, 26, 4], [27, 32, 3]]}'

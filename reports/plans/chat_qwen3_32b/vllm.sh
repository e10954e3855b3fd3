# each of 3 replicas; option names: vLLM 0.25: docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: 015a47e1), engine arguments; read 2026-11
vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 \
    --max-num-seqs 32 --max-model-len 7168 --gpu-memory-utilization 0.9 --dtype float16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 7168 \
    --speculative-config '{"method": "draft_model", "model": "spd_qwen_0_6b", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 5, "num_speculative_tokens_per_batch_size": [[1, 10, 5], [11, 12, 4], [13, 22, 5], [23, 26, 4], [27, 32, 3]]}'

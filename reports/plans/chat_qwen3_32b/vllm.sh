# each of 3 replicas; models by their names here
vllm serve qwen3_32b --tensor-parallel-size 2 --max-num-seqs 32 \
    --speculative-config '{"method": "draft_model", "model": "spd_qwen_0_6b", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 5, "num_speculative_tokens_per_batch_size": [[1, 10, 5], [11, 12, 4], [13, 22, 5], [23, 26, 4], [27, 32, 3]]}'

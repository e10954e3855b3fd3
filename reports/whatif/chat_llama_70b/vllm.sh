# 1 replica; models by their names here
vllm serve llama_3_1_70b --tensor-parallel-size 8 --max-num-seqs 16 \
    --speculative-config '{"method": "draft_model", "model": "llama_3_2_1b", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 2, "num_speculative_tokens_per_batch_size": [[1, 16, 2]]}'

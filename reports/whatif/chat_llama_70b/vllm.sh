# 1 replica; option names: vLLM 0.25: docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: 015a47e1), engine arguments; read 2026-11
vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8 \
    --max-num-seqs 16 --max-model-len 5120 --gpu-memory-utilization 0.9 --dtype bfloat16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 5120 \
    --speculative-config '{"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 2, "num_speculative_tokens_per_batch_size": [[1, 16, 2]]}'

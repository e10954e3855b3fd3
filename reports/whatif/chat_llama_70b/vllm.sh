# for 1 replica, on 8 x rtx_3090 with vLLM 0.32: sh vllm.sh
# option names: docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: 015a47e1), docs/cli/serve; read 2026-11
# checkpoint: meta-llama/Llama-3.1-70B-Instruct, computed in bf16
# draft: meta-llama/Llama-3.2-1B-Instruct, computed in bf16
# the draft was simulated on 1 of 8 devices; vLLM wants the target's degree for it
vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8 \
    --max-num-seqs 16 --max-model-len 5120 --gpu-memory-utilization 0.9 --dtype bfloat16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 5120 \
    --speculative-config '{"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct", "draft_tensor_parallel_size": 8, "num_speculative_tokens": 2, "num_speculative_tokens_per_batch_size": [[1, 16, 2]]}'

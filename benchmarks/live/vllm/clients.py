"""``vllm bench serve`` several times in one process, so that vLLM is imported once.

Reads a line of arguments at a time from the standard input, a JSON list of strings; answers each
with a line.
"""

from __future__ import annotations

import asyncio
import json
import sys

from vllm.benchmarks.serve import add_cli_args, main_async
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    """Run each of the benchmarks that the standard input names."""
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    for line in sys.stdin:
        asyncio.run(main_async(parser.parse_args(json.loads(line))))
        print("\ndone", flush=True)


if __name__ == "__main__":
    main()

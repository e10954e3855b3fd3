"""What stands beside a device where nobody said otherwise: its maker's engine, and the link between
the devices of one server.
"""

from collections.abc import Mapping

OTHERS_ENGINE = "vllm"
ENGINES: Mapping[str, str] = {
    "NVIDIA": "vllm",
    "AMD": "vllm",
    "Apple": "llama_cpp_metal",
    "Intel": "llama_cpp_cpu",
}
"""Engine by maker of the device; of any other ``OTHERS_ENGINE``."""
LINKS: Mapping[str, tuple[str, ...]] = {
    "nvlink_a100": ("a100_40g_sxm", "a100_80g_sxm"),
    "nvlink_a800": ("a800_80g_sxm",),
    "nvlink_h100": ("h100_sxm", "h100_94g_sxm", "h200_sxm", "h20", "h800_sxm"),
    "nvlink_b200": ("b200_sxm", "b300_sxm"),
    "pcie_4_l40s": ("l40s", "l40"),
    "pcie_5_x16": ("rtx_pro_6000", "rtx_5090", "h100_pcie", "h100_nvl", "h800_pcie_80g"),
    "pcie_4_x16": (
        "rtx_3090",
        "rtx_4090",
        "rtx_6000_ada",
        "rtx_a6000",
        "a10g",
        "a30",
        "a40",
        "l4",
        "a100_80g_pcie",
    ),
}
"""Devices that a link joins within one server."""


def usual_engine(maker: str | None) -> str:
    """Return the engine that drives a maker's devices."""
    return ENGINES.get(maker or "", OTHERS_ENGINE)


def usual_link(device: str) -> str | None:
    """Return the link between devices of one server; None where each serves alone."""
    for link, members in LINKS.items():
        if device in members:
            return link
    return None

"""What the suite ran on."""
import os
import platform
import re
import subprocess
import time
from pathlib import Path


def cores():
    return len(os.sched_getaffinity(0))


def cpu_name(text):
    """Its name in /proc/cpuinfo, with the family where a virtual machine hides the model."""
    found = {
        key: (re.findall(rf"{key}\s*: (.*)", text) or [""])[0]
        for key in ("model name", "cpu family")
    }
    name = found["model name"] or platform.processor()
    return (
        name
        if re.search(r"\d", name) or not found["cpu family"]
        else f"{name}, family {found['cpu family']}"
    )


def describe(device="cpu"):
    text = Path("/proc/cpuinfo").read_text()
    flags = (re.findall(r"flags\s*: (.*)", text) or [""])[0].split()
    result = {
        "cpu": cpu_name(text),
        "cores": cores(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "instructions": [
            name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags
        ],
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
    }
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        result["gpu"] = subprocess.run(
            query, check=True, capture_output=True, text=True
        ).stdout.strip()
    return result

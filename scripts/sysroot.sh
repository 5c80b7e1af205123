#!/usr/bin/env bash
# sysroot.sh ARCH PACKAGE...
# Unpacks Debian packages of another architecture, and all that they need, into
# .deps/sysroot-ARCH/. Installs nothing on this machine and needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$1
shift
case $arch in
  aarch64) debian=arm64 ;;
  *) echo "sysroot.sh: aarch64, not $arch" >&2 && exit 2 ;;
esac
root=$PWD/.deps/sysroot-$arch
wanted="libc6-dev libstdc++6 libgomp1 $*"
[ "$(cat "$root/.complete" 2>/dev/null)" = "$wanted" ] && exit 0

echo "Fetching the $arch packages of the sysroot (35 MB) ..."
rm -rf "$root"
apt=$root/.apt
mkdir -p "$apt"/{lists,archives}/partial
touch "$apt/status"
apt_get() {
  apt-get -qq -o APT::Architecture="$debian" -o APT::Architectures="$debian" \
    -o APT::Install-Recommends=false -o Debug::NoLocking=true -o Dir::State="$apt" \
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" "$@" >/dev/null
}
apt_get update
# shellcheck disable=SC2086 # several packages
apt_get install -y --download-only $wanted
for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -rf "$apt" "$root"/usr/share/{doc,man,locale}

# Absolute links would lead out of the sysroot.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -snf "$(realpath -ms --relative-to="$(dirname "$link")" "$root$(readlink "$link")")" "$link"
done
echo "$wanted" >"$root/.complete"

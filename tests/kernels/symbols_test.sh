#!/bin/sh
# symbols_test.sh NM ISA OBJECT...
# Checks that the object files of an instruction set emit no inline function or template instance
# outside its namespace. The linker keeps one copy of such a weak function for the whole program. If
# that is the AVX-512 one, older CPUs stop at an illegal instruction. Inline variables (not W in the
# output of nm) are harmless. The mangled name 8megatron7kernels4avx2 is megatron::kernels::avx2.
set -u
nm=$1 isa=$2
shift 2
namespace="${#isa}$isa"
status=0
for object in "$@"; do
  symbols=$("$nm" --defined-only "$object") || exit 1
  if ! echo "$symbols" | grep -q "8megatron7kernels$namespace"; then
    echo "$object defines nothing in megatron::kernels::$isa"
    status=1
  fi
  outside=$(echo "$symbols" | awk '$2 == "W" && $3 ~ /^_Z/ { print $3 }' | grep -v "$namespace")
  if [ -n "$outside" ]; then
    echo "$object emits weak functions outside megatron::kernels::$isa:"
    echo "$outside" | c++filt
    status=1
  fi
done
exit $status

#!/bin/sh
# Rebuild the code objects that the emulator's tests run, with Debian's clang (clang-19 and lld-19).
# They are kept in the repository, compressed, so that the tests need neither.
set -e
cd "$(dirname "$0")/../tests/device/amd/data"
for target in gfx1030 gfx1100 gfx90a; do
    wave=32
    [ $target = gfx90a ] && wave=64
    for source in general idioms; do
        clang-19 -x cl -cl-std=CL2.0 -nogpulib -target amdgcn-amd-amdhsa -mcpu=$target -O3 -DW=$wave \
            -Wno-everything -o $source.$target.co $source.cl
        zstd -q --rm -19 -f $source.$target.co
    done
done

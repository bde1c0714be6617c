#!/bin/sh
# The system packages that tests want beside a C compiler, on Debian: AMD's HIP runtime and the headers of the
# layer below it (tests/device/hip), the LLVM inside that HIP, the linker and tools that ours are checked
# against, a browser for the pages (tests/report, tests/matrix), and a database server (tests/matrix). Installs
# what is missing; where that fails, the tests that need it are skipped and say so.
#
#   sudo scripts/ci_packages.sh
packages="libamdhip64-5 libhsa-runtime-dev libllvm15 lld-19 llvm-19 chromium chromium-driver postgresql"

missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update || exit 1
status=0
for package in $missing; do  # one by one: a release that lacks one has the others
    apt-get -qq install -y --no-install-recommends "$package" >/dev/null || status=1
done
exit $status

# Shared by the scripts in tools/ and .ci/run, which source it: the packages and the way to Bazel.
# Sets `root`, the top of this tree; works from any folder.

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)

# tools/run, .ci/run, ...: the script that talks.
me=$(basename "$(dirname "$(readlink -f "$0")")")/$(basename "$0")

say() { echo "$me: $*" >&2; }

die() {
  say "$*"
  exit 1
}

# missing_packages NEED...: those of tools/packages.txt, needed for one of NEED, that aren't installed.
missing_packages() {
  local name need _
  while read -r name need _; do
    [[ -z $name || $name == \#* || " $* " != *" $need "* ]] && continue
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || echo "$name"
  done <"$root/tools/packages.txt"
}

# ensure_packages NEED...: installs what is missing, and nothing else.
ensure_packages() {
  [[ $(uname -m) == x86_64 ]] || die "Pando's CPU kernels are for x86-64; this machine is $(uname -m)."
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "this needs Debian 12, or a system with its packages: apt-get is not here. tools/packages.txt lists what Pando uses."
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      die "packages are missing; as root, run: apt-get update && $install"
    sudo=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  # Old lists do for what they have; a failed update shows in the install.
  "${apt[@]}" update </dev/null >&2 || say "apt-get update failed; going on with the lists that are here"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >&2 ||
    die "apt-get could not install them (Pando is made for Debian 12); to see why: $install"
}

# in_root_bazel ARGS...: Bazel in this tree, wherever the caller stands.
in_root_bazel() { (cd "$root" && run_bazel "$@"); }

# run_bazel ARGS...: Bazel in the current folder.
run_bazel() { HOME=${HOME:-/} USER=${USER:-$(id -u)} command bazel "${bazel_startup[@]}" "$@"; }

# Bazel keeps its files under $HOME/.cache; where that can't be written, in the temporary folder.
bazel_startup=()
if [[ -z ${HOME-} ]] || ! mkdir -p "$HOME/.cache/bazel" 2>/dev/null || [[ ! -w $HOME/.cache/bazel ]]; then
  bazel_startup=("--output_user_root=${TMPDIR:-/tmp}/pando-bazel-$(id -u)")
fi

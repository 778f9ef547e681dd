#!/bin/bash
# tools/run setup: what it installs, and what it says where it can't. Stand-ins for Debian's own
# programs, first in PATH, note what they were asked for.
# usage: setup_test.sh TOOLS_RUN
set -u
run=$(readlink -f "$1")
stubs=$(mktemp -d)
trap 'rm -rf "$stubs"' EXIT
failures=0

# stub NAME BODY: a program NAME that runs BODY.
stub() {
  printf '#!/bin/bash\n%s\n' "$2" >"$stubs/$1"
  chmod +x "$stubs/$1"
}

# setup ARGS...: runs it with PATH=$path; its words are in $said, its status in $status.
setup() {
  said=$(PATH=${path:-$stubs:/usr/bin:/bin} "$run" setup "$@" 2>&1)
  status=$?
}

expect() { # expect WHAT CONDITION...
  local what=$1
  shift
  "$@" || {
    echo "FAILED: $what; it said (status $status): $said"
    failures=$((failures + 1))
  }
}

contains() { [[ $said == *"$1"* ]]; }
lacks() { [[ $said != *"$1"* ]]; }

stub uname 'echo x86_64'
stub id 'echo 0'
stub apt-get "echo \"\$*\" >>$stubs/asked; [[ \$* != *install* ]] || touch $stubs/installed"
stub dpkg-query "[[ -e $stubs/installed || \$* != *g++* && \$* != *clang* ]] || exit 1; echo installed"

setup
expect "succeeds" [ "$status" = 0 ]
expect "updates, then installs what is missing and no more" [ "$(sed 's/-q [^ ]* [^ ]* //' "$stubs/asked")" = \
  $'update\ninstall -y --no-install-recommends g++' ]
: >"$stubs/asked"
setup
expect "the second time there is nothing to do" [ "$status" = 0 ]
expect "apt-get isn't called" [ ! -s "$stubs/asked" ]

rm "$stubs/installed"
setup check
expect "the checks' packages come when asked for" contains "g++ clang-format clang-tidy"

rm "$stubs/installed"
stub apt-get '[[ $* != *install* ]]'
setup
expect "a failed install ends it" [ "$status" = 1 ]
expect "and the command is given" contains "to see why: apt-get install -y --no-install-recommends g++"

# From here the folder holds all that tools/run uses, so that sudo and apt-get are absent.
for program in bash basename cat dirname env mkdir mktemp readlink sed touch; do
  ln -s "$(command -v "$program")" "$stubs/$program"
done
path=$stubs
stub id 'echo 1000'
setup
expect "without root and sudo it fails" [ "$status" = 1 ]
expect "with the command for root" contains "as root, run: apt-get update && apt-get install -y --no-install-recommends g++"

stub sudo "echo \"sudo \$*\"; exec \"\$@\""
stub apt-get "touch $stubs/installed"
setup
expect "with sudo it installs" [ "$status" = 0 ]
expect "through it" contains "sudo env DEBIAN_FRONTEND=noninteractive apt-get"

rm "$stubs/apt-get"
setup
expect "another system is refused" [ "$status" = 1 ]
expect "in a line" contains "this needs Debian 12"

stub uname 'echo aarch64'
setup
expect "another processor is refused" contains "this machine is aarch64"

"$run" no-such-command 2>"$stubs/said" && failures=$((failures + 1))
said=$(<"$stubs/said")
expect "an unknown command shows the usage" contains "usage: tools/run"
expect "and nothing of Bazel" lacks "INFO:"

exit $((failures > 0))

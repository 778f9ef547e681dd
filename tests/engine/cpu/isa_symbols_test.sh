#!/bin/bash
# check_isa_symbols.py must refuse the fixture with an inline function that escapes from its level.
# (That it accepts good kernels is the test that cpu_kernels makes for isa_fixture_good.)
# usage: isa_symbols_test.sh CHECKER BAD_ARCHIVE
set -u
output=$("$1" v4 "$2" 2>&1)
if [[ $? -ne 0 && $output == *"pando::EscapedFromItsLevel(float) (W) is not in namespace isa_v4"* ]]; then
  exit 0
fi
echo "check_isa_symbols.py accepted $2, or said the wrong thing:"
echo "$output"
exit 1

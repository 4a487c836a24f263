#!/usr/bin/env bash
# Copyright The JobMesh Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of the module for FUZZTIME (10m), FUZZ_JOBS (1) of them at once with FUZZ_PARALLEL (1) workers each, and
# prints how many executions each had. FUZZ is a regular expression of the targets' names. Go keeps what a target fails on
# under testdata/fuzz, to be committed with the fix; and what merely taught it something in its own cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export FUZZTIME=${FUZZTIME:-10m} FUZZ_PARALLEL=${FUZZ_PARALLEL:-1}
out=$(mktemp -d)
export out
trap 'rm -rf "$out"' EXIT

# one fuzzes one target: <package's folder> <name>.
one() {
  local log=$out/${1//\//_}.$2 failed=0
  go test -run='^$' -fuzz="^$2\$" -fuzztime="$FUZZTIME" -parallel="$FUZZ_PARALLEL" "./$1" >"$log" 2>&1 || failed=1
  local last
  last=$(grep '^fuzz: elapsed' "$log" | tail -1 || true)
  printf '%-28s %-24s %12s executions, %s new interesting\n' "$2" "$1" \
    "$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' <<<"$last")" "$(sed -n 's/.*new interesting: \([0-9]*\).*/\1/p' <<<"$last")"
  if ((failed)); then
    echo "FAILED: $1 $2" >&2
    cat "$log" >&2
    return 1
  fi
}
export -f one

mapfile -t targets < <(go list -f '{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}
{{end}}' ./... | xargs grep -H '^func Fuzz' |
  sed -E "s|^$PWD/(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*)\(.*|\1 \2|" | grep -E "(${FUZZ:-.})[^ ]*\$" | sort)
if ((${#targets[@]} == 0)); then
  echo "fuzz: no target matches ${FUZZ:-.}" >&2
  exit 1
fi
echo "${#targets[@]} targets, $FUZZTIME each"
printf '%s\n' "${targets[@]}" | xargs -P "${FUZZ_JOBS:-1}" -L 1 bash -c 'one "$@"' one

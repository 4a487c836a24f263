#!/usr/bin/env bash
# Copyright The JobMesh Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes a Go module that pins the dependencies of a Kubernetes release, for build.sh.
#
#   test/controlplane/write-module.sh VERSION FOLDER TAGS COMMAND...
#
# k8s.io/kubernetes requires its published parts at v0.0.0 and replaces them by folders of its own, which only works inside its
# checkout: here they are replaced by the modules of the same release. The programs run by the Go settings (GODEBUG) of their own
# release, whatever Go compiles them.
set -euo pipefail

version=$1 folder=$2 tags=$3
commands=("${@:4}")
parts=v0.${version#1.}

mkdir -p "$folder"
cd "$folder"
printf 'module kubernetes\n' >go.mod
upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
settings=$(sed -n 's/^godebug default=//p' "$upstream")
if [[ -z $settings ]]; then
  settings=$(sed -nE 's/^go ([0-9]+\.[0-9]+).*/go\1/p' "$upstream")
fi
{
  printf 'module github.com/jobmesh/jobmesh/test/controlplane/kubernetes-%s\n\ngo 1.26.0\n\ngodebug default=%s\n\ntool (\n' \
    "$version" "$settings"
  printf '\tk8s.io/kubernetes/cmd/%s\n' "${commands[@]}"
  printf ')\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$version"
  grep -oE '^\s+k8s.io/[a-z-]+ => ./staging' "$upstream" | awk -v parts="$parts" '{print "\t" $1 " => " $1 " " parts}'
  printf ')\n'
} >go.mod
# Resolves what the commands import, and no more: tidy would want the tests of everything as well.
for system in linux darwin; do
  GOOS=$system GOFLAGS="${GOFLAGS:-} -mod=mod" go list -tags "$tags" -deps tool >/dev/null
done

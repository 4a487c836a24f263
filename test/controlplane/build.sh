#!/usr/bin/env bash
# Copyright The JobMesh Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds a Kubernetes control plane (kube-apiserver, kube-controller-manager, kube-scheduler; for the default version kubectl,
# too) and etcd from their Go modules, into a cache folder outside the checkout. Needs Go and nothing else; no root.
#
#   test/controlplane/build.sh [VERSION [COMMAND...]]
#
# VERSION is a Kubernetes release without the v; the default stands in the file VERSION. Each COMMAND, such as kubelet, is
# built too. The folder with the binaries is the one line on standard output; progress goes to standard error. A folder
# that is there already holds the whole control plane, and what is in it is whole: folder and binaries appear by a rename.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${1:-$(cat "$here/VERSION")}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/jobmesh/kubernetes
target=$cache/$version
commands=(kube-apiserver kube-controller-manager kube-scheduler)
[[ $version != "$(cat "$here/VERSION")" ]] || commands+=(kubectl)
more=("${@:2}")

say() { echo "controlplane: $*" >&2; }

if [[ ! $version =~ ^1\.[0-9]+\.[0-9]+$ ]]; then
  say "the version must look like 1.37.2, got \"$version\""
  exit 2
fi
# complete tells whether there is nothing to build.
complete() {
  [[ -d $target ]] || return 1
  local command
  for command in "${more[@]}"; do
    [[ -x $target/$command ]] || return 1
  done
}

if complete; then
  echo "$target"
  exit 0
fi

mkdir -p "$cache"
# Two builds at once would only slow each other down: the second one waits and finds the folder of the first.
if command -v flock >/dev/null; then
  exec 9>"$cache/.lock"
  flock -n 9 || { say "another build is running, waiting for it"; flock 9; }
  if complete; then
    echo "$target"
    exit 0
  fi
fi

work=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Clouds' SDKs are most of what releases up to 1.30 would compile, and none is needed. Newer releases do not know the tag.
tags=providerless

# kubernetes_module prints the folder of the module that pins this version's dependencies. The default version's is
# committed, and so are others', as kubernetes-VERSION; for the rest write-module.sh writes one on the spot.
kubernetes_module() {
  if [[ $version == "$(cat "$here/VERSION")" ]]; then
    echo "$here/kubernetes"
  elif [[ -d $here/kubernetes-$version ]]; then
    echo "$here/kubernetes-$version"
  else
    say "writing a module for Kubernetes $version"
    "$here/write-module.sh" "$version" "$work/module" "$tags" "${commands[@]}" "${more[@]}" >&2
    echo "$work/module"
  fi
}

export CGO_ENABLED=0
module=$(kubernetes_module)
mkdir "$work/bin" "$work/more"

stamp=k8s.io/component-base/version
minor=${version#1.}

# build_command builds one of Kubernetes' commands into a folder.
build_command() {
  say "building $1"
  (cd "$module" && go build -tags "$tags" \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}" \
    -o "$2/" "k8s.io/kubernetes/cmd/$1")
}

if [[ ! -d $target ]]; then
  say "building etcd"
  (cd "$here/etcd" && go build -ldflags "-s -w" -o "$work/bin/etcd" go.etcd.io/etcd/server/v3)
  say "building Kubernetes $version: about 12 minutes on 2 cores the first time"
  for command in "${commands[@]}"; do
    build_command "$command" "$work/bin"
  done
  mv -T "$work/bin" "$target" 2>/dev/null || { [[ -d $target ]] || mv "$work/bin" "$target"; }
fi

for command in "${more[@]}"; do
  if [[ ! -x $target/$command ]]; then
    build_command "$command" "$work/more"
    mv "$work/more/$command" "$target/$command"
  fi
done
say "done"
echo "$target"

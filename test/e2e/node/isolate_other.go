// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package node

import "errors"

var errNotLinux = errors.New("namespaces need Linux")

// Run fails: Check has said why before.
func Run(func(dir string) ([]string, error)) (int, error) { return 1, errNotLinux }

// Inside fails, as Run does.
func Inside(string, ...string) (int, error) { return 1, errNotLinux }

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package main

import "syscall"

// processAttributes keep the terminal's Ctrl-C away from the operator, whose end is the program's to order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

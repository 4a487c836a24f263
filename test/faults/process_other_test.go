// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package faults

import "syscall"

// processAttributes keep the terminal's Ctrl-C away from the children, whose end is the test's to order.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

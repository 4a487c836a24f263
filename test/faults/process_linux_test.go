// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import "syscall"

// processAttributes keep the terminal's Ctrl-C away from the children, whose end is the test's to order, and end them with
// the program that started them.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// processAttributes keep the terminal's Ctrl-C away from the operator, whose end is the program's to order, and end it with
// the program.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

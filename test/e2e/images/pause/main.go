// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces open: it sleeps until it is told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}

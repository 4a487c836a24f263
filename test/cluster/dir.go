// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the folder that a cluster writes to, and how one is told that nobody uses any more.

package cluster

import (
	"os"
	"path/filepath"
	"syscall"
)

const (
	// dirPrefix begins the names of clusters' folders.
	dirPrefix = "jobmesh-cluster-"
	// lockFile in a folder is locked for as long as its program lives. A process ID would not tell: a program in a PID
	// namespace of its own sees none of the others.
	lockFile = "lock"
)

// makeDir makes a folder that removeOrphans leaves alone until the returned file is closed, be it by the end of the program.
func makeDir() (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return "", nil, err
	}
	// Under a lock from its first moment on: it appears under its name only when it is locked.
	early := filepath.Join(dir, "early")
	if lock, err = os.OpenFile(early, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600); err == nil {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			err = os.Rename(early, filepath.Join(dir, lockFile))
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, lock, nil
}

// removeOrphans removes the folders of clusters whose program was killed before it could do so itself.
func removeOrphans() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*", lockFile))
	for _, path := range locks {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // another user's
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}

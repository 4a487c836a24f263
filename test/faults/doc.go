// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults breaks what the operator stands on (its network, its API server, its leader, its clock's neighbours) while Jobs
// finish, and watches that nothing is lost, nothing is quit before its time, and nothing leaks. The operator is its own binary, so
// that it can be killed, and so that its goroutines and connections are its own.
//
// All that is here are tests. They are a module of their own, because of what only they need.
package faults

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a user names on the command line: pod/NAME, job/NAME, or a bare NAME, as kubectl takes them.

package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// target is a pod, or a Job for all of its pods.
type target struct {
	job  bool
	name string
}

func (t target) String() string {
	if t.job {
		return "job/" + t.name
	}
	return "pod/" + t.name
}

// checkNamespace refuses what names no namespace, before it becomes part of a request's path. The empty one is the context's.
func checkNamespace(name string) error {
	if name == "" {
		return nil
	}
	if faults := validation.ValidateNamespaceName(name, false); len(faults) > 0 {
		return fmt.Errorf("%q is no name of a namespace: %s", name, faults[0])
	}
	return nil
}

// isJob knows kubectl's names of the two resources.
var isJob = map[string]bool{
	"pod": false, "pods": false, "po": false,
	"job": true, "jobs": true, "job.batch": true, "jobs.batch": true, "job.v1.batch": true, "jobs.v1.batch": true,
}

// parseTargets reads TYPE/NAME… and NAME…, and also TYPE NAME….
func parseTargets(args []string) ([]target, error) {
	resource := "pod"
	if len(args) > 1 {
		if _, isType := isJob[strings.ToLower(args[0])]; isType {
			resource, args = args[0], args[1:]
		}
	}
	var targets []target
	for _, arg := range args {
		of, name, slash := strings.Cut(arg, "/")
		if !slash {
			of, name = resource, arg
		}
		job, known := isJob[strings.ToLower(of)]
		if !known {
			return nil, fmt.Errorf("%q is neither pod/NAME nor job/NAME", arg)
		}
		if faults := validation.NameIsDNSSubdomain(name, false); len(faults) > 0 {
			return nil, fmt.Errorf("%q is no name of a pod or Job: %s", name, faults[0])
		}
		targets = append(targets, target{job, name})
	}
	return targets, nil
}

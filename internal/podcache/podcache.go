// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podcache says which pods the operator keeps in memory, and what of them.
package podcache

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// Selector keeps on the server what can never be stuck: the pods of Deployments and the like (restartPolicy Always, which no
// Job's pod can have), and finished pods. A pod that finishes arrives as a deletion.
func Selector() fields.Selector {
	return fields.ParseSelectorOrDie("spec.restartPolicy!=Always,status.phase!=Succeeded,status.phase!=Failed")
}

// ByObject are the cache's settings for pods.
func ByObject() crcache.ByObject {
	return crcache.ByObject{
		Field:     Selector(),
		Transform: transform,
		// Nothing changes a cached pod, so a copy on every read would be waste.
		UnsafeDisableDeepCopy: new(true),
	}
}

var _ cache.TransformFunc = transform

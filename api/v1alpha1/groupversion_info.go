// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the JobMesh API: the JobMeshPolicy, which says how the pods of Jobs in one namespace are reaped.
//
// +kubebuilder:object:generate=true
// +groupName=jobmesh.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of every type in this package.
	GroupVersion = schema.GroupVersion{Group: "jobmesh.dev", Version: "v1alpha1"}

	// SchemeBuilder collects the functions that register this package's types.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's types with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &JobMeshPolicy{}, &JobMeshPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

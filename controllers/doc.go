// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers holds the two controllers: one decides and acts on the pods of Jobs, the other answers in the status of
// each JobMeshPolicy.
//
// The way of the data is one way: gather, decide, act, confirm, record. Decisions never do I/O (package verdict), and
// actions never decide.
package controllers

// The rights of the operator, exactly. Leader election has a Role of its own in the operator's namespace.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/portforward,verbs=create;get
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get
// +kubebuilder:rbac:groups=jobmesh.dev,resources=jobmeshpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=jobmesh.dev,resources=jobmeshpolicies/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

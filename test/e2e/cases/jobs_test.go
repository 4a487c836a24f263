// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file gives the makers of Jobs the short names that the cases call them by.

package cases

import "github.com/jobmesh/jobmesh/test/e2e/workload"

const proxyName = workload.ProxyName

var (
	job            = workload.Job
	app            = workload.App
	with           = workload.With
	annotated      = workload.Annotated
	named          = workload.Named
	onFailure      = workload.OnFailure
	meshed         = workload.Meshed
	meshedFirst    = workload.MeshedFirst
	meshedNatively = workload.MeshedNatively
	env            = workload.Env
	lingering      = workload.Lingering
)

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a decision costs: it is made for every event of every Job's pod.

package verdict

import (
	"strconv"
	"testing"

	build "github.com/jobmesh/jobmesh/test/builders"
)

func BenchmarkDecide(b *testing.B) {
	large := build.MakePod("pod")
	for i := range 999 {
		large.App("app-"+strconv.Itoa(i), build.Exited(0))
	}
	for name, pod := range map[string]*build.Pod{
		"ordinary": build.MakePod("pod").Init("istio-init", build.Exited(0)).App("app", build.Exited(0)).
			Proxy(build.Running(), build.Args("proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"), build.Env("PROXY_CONFIG", "{}\n")),
		"configured":      stuckPod().Annotation("proxy.istio.io/config", "concurrency: 2\nstatusPort: 15020\nterminationDrainDuration: 10s\n"),
		"1000 containers": large.Proxy(build.Running()),
	} {
		b.Run(name, func(b *testing.B) {
			in := test{pod: pod}.input()
			b.ReportAllocs()
			for b.Loop() {
				if d := Decide(in); d.Verdict != Quit {
					b.Fatalf("got %s %s", d.Verdict, d.Reason)
				}
			}
		})
	}
}

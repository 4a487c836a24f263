// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A pod's short form says of its proxy what the pod says, whatever a tenant wrote into the texts that were shortened.

package istio_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobmesh/jobmesh/internal/istio"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func FuzzShort(f *testing.F) {
	long := strings.Repeat("x", 2000)
	f.Add("15020", "statusPort: 15098", `{"statusPort":15097}`, "true", "proxy sidecar")
	f.Add("0"+long, "#"+long+"\nstatusPort: 15098\nterminationDrainDuration: 1h", long, long, long+" proxy router")
	f.Add("", "terminationDrainDuration: 00000000001s"+strings.Repeat(" ", 2000), "status_port: 1e4 #"+long, "t", strings.Repeat("-v ", 80)+"proxy -x router")
	f.Add("+00000000000000000015020", "{statusPort: [1], x: "+long+"}", "&a [*a]", "1", "proxy")
	f.Fuzz(func(t *testing.T, port, annotation, variable, disable, words string) {
		pod := build.MakePod("p").Annotation(portAnnotation, port).Annotation(configAnnotation, annotation).
			App("app", build.Running()).Proxy(build.Running(), build.Args(strings.Fields(words)...), build.Env(configVariable, variable),
			build.Env("DISABLE_ENVOY", disable)).Obj()
		if port == "" {
			delete(pod.Annotations, portAnnotation)
		}
		short := pod.DeepCopy()
		for key, value := range short.Annotations {
			short.Annotations[key] = istio.ShortAnnotation(key, value)
		}
		proxy := &short.Spec.Containers[1]
		proxy.Env = istio.ShortVariables(proxy)
		proxy.Command, proxy.Args = istio.ShortCommand(proxy)

		if diff := cmp.Diff(istio.Inspect(pod), istio.Inspect(short), cmpopts.IgnoreFields(istio.Proxy{}, "Container")); diff != "" {
			t.Errorf("the short form tells another story (-full +short):\n%s", diff)
		}
		if len(short.Annotations[portAnnotation]) > 16 {
			t.Errorf("%d bytes of a port are left", len(short.Annotations[portAnnotation]))
		}
		size := len(strings.Join(proxy.Args, "")) + len(strings.Join(proxy.Command, ""))
		for _, value := range short.Annotations {
			size += len(value)
		}
		for _, variable := range proxy.Env {
			size += len(variable.Value)
		}
		if size > 9<<10 {
			t.Errorf("%d bytes are left", size)
		}
	})
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Whatever a tenant writes into the three sources, the status port is a port or none, from the first source that counts.

package istio_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jobmesh/jobmesh/internal/istio"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func FuzzStatusPort(f *testing.F) {
	for _, text := range []string{
		"", "15020", "0", "-1", " 15020", "+15020", "65536", "1e4", "statusPort: 15099", `{"statusPort":"15099"}`, "status_port: 15099.0",
		"statusPort: .nan", "statusPort: 0x3aac", "a: &a [*a]", "{{", "terminationDrainDuration: -1s", "terminationDrainDuration: 9999999h",
	} {
		f.Add(text, text, text)
	}
	f.Fuzz(func(t *testing.T, port, annotation, variable string) {
		inspect := func(changes ...func(*build.Pod)) istio.Proxy {
			p := build.MakePod("p").App("app", build.Running())
			for _, change := range changes {
				change(p)
			}
			proxy := istio.Inspect(p.Proxy(build.Running(), build.Env("PROXY_CONFIG", variable)).Obj())
			if proxy.StatusPort.Port < 0 || proxy.StatusPort.Port > 65535 || proxy.Drain <= 0 || proxy.Drain.Minutes() > 10 {
				t.Fatalf("out of bounds: %+v", proxy)
			}
			return proxy
		}
		annotate := func(key, value string) func(*build.Pod) {
			return func(p *build.Pod) { p.Annotation(key, value) }
		}

		byPort := inspect(annotate("status.sidecar.istio.io/port", port), annotate("proxy.istio.io/config", annotation)).StatusPort
		if n, err := strconv.Atoi(port); (byPort.Port != 0) != (err == nil && n >= 1 && n <= 65535) || byPort.Port != 0 && int(byPort.Port) != n {
			t.Errorf("the port annotation %q is read as %d", port, byPort.Port)
		}
		byConfig := inspect(annotate("proxy.istio.io/config", annotation)).StatusPort
		byVariable := inspect().StatusPort
		if byConfig.Port == 0 || byVariable.Port == 0 {
			t.Error("a proxy's config alone disables the status port")
		}
		if byConfig.Source != "proxy.istio.io/config" && byConfig != byVariable {
			t.Errorf("an annotation that says nothing changes what the variable says: %s", cmp.Diff(byVariable, byConfig))
		}
	})
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The status port: every source, every odd value, and input made to hurt.

package istio_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/istio"
	build "github.com/jobmesh/jobmesh/test/builders"
)

const (
	portAnnotation   = "status.sidecar.istio.io/port"
	configAnnotation = "proxy.istio.io/config"
	configVariable   = "PROXY_CONFIG"
)

var byDefault = istio.StatusPort{Port: 15020, Source: "default"}

func portOf(p *build.Pod, env ...func(*corev1.Container)) istio.StatusPort {
	return istio.Inspect(p.App("app", build.Running()).Proxy(build.Running(), env...).Obj()).StatusPort
}

func TestStatusPortAnnotation(t *testing.T) {
	for value, want := range map[string]int32{
		"15020": 15020, "1": 1, "65535": 65535, "+15020": 15020, "015020": 15020, // what strconv.Atoi takes, as the agent does

		"0": 0, "-1": 0, "-15020": 0, "65536": 0, "70000": 0, "4294982316": 0, "": 0, " 15020": 0, "15020 ": 0, "15020\n": 0,
		"1e4": 0, "15020.0": 0, "0x3aac": 0, "15_020": 0, `"15020"`: 0, "http": 0, "15020/tcp": 0, "１５０２０": 0, "\x00": 0,
		strings.Repeat("9", 100_000): 0, strings.Repeat("0", 100_000) + "1": 1,
	} {
		t.Run(fmt.Sprintf("%.20q", value), func(t *testing.T) {
			got := portOf(build.MakePod("p").Annotation(portAnnotation, value))
			if diff := cmp.Diff(istio.StatusPort{Port: want, Source: portAnnotation}, got); diff != "" {
				t.Errorf("status port (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusPortInProxyConfig(t *testing.T) {
	const unset = 0
	tests := map[string]struct {
		config string
		want   int32
	}{
		"YAML":                          {"statusPort: 15099", 15099},
		"YAML among other fields":       {"concurrency: 2\nstatusPort: 15099\ntracing:\n  zipkin: {address: x}\n", 15099},
		"YAML, flow style":              {"{statusPort: 15099}", 15099},
		"JSON":                          {`{"statusPort":15099}`, 15099},
		"JSON, as injected":             {"{\"proxyMetadata\":{\"A\":\"b\"},\"statusPort\":15099}\n", 15099},
		"snake case":                    {"status_port: 15099", 15099},
		"quoted in YAML":                {"statusPort: '15099'", 15099},
		"quoted in JSON":                {`{"statusPort":"15099"}`, 15099},
		"as a whole fraction":           {"statusPort: 15099.0", 15099},
		"with an exponent":              {`{"statusPort":1.5e4}`, 15000},
		"the lowest":                    {"statusPort: 1", 1},
		"the highest":                   {"statusPort: 65535", 65535},
		"empty":                         {"", unset},
		"blank":                         {" \n\t", unset},
		"null":                          {"null", unset},
		"null port":                     {"statusPort: null", unset},
		"absent":                        {"concurrency: 2", unset},
		"zero":                          {"statusPort: 0", unset},
		"negative":                      {"statusPort: -1", unset},
		"above the highest":             {"statusPort: 65536", unset},
		"far above":                     {"statusPort: 4294982316", unset},
		"endless":                       {"statusPort: " + strings.Repeat("9", 1000), unset},
		"a fraction":                    {"statusPort: 15099.5", unset},
		"a fraction below one":          {"statusPort: 0.5", unset},
		"infinite":                      {"statusPort: .inf", unset},
		"no number":                     {"statusPort: .nan", unset},
		"a quoted no number":            {"statusPort: 'NaN'", unset},
		"a word":                        {"statusPort: http", unset},
		"a truth":                       {"statusPort: true", unset},
		"a list":                        {"statusPort: [15099]", unset},
		"an object":                     {"statusPort: {port: 15099}", unset},
		"a quoted number with a space":  {"statusPort: ' 15099'", unset},
		"nested elsewhere":              {"proxyMetadata: {statusPort: 15099}", unset},
		"no object":                     {"- statusPort: 15099", unset},
		"a bare number":                 {"15099", unset},
		"unreadable":                    {"statusPort: 15099\n\t}{", unset},
		"a tab":                         {"\tstatusPort: 15099", unset},
		"no UTF-8":                      {"statusPort: \xff\xfe", unset},
		"a NUL":                         {"statusPort: 15099\x00", unset},
		"deeper than any reader likes":  {strings.Repeat("[", 16_000), unset},
		"indented deeper than sensible": {strings.Repeat("- ", 8_000), unset},
		"longer than the bound":         {"statusPort: 15099\n#" + strings.Repeat("x", 16<<10), unset},
		"just within the bound":         {"statusPort: 15099\n#" + strings.Repeat("x", 16<<10-19), 15099},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantAnnotation, wantVariable := byDefault, byDefault
			if tc.want != unset {
				wantAnnotation = istio.StatusPort{Port: tc.want, Source: configAnnotation}
				wantVariable = istio.StatusPort{Port: tc.want, Source: configVariable}
			}
			if diff := cmp.Diff(wantAnnotation, portOf(build.MakePod("p").Annotation(configAnnotation, tc.config))); diff != "" {
				t.Errorf("in the annotation (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantVariable, portOf(build.MakePod("p"), build.Env(configVariable, tc.config))); diff != "" {
				t.Errorf("in the variable (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusPortPrecedence(t *testing.T) {
	fromField := func(c *corev1.Container) {
		c.Env = append(c.Env, corev1.EnvVar{Name: configVariable, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}}})
	}
	type env = []func(*corev1.Container)
	tests := map[string]struct {
		pod  *build.Pod
		env  env
		want istio.StatusPort
	}{
		"nothing is set": {build.MakePod("p"), nil, byDefault},
		"all are set": {
			build.MakePod("p").Annotation(portAnnotation, "15001").Annotation(configAnnotation, "statusPort: 15002"), env{build.Env(configVariable, "statusPort: 15003")},
			istio.StatusPort{Port: 15001, Source: portAnnotation},
		},
		"the config's annotation before the variable": {
			build.MakePod("p").Annotation(configAnnotation, "statusPort: 15002"), env{build.Env(configVariable, "statusPort: 15003")},
			istio.StatusPort{Port: 15002, Source: configAnnotation},
		},
		"the variable before the default": {build.MakePod("p"), env{build.Env(configVariable, "statusPort: 15003")}, istio.StatusPort{Port: 15003, Source: configVariable}},
		"a port annotation of 0 disables, whatever the others say": {
			build.MakePod("p").Annotation(portAnnotation, "0").Annotation(configAnnotation, "statusPort: 15002"), env{build.Env(configVariable, "statusPort: 15003")},
			istio.StatusPort{Port: 0, Source: portAnnotation},
		},
		"a port annotation that is no port disables too": {
			build.MakePod("p").Annotation(portAnnotation, "http"), env{build.Env(configVariable, "statusPort: 15003")}, istio.StatusPort{Port: 0, Source: portAnnotation},
		},
		"statusPort 0 in the annotation passes on to the variable": {
			build.MakePod("p").Annotation(configAnnotation, "statusPort: 0"), env{build.Env(configVariable, "statusPort: 15003")},
			istio.StatusPort{Port: 15003, Source: configVariable},
		},
		"an unreadable annotation passes on to the variable": {
			build.MakePod("p").Annotation(configAnnotation, "{{{"), env{build.Env(configVariable, "statusPort: 15003")}, istio.StatusPort{Port: 15003, Source: configVariable},
		},
		"statusPort 0 in the variable passes on to the default": {build.MakePod("p"), env{build.Env(configVariable, "statusPort: 0")}, byDefault},
		"an unreadable variable passes on to the default":       {build.MakePod("p"), env{build.Env(configVariable, "{{{")}, byDefault},
		"a variable read from a field cannot be known":          {build.MakePod("p"), env{fromField}, byDefault},
		"of equal variables the last counts": {
			build.MakePod("p"), env{build.Env(configVariable, "statusPort: 15003"), build.Env(configVariable, "statusPort: 15004")}, istio.StatusPort{Port: 15004, Source: configVariable},
		},
		"of equal variables the last counts, known or not": {build.MakePod("p"), env{build.Env(configVariable, "statusPort: 15003"), fromField}, byDefault},
		"camel case before snake case": {
			build.MakePod("p").Annotation(configAnnotation, "{status_port: 15005, statusPort: 15002}"), nil, istio.StatusPort{Port: 15002, Source: configAnnotation},
		},
		"ports that others use are no hint": {
			build.MakePod("p").Annotation("prometheus.io/port", "15090"), env{func(c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090}}
			}}, byDefault,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, portOf(tc.pod, tc.env...)); diff != "" {
				t.Errorf("status port (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the app's variable is not the proxy's", func(t *testing.T) {
		pod := build.MakePod("p").App("app", build.Running(), build.Env(configVariable, "statusPort: 15003")).Proxy(build.Running()).Obj()
		if diff := cmp.Diff(byDefault, istio.Inspect(pod).StatusPort); diff != "" {
			t.Errorf("status port (-want +got):\n%s", diff)
		}
	})
}

// A tenant writes the annotation, and everyone's decisions wait while it is read.
func TestProxyConfigCostsLittle(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	bomb.WriteString("statusPort: 15099\n")

	var merges strings.Builder
	merges.WriteString("m0: &m0 {k: v}\n")
	for i := range 130 {
		fmt.Fprintf(&merges, "m%d: &m%d {<<: [%s]}\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*m%d,", i), 20), ","))
	}

	for name, config := range map[string]string{
		"aliases of aliases":  bomb.String(),
		"merges of merges":    merges.String(),
		"an alias of itself":  "a: &a [*a]",
		"many keys":           strings.Repeat("k: v\n", 3_200),
		"open brackets":       strings.Repeat("[", 16<<10-1),
		"open braces":         strings.Repeat("{a: ", 4<<10-1),
		"question marks":      strings.Repeat("? ", 8<<10-1),
		"a long plain scalar": strings.Repeat("a ", 8<<10-1),
		"a long number":       strings.Repeat("1", 16<<10-1),
		"many anchors":        strings.Repeat("- &a b\n", 2_300),
		"many documents":      strings.Repeat("---\n", 4<<10-1),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			portOf(build.MakePod("p").Annotation(configAnnotation, config))
			took := time.Since(start)
			t.Logf("%d bytes took %s", len(config), took)
			if took > 5*time.Second {
				t.Errorf("took %s", took)
			}
			if len(config) > 16<<10 {
				t.Error("it is not read at all")
			}
		})
	}
}

func TestDrain(t *testing.T) {
	const unset = 5 * time.Second
	tests := map[string]struct {
		annotation, variable string
		want                 time.Duration
	}{
		"not set":                      {"", "", unset},
		"in the annotation":            {"terminationDrainDuration: 30s", "", 30 * time.Second},
		"in the variable":              {"", `{"terminationDrainDuration":"7s"}`, 7 * time.Second},
		"the annotation goes first":    {"terminationDrainDuration: 30s", "terminationDrainDuration: 7s", 30 * time.Second},
		"snake case":                   {"termination_drain_duration: 30s", "", 30 * time.Second},
		"a fraction":                   {"terminationDrainDuration: 1.5s", "", 1500 * time.Millisecond},
		"longer than the bound":        {"terminationDrainDuration: 86400s", "", 10 * time.Minute},
		"longer than can be held":      {"terminationDrainDuration: 99999999999999s", "", unset},
		"negative":                     {"terminationDrainDuration: -30s", "", unset},
		"zero":                         {"terminationDrainDuration: 0s", "", unset},
		"without a unit":               {"terminationDrainDuration: 30", "", unset},
		"a word":                       {"terminationDrainDuration: soon", "", unset},
		"an object":                    {"terminationDrainDuration: {seconds: 30}", "", unset},
		"unreadable beside a variable": {"terminationDrainDuration: soon", "terminationDrainDuration: 7s", 7 * time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := build.MakePod("p").Annotation(configAnnotation, tc.annotation).Proxy(build.Running(), build.Env(configVariable, tc.variable)).Obj()
			if got := istio.Inspect(pod).Drain; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The command line: what is wrong is told in one line and ends with exit code 2; flags go before variables.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobmesh/jobmesh/internal/operator"
)

// called is what one call of the command led to.
type called struct {
	code        int
	out, errOut string
	started     bool
	options     operator.Options
	logging     logging
}

func call(t *testing.T, variables map[string]string, args ...string) called {
	t.Helper()
	for name, value := range variables {
		t.Setenv(name, value)
	}
	var c called
	var out, errOut bytes.Buffer
	c.code = run(args, &out, &errOut, func(o operator.Options, l logging) error {
		c.started, c.options, c.logging = true, o, l
		return nil
	})
	c.out, c.errOut = out.String(), errOut.String()
	return c
}

func TestWrongInput(t *testing.T) {
	type variables = map[string]string
	cases := map[string]struct {
		variables variables
		args      []string
		want      []string // parts of the one line
	}{
		"no such mode":            {nil, []string{"--default-mode=enforce"}, []string{"--default-mode must be Enforce, DryRun or Disabled", `"enforce"`}},
		"no mode":                 {nil, []string{"--default-mode="}, []string{"--default-mode must be"}},
		"a cap that is no number": {nil, []string{"--max-concurrent-quits=many"}, []string{`--max-concurrent-quits must be a whole number, not "many"`}},
		"a cap of zero":           {nil, []string{"--max-concurrent-quits=0"}, []string{"--max-concurrent-quits must be 1 to 1000, not 0"}},
		"a cap beyond all ints":   {nil, []string{"--max-quits-per-node=99999999999999999999"}, []string{"--max-quits-per-node must be a whole number"}},
		"neither true nor false":  {nil, []string{"--leader-elect=maybe"}, []string{`--leader-elect must be true or false, not "maybe"`}},
		"a bad namespace":         {nil, []string{"--namespaces=a,B"}, []string{"--namespaces must list names of namespaces", `"B"`}},
		"no such format":          {nil, []string{"--log-format=xml"}, []string{`--log-format must be json or text, not "xml"`}},
		"no such level":           {nil, []string{"--log-level=loud"}, []string{`--log-level must be error, info, debug or trace, not "loud"`}},
		"no such flag":            {nil, []string{"--nonsense"}, []string{"unknown flag: --nonsense"}},
		"a flag without a value":  {nil, []string{"--default-mode"}, []string{"flag needs an argument: --default-mode"}},
		"an argument":             {nil, []string{"now"}, []string{`"now"`}},
		"a wrong variable":        {variables{"JOBMESH_DEFAULT_MODE": "Enforced"}, nil, []string{"--default-mode must be Enforce, DryRun or Disabled", `"Enforced"`}},
		"a variable of a wrong type": {variables{"JOBMESH_MAX_QUITS_PER_NODE": "few"}, nil,
			[]string{"JOBMESH_MAX_QUITS_PER_NODE", `--max-quits-per-node must be a whole number, not "few"`}},
		"a variable neither true nor false": {variables{"JOBMESH_ALLOW_EXEC_FALLBACK": "yes"}, nil,
			[]string{"JOBMESH_ALLOW_EXEC_FALLBACK", `--allow-exec-fallback must be true or false, not "yes"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := call(t, tc.variables, tc.args...)
			if got.code != 2 || got.started || got.out != "" {
				t.Errorf("Exit code %d, started %v, output %q; want 2, no start, no output", got.code, got.started, got.out)
			}
			if strings.Count(got.errOut, "\n") != 1 || !strings.HasPrefix(got.errOut, "Error: ") {
				t.Errorf("Want one line, got %q", got.errOut)
			}
			for _, part := range tc.want {
				if !strings.Contains(got.errOut, part) {
					t.Errorf("%q does not say %q", got.errOut, part)
				}
			}
		})
	}
}

func TestFlagsAndVariables(t *testing.T) {
	all := map[string]string{
		"JOBMESH_DEFAULT_MODE": "Enforce", "JOBMESH_NAMESPACES": "a,b", "JOBMESH_ALLOW_EXEC_FALLBACK": "true", "JOBMESH_MAX_CONCURRENT_QUITS": "7",
		"JOBMESH_MAX_QUITS_PER_NODE": "3", "JOBMESH_LEADER_ELECT": "true", "JOBMESH_LEADER_ELECTION_NAMESPACE": "home",
		"JOBMESH_METRICS_BIND_ADDRESS": "0", "JOBMESH_HEALTH_PROBE_BIND_ADDRESS": ":1", "JOBMESH_LOG_FORMAT": "text", "JOBMESH_LOG_LEVEL": "debug",
	}
	whole := operator.Defaults()
	whole.DefaultMode, whole.Namespaces, whole.AllowExecFallback, whole.MaxConcurrentQuits, whole.MaxQuitsPerNode = "Enforce", []string{"a", "b"}, true, 7, 3
	whole.LeaderElect, whole.LeaderElectionNamespace, whole.MetricsAddress, whole.ProbeAddress = true, "home", "0", ":1"
	won := whole
	won.DefaultMode, won.LeaderElect, won.Namespaces, won.MaxConcurrentQuits = "DryRun", false, []string{"c"}, 64
	cases := map[string]struct {
		variables   map[string]string
		args        []string
		want        operator.Options
		wantLogging logging
	}{
		"nothing":              {nil, nil, operator.Defaults(), logging{"json", "info"}},
		"variables for all":    {all, nil, whole, logging{"text", "debug"}},
		"the flag wins":        {all, []string{"--default-mode=DryRun", "--leader-elect=false", "--namespaces=c", "--max-concurrent-quits=64", "--log-level=info"}, won, logging{"text", "info"}},
		"no namespaces is all": {map[string]string{"JOBMESH_NAMESPACES": ""}, nil, operator.Defaults(), logging{"json", "info"}},
		"not a flag's":         {map[string]string{"JOBMESH_HELP": "true", "JOBMESH_VERSION": "true", "JOBMESH_OTHER": "x"}, nil, operator.Defaults(), logging{"json", "info"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := call(t, tc.variables, tc.args...)
			if got.code != 0 || !got.started {
				t.Fatalf("Exit code %d, started %v: %s", got.code, got.started, got.errOut)
			}
			if diff := cmp.Diff(tc.want, got.options, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Options (-want +got):\n%s", diff)
			}
			if got.logging != tc.wantLogging {
				t.Errorf("Logging %+v, want %+v", got.logging, tc.wantLogging)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for flag, want := range map[string]string{"--help": "--max-quits-per-node", "-h": "JOBMESH_DEFAULT_MODE", "--version": "version dev"} {
		got := call(t, nil, flag)
		if got.code != 0 || got.started || got.errOut != "" || !strings.Contains(got.out, want) {
			t.Errorf("%s: exit code %d, started %v, output %q, errors %q", flag, got.code, got.started, got.out, got.errOut)
		}
	}
}

func TestAnOperatorThatEndsBadly(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run(nil, &out, &errOut, func(operator.Options, logging) error { return errors.New("no cluster") }); code != 1 {
		t.Errorf("Exit code %d, want 1", code)
	}
}

func TestLogging(t *testing.T) {
	for level, want := range map[string][]string{
		"error": {"e"}, "info": {"e", "0"}, "debug": {"e", "0", "1"}, "trace": {"e", "0", "1", "2"},
	} {
		var out bytes.Buffer
		logger := logging{"json", level}.logger(&out)
		logger.Error(errors.New("reason"), "e")
		for v := range 4 {
			logger.V(v).Info(string(rune('0' + v)))
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			var entry struct{ Msg string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("%s: %q is no JSON: %v", level, line, err)
			}
			got = append(got, entry.Msg)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", level, diff)
		}
	}
	var out bytes.Buffer
	logging{"text", "info"}.logger(&out).Info("Hello", "key", "value")
	if text := out.String(); json.Valid([]byte(text)) || !strings.Contains(text, "Hello") || strings.Count(text, "\n") != 1 {
		t.Errorf("As text: %q", text)
	}
}

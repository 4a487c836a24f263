// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

var update = flag.Bool("update", false, "write the golden files")

// kubectl runs one command line.
func kubectl(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	status = run(t.Context(), args, streams)
	return status, out.String(), errOut.String()
}

func TestExplainGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"stuck.txt":         {"-f", "testdata/stuck.yaml", "--policy", "testdata/enforce.yaml"},
		"stuck.json":        {"-f", "testdata/stuck.yaml", "--policy", "testdata/enforce.yaml", "-o", "json"},
		"stuck.yaml":        {"-f", "testdata/stuck.yaml", "--policy", "testdata/enforce.yaml", "-o", "yaml"},
		"default_mode.txt":  {"-f", "testdata/stuck.yaml"},
		"default_mode.json": {"-f", "testdata/stuck.yaml", "--default-mode", "Enforce", "-o=json"},
		"mixed.txt":         {"-f", "testdata/mixed.yaml"},
		"mixed.json":        {"-f", "testdata/mixed.yaml", "-n", "team", "-o", "json"},
		"hostile.txt":       {"-f", "testdata/hostile.json"},
		"hostile.json":      {"-f", "testdata/hostile.json", "-o", "json"},
		"hostile.yaml":      {"-f", "testdata/hostile.json", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := kubectl(t, "", append([]string{"explain"}, args...)...)
			if status != 0 {
				t.Fatalf("exit status %d: %s", status, errOut)
			}
			for _, r := range out + errOut {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("the output holds %q", r)
				}
			}
			golden := filepath.Join("testdata", "golden", name)
			if *update {
				if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out); diff != "" {
				t.Errorf("output (-want +got), -update accepts it:\n%s", diff)
			}
		})
	}
}

func TestExplainReadsStandardInput(t *testing.T) {
	pod, err := os.ReadFile("testdata/stuck.yaml")
	if err != nil {
		t.Fatal(err)
	}
	status, out, errOut := kubectl(t, string(pod), "explain", "-f", "-", "--policy", "testdata/enforce.yaml")
	want := "shop/seed-x7k2p: Quit (Stuck): Every app container has finished for good, and istio-proxy still runs.\n"
	if line, _, _ := strings.Cut(out, "\n"); status != 0 || line+"\n" != want || errOut != "" {
		t.Errorf("status %d, %q, %q; want %q", status, line, errOut, want)
	}
}

func TestExplainSeveralFiles(t *testing.T) {
	_, out, errOut := kubectl(t, "", "explain", "-f", "testdata/mixed.yaml", "-f", "testdata/stuck.yaml")
	for _, want := range []string{"shop/report-abcde: ", "default/web: ", "shop/seed-x7k2p: Quit (Stuck)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if want := "note: ignored what is neither a Pod, a Job nor a JobMeshPolicy: 1 Deployment\n"; errOut != want {
		t.Errorf("stderr %q, want %q", errOut, want)
	}
}

func TestExplainPolicyReplacesOneOfTheSameName(t *testing.T) {
	const dryRun = "{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: everything}, spec: {mode: DryRun}}"
	_, out, _ := kubectl(t, dryRun, "explain", "-f", "testdata/stuck.yaml", "-f", "testdata/mixed.yaml", "--policy", "-")
	if want := "shop/seed-x7k2p: Observe (DryRun)"; !strings.HasPrefix(out, want) {
		t.Errorf("output begins not with %q:\n%s", want, out)
	}
}

// Every mistake of a user ends in one line that says what is wrong, and status 2.
func TestExplainMistakes(t *testing.T) {
	const policy = "apiVersion: jobmesh.dev/v1alpha1\nkind: JobMeshPolicy\nmetadata: {name: p}\nspec: "
	for name, tc := range map[string]struct {
		stdin string
		args  []string
		want  string
		usage bool
	}{
		"nothing named":         {args: nil, want: "name a pod, such as pod/NAME, or a file with -f", usage: true},
		"pods and files":        {args: []string{"pod/a", "-f", "testdata/stuck.yaml"}, want: "name pods or files, not both", usage: true},
		"unknown flag":          {args: []string{"--nope"}, want: "unknown flag: --nope", usage: true},
		"unknown resource":      {args: []string{"deploy/web"}, want: `"deploy/web" is neither pod/NAME nor job/NAME`, usage: true},
		"no name":               {args: []string{"pod/"}, want: `"" is no name of a pod or Job`, usage: true},
		"path for a name":       {args: []string{"pod/../secrets"}, want: `"../secrets" is no name of a pod or Job`, usage: true},
		"unknown output":        {args: []string{"-o", "wide", "a"}, want: `unknown output format "wide": must be one of text, json, yaml`, usage: true},
		"unknown mode":          {args: []string{"--default-mode", "enforce", "a"}, want: `unknown --default-mode "enforce": must be one of Enforce, DryRun, Disabled`, usage: true},
		"no such file":          {args: []string{"-f", "testdata/none.yaml"}, want: "testdata/none.yaml: no such file or directory"},
		"directory":             {args: []string{"-f", "testdata"}, want: "testdata: is a directory"},
		"no Pod":                {args: []string{"-f", "testdata/deployment.yaml"}, want: "no Pod found in testdata/deployment.yaml; it holds 1 Deployment"},
		"only a policy":         {args: []string{"-f", "testdata/enforce.yaml"}, want: "no Pod found in testdata/enforce.yaml; it holds 1 JobMeshPolicy"},
		"no policy":             {args: []string{"-f", "testdata/stuck.yaml", "--policy", "testdata/deployment.yaml"}, want: "no JobMeshPolicy found in testdata/deployment.yaml; it holds 1 Deployment"},
		"no policy for a pod":   {args: []string{"pod/a", "--policy", "testdata/deployment.yaml"}, want: "no JobMeshPolicy found in testdata/deployment.yaml; it holds 1 Deployment"},
		"standard input twice":  {stdin: policy + "{}", args: []string{"-f", "-", "--policy", "-"}, want: "no Pod found in the standard input; it holds 1 JobMeshPolicy"},
		"standard input thrice": {stdin: "{}", args: []string{"-f", "testdata/stuck.yaml", "--policy", "-", "--policy", "-"}, want: "the standard input: this is no Kubernetes object: it has no kind"},
		"empty":                 {args: []string{"-f", "-"}, want: "the standard input: the input is empty"},
		"binary":                {stdin: "\x7fELF\x02\x01\x00", args: []string{"-f", "-"}, want: "the standard input: this is no YAML and no JSON: it is not a text in UTF-8"},
		"truncated":             {stdin: "kind: Pod\nspec: {containers: [", args: []string{"-f", "-"}, want: "the standard input: invalid YAML: line 2: "},
		"terminal escapes":      {stdin: "kind: \"\x1b[31m", args: []string{"-f", "-"}, want: "the standard input: invalid YAML: "},
		"unknown context":       {args: []string{"a", "--context", "none"}, want: `context "none" does not exist`},
		"bad mode":              {stdin: policy + "{mode: enforce}", args: []string{"-f", "testdata/stuck.yaml", "--policy", "-"}, want: `the standard input: JobMeshPolicy "p": spec.mode: Unsupported value: "enforce": supported values: "Enforce", "DryRun", "Disabled"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			status, out, errOut := kubectl(t, tc.stdin, append([]string{"explain"}, tc.args...)...)
			line, rest, _ := strings.Cut(errOut, "\n")
			if status != exitInput || !strings.HasPrefix(line, "error: "+tc.want) || out != "" {
				t.Errorf("status %d, stdout %q, stderr %q; want %q", status, out, errOut, tc.want)
			}
			hint := ""
			if tc.usage {
				hint = "See 'kubectl jobmesh explain --help' for usage.\n"
			}
			if rest != hint {
				t.Errorf("after the line: %q, want %q", rest, hint)
			}
			if strings.ContainsRune(errOut, '\x1b') {
				t.Errorf("an escape sequence in %q", errOut)
			}
		})
	}
}

func TestRoot(t *testing.T) {
	for name, tc := range map[string]struct {
		args       []string
		wantStatus int
		want       string
	}{
		"help":            {[]string{}, 0, "kubectl jobmesh [command]"},
		"help of explain": {[]string{"explain", "--help"}, 0, "kubectl jobmesh explain (pod/NAME | job/NAME | NAME)... | -f FILE"},
		"version flag":    {[]string{"--version"}, 0, "kubectl-jobmesh dev"},
		"version command": {[]string{"version"}, 0, "kubectl-jobmesh dev"},
		"version of what": {[]string{"version", "x"}, exitInput, "error: kubectl jobmesh version takes no arguments"},
		"unknown command": {[]string{"explian"}, exitInput, `error: unknown command "explian"`},
		"unknown flag":    {[]string{"--nope"}, exitInput, "error: unknown flag: --nope"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := kubectl(t, "", tc.args...)
			if status != tc.wantStatus || !strings.Contains(out+errOut, tc.want) {
				t.Errorf("status %d, %q, %q; want %d, %q", status, out, errOut, tc.wantStatus, tc.want)
			}
		})
	}
}

func TestParseTargets(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []target
	}{
		"bare name":         {[]string{"a"}, []target{{false, "a"}}},
		"kinds and names":   {[]string{"pod/a", "po/b", "jobs/c", "job.batch/d", "e"}, []target{{false, "a"}, {false, "b"}, {true, "c"}, {true, "d"}, {false, "e"}}},
		"kind before names": {[]string{"job", "a", "b", "pod/c"}, []target{{true, "a"}, {true, "b"}, {false, "c"}}},
		"a pod called pod":  {[]string{"pod"}, []target{{false, "pod"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTargets(tc.args)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(target{})); diff != "" || err != nil {
				t.Errorf("error %v, targets (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A writer that fails, such as a closed pipe, is no success.
func TestExplainCannotWrite(t *testing.T) {
	for _, output := range outputs {
		streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: brokenPipe{}, ErrOut: &bytes.Buffer{}}
		if status := run(t.Context(), []string{"explain", "-f", "testdata/stuck.yaml", "-o", output}, streams); status != exitCluster {
			t.Errorf("%s: status %d", output, status)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

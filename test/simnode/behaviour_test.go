// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves every way in which a proxy or a node may answer, or not.

package simnode_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/jobmesh/jobmesh/test/simnode"
)

func execute(t *testing.T, pod *corev1.Pod, command ...string) error {
	t.Helper()
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "istio-proxy", Command: command, Stdout: true, Stderr: true},
			scheme.ParameterCodec).URL()
	webSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		t.Fatal(err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", url)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewFallbackExecutor(webSocket, spdy, httpstream.IsUpgradeFailure) // API servers before 1.30
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &out})
}

func TestBehaviours(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	for name, tc := range map[string]struct {
		script     simnode.ProxyScript
		annotation string // of the status port
		port       int
		wantStatus int
		wantErr    string // of the request
		wantStream string // on the error stream
		wantQuits  int
		wantExit   int32 // -1: the proxy stays
	}{
		"drain": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourDrain, Drain: duration(300 * time.Millisecond)},
			wantStatus: 200, wantQuits: 1},
		"exit 1":      {script: simnode.ProxyScript{Behaviour: simnode.BehaviourExit1}, wantStatus: 200, wantQuits: 1, wantExit: 1},
		"never exits": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourNeverExits}, wantStatus: 200, wantQuits: 1, wantExit: -1},
		"panic":       {script: simnode.ProxyScript{Behaviour: simnode.BehaviourPanic}, wantErr: "EOF", wantQuits: 1, wantExit: -1},
		"panic is over": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourPanic, For: duration(time.Millisecond)},
			wantStatus: 200, wantQuits: 1},
		"refuse": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourRefuse}, wantErr: "EOF",
			wantStream: "dial tcp4 127.0.0.1:15020: connect: connection refused", wantExit: -1},
		"refuse is over": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourRefuse, For: duration(time.Millisecond)},
			wantStatus: 200, wantQuits: 1},
		"hang":  {script: simnode.ProxyScript{Behaviour: simnode.BehaviourHang}, wantErr: "EOF", wantQuits: 1, wantExit: -1},
		"reset": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourReset}, wantErr: "EOF", wantStream: "connection reset by peer", wantQuits: 1, wantExit: -1},
		"reset but exits": {script: simnode.ProxyScript{Behaviour: simnode.BehaviourResetExit}, wantErr: "EOF", wantStream: "connection reset by peer",
			wantQuits: 1},
		"no reply":       {script: simnode.ProxyScript{Behaviour: simnode.BehaviourNoReply}, wantErr: "EOF", wantQuits: 1},
		"garbage":        {script: simnode.ProxyScript{Behaviour: simnode.BehaviourGarbage}, wantErr: "malformed HTTP", wantQuits: 1, wantExit: -1},
		"server error":   {script: simnode.ProxyScript{Behaviour: simnode.BehaviourServerError}, wantStatus: 500, wantQuits: 1, wantExit: -1},
		"redirect":       {script: simnode.ProxyScript{Behaviour: simnode.BehaviourRedirect}, wantStatus: 307, wantQuits: 1, wantExit: -1},
		"huge body":      {script: simnode.ProxyScript{Behaviour: simnode.BehaviourHugeBody}, wantStatus: 200, wantQuits: 1, wantExit: -1},
		"huge headers":   {script: simnode.ProxyScript{Behaviour: simnode.BehaviourHugeHeaders}, wantErr: "EOF", wantQuits: 1, wantExit: -1},
		"slow drip":      {script: simnode.ProxyScript{Behaviour: simnode.BehaviourSlowDrip}, wantStatus: 200, wantQuits: 1, wantExit: -1},
		"slow headers":   {script: simnode.ProxyScript{Behaviour: simnode.BehaviourSlowHeaders}, wantErr: "malformed MIME header", wantQuits: 1, wantExit: -1},
		"gzip bomb":      {script: simnode.ProxyScript{Behaviour: simnode.BehaviourGzipBomb}, wantStatus: 200, wantQuits: 1, wantExit: -1},
		"interim":        {script: simnode.ProxyScript{Behaviour: simnode.BehaviourInterim}, wantStatus: 102, wantQuits: 1, wantExit: -1},
		"redirect loop":  {script: simnode.ProxyScript{Behaviour: simnode.BehaviourRedirectLoop}, wantStatus: 307, wantQuits: 1, wantExit: -1},
		"not found":      {script: simnode.ProxyScript{Behaviour: simnode.BehaviourNotFound}, wantStatus: 404, wantQuits: 1, wantExit: -1},
		"escapes":        {script: simnode.ProxyScript{Behaviour: simnode.BehaviourEscapes}, wantStatus: 500, wantQuits: 1, wantExit: -1},
		"error flood":    {script: simnode.ProxyScript{Behaviour: simnode.BehaviourErrorFlood}, wantErr: "EOF", wantStream: "\x1b[31m", wantExit: -1},
		"a signed port":  {annotation: "+15020", wantStatus: 200, wantQuits: 1},
		"a wrapped port": {annotation: "4294982316", wantStatus: 200, wantQuits: 1}, // 15020 and 2 to the 32nd
		"a padded port":  {annotation: "0000015020", wantStatus: 200, wantQuits: 1},
		"a hex port":     {annotation: "0x3aac", wantErr: "EOF", wantStream: "connection refused", wantExit: -1},
		"custom port":    {annotation: "15999", port: 15999, wantStatus: 200, wantQuits: 1},
		"no port":        {annotation: "0", wantErr: "EOF", wantStream: "connection refused", wantExit: -1},
		"a broken port":  {annotation: "x", wantErr: "EOF", wantStream: "connection refused", wantExit: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := template(corev1.RestartPolicyNever, app(), proxy())
			tc.script.Annotate(&spec)
			if tc.annotation != "" {
				spec.Annotations["status.sidecar.istio.io/port"] = tc.annotation
			}
			if tc.port == 0 {
				tc.port = 15020
			}
			pod := waitPod(t, createJob(t, namespace, spec), "that is stuck", stuck)
			got := ask(t, namespace, pod.Name, "POST", tc.port, noWebSocket == "")
			if got.status != tc.wantStatus {
				t.Errorf("want status %d, got %+v", tc.wantStatus, got)
			}
			if (got.err == nil) != (tc.wantErr == "") || got.err != nil && !strings.Contains(got.err.Error(), tc.wantErr) {
				t.Errorf("want error %q, got %v", tc.wantErr, got.err)
			}
			if !strings.Contains(got.stream, tc.wantStream) || tc.wantStream == "" && got.stream != "" {
				t.Errorf("want %q on the error stream, got %q", tc.wantStream, got.stream)
			}
			if state, _ := fleet.Pod(namespace, pod.Name); state.Quits != tc.wantQuits || state.QuitsPremature != 0 {
				t.Errorf("want %d quits and none premature, got %+v", tc.wantQuits, state)
			}
			job := pod.Labels["batch.kubernetes.io/job-name"]
			if tc.wantExit < 0 {
				time.Sleep(300 * time.Millisecond)
			}
			waitPodNamed(t, namespace, job, "whose proxy ended as wanted", func(p *corev1.Pod) bool {
				state := statuses(p)["istio-proxy"].State
				if tc.wantExit < 0 {
					return state.Running != nil
				}
				return state.Terminated != nil && state.Terminated.ExitCode == tc.wantExit
			})
		})
	}
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what a test says about a Pod: the annotations that script its containers and its proxy.

package simnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// AnnotationScript holds the Script of a Pod's containers as JSON. A Pod without one runs each container for
	// DefaultRun and exits 0.
	AnnotationScript = "sim.jobmesh.dev/script"
	// AnnotationProxy holds the ProxyScript of a Pod as JSON, or just the name of a behaviour.
	AnnotationProxy = "sim.jobmesh.dev/proxy"
)

// Script says how the containers of one Pod run, by container name. Containers that it leaves out run as the zero
// ContainerScript says; a container istio-proxy that it leaves out is the proxy double.
type Script struct {
	Containers map[string]ContainerScript `json:"containers,omitempty"`
}

// ContainerScript says how one container runs.
type ContainerScript struct {
	// Run is how long each attempt runs; 0 is DefaultRun, negative is until it is stopped.
	Run metav1.Duration `json:"run,omitzero"`
	// Gate keeps every attempt running until Fleet.OpenGate opens the gate of that name, whatever Run says. An attempt that
	// starts afterwards runs for Run.
	Gate string `json:"gate,omitempty"`
	// ExitCodes are the exit codes attempt by attempt; the last one repeats, none is 0.
	ExitCodes []int32 `json:"exitCodes,omitempty"`
	// Reason is the reason in the terminated state, such as OOMKilled; "" is Completed or Error.
	Reason string `json:"reason,omitempty"`
	// StartDelay is how long the container waits as ContainerCreating before its first attempt.
	StartDelay metav1.Duration `json:"startDelay,omitzero"`
	// Waiting keeps the container from ever starting, with this reason, such as ImagePullBackOff.
	Waiting string `json:"waiting,omitempty"`
	// StopDelay is how long it runs on after SIGTERM, at most the grace period.
	StopDelay metav1.Duration `json:"stopDelay,omitzero"`
	// StopExitCode is its exit code after SIGTERM; nil is 143, what the signal gives to a program that does not handle it.
	StopExitCode *int32 `json:"stopExitCode,omitempty"`
	// Auxiliary marks a container that is no part of the Pod's work, such as a log shipper: a quit that arrives while
	// it runs is not premature.
	Auxiliary bool `json:"auxiliary,omitempty"`
}

// ProxyScript says how the proxy double of one Pod behaves.
type ProxyScript struct {
	// Behaviour is a name from Behaviours; "" is BehaviourExit.
	Behaviour string `json:"behaviour,omitempty"`
	// For ends the behaviour so long after the proxy's start; from then on it behaves as BehaviourExit. 0 is for ever.
	For metav1.Duration `json:"for,omitzero"`
	// Drain is how long the proxy runs on after SIGTERM, and after a quit where it drains; 0 is DefaultDrain, negative
	// is not at all.
	Drain metav1.Duration `json:"drain,omitzero"`
}

// Annotate writes the script to a Pod, a Pod template or anything else with annotations.
func (s Script) Annotate(object metav1.Object) { annotate(object, AnnotationScript, s) }

// Annotate writes the script to a Pod, a Pod template or anything else with annotations.
func (s ProxyScript) Annotate(object metav1.Object) { annotate(object, AnnotationProxy, s) }

func annotate(object metav1.Object, key string, script any) {
	text, err := json.Marshal(script)
	if err != nil {
		panic(err) // plain data always marshals
	}
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = string(text)
	object.SetAnnotations(annotations)
}

// readScripts reads both annotations of a Pod. A mistake in a test should be seen, not guessed at.
func readScripts(pod *corev1.Pod) (script Script, proxy ProxyScript, err error) {
	if text := pod.Annotations[AnnotationScript]; text != "" {
		if err := json.Unmarshal([]byte(text), &script); err != nil {
			return script, proxy, fmt.Errorf("annotation %s: %w", AnnotationScript, err)
		}
	}
	text := strings.TrimSpace(pod.Annotations[AnnotationProxy])
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &proxy); err != nil {
			return script, proxy, fmt.Errorf("annotation %s: %w", AnnotationProxy, err)
		}
	} else {
		proxy.Behaviour = text
	}
	if proxy.Behaviour == "" {
		proxy.Behaviour = BehaviourExit
	}
	if _, ok := behaviours[proxy.Behaviour]; !ok {
		return script, proxy, fmt.Errorf("annotation %s: no behaviour %q, there are: %s", AnnotationProxy, proxy.Behaviour,
			strings.Join(slices.Sorted(maps.Keys(behaviours)), ", "))
	}
	return script, proxy, nil
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The JobMeshPolicy type: what a user writes and what the operator answers in its status.

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode says what the operator does with a stuck pod.
//
// +kubebuilder:validation:Enum=Enforce;DryRun;Disabled
type Mode string

const (
	// ModeEnforce asks the proxy of a stuck pod to quit.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun counts and reports stuck pods, and touches nothing.
	ModeDryRun Mode = "DryRun"
	// ModeDisabled ignores the pods.
	ModeDisabled Mode = "Disabled"
)

// QuitFallback names a second road to the proxy, for when the port-forward has failed.
//
// +kubebuilder:validation:Enum=None;Exec
type QuitFallback string

const (
	// QuitFallbackNone has no second road.
	QuitFallbackNone QuitFallback = "None"
	// QuitFallbackExec runs `pilot-agent request POST quitquitquit` in the istio-proxy container.
	QuitFallbackExec QuitFallback = "Exec"
)

// PodSelectorOperator relates a label to a set of values.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type PodSelectorOperator string

// LabelValue is the value of a label: at most 63 letters, digits, - _ and . that begin and end with a letter or digit, or empty.
//
// +kubebuilder:validation:MinLength=0
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')",message="must be a label value: letters, digits, '-', '_' and '.', with a letter or digit first and last, or empty"
type LabelValue string

// ContainerName is the name of a container: at most 63 lower case letters, digits and - that begin and end with a letter or digit.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be a container name: lower case letters, digits and '-', with a letter or digit first and last"
// +kubebuilder:validation:XValidation:rule="self != 'istio-proxy'",message="must be another container than istio-proxy, which is the one that is asked to quit"
type ContainerName string

// PodSelectorRequirement is one condition on a pod's labels.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",message="values must have at least one entry where operator is In or NotIn",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",message="values must be empty where operator is Exists or DoesNotExist",fieldPath=".values"
type PodSelectorRequirement struct {
	// key is the name of the label that the condition is about, such as app or example.com/team.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 253",message="must be a label name, such as app or example.com/team"
	Key string `json:"key,omitempty"`

	// operator relates the label to values: In (it has one of them), NotIn (it has none of them, or is absent), Exists (the pod
	// carries the label, whatever its value) or DoesNotExist.
	//
	// +required
	Operator PodSelectorOperator `json:"operator,omitempty"`

	// values are the label values for In and NotIn, at most 64. They must be empty for Exists and DoesNotExist.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// PodSelector is a label selector over pods: all conditions must hold. It reads as a metav1.LabelSelector does, with bounds.
//
// +kubebuilder:validation:MinProperties=0
// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, k.size() <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && k.indexOf('/') <= 253)",message="keys must be label names, such as app or example.com/team",fieldPath=".matchLabels"
type PodSelector struct {
	// matchLabels selects pods that carry each of these labels with exactly this value. At most 32.
	//
	// +optional
	// +kubebuilder:validation:MinProperties=0
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions selects pods whose labels meet each of these conditions. At most 16.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []PodSelectorRequirement `json:"matchExpressions,omitempty"`
}

// Quit says how one proxy is asked to quit.
//
// +kubebuilder:validation:MinProperties=0
type Quit struct {
	// timeoutSeconds bounds one whole attempt: connection, request and reply. From 1 to 60 seconds, 10 by default.
	//
	// +optional
	// +default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"` //nolint:kubeapilinter // a pointer as the spec's other numbers are, though 0 is refused

	// fallback is None (the default), or Exec: after the port-forward has failed, run `pilot-agent request POST quitquitquit` in
	// the istio-proxy container. Exec is honoured only where the operator runs with --allow-exec-fallback and may create
	// pods/exec; the condition ExecFallback says whether it is.
	//
	// +optional
	// +default="None"
	Fallback QuitFallback `json:"fallback,omitempty"`
}

// JobMeshPolicySpec says which pods of Jobs are reaped in this namespace, and how.
//
// +kubebuilder:validation:MinProperties=1
type JobMeshPolicySpec struct {
	// mode is what happens to a stuck pod: Enforce (the default) asks its istio-proxy to quit; DryRun counts and emits
	// events but touches nothing; Disabled ignores it.
	//
	// +optional
	// +default="Enforce"
	Mode Mode `json:"mode,omitempty"`

	// podSelector selects the pods this policy is about, by their labels. Empty or absent, it selects every pod of a Job in
	// the namespace.
	//
	// +optional
	PodSelector *PodSelector `json:"podSelector,omitempty"`

	// priority decides where several policies select one pod: the highest governs it; of equals the older, then the
	// alphabetically first name. From -1000 to 1000, 0 by default.
	//
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority,omitempty"`

	// gracePeriodSeconds is how long the proxy is left running after the last app container has finished. It is cut short so
	// that it ends at least 30 seconds before the activeDeadlineSeconds of the pod or of its Job. From 0 to 86400 seconds, 0 by default.
	//
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// ignoredContainers names further containers that are not the app, such as other sidecars: the proxy does not wait for
	// them, and they are not asked to quit. One that does not end by itself after the app and the proxy keeps the pod from
	// finishing. Init containers are waited for regardless. At most 32; istio-proxy must not be listed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=32
	IgnoredContainers []ContainerName `json:"ignoredContainers,omitempty"`

	// quit is how one proxy is asked to quit. Absent, an attempt takes at most 10 seconds and there is no fallback.
	//
	// +optional
	Quit *Quit `json:"quit,omitempty"`
}

// PodCounts counts the unfinished pods of Jobs that a policy governs.
//
// +kubebuilder:validation:MinProperties=0
type PodCounts struct {
	// selected is how many unfinished pods of Jobs this policy governs.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Selected *int32 `json:"selected,omitempty"`

	// stuck is how many of them have finished their work while the proxy still runs, blocked ones included.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Stuck *int32 `json:"stuck,omitempty"`

	// blocked is how many of the stuck have no road to their proxy.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Blocked *int32 `json:"blocked,omitempty"`
}

// JobMeshPolicyStatus is what the operator saw and did under the policy. It is written at most every 10 seconds.
//
// +kubebuilder:validation:MinProperties=1
type JobMeshPolicyStatus struct {
	// conditions are Ready (the policy is in force), Stalled (it cannot be, until it is changed), Overlapped (another policy
	// governs pods that this one selects too) and ExecFallback (only where spec.quit.fallback is Exec: whether the operator honours it).
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status speaks of.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`

	// pods counts the unfinished pods of Jobs under this policy.
	//
	// +optional
	Pods *PodCounts `json:"pods,omitempty"`

	// reapedPods is how many pods were reaped under this policy: asked to quit, and their proxy seen terminated.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReapedPods *int64 `json:"reapedPods,omitempty"`

	// lastReapTime is when the last of them was seen terminated.
	//
	// +optional
	LastReapTime *metav1.Time `json:"lastReapTime,omitempty"`
}

// JobMeshPolicy says how the operator treats the pods of Jobs in its namespace whose work is done while a classic istio-proxy
// sidecar still runs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=jmp,categories=jobmesh
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,description="What happens to a stuck pod"
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.pods.selected`,description="Unfinished pods of Jobs under this policy"
// +kubebuilder:printcolumn:name="Stuck",type=integer,JSONPath=`.status.pods.stuck`,description="Pods whose work is done while the proxy runs"
// +kubebuilder:printcolumn:name="Reaped",type=integer,JSONPath=`.status.reapedPods`,description="Pods reaped so far"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the policy is in force"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobMeshPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says which pods of Jobs are reaped in this namespace, and how. Empty or absent, every stuck pod is.
	//
	// +optional
	// +default={"mode":"Enforce"}
	Spec JobMeshPolicySpec `json:"spec,omitempty,omitzero"`

	// status is what the operator saw and did under this policy.
	//
	// +optional
	Status JobMeshPolicyStatus `json:"status,omitempty,omitzero"`
}

// JobMeshPolicyList is a list of JobMeshPolicy.
//
// +kubebuilder:object:root=true
type JobMeshPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobMeshPolicy `json:"items"`
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The facts that the rules look at, gathered once per decision.

package verdict

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/lifecycle"
	"github.com/jobmesh/jobmesh/internal/policy"
)

// ReadAnnotations are the annotations that a decision reads, beside those of package istio. A cache must keep them.
var ReadAnnotations = []string{v1alpha1.ModeAnnotation}

// maxNoted is how much of an annotation without effect a note shows, in characters.
const maxNoted = 40

// ShortAnnotation returns an annotation of ReadAnnotations in a form that leads to the same decision, and is short.
func ShortAnnotation(key, value string) string {
	if key == v1alpha1.ModeAnnotation && len(value) > maxNoted {
		characters := []rune(value[:min(len(value), (maxNoted+1)*utf8.UTFMax)])
		return string(characters[:min(len(characters), maxNoted+1)])
	}
	return value
}

// Role is the part that a container plays in the decision.
type Role string

// The roles.
const (
	// RoleApp keeps the pod busy: the proxy stays until it has finished for good.
	RoleApp Role = "App"
	// RoleProxy is the istio-proxy container.
	RoleProxy Role = "Proxy"
	// RoleIgnored is listed in the policy's ignoredContainers.
	RoleIgnored Role = "Ignored"
	// RoleInit is an init container: it must have succeeded.
	RoleInit Role = "Init"
	// RoleSidecar is a native sidecar; the kubelet looks after it.
	RoleSidecar Role = "Sidecar"
	// RoleEphemeral is an ephemeral container: somebody's debugging, which keeps no pod from finishing.
	RoleEphemeral Role = "Ephemeral"
)

// Container is one container of the pod as the decision sees it.
type Container struct {
	Name string
	Role Role
	Fact lifecycle.Fact
	// Why says in a few words what the fact means for the decision.
	Why string
}

type facts struct {
	in            Input
	ofJob         bool
	proxy         istio.Proxy
	proxyFact     lifecycle.Fact
	containers    []Container
	apps          int
	appFinishedAt time.Time
	graceLeft     time.Duration
	notes         []string
}

func gather(in Input) *facts {
	f := &facts{in: in, ofJob: JobOf(in.Pod) != nil, proxy: istio.Inspect(in.Pod)}
	reader := lifecycle.Read(in.Pod)
	for i := range in.Pod.Spec.InitContainers {
		f.addInit(reader, &in.Pod.Spec.InitContainers[i])
	}
	finishedKnown := true
	for i := range in.Pod.Spec.Containers {
		c := f.add(reader, &in.Pod.Spec.Containers[i])
		if c.Role != RoleApp {
			continue
		}
		f.apps++
		finishedKnown = finishedKnown && c.Fact.Final && !c.Fact.FinishedAt.IsZero()
		if c.Fact.FinishedAt.After(f.appFinishedAt) {
			f.appFinishedAt = c.Fact.FinishedAt
		}
	}
	if !finishedKnown {
		f.appFinishedAt = time.Time{}
	}
	for i := range in.Pod.Spec.EphemeralContainers {
		c := in.Pod.Spec.EphemeralContainers[i]
		f.containers = append(f.containers, Container{Name: c.Name, Role: RoleEphemeral, Why: "ephemeral containers keep no pod from finishing",
			Fact: lifecycle.Fact{State: ephemeralState(in.Pod, c.Name)}})
	}
	f.graceLeft = policy.GraceLeft(in.Settings.GracePeriod, f.appFinishedAt, in.History.SeenFinished, in.Now,
		policy.PodDeadline(in.Pod), in.JobDeadline)
	f.note()
	return f
}

// maxOwnerText is more than a Job's UID or an API version holds.
const maxOwnerText = 64

// JobOf returns the pod's controller where that is a Job of the API group batch, of any version; else nil. What can be the name of no
// Job is none: of an owner reference the API server checks no more than that name and UID are there, and whoever may create pods
// writes it.
func JobOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "Job" || len(owner.UID) > maxOwnerText || len(owner.APIVersion) > maxOwnerText {
		return nil
	}
	if len(owner.Name) > validation.DNS1123SubdomainMaxLength || len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != "batch" {
		return nil
	}
	return owner
}

func (f *facts) addInit(reader *lifecycle.Reader, spec *corev1.Container) {
	c := Container{Name: spec.Name, Role: RoleInit, Fact: reader.InitContainer(spec)}
	switch {
	case f.proxy.Container == spec:
		c.Role, c.Why = RoleProxy, "a native sidecar, which the kubelet stops after the app"
	case lifecycle.IsSidecar(spec):
		c.Role, c.Why = RoleSidecar, "a native sidecar keeps no pod from finishing"
	case initPending(c):
		c.Why = "it must succeed before the app starts"
	default:
		c.Why = "it succeeded"
	}
	f.containers = append(f.containers, c)
}

func (f *facts) add(reader *lifecycle.Reader, spec *corev1.Container) Container {
	c := Container{Name: spec.Name, Role: RoleApp, Fact: reader.Container(spec)}
	switch {
	case f.proxy.Container == spec:
		c.Role, f.proxyFact = RoleProxy, c.Fact
	case slices.Contains(f.in.Settings.IgnoredContainers, spec.Name):
		c.Role = RoleIgnored
	}
	c.Why = why(c)
	f.containers = append(f.containers, c)
	return c
}

func why(c Container) string {
	if c.Role == RoleIgnored {
		return "listed in the policy's ignoredContainers"
	}
	switch c.Fact.State {
	case lifecycle.StateUnknown:
		return "no status yet, so not finished"
	case lifecycle.StateWaiting:
		return "waiting to start"
	case lifecycle.StateRunning:
		return "running"
	}
	if c.Fact.Final {
		return fmt.Sprintf("exit code %d, and the kubelet will not start it again", c.Fact.ExitCode)
	}
	return fmt.Sprintf("exit code %d, and the kubelet will start it again", c.Fact.ExitCode)
}

func ephemeralState(pod *corev1.Pod, name string) lifecycle.State {
	i := slices.IndexFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return lifecycle.StateUnknown
	}
	switch state := &pod.Status.EphemeralContainerStatuses[i].State; {
	case state.Running != nil:
		return lifecycle.StateRunning
	case state.Terminated != nil:
		return lifecycle.StateTerminated
	}
	return lifecycle.StateWaiting
}

// governor names what set the mode, for a message.
func (f *facts) governor() string {
	if f.in.Settings.Policy == "" {
		return "the operator's default"
	}
	return fmt.Sprintf("policy %q", f.in.Settings.Policy)
}

func (f *facts) note() {
	for _, c := range f.containers {
		if c.Role == RoleIgnored && c.Fact.State == lifecycle.StateRunning && f.proxyFact.Final {
			f.notes = append(f.notes, fmt.Sprintf("The ignored container %q still runs; the pod ends when it does.", c.Name))
		}
	}
	if value, ok := f.in.Pod.Annotations[v1alpha1.ModeAnnotation]; ok && value != string(v1alpha1.ModeDisabled) {
		f.notes = append(f.notes, fmt.Sprintf("The annotation %s is %.40q and has no effect; the only value that counts is %q.",
			v1alpha1.ModeAnnotation, value, v1alpha1.ModeDisabled))
	}
}

// ProxyFact tells the state of the pod's classic proxy; StateUnknown where it has none.
func ProxyFact(pod *corev1.Pod) lifecycle.Fact {
	proxy := istio.Inspect(pod)
	if proxy.Injection != istio.InjectionClassic {
		return lifecycle.Fact{State: lifecycle.StateUnknown}
	}
	return lifecycle.Read(pod).Container(proxy.Container)
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload makes the Jobs that run on a real node: their pods look as Istio's injector leaves them.
package workload

import (
	"os"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ProxyName is the name that the injector gives the proxy's container.
const ProxyName = "istio-proxy"

// RootCertificate is the ConfigMap that istiod puts into every namespace, and that a meshed pod mounts.
const RootCertificate = "istio-ca-root-cert"

// The images, from the environment of a command beside the node.
var (
	AppImage   = os.Getenv("APP_IMAGE")
	ProxyImage = os.Getenv("PROXY_IMAGE")
)

// Job makes a Job of one pod under restartPolicy Never with one app container, which runs a script. It is not meshed yet.
func Job(script string, change ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy:                 corev1.RestartPolicyNever,
				TerminationGracePeriodSeconds: new(int64(5)),
				Containers:                    []corev1.Container{App("app", script)},
			}},
		},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

// App makes a container that runs a script.
func App(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: AppImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script}}
}

// With adds app containers.
func With(more ...corev1.Container) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Template.Spec.Containers = append(j.Spec.Template.Spec.Containers, more...)
	}
}

// Annotated adds an annotation to the pods.
func Annotated(key, value string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		if j.Spec.Template.Annotations == nil {
			j.Spec.Template.Annotations = map[string]string{}
		}
		j.Spec.Template.Annotations[key] = value
	}
}

// Named sets the Job's name.
func Named(name string) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Name = name } }

// OnFailure has failed containers restarted in their pod, at most so many times.
func OnFailure(limit int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		j.Spec.BackoffLimit = &limit
	}
}

// Meshed adds a classic istio-proxy after the app containers, as the injector does.
func Meshed(j *batchv1.Job, change ...func(*corev1.Container)) *batchv1.Job {
	spec := volumes(j)
	spec.Containers = append(spec.Containers, proxy(change))
	return j
}

// MeshedFirst adds a classic istio-proxy before the app containers, which the kubelet starts only when the proxy is ready
// (holdApplicationUntilProxyStarts).
func MeshedFirst(j *batchv1.Job) *batchv1.Job {
	spec := volumes(j)
	spec.Containers = slices.Insert(spec.Containers, 0, proxy([]func(*corev1.Container){func(c *corev1.Container) {
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pilot-agent", "wait"}}}}
	}}))
	return j
}

// MeshedNatively adds istio-proxy as a native sidecar.
func MeshedNatively(j *batchv1.Job) *batchv1.Job {
	spec := volumes(j)
	spec.InitContainers = append(spec.InitContainers, proxy([]func(*corev1.Container){func(c *corev1.Container) {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"pilot-agent", "request", "--debug-port=15020", "POST", "drain"},
		}}}
	}}))
	return j
}

// Env sets a variable of the proxy.
func Env(name, value string) func(*corev1.Container) {
	return func(c *corev1.Container) {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

// Lingering keeps the proxy's container for some seconds after its agent has ended, and then ends it as the agent ended.
func Lingering(seconds string) func(*corev1.Container) {
	return func(c *corev1.Container) {
		c.Command = []string{"/bin/sh", "-c", `pilot-agent "$@"; code=$?; sleep ` + seconds + `; exit $code`, "--"}
	}
}

// Probed gives the proxy the injector's probes, which a native sidecar waits for.
func Probed(c *corev1.Container) {
	ready := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(15021)}}
	c.StartupProbe = &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: 600}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 15, TimeoutSeconds: 3, FailureThreshold: 4}
}

func proxy(change []func(*corev1.Container)) corev1.Container {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	c := corev1.Container{
		Name: ProxyName, Image: ProxyImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local",
			"--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error", "--log_output_level=default:info"},
		Env: []corev1.EnvVar{
			{Name: "PILOT_CERT_PROVIDER", Value: "istiod"},
			{Name: "CA_ADDR", Value: "istiod.istio-system.svc:15012"},
			field("POD_NAME", "metadata.name"),
			field("POD_NAMESPACE", "metadata.namespace"),
			field("INSTANCE_IP", "status.podIP"),
			field("SERVICE_ACCOUNT", "spec.serviceAccountName"),
			field("HOST_IP", "status.hostIP"),
			{Name: "PROXY_CONFIG", Value: "{}"},
			{Name: "ISTIO_META_CLUSTER_ID", Value: "Kubernetes"},
			{Name: "TRUST_DOMAIN", Value: "cluster.local"},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			Privileged: new(false), ReadOnlyRootFilesystem: new(true),
			RunAsNonRoot: new(true), RunAsUser: new(int64(1337)), RunAsGroup: new(int64(1337)),
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "istiod-ca-cert", MountPath: "/var/run/secrets/istio"},
			{Name: "istio-token", MountPath: "/var/run/secrets/tokens"},
			{Name: "istio-envoy", MountPath: "/etc/istio/proxy"},
			{Name: "istio-data", MountPath: "/var/lib/istio/data"},
			{Name: "istio-podinfo", MountPath: "/etc/istio/pod"},
			{Name: "workload-socket", MountPath: "/var/run/secrets/workload-spiffe-uds"},
		},
	}
	Probed(&c)
	for _, f := range change {
		f(&c)
	}
	return c
}

// volumes adds the volumes that the injector adds.
func volumes(j *batchv1.Job) *corev1.PodSpec {
	spec := &j.Spec.Template.Spec
	item := func(name, path string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	for name, source := range map[string]corev1.VolumeSource{
		"istiod-ca-cert":  {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: RootCertificate}}},
		"istio-envoy":     {EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		"istio-data":      {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"workload-socket": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"istio-podinfo": {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			item("labels", "metadata.labels"), item("annotations", "metadata.annotations"),
		}}},
		"istio-token": {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "istio-ca", ExpirationSeconds: new(int64(43200)), Path: "istio-token"},
		}}}},
	} {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	return spec
}

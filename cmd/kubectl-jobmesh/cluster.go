// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The command explain with a cluster: it reads pods, their Jobs and the policies of their namespace with the user's own rights.

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/explain"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// pageSize bounds one page of a list.
const pageSize = 500

// cluster reads one namespace.
type cluster struct {
	client.Reader
	namespace string
}

// subject is a pod, with its Job where that was read already.
type subject struct {
	pod *corev1.Pod
	job *batchv1.Job
}

// fromCluster explains what the targets name. It goes on after a target that cannot be read, and returns its error too.
func (o *explainOptions) fromCluster(ctx context.Context, targets []target, now time.Time) ([]explain.Explanation, error) {
	var policies []v1alpha1.JobMeshPolicy
	var err error
	if len(o.policyFiles) > 0 {
		if policies, err = o.readPolicies(); err != nil {
			return nil, err
		}
		policies = asCreated(policies, now)
	}
	c, err := o.connect()
	if err != nil {
		return nil, badInput(err)
	}
	var subjects []subject
	var errs []error
	for _, t := range targets {
		more, err := c.subjects(ctx, t)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s in namespace %s: %w", t, c.namespace, err))
		}
		subjects = append(subjects, more...)
	}
	if len(subjects) > 0 && len(o.policyFiles) == 0 {
		policies, err = c.policies(ctx)
		if apierrors.IsNotFound(err) {
			o.note("this cluster has no JobMeshPolicies: JobMesh is not installed here")
		} else if err != nil {
			return nil, fmt.Errorf("JobMeshPolicies in namespace %s: %w", c.namespace, err)
		}
	}
	rules := explain.NewRules(o.defaults(), policies)
	found := make([]explain.Explanation, len(subjects))
	for i, s := range subjects {
		if s.job == nil && rules.NeedsJob(s.pod) {
			if s.job, err = c.jobOf(ctx, s.pod); err != nil {
				o.note("%s: the deadline of its Job is not known: %v", s.pod.Name, err)
			}
		}
		found[i] = rules.Explain(s.pod, s.job, now)
	}
	return found, errors.Join(errs...)
}

// connect makes a client of the three kinds that are read. It asks the cluster nothing yet.
func (o *explainOptions) connect() (*cluster, error) {
	config, err := o.cluster.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	namespace, _, err := o.cluster.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	config.WarningHandlerWithContext = rest.NoWarnings{}

	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("JobMeshPolicy"), meta.RESTScopeNamespace)
	reader, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return &cluster{reader, namespace}, nil
}

// subjects reads the pod, or the Job and its pods.
func (c *cluster) subjects(ctx context.Context, t target) ([]subject, error) {
	key := client.ObjectKey{Namespace: c.namespace, Name: t.name}
	if !t.job {
		var pod corev1.Pod
		if err := c.Get(ctx, key, &pod); err != nil {
			return nil, err
		}
		return []subject{{pod: &pod}}, nil
	}
	var job batchv1.Job
	if err := c.Get(ctx, key, &job); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var subjects []subject
	err = pages(ctx, c, func(pods *corev1.PodList) {
		for i := range pods.Items {
			if metav1.IsControlledBy(&pods.Items[i], &job) {
				subjects = append(subjects, subject{&pods.Items[i], &job})
			}
		}
	}, client.MatchingLabelsSelector{Selector: selector})
	if err == nil && len(subjects) == 0 {
		err = errors.New("the Job has no pods")
	}
	return subjects, err
}

func (c *cluster) policies(ctx context.Context) ([]v1alpha1.JobMeshPolicy, error) {
	var policies []v1alpha1.JobMeshPolicy
	err := pages(ctx, c, func(list *v1alpha1.JobMeshPolicyList) { policies = append(policies, list.Items...) })
	return policies, err
}

// jobOf reads the Job that controls a pod; one that merely has its name is not it.
func (c *cluster) jobOf(ctx context.Context, pod *corev1.Pod) (*batchv1.Job, error) {
	owner := verdict.JobOf(pod)
	var job batchv1.Job
	if err := c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, &job); err != nil {
		return nil, err
	}
	if job.UID != owner.UID {
		return nil, fmt.Errorf("the Job %q is another than the pod's", owner.Name)
	}
	return &job, nil
}

// pages reads a list of the cluster's namespace page by page.
func pages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, c *cluster, visit func(L), options ...client.ListOption) error {
	for next := ""; ; {
		list := L(new(T))
		bounds := []client.ListOption{client.InNamespace(c.namespace), client.Limit(pageSize), client.Continue(next)}
		if err := c.List(ctx, list, append(bounds, options...)...); err != nil {
			return err
		}
		visit(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

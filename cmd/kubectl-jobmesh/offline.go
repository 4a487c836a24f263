// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The command explain without a cluster: pods, Jobs and policies from files.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/explain"
	"github.com/jobmesh/jobmesh/internal/explain/manifest"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// fromFiles explains the pods of the files.
func (o *explainOptions) fromFiles(now time.Time) ([]explain.Explanation, error) {
	var input manifest.Set
	for _, name := range o.files {
		if err := o.read(name, &input); err != nil {
			return nil, badInput(err)
		}
	}
	switch others := input.Others(); {
	case len(input.Pods) > 0 && others != "":
		o.note("ignored what is neither a Pod, a Job nor a JobMeshPolicy: %s", others)
	case len(input.Pods) == 0:
		return nil, badInput(fmt.Errorf("no Pod found in %s%s", sources(o.files), foundInstead(&input)))
	}
	policies := input.Policies
	if len(o.policyFiles) > 0 {
		instead, err := o.readPolicies()
		if err != nil {
			return nil, err
		}
		policies = append(policies, instead...)
	}
	rules := explain.NewRules(o.defaults(), asCreated(policies, now))

	namespace := metav1.NamespaceDefault
	if *o.cluster.Namespace != "" {
		namespace = *o.cluster.Namespace
	}
	jobs := make(map[types.NamespacedName]*batchv1.Job, len(input.Jobs))
	for i := range input.Jobs {
		job := &input.Jobs[i]
		job.Namespace = cmp.Or(job.Namespace, namespace)
		jobs[types.NamespacedName{Namespace: job.Namespace, Name: job.Name}] = job
	}
	found := make([]explain.Explanation, len(input.Pods))
	for i := range input.Pods {
		pod := &input.Pods[i]
		pod.Namespace = cmp.Or(pod.Namespace, namespace)
		found[i] = rules.Explain(pod, jobOf(pod, jobs), now)
	}
	return found, nil
}

// readPolicies reads the files of --policy.
func (o *explainOptions) readPolicies() ([]v1alpha1.JobMeshPolicy, error) {
	var input manifest.Set
	for _, name := range o.policyFiles {
		if err := o.read(name, &input); err != nil {
			return nil, badInput(err)
		}
	}
	if len(input.Policies) == 0 {
		return nil, badInput(fmt.Errorf("no JobMeshPolicy found in %s%s", sources(o.policyFiles), foundInstead(&input)))
	}
	return input.Policies, nil
}

// read adds the objects of one file, or of the standard input.
func (o *explainOptions) read(name string, into *manifest.Set) error {
	if name == "-" {
		if o.stdinTaken {
			return errors.New("the standard input (-) can be read once only")
		}
		o.stdinTaken = true
		return into.Read(sources([]string{name}), o.In)
	}
	file, err := os.Open(name)
	if err != nil {
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	defer file.Close()
	return into.Read(name, file)
}

// sources names files in an error.
func sources(files []string) string {
	names := slices.Clone(files)
	for i := range names {
		if names[i] == "-" {
			names[i] = "the standard input"
		}
	}
	return strings.Join(names, ", ")
}

// foundInstead says what else was found, for an error.
func foundInstead(input *manifest.Set) string {
	var found string
	add := func(n int, kind string) {
		if n > 0 {
			found += fmt.Sprintf(", %d %s", n, kind)
		}
	}
	add(len(input.Pods), "Pod")
	add(len(input.Jobs), "Job")
	add(len(input.Policies), "JobMeshPolicy")
	if others := input.Others(); others != "" {
		found += ", " + others
	}
	if found == "" {
		return ""
	}
	return "; it holds " + found[2:]
}

// asCreated makes the policies those that a cluster would hold if they were all applied now, in turn: a later one replaces an earlier
// one of the same name, and one without an age is the youngest.
func asCreated(policies []v1alpha1.JobMeshPolicy, now time.Time) []v1alpha1.JobMeshPolicy {
	at := make(map[types.NamespacedName]int, len(policies))
	var kept []v1alpha1.JobMeshPolicy
	for _, p := range policies {
		if p.CreationTimestamp.IsZero() {
			p.CreationTimestamp = metav1.NewTime(now)
		}
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		if i, replaces := at[key]; replaces {
			kept[i] = p
			continue
		}
		at[key] = len(kept)
		kept = append(kept, p)
	}
	return kept
}

// jobOf finds the Job that controls a pod. Where both tell the UID, it must be the same.
func jobOf(pod *corev1.Pod, jobs map[types.NamespacedName]*batchv1.Job) *batchv1.Job {
	owner := verdict.JobOf(pod)
	if owner == nil {
		return nil
	}
	job := jobs[types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}]
	if job == nil || (job.UID != "" && owner.UID != "" && job.UID != owner.UID) {
		return nil
	}
	return job
}

// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads Pods, Jobs and JobMeshPolicies from YAML and JSON: what kubectl prints, and what people write by hand.
//
// A Pod is read leniently, because it may come from a newer Kubernetes; a JobMeshPolicy strictly, because a person wrote it.
// Every error names its source and is meant for a person, in one line once it is sanitised.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsjson "sigs.k8s.io/json"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

const (
	// MaxBytes bounds all that one Set reads.
	MaxBytes = 64 << 20
	// maxYAMLBytes bounds one YAML document: reading YAML takes up to a hundred times its size in memory, reading JSON six times.
	maxYAMLBytes = 16 << 20
	// maxDocuments bounds the documents of one input.
	maxDocuments = 50_000
	// maxValues bounds the values of one Set, counted by their commas: three bytes may stand for a container, which takes 1 KiB. In what
	// kubectl prints there is less than one in 30 bytes.
	maxValues = 2 << 20
	// maxContainers bounds the containers of one Pod, with their statuses: no API server stores a Pod of that many. maxAllContainers bounds
	// those of one Set: as many would fill MaxBytes with what kubectl prints of them.
	maxContainers    = 10_000
	maxAllContainers = 100_000
	// maxLists bounds how deep a List may hold Lists.
	maxLists = 8
	// maxNamed bounds how many kinds Others names.
	maxNamed = 5
)

// Set is what was read, in the order in which it stood there.
type Set struct {
	Pods     []corev1.Pod
	Jobs     []batchv1.Job
	Policies []v1alpha1.JobMeshPolicy
	others   map[string]int
	read     int64
	values   int
	// containers counts those of all Pods, with their statuses.
	containers int
}

// Read adds the objects of one source. name stands for the source in errors.
func (s *Set) Read(name string, r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes-s.read+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, cause(err))
	}
	if s.read += int64(len(data)); s.read > MaxBytes {
		return fmt.Errorf("%s: the input is larger than %d MiB", name, MaxBytes>>20)
	}
	docs, err := documents(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, doc := range docs {
		if s.values += bytes.Count(doc.json, []byte(",")); s.values > maxValues {
			return fmt.Errorf("%s: the input holds too many values", name)
		}
		if err := s.add(doc, "", "", 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Others names the objects that were neither Pod, Job nor JobMeshPolicy, such as "2 Deployment, 1 Service"; "" where there were none.
func (s *Set) Others() string {
	var names []string
	for _, kind := range slices.Sorted(maps.Keys(s.others)) {
		if len(names) == maxNamed {
			names = append(names, "and others")
			break
		}
		names = append(names, fmt.Sprintf("%d %s", s.others[kind], kind))
	}
	return strings.Join(names, ", ")
}

// cause is the reason of a failed read without the path, which the caller names.
func cause(err error) error {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err
}

// envelope is what every object begins with.
type envelope struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// add reads one object, or the objects of a list. An item without a kind of its own, as an API server sends them, has that of its list.
func (s *Set) add(doc document, listVersion, listKind string, lists int) error {
	if !isObject(doc.json) {
		return errors.New("this is no Kubernetes object: it must be a mapping with apiVersion and kind")
	}
	var head envelope
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(doc.json, &head); err != nil {
		return plain(err)
	}
	if head.Kind == "" {
		head.APIVersion, head.Kind = cmp.Or(head.APIVersion, listVersion), listKind
	}
	if head.Kind == "" {
		return errors.New("this is no Kubernetes object: it has no kind")
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return fmt.Errorf("%s %q: apiVersion: %w", head.Kind, head.Metadata.Name, err)
	}
	if of, isList := strings.CutSuffix(head.Kind, "List"); isList && (head.Items != nil || isKnown(gv.Group, of)) {
		if lists == maxLists {
			return fmt.Errorf("it nests Lists more than %d deep", maxLists)
		}
		for _, item := range head.Items {
			if err := s.add(document{item, doc.strict}, head.APIVersion, of, lists+1); err != nil {
				return err
			}
		}
		return nil
	}
	if !isKnown(gv.Group, head.Kind) {
		if s.others == nil {
			s.others = map[string]int{}
		}
		s.others[head.Kind]++
		return nil
	}
	if err := s.decode(doc, gv, head.Kind); err != nil {
		return fmt.Errorf("%s %q: %w", head.Kind, head.Metadata.Name, err)
	}
	return nil
}

// isKnown tells whether objects of the kind are read. The empty kind stands for that of a v1 List.
func isKnown(group, kind string) bool {
	switch group {
	case corev1.GroupName:
		return kind == "Pod" || kind == ""
	case batchv1.GroupName:
		return kind == "Job"
	case v1alpha1.GroupVersion.Group:
		return kind == "JobMeshPolicy"
	}
	return false
}

func (s *Set) decode(doc document, gv schema.GroupVersion, kind string) error {
	switch kind {
	case "Pod":
		if err := s.count(doc.json); err != nil {
			return err
		}
		return appendTo(&s.Pods, doc, gv, corev1.SchemeGroupVersion)
	case "Job":
		return appendTo(&s.Jobs, doc, gv, batchv1.SchemeGroupVersion)
	}
	if gv != v1alpha1.GroupVersion {
		return versionError(gv, v1alpha1.GroupVersion)
	}
	if err := doc.strict(); err != nil {
		return err
	}
	p, err := decodePolicy(doc.json)
	if err != nil {
		return err
	}
	s.Policies = append(s.Policies, *p)
	return nil
}

func appendTo[T any](objects *[]T, doc document, gv, want schema.GroupVersion) error {
	if gv != want {
		return versionError(gv, want)
	}
	var object T
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(doc.json, &object); err != nil {
		return plain(err)
	}
	*objects = append(*objects, object)
	return nil
}

func versionError(got, want schema.GroupVersion) error {
	return fmt.Errorf("apiVersion: Unsupported value: %q: supported values: %q", got, want)
}

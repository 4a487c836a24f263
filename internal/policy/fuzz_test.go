// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The order in which policies are listed never decides who governs.

package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// policiesFrom makes up to 64 policies, of unique names, from three bytes each.
func policiesFrom(data []byte) []v1alpha1.JobMeshPolicy {
	var policies []v1alpha1.JobMeshPolicy
	for chunk := range slices.Chunk(data[:min(len(data), 3*64)], 3) {
		if len(chunk) < 3 {
			break
		}
		p := build.MakePolicy(fmt.Sprintf("policy-%c%d", 'a'+chunk[0]%4, len(policies))).Age(time.Duration(chunk[0]/4%4) * time.Second)
		if chunk[0]&0x80 != 0 {
			p.Priority(int32(chunk[1]%8) - 4)
		}
		if chunk[1]&0x80 != 0 {
			p.Namespace("far")
		}
		obj := p.Obj()
		if chunk[1]&0x40 != 0 {
			obj.DeletionTimestamp = &metav1.Time{Time: build.Start}
		}
		if chunk[2]&0x80 != 0 {
			operators := []v1alpha1.PodSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Near"}
			requirement := v1alpha1.PodSelectorRequirement{
				Key: []string{"app", "tier", "not valid"}[chunk[2]%3], Operator: operators[int(chunk[2]/4)%len(operators)],
			}
			if chunk[1]&0x20 != 0 {
				requirement.Values = []v1alpha1.LabelValue{"report", "mail"}
			}
			obj.Spec.PodSelector = &v1alpha1.PodSelector{MatchExpressions: []v1alpha1.PodSelectorRequirement{requirement}}
		}
		policies = append(policies, *obj)
	}
	return policies
}

func FuzzGovern(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	f.Add([]byte{0, 0, 0}, uint8(1))
	f.Add([]byte{0x80, 5, 0, 0x81, 5, 0, 0x84, 5, 0}, uint8(2))
	f.Add([]byte{1, 0x20, 0x80, 2, 0x60, 0x84, 3, 0xa0, 0x81, 4, 0, 0}, uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, turn uint8) {
		pod := build.MakePod("p").Label("app", "report").Obj()
		policies := policiesFrom(data)
		governor := policy.Govern(pod, policy.Rank(policies))

		other := slices.Clone(policies)
		slices.Reverse(other)
		if n := len(other); n > 0 {
			cut := int(turn) % n
			other = slices.Concat(other[cut:], other[:cut])
		}
		again := policy.Govern(pod, policy.Rank(other))
		if (governor == nil) != (again == nil) || governor != nil && governor.Name != again.Name {
			t.Fatalf("governed by %v, or by %v where the policies come in another order", governor, again)
		}

		if governor == nil {
			for _, r := range policy.Rank(policies) {
				if r.Policy.Namespace == pod.Namespace && r.Selects(pod) {
					t.Fatalf("nobody governs, though %s selects the pod", r.Policy.Name)
				}
			}
			return
		}
		selector, err := policy.Selector(governor)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s governs, but does not select the pod (%v)", governor.Name, err)
		}
		if governor.Namespace != pod.Namespace || governor.DeletionTimestamp != nil {
			t.Errorf("%s/%s governs a pod of %s, deleted at %v", governor.Namespace, governor.Name, pod.Namespace, governor.DeletionTimestamp)
		}
		for _, r := range policy.Rank(policies) {
			if p := r.Policy; p.Namespace == pod.Namespace && r.Selects(pod) && p.Spec.Priority != nil && governor.Spec.Priority != nil &&
				*p.Spec.Priority > *governor.Spec.Priority {
				t.Errorf("%s governs, but %s has the higher priority", governor.Name, p.Name)
			}
		}
	})
}
